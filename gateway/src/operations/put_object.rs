//! Handles PutObject and UploadPart: a body goes to the UFS as it comes, once, and is never sent
//! again. Owns the steps from the request's headers to the report. Others verify (`checks`,
//! `verified_body`) and announce (`home_notifier`).

use http::HeaderMap;
use s3s::dto::{
    ChecksumAlgorithm, PutObjectInput, PutObjectOutput, StreamingBlob, UploadPartInput,
    UploadPartOutput,
};
use s3s::{S3Error, S3ErrorCode, S3Request, S3Response, S3Result};
use verbs3_protocol::WriteOutcome;

use super::operation_core::{AuthorizedRequest, OperationCore, send_to_ufs, write_outcome};
use super::operation_input::TableOperation;
use crate::operation_table::HomeNoticeScope;
use crate::write::body_fault::BodyFault;
use crate::write::checks::BodyChecks;
use crate::write::chunked::{ChunkedBody, ProvenTrailers};
use crate::write::home_notifier::GatewayWrite;
use crate::write::populate::{AnsweredVersion, BodySubject, CopiedBody, PartName, PopulatedWrite};
use crate::write::verified_body::{BodyVerdict, VerifiedBody};

/// The common interface of the two operations' inputs.
pub(crate) trait UploadOperation: TableOperation {
    fn body_field(&mut self) -> &mut Option<StreamingBlob>;
    fn content_length(&mut self) -> &mut Option<i64>;
    fn checksum_algorithm(&mut self) -> &mut Option<ChecksumAlgorithm>;
    fn content_encoding(&mut self) -> Option<&mut Option<String>>;
    fn body_subject(&self) -> BodySubject;
    fn answered_version(output: &Self::Output) -> AnsweredVersion;
}

macro_rules! upload {
    ($input:ident, $subject:ident, $version:ident, $($encoding:ident)?) => {
        impl UploadOperation for $input {
            fn body_field(&mut self) -> &mut Option<StreamingBlob> {
                &mut self.body
            }
            fn content_length(&mut self) -> &mut Option<i64> {
                &mut self.content_length
            }
            fn checksum_algorithm(&mut self) -> &mut Option<ChecksumAlgorithm> {
                &mut self.checksum_algorithm
            }
            fn content_encoding(&mut self) -> Option<&mut Option<String>> {
                $(return Some(&mut self.$encoding);)?
                #[allow(unreachable_code)]
                None
            }
            fn body_subject(&self) -> BodySubject {
                let has_key = self.sse_customer_algorithm.is_some()
                    || self.sse_customer_key.is_some()
                    || self.sse_customer_key_md5.is_some();
                $subject(self, !has_key)
            }
            fn answered_version(output: &Self::Output) -> AnsweredVersion {
                $version(output)
            }
        }
    };
}

upload!(PutObjectInput, object_subject, object_version, content_encoding);
upload!(UploadPartInput, part_subject, part_version,);

fn object_subject(input: &PutObjectInput, is_plain: bool) -> BodySubject {
    // At an offset, the body is not the whole object.
    let is_plain = is_plain && input.write_offset_bytes.is_none();
    BodySubject { key: input.key.clone(), part: None, is_plain }
}

fn part_subject(input: &UploadPartInput, is_plain: bool) -> BodySubject {
    let part = PartName { upload: input.upload_id.clone(), number: input.part_number };
    BodySubject { key: input.key.clone(), part: Some(part), is_plain }
}

fn object_version(output: &PutObjectOutput) -> AnsweredVersion {
    AnsweredVersion { etag: output.e_tag.clone(), version_id: output.version_id.clone() }
}

fn part_version(output: &UploadPartOutput) -> AnsweredVersion {
    AnsweredVersion { etag: output.e_tag.clone(), version_id: None }
}

pub(super) async fn put_object(
    core: &OperationCore,
    request: S3Request<PutObjectInput>,
) -> S3Result<S3Response<PutObjectOutput>> {
    upload_body(core, request).await
}

