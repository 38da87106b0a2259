//! Whole GETs and HEADs straight to the UFS: what is never cached, and what the tier can't answer now.

use std::sync::Arc;

use http::Method;
use s3s::dto::{GetObjectInput, GetObjectOutput, HeadObjectInput, HeadObjectOutput, StreamingBlob};
use s3s::{S3Error, S3Response, S3Result};
use verbs3_ufs::capture::observe;
use verbs3_ufs::request;

use super::answers;
use super::assemble::Bypassed;
use super::{Reader, Shared};
use crate::answer;
use crate::mount::{KEY_BYTES_MAX, Mount};
use crate::operations::Names;
use crate::request::{RequestContext, Verdict, Via};

impl Reader {
    pub(super) async fn bypass_get(
        &self,
        cx: &Arc<RequestContext>,
        mount: &Mount,
        mut input: GetObjectInput,
    ) -> S3Result<S3Response<GetObjectOutput>> {
        let shared = &self.shared;
        let Some(place) = shared.places.enter(cx.principal()).await else { return Err(no_place(shared)) };
        note(shared, cx);
        (input.bucket, input.key) = inward(mount, &input.key)?;
        let call = observe(mount.ufs.s3().get_object(request(Method::GET, input)));
        let (result, raw) = cx.ask_ufs((mount.ufs.name(), "GetObject"), call, |(result, _)| failed(result)).await;
        let mut response = result.map_err(|error| answer::of_ufs(cx, &Names::of(mount), error, raw.clone()))?;
        answer::keep_headers(&mut response.headers, raw.as_ref());
        response.output.body = response
            .output
            .body
            .map(|inner| StreamingBlob::new(Bypassed { shared: shared.clone(), cx: cx.clone(), inner, _place: place }));
        Ok(response)
    }

    pub(super) async fn bypass_head(
        &self,
        cx: &Arc<RequestContext>,
        mount: &Mount,
        mut input: HeadObjectInput,
    ) -> S3Result<S3Response<HeadObjectOutput>> {
        let shared = &self.shared;
        let Some(_place) = shared.places.enter(cx.principal()).await else { return Err(no_place(shared)) };
        note(shared, cx);
        (input.bucket, input.key) = inward(mount, &input.key)?;
        let call = observe(mount.ufs.s3().head_object(request(Method::HEAD, input)));
        let (result, raw) = cx.ask_ufs((mount.ufs.name(), "HeadObject"), call, |(result, _)| failed(result)).await;
        let mut response = result.map_err(|error| answer::of_ufs(cx, &Names::of(mount), error, raw.clone()))?;
        answer::keep_headers(&mut response.headers, raw.as_ref());
        Ok(response)
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
