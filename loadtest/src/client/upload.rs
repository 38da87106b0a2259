//! Writes objects: one PUT, or create, parts, complete. Owns the bodies that are made while they
//! are sent.

use std::io::Write;
use std::net::TcpStream;

use super::{
    BenchClient, BenchStepResult, EXPLANATION_BYTES_MAX, request_failure, status_failure,
    step_result, text_between,
};
use crate::connection::BenchResponse;
use crate::content::BenchContent;
use crate::exchange_error::BenchExchangeError;
use crate::request_plan::BenchPlanStep;

/// Most bytes of an answer to a multipart request that are kept.
const REPLY_BYTES_MAX: usize = 64 << 10;
/// Bytes of one piece of a body that is made while it is sent.
const PIECE_BYTES: usize = 128 << 10;

impl BenchClient<'_> {
    pub(super) fn put_object(&mut self, step: &BenchPlanStep) -> BenchStepResult {
        let path = self.endpoint.object_path(&self.plan.object_key(step.object));
        let content = self.plan.object_content(step.object, step.version);
        let outcome = self.upload_body(&path, content, 0, step.bytes).map(|_| ());
        step_result(step.bytes, outcome)
    }

    /// Sends one request with a generated body and returns the answer.
    fn upload_body(
        &mut self,
        path: &str,
        content: BenchContent,
        first: u64,
        bytes: u64,
    ) -> Result<BenchResponse, BenchExchangeError> {
        let request = self.endpoint.signer.streaming_put(path, bytes).map_err(request_failure)?;
        let mut refused = Vec::new();
        let answer = self.exchange_request(
            &request,
            |out| send_content(out, content, first, bytes),
            |part| append_bounded(&mut refused, part, EXPLANATION_BYTES_MAX),
        )?;
        if answer.status == 200 { Ok(answer) } else { Err(status_failure(answer.status, &refused)) }
    }

    /// Creates an upload, sends the parts one after the other, and completes it. Aborts an upload
    /// that fails in the middle.
    pub(super) fn upload_multipart(
        &mut self,
        step: &BenchPlanStep,
        part_bytes: u64,
    ) -> Result<(), BenchExchangeError> {
        let path = self.endpoint.object_path(&self.plan.object_key(step.object));
        let reply = self.post_request(&format!("{path}?uploads="), b"")?;
        let id = text_between(&reply, "<UploadId>", "</UploadId>")
            .ok_or(BenchExchangeError::Malformed("no UploadId"))?;
        let id: String =
            percent_encoding::utf8_percent_encode(&id, percent_encoding::NON_ALPHANUMERIC)
                .collect();
        let outcome = self.upload_parts(step, part_bytes, &path, &id);
        if outcome.is_err() {
            // The first failure is what counts; the store must expire an upload that stays.
            if let Ok(request) = self.sign_request("DELETE", &format!("{path}?uploadId={id}")) {
                let _ = self.exchange_request(&request, |_| Ok(()), |_| {});
            }
        }
        outcome
    }

    fn upload_parts(
        &mut self,
        step: &BenchPlanStep,
        part_bytes: u64,
        path: &str,
        id: &str,
    ) -> Result<(), BenchExchangeError> {
        let content = self.plan.object_content(step.object, step.version);
        let mut list = String::from("<CompleteMultipartUpload>");
        for number in 1..=step.bytes.div_ceil(part_bytes) {
            let first = (number - 1) * part_bytes;
            let bytes = part_bytes.min(step.bytes - first);
            let answer = self.upload_body(
                &format!("{path}?partNumber={number}&uploadId={id}"),
                content,
                first,
                bytes,
            )?;
            let etag = answer
                .header_value("etag")
                .ok_or(BenchExchangeError::Malformed("a part has no ETag"))?;
            list.push_str(&format!(
                "<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>"
            ));
        }
        list.push_str("</CompleteMultipartUpload>");
        let reply = self.post_request(&format!("{path}?uploadId={id}"), list.as_bytes())?;
        // An error can come with status 200 (Amazon S3 API reference, CompleteMultipartUpload).
        if reply.contains("<CompleteMultipartUploadResult") {
            Ok(())
        } else {
            Err(status_failure(200, reply.as_bytes()))
        }
    }

    fn post_request(&mut self, path: &str, body: &[u8]) -> Result<String, BenchExchangeError> {
        let request =
            self.endpoint.signer.sign_request("POST", path, body).map_err(request_failure)?;
        let mut reply = Vec::new();
        let answer = self.exchange_request(
            &request,
            |out| out.write_all(body),
            |part| append_bounded(&mut reply, part, REPLY_BYTES_MAX),
        )?;
        if answer.status == 200 {
            Ok(String::from_utf8_lossy(&reply).into_owned())
        } else {
            Err(status_failure(answer.status, &reply))
        }
    }
}

fn append_bounded(kept: &mut Vec<u8>, part: &[u8], max: usize) {
    kept.extend_from_slice(&part[..part.len().min(max.saturating_sub(kept.len()))]);
}

fn send_content(
    out: &mut TcpStream,
    content: BenchContent,
    first: u64,
    bytes: u64,
) -> std::io::Result<()> {
    let mut piece = vec![0; PIECE_BYTES.min(usize::try_from(bytes).unwrap_or(PIECE_BYTES))];
    let (mut at, end) = (first, first + bytes);
    while at < end {
        let part = &mut piece[..(end - at).min(PIECE_BYTES as u64) as usize];
        content.fill_bytes(at, part);
        out.write_all(part)?;
        at += part.len() as u64;
    }
    Ok(())
}
