//! Owns the SDK's interceptor. It hands raw answers to `raw_answer`, and bounds what is read of
//! answers that are not object data. It adds headers that the typed request can't carry, and keeps
//! the framing of uploads out of `Content-Encoding`.
//!
//! Decides nothing about errors.

use std::borrow::Cow;

use aws_smithy_runtime_api::box_error::BoxError;
use aws_smithy_runtime_api::client::interceptors::Intercept;
use aws_smithy_runtime_api::client::interceptors::context::{
    AfterDeserializationInterceptorContextRef, BeforeDeserializationInterceptorContextMut,
    BeforeTransmitInterceptorContextMut, BeforeTransmitInterceptorContextRef,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpResponse, Metadata};
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_runtime_api::http::HttpError;
use aws_smithy_types::body::SdkBody;
use aws_smithy_types::checksum_config::RequestChecksumCalculation;
use aws_smithy_types::config_bag::ConfigBag;
use bytes::Bytes;
use http::status::InvalidStatusCode;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use super::blank_key::put_key_back;
use super::upload_body::BoundedAnswerBody;
use crate::error::RawAnswer;
use crate::headers::without_hop_by_hop;
use crate::raw_answer::{ERROR_BODY_BYTES_MAX, note_body, record_answer};
use crate::trace_propagation;

/// Bound on an XML answer. S3's largest is a listing of 1,000 versions, about 2 MiB with the
/// longest keys.
const DOCUMENT_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Operations whose body is data of any length.
const DATA: [&str; 3] = ["GetObject", "GetObjectTorrent", "SelectObjectContent"];

/// Operations whose successful answers are kept as documents too. Otherwise the fields that the SDK
/// does not know would be lost.
const WHOLE: [&str; 1] = ["GetObjectAttributes"];

/// Headers that one call adds to its request; an empty value removes the SDK's own one.
pub(super) type ExtraHeaders = Vec<(Cow<'static, str>, String)>;

tokio::task_local! {
    static EXTRA: ExtraHeaders;
}

/// Runs a call of the SDK with headers that its typed input can't carry.
pub(super) async fn with_headers<F: Future>(headers: ExtraHeaders, call: F) -> F::Output {
    if headers.is_empty() { call.await } else { EXTRA.scope(headers, call).await }
}

#[derive(Debug)]
pub(super) struct AnswerInterceptor;

impl Intercept for AnswerInterceptor {
    fn name(&self) -> &'static str {
        "verbs3"
    }

    /// Keeps a client's request for a checksum after its body (`x-amz-sdk-checksum-algorithm`,
    /// without a value). An SDK that adds checksums only where they are required would ignore it.
    fn modify_before_retry_loop(
        &self,
        context: &mut BeforeTransmitInterceptorContextMut<'_>,
        _: &RuntimeComponents,
        cfg: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let headers = context.request().headers();
        if headers.contains_key("x-amz-sdk-checksum-algorithm") {
            cfg.interceptor_state().store_put(RequestChecksumCalculation::WhenSupported);
        }
        Ok(())
    }

    fn read_before_attempt(
        &self,
        _: &BeforeTransmitInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        record_answer(None);
        Ok(())
    }

    fn modify_before_signing(
        &self,
        context: &mut BeforeTransmitInterceptorContextMut<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let request = context.request_mut();
        let sends = matches!(request.method(), "PUT" | "POST");
        if sends
            && request.body().bytes().is_some_and(<[u8]>::is_empty)
            && !request.headers().contains_key("content-length")
        {
            // The HTTP client sends no length for an empty body. Ceph answers UploadPartCopy
            // without a length by 411.
            request.headers_mut().insert("content-length", "0");
        }
        if let Some(uri) = put_key_back(context.request().uri()) {
            context.request_mut().set_uri(uri)?;
        }
        let extra = EXTRA.try_with(Clone::clone).unwrap_or_default();
        for (name, value) in extra {
            let headers = context.request_mut().headers_mut();
            if value.is_empty() {
                headers.remove(&*name);
            } else {
                headers.try_insert(name, value)?;
            }
        }
        Ok(())
    }

    /// Joins lists into one header. The SDK writes a list as several headers of one name (its
    /// framing beside the object's `Content-Encoding`, the names of attributes), but signs them as
    /// one list. Stores that look at only one of them (Ceph RGW) find the signature wrong.
    ///
    /// Also adds trace context, after signing: the signature need not cover it.
    fn modify_before_transmit(
        &self,
        context: &mut BeforeTransmitInterceptorContextMut<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let headers = context.request_mut().headers_mut();
        let repeated = headers.iter().filter(|(name, _)| headers.get_all(name).nth(1).is_some());
        let lists: Vec<(String, String)> = repeated
            .map(|(name, _)| (name.to_owned(), headers.get_all(name).collect::<Vec<_>>().join(",")))
            .collect();
        for (name, list) in lists {
            headers.try_insert(name, list)?;
        }
        for (name, value) in trace_propagation::trace_headers() {
            headers.try_insert(name, value)?;
        }
        Ok(())
    }

    fn modify_before_deserialization(
        &self,
        context: &mut BeforeDeserializationInterceptorContextMut<'_>,
        _: &RuntimeComponents,
        cfg: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let is_data = is_data(cfg);
        let response = context.response_mut();
        remove_framing(response)?;
        record_answer(Some(to_raw_answer(response)?));
        if !response.status().is_success() {
            // Cut in silence: nobody needs an error document beyond 64 KiB.
            wrap_body(response.body_mut(), |body| {
                BoundedAnswerBody::quietly_after(body, ERROR_BODY_BYTES_MAX)
            });
        } else if !is_data {
            wrap_body(response.body_mut(), |body| {
                BoundedAnswerBody::with_error_after(body, DOCUMENT_BYTES_MAX)
            });
        }
        Ok(())
    }

    fn read_after_deserialization(
        &self,
        context: &AfterDeserializationInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        cfg: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let response = context.response();
        if context.output_or_error().is_ok() {
            let kept =
                cfg.load::<Metadata>().is_some_and(|metadata| WHOLE.contains(&metadata.name()));
            if let Some(body) = response.body().bytes().filter(|_| kept) {
                note_body(body);
            }
            return Ok(());
        }
        match response.body().bytes() {
            Some(body) => note_body(body),
            // A document that broke off proves nothing, whatever its status promised.
            None if response.status().is_success() && !is_data(cfg) => record_answer(None),
            None => {}
        }
        Ok(())
    }
}

