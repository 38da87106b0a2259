//! Sends whole GETs and HEADs straight to the UFS: those that are never cached, and those that the
//! tier can't answer now.

use std::sync::Arc;

use http::Method;
use s3s::dto::{GetObjectInput, GetObjectOutput, HeadObjectInput, HeadObjectOutput, StreamingBlob};
use s3s::{S3Error, S3Response, S3Result};
use verbs3_ufs::raw_answer::observe_answer;
use verbs3_ufs::{RawAnswer, s3_request};

use super::bypassed_body::{BypassBodyRest, BypassedBody};
use super::client_answer;
use super::if_range::{IfRange, ask_store};
use super::{ObjectReader, ObjectReaderInner};
use crate::mount::MountNamePair;
use crate::mount::{KEY_BYTES_MAX, MountedBucket};
use crate::request_context::{BytesOrigin, ReadVerdict, RequestContext};
use crate::ufs_answer;

impl ObjectReader {
    pub(super) async fn bypass_get(
        &self,
        cx: &Arc<RequestContext>,
        mount: &Arc<MountedBucket>,
        input: GetObjectInput,
        if_range: Option<&IfRange>,
    ) -> S3Result<S3Response<GetObjectOutput>> {
        ask_store(cx, if_range, input, |input| self.ask_past_the_tier(cx, mount, input)).await
    }

    async fn ask_past_the_tier(
        &self,
        cx: &Arc<RequestContext>,
        mount: &Arc<MountedBucket>,
        mut input: GetObjectInput,
    ) -> S3Result<S3Response<GetObjectOutput>> {
        let shared = &self.shared;
        let Some(place) = shared.places.take_permit(cx).await else {
            return Err(no_place(shared));
        };
        note_bypass(shared, cx);
        (input.bucket, input.key) = ufs_names(mount, &input.key)?;
        let ask = || {
            observe_answer(mount.ufs.s3_store().get_object(s3_request(Method::GET, input.clone())))
        };
        let (result, raw) = ask_patiently(cx, mount, "GetObject", ask).await;
        let mut response = result.map_err(|error| {
            ufs_answer::of_ufs(cx, &MountNamePair::for_mount(mount), error, raw.clone())
        })?;
        ufs_answer::keep_headers(&mut response.headers, raw.as_ref());
        if let Some(inner) = response.output.body.take() {
            let rest = BypassBodyRest::from_answer(mount, input, &response.output);
            let body = StreamingBlob::new(BypassedBody::new(shared, cx, inner, rest, place));
            response.output.body = Some(shared.rates.pace_body(&mount.ufs, cx.tenant(), body));
        }
        Ok(response)
    }

    pub(super) async fn bypass_head(
        &self,
        cx: &Arc<RequestContext>,
        mount: &MountedBucket,
        mut input: HeadObjectInput,
    ) -> S3Result<S3Response<HeadObjectOutput>> {
        let shared = &self.shared;
        let Some(_place) = shared.places.take_permit(cx).await else {
            return Err(no_place(shared));
        };
        note_bypass(shared, cx);
        (input.bucket, input.key) = ufs_names(mount, &input.key)?;
        let ask = || {
            observe_answer(
                mount.ufs.s3_store().head_object(s3_request(Method::HEAD, input.clone())),
            )
        };
        let (result, raw) = ask_patiently(cx, mount, "HeadObject", ask).await;
        let mut response = result.map_err(|error| {
            ufs_answer::of_ufs(cx, &MountNamePair::for_mount(mount), error, raw.clone())
        })?;
        ufs_answer::keep_headers(&mut response.headers, raw.as_ref());
        Ok(response)
    }
}

/// Asks the UFS until an answer is fit for the client, within the UFS's retry budget. Reading twice
/// is harmless.
async fn ask_patiently<T, F>(
    cx: &RequestContext,
    mount: &MountedBucket,
    operation: &'static str,
    ask: impl Fn() -> F,
) -> (S3Result<S3Response<T>>, Option<RawAnswer>)
where
    F: Future<Output = (S3Result<S3Response<T>>, Option<RawAnswer>)>,
{
    let mut tried = 0;
    loop {
        let (result, raw) = cx
            .ask_ufs(mount.ufs.ufs_name(), operation, ask(), |(result, _)| failure_code(result))
            .await;
        tried += 1;
        let refusal = raw.as_ref().filter(|_| result.is_err());
        let pause = refusal.and_then(|answer| mount.ufs.pause_before_retry(tried, answer));
        let Some(pause) = pause else { return (result, raw) };
        tokio::time::sleep(pause).await;
    }
}

/// Returns an error's code for the trace.
fn failure_code<T>(result: &S3Result<T>) -> Option<String> {
    result.as_ref().err().map(|error| error.code().as_str().to_owned())
}

fn note_bypass(shared: &ObjectReaderInner, cx: &RequestContext) {
    shared.metrics.reads[ReadVerdict::Bypass].inc();
    cx.note_outcome(ReadVerdict::Bypass, BytesOrigin::Ufs);
}

fn no_place(shared: &ObjectReaderInner) -> S3Error {
    shared.metrics.slow_downs.inc();
    client_answer::slow_down("too many reads past the cache are under way")
}

/// Returns the UFS's bucket and key.
pub(super) fn ufs_names(mount: &MountedBucket, key: &str) -> S3Result<(String, String)> {
    let key = mount.ufs_key(key);
    if key.len() > KEY_BYTES_MAX {
        return Err(s3s::S3ErrorCode::KeyTooLongError.into());
    }
    Ok((mount.bucket.clone(), key))
}
