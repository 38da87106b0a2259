//! Whole GETs and HEADs straight to the UFS: what is never cached, and what the tier can't answer
//! now.

use std::sync::Arc;

use http::Method;
use s3s::dto::{GetObjectInput, GetObjectOutput, HeadObjectInput, HeadObjectOutput, StreamingBlob};
use s3s::{S3Error, S3Response, S3Result};
use verbs3_ufs::capture::observe;
use verbs3_ufs::{RawAnswer, request};

use super::answers;
use super::bypassed::{Bypassed, Rest};
use super::if_range::{IfRange, ask_store};
use super::{Reader, Shared};
use crate::answer;
use crate::mount::{KEY_BYTES_MAX, Mount};
use crate::operations::Names;
use crate::request::{RequestContext, Verdict, Via};

impl Reader {
    pub(super) async fn bypass_get(
        &self,
        cx: &Arc<RequestContext>,
        mount: &Arc<Mount>,
        input: GetObjectInput,
        if_range: Option<&IfRange>,
    ) -> S3Result<S3Response<GetObjectOutput>> {
        ask_store(cx, if_range, input, |input| self.ask_past_the_tier(cx, mount, input)).await
    }

    async fn ask_past_the_tier(
        &self,
        cx: &Arc<RequestContext>,
        mount: &Arc<Mount>,
        mut input: GetObjectInput,
    ) -> S3Result<S3Response<GetObjectOutput>> {
        let shared = &self.shared;
        let Some(place) = shared.places.enter(cx.principal()).await else {
            return Err(no_place(shared));
        };
        note(shared, cx);
        (input.bucket, input.key) = inward(mount, &input.key)?;
        let ask = || observe(mount.ufs.s3().get_object(request(Method::GET, input.clone())));
        let (result, raw) = ask_patiently(cx, mount, "GetObject", ask).await;
        let mut response =
            result.map_err(|error| answer::of_ufs(cx, &Names::of(mount), error, raw.clone()))?;
        answer::keep_headers(&mut response.headers, raw.as_ref());
        if let Some(inner) = response.output.body.take() {
            let rest = Rest::of(mount, input, &response.output);
            response.output.body =
                Some(StreamingBlob::new(Bypassed::new(shared, cx, inner, rest, place)));
        }
        Ok(response)
    }

    pub(super) async fn bypass_head(
        &self,
        cx: &Arc<RequestContext>,
        mount: &Mount,
        mut input: HeadObjectInput,
    ) -> S3Result<S3Response<HeadObjectOutput>> {
        let shared = &self.shared;
        let Some(_place) = shared.places.enter(cx.principal()).await else {
            return Err(no_place(shared));
        };
        note(shared, cx);
        (input.bucket, input.key) = inward(mount, &input.key)?;
        let ask = || observe(mount.ufs.s3().head_object(request(Method::HEAD, input.clone())));
        let (result, raw) = ask_patiently(cx, mount, "HeadObject", ask).await;
        let mut response =
            result.map_err(|error| answer::of_ufs(cx, &Names::of(mount), error, raw.clone()))?;
        answer::keep_headers(&mut response.headers, raw.as_ref());
        Ok(response)
    }
}

/// Asks the UFS until its answer is the client's, within its budget of retries: reading twice does
/// no harm.
async fn ask_patiently<T, F>(
    cx: &RequestContext,
    mount: &Mount,
    operation: &'static str,
    ask: impl Fn() -> F,
) -> (S3Result<S3Response<T>>, Option<RawAnswer>)
where
    F: Future<Output = (S3Result<S3Response<T>>, Option<RawAnswer>)>,
{
    let mut tried = 0;
    loop {
        let (result, raw) =
            cx.ask_ufs((mount.ufs.name(), operation), ask(), |(result, _)| failed(result)).await;
        tried += 1;
        let refusal = raw.as_ref().filter(|_| result.is_err());
        let pause = refusal.and_then(|answer| mount.ufs.pause_before_retry(tried, answer));
        let Some(pause) = pause else { return (result, raw) };
        tokio::time::sleep(pause).await;
    }
}

/// For the trace.
fn failed<T>(result: &S3Result<T>) -> Option<String> {
    result.as_ref().err().map(|error| error.code().as_str().to_owned())
}

fn note(shared: &Shared, cx: &RequestContext) {
    shared.metrics.read(Verdict::Bypass);
    cx.note_outcome(Verdict::Bypass, Via::Ufs);
}

fn no_place(shared: &Shared) -> S3Error {
    shared.metrics.slow_downs.inc();
    answers::slow_down("too many reads past the cache are under way")
}

/// Bucket and key as the UFS names them.
pub(super) fn inward(mount: &Mount, key: &str) -> S3Result<(String, String)> {
    let key = mount.ufs_key(key);
    if key.len() > KEY_BYTES_MAX {
        return Err(s3s::S3ErrorCode::KeyTooLongError.into());
    }
    Ok((mount.bucket.clone(), key))
}