fn is_data(cfg: &ConfigBag) -> bool {
    cfg.load::<Metadata>().is_some_and(|metadata| DATA.contains(&metadata.name()))
}

/// Removes the framing of an upload from its object's encoding. Ceph RGW up to 18.2 keeps it there,
/// and no client could undo it.
fn remove_framing(response: &mut HttpResponse) -> Result<(), HttpError> {
    let encoding = response.headers().get("content-encoding");
    let Some(kept) = encoding.and_then(without_framing) else { return Ok(()) };
    response.headers_mut().remove("content-encoding");
    if !kept.is_empty() {
        response.headers_mut().try_insert("content-encoding", kept)?;
    }
    Ok(())
}

/// Returns the answer as sent, without its body.
fn to_raw_answer(response: &HttpResponse) -> Result<RawAnswer, InvalidStatusCode> {
    let mut headers = HeaderMap::new();
    for (name, value) in response.headers().iter_bytes() {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::from_bytes(value))
        {
            headers.append(name, value);
        }
    }
    let status = StatusCode::from_u16(response.status().as_u16())?;
    Ok(RawAnswer { status, headers: without_hop_by_hop(headers), body: Bytes::new() })
}

/// Returns a content encoding without `aws-chunked`, which says how an upload was framed and not
/// how the object is encoded. Returns `None` if it was not there.
pub(super) fn without_framing(encoding: &str) -> Option<String> {
    let tokens = || encoding.split(',').map(str::trim);
    let is_framing = |token: &str| token.eq_ignore_ascii_case("aws-chunked");
    tokens().any(is_framing).then(|| {
        let kept: Vec<&str> =
            tokens().filter(|token| !token.is_empty() && !is_framing(token)).collect();
        kept.join(",")
    })
}

fn wrap_body(slot: &mut SdkBody, wrapper: impl FnOnce(SdkBody) -> BoundedAnswerBody) {
    let body = std::mem::replace(slot, SdkBody::taken());
    *slot = SdkBody::from_body_1_x(wrapper(body));
}
