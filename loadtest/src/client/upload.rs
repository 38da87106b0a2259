//! Writes objects: one PUT, or create, parts, complete. Owns the bodies that are made while they
//! are sent.

use std::io::Write;
use std::net::TcpStream;

use super::{Client, Done, EXPLANATION_BYTES_MAX, between, done, refusal, unsent};
use crate::connection::Answer;
use crate::content::Content;
use crate::failure::Failure;
use crate::plan::Step;

/// What is kept of the answers to multipart requests.
const REPLY_BYTES_MAX: usize = 64 << 10;
/// A piece of a body that is made while it is sent.
const PIECE_BYTES: usize = 128 << 10;

impl Client<'_> {
    pub(super) fn put(&mut self, step: &Step) -> Done {
        let path = self.endpoint.path(&self.plan.key(step.object));
        let content = self.plan.content(step.object, step.version);
        let outcome = self.upload(&path, content, 0, step.bytes).map(|_| ());
        done(step.bytes, outcome)
    }

    /// One request with a made body; gives the answer.
    fn upload(
        &mut self,
        path: &str,
        content: Content,
        first: u64,
        bytes: u64,
    ) -> Result<Answer, Failure> {
        let request = self.endpoint.signer.streaming_put(path, bytes).map_err(unsent)?;
        let mut refused = Vec::new();
        let answer = self.exchange(
            &request,
            |out| send_content(out, content, first, bytes),
            |part| bounded(&mut refused, part, EXPLANATION_BYTES_MAX),
        )?;
        if answer.status == 200 { Ok(answer) } else { Err(refusal(answer.status, &refused)) }
    }

    /// Creates, sends the parts one after the other, completes. What fails in the middle is
    /// aborted.
    pub(super) fn multipart(&mut self, step: &Step, part_bytes: u64) -> Result<(), Failure> {
        let path = self.endpoint.path(&self.plan.key(step.object));
        let reply = self.post(&format!("{path}?uploads="), b"")?;
        let id = between(&reply, "<UploadId>", "</UploadId>")
            .ok_or(Failure::Malformed("no UploadId"))?;
        let id: String =
            percent_encoding::utf8_percent_encode(&id, percent_encoding::NON_ALPHANUMERIC)
                .collect();
        let outcome = self.parts(step, part_bytes, &path, &id);
        if outcome.is_err() {
            // The failure is what counts; an upload that stays is the store's to expire.
            if let Ok(request) = self.signed("DELETE", &format!("{path}?uploadId={id}")) {
                let _ = self.exchange(&request, |_| Ok(()), |_| {});
            }
        }
        outcome
    }

    fn parts(&mut self, step: &Step, part_bytes: u64, path: &str, id: &str) -> Result<(), Failure> {
        let content = self.plan.content(step.object, step.version);
        let mut list = String::from("<CompleteMultipartUpload>");
        for number in 1..=step.bytes.div_ceil(part_bytes) {
            let first = (number - 1) * part_bytes;
            let bytes = part_bytes.min(step.bytes - first);
            let answer = self.upload(
                &format!("{path}?partNumber={number}&uploadId={id}"),
                content,
                first,
                bytes,
            )?;
            let etag = answer.header("etag").ok_or(Failure::Malformed("a part has no ETag"))?;
            list.push_str(&format!(
                "<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>"
            ));
        }
        list.push_str("</CompleteMultipartUpload>");
        let reply = self.post(&format!("{path}?uploadId={id}"), list.as_bytes())?;
        // An error can come with status 200 (Amazon S3 API reference, CompleteMultipartUpload).
        if reply.contains("<CompleteMultipartUploadResult") {
            Ok(())
        } else {
            Err(refusal(200, reply.as_bytes()))
        }
    }

    fn post(&mut self, path: &str, body: &[u8]) -> Result<String, Failure> {
        let request = self.endpoint.signer.request("POST", path, body).map_err(unsent)?;
        let mut reply = Vec::new();
        let answer = self.exchange(
            &request,
            |out| out.write_all(body),
            |part| bounded(&mut reply, part, REPLY_BYTES_MAX),
        )?;
        if answer.status == 200 {
            Ok(String::from_utf8_lossy(&reply).into_owned())
        } else {
            Err(refusal(answer.status, &reply))
        }
    }
}

fn bounded(kept: &mut Vec<u8>, part: &[u8], max: usize) {
    kept.extend_from_slice(&part[..part.len().min(max.saturating_sub(kept.len()))]);
}

fn send_content(
    out: &mut TcpStream,
    content: Content,
    first: u64,
    bytes: u64,
) -> std::io::Result<()> {
    let mut piece = vec![0; PIECE_BYTES.min(usize::try_from(bytes).unwrap_or(PIECE_BYTES))];
    let (mut at, end) = (first, first + bytes);
    while at < end {
        let part = &mut piece[..(end - at).min(PIECE_BYTES as u64) as usize];
        content.fill(at, part);
        out.write_all(part)?;
        at += part.len() as u64;
    }
    Ok(())
}