pub(super) async fn upload_part(
    core: &OperationCore,
    request: S3Request<UploadPartInput>,
) -> S3Result<S3Response<UploadPartOutput>> {
    upload_body(core, request).await
}

async fn upload_body<R: UploadOperation>(
    core: &OperationCore,
    mut request: S3Request<R>,
) -> S3Result<S3Response<R::Output>> {
    let entry = core.authorize_request(&mut request)?;
    let declared = declared_length(&request)?;
    if !entry.exchange.reserve_body().await {
        return Err(BodyFault::Busy.into_error());
    }
    let place = entry.exchange.take_store_place(&entry.mount.ufs).await?;
    let (body, trailers) = take_body(&entry, &mut request, declared)?;
    let body = entry.exchange.pace_upload(&entry.mount.ufs, body);
    let checks = BodyChecks::from_headers(declared, &request.headers, trailers)?;
    // The trailers are checked here and not sent on: the UFS gets a plain body.
    request.headers.remove("x-amz-trailer");
    request.trailing_headers = None;
    *request.input.content_length() =
        Some(i64::try_from(declared).map_err(|_| S3ErrorCode::EntityTooLarge)?);
    request.input.content_encoding().map(strip_aws_chunked);
    if let Some(algorithm) = checks.trailing_algorithm() {
        // The store decides whether it is sent on (`trailing_checksums` of its UFS).
        *request.input.checksum_algorithm() = Some(ChecksumAlgorithm::from_static(algorithm));
    }
    core.rewrite_names(&entry, &mut request)?;

    let mut populated = begin_populating(core, &entry, &request.input, declared);
    let write = (R::table_row().announces == HomeNoticeScope::key)
        .then(|| request.input.key_field().cloned())
        .flatten()
        .and_then(|key| core.prepare_announcement(&entry, vec![key]));
    let announcer = write.as_ref().map(GatewayWrite::body_handle);
    let (verified, verdict) =
        VerifiedBody::new(body, declared, checks, announcer, entry.fault_slot());
    let result = match declared {
        0 => verify_empty_body(verified, &verdict).await,
        _ => Ok(copy_body(verified, populated.as_mut())),
    };
    let reason = verdict.fault_refusal();
    let body = result.inspect_err(|_| core.metrics.body_refused(reason))?;
    *request.input.body_field() = Some(body);

    let (result, raw) = send_to_ufs(&entry, request).await;
    if let Some(reason) = verdict.fault_refusal() {
        core.metrics.body_refused(Some(reason));
    }
    let released = verdict.is_released();
    if released {
        entry.exchange.cx.tenant().metrics().store_bytes.inc_by(declared);
    }
    if let Some(error) = verdict.take_error() {
        // Cut before the last frame: the UFS has stored nothing, whatever it or its client says.
        return Err(error);
    }
    if let Some(write) = write {
        let outcome = if released { write_outcome(&result) } else { WriteOutcome::Unknown };
        let reported = write.finish_write(outcome).await;
        if result.is_ok() {
            entry.exchange.cx.note_way(reported?);
        }
    }
    if result.is_ok() && !released {
        return Err(S3Error::with_message(
            S3ErrorCode::InternalError,
            "the ufs answered before it had the whole body",
        ));
    }
    // The store is done with it. What follows must not keep others from it.
    drop(place);
    if let (Some(populated), Ok(response)) = (populated, &result) {
        entry.exchange.drop_body();
        populated.finish_write(R::answered_version(&response.output)).await;
    }
    core.conclude_response::<R>(&entry, result, raw)
}

/// Verifies a body of no bytes. There is no last frame to hold back, so all of it is verified before
/// anything is sent.
async fn verify_empty_body(
    mut verified: VerifiedBody,
    verdict: &BodyVerdict,
) -> S3Result<StreamingBlob> {
    match futures::StreamExt::next(&mut verified).await {
        None => Ok(StreamingBlob::from(s3s::Body::empty())),
        Some(_) => Err(verdict.take_error().unwrap_or_else(|| S3ErrorCode::IncompleteBody.into())),
    }
}

/// Returns the body for the store, of which a copy goes to workers if the write is copied.
fn copy_body(verified: VerifiedBody, populated: Option<&mut PopulatedWrite>) -> StreamingBlob {
    match populated.and_then(PopulatedWrite::take_feed) {
        Some(feed) => StreamingBlob::new(CopiedBody::new(verified, feed)),
        None => StreamingBlob::new(verified),
    }
}

/// Begins to copy the body to workers, if its mount has that done. The input has the UFS's names.
fn begin_populating<R: UploadOperation>(
    core: &OperationCore,
    entry: &AuthorizedRequest,
    input: &R,
    declared: u64,
) -> Option<PopulatedWrite> {
    let populator = core.populator.as_ref()?;
    let subject = input.body_subject();
    let tenant = entry.exchange.cx.tenant().worker_tag();
    PopulatedWrite::begin_write(populator, &entry.mount, subject, declared, tenant)
}

/// Returns the body, and its trailers to come. An aws-chunked body is not read through s3s, which
/// would hold chunks whole.
fn take_body<R: UploadOperation>(
    entry: &AuthorizedRequest,
    request: &mut S3Request<R>,
    declared: u64,
) -> S3Result<(StreamingBlob, Option<ProvenTrailers>)> {
    let body = request.input.body_field().take();
    if is_streaming(&request.headers) {
        let framed = entry.exchange.chunked.lock().take();
        let (body, trailers) = ChunkedBody::new(framed, request, declared)?;
        return Ok((StreamingBlob::new(body), Some(trailers)));
    }
    Ok((body.unwrap_or_else(|| StreamingBlob::from(s3s::Body::empty())), None))
}

fn is_streaming(headers: &HeaderMap) -> bool {
    headers
        .get("x-amz-content-sha256")
        .is_some_and(|value| value.as_bytes().starts_with(b"STREAMING-"))
}

/// Returns the object's declared length. S3 accepts no body of unknown length: 411.
fn declared_length<R: UploadOperation>(request: &S3Request<R>) -> S3Result<u64> {
    let header = |name: &str| request.headers.get(name).and_then(|value| value.to_str().ok());
    let streaming = is_streaming(&request.headers);
    if streaming && request.trailing_headers.is_none() {
        // s3s unwraps chunks only under SigV4 in headers; otherwise the framing itself would be
        // stored.
        let message = "aws-chunked bodies need a SigV4 Authorization header";
        return Err(S3Error::with_message(S3ErrorCode::InvalidRequest, message));
    }
    let length =
        if streaming { header("x-amz-decoded-content-length") } else { header("content-length") };
    length
        .and_then(|length| length.parse().ok())
        .ok_or_else(|| S3ErrorCode::MissingContentLength.into())
}

/// Removes `aws-chunked`, which says how the body travelled, not how the object is encoded. s3s
/// 0.14.1 leaves it in the header. The UFS's client would then send the header twice, and fail.
fn strip_aws_chunked(encoding: &mut Option<String>) {
    let Some(value) = encoding else { return };
    let is_chunked = |token: &str| token.eq_ignore_ascii_case("aws-chunked");
    if !value.split(',').any(|token| is_chunked(token.trim())) {
        return;
    }
    let rest: Vec<&str> = value
        .split(',')
        .map(str::trim)
        .filter(|token| !is_chunked(token) && !token.is_empty())
        .collect();
    *encoding = (!rest.is_empty()).then(|| rest.join(","));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_token_aws_chunked_leaves_the_content_encoding() {
        for (before, after) in [
            (Some("aws-chunked"), None),
            (Some("gzip,aws-chunked"), Some("gzip")),
            (Some("aws-chunked, gzip, br"), Some("gzip,br")),
            (Some("gzip, br"), Some("gzip, br")),
            (Some(""), Some("")),
            (None, None),
        ] {
            let mut encoding = before.map(str::to_owned);
            strip_aws_chunked(&mut encoding);
            assert_eq!(encoding.as_deref(), after, "{before:?}");
        }
    }
}
