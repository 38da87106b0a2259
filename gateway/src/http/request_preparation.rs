//! Makes an admitted request into one for s3s: what s3s does not check is checked, bodies are bounded,
//! and a form becomes the PUT that it stands for. Answers nothing.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use http::{HeaderMap, Method, Request, Uri, header};
use http_body::Body as _;
use s3s::host::S3Host as _;
use s3s::{Body, S3Error, S3ErrorCode, S3Result};

use super::document_checks;
use super::form::FormResponsePlan;
use super::framed_body::{FramedBody, decoded_length};
use super::gateway_front::GatewayFront;
use super::hyper_body::HttpRequestBody;
use super::inbound_body::{BodyRequest, InboundBody};
use super::signed_url;
use super::sigv2_demands;
use super::sigv4_demands::{self, UnsignedHeaders};
use crate::http_exchange::HttpExchange;
use crate::metrics::DenialReason;
use crate::write::body_fault::BodyFault;
use crate::write::checks::BodyChecks;

impl GatewayFront {
    /// Returns the bucket by host or path; `None` if the request is about the service.
    pub(super) fn bucket_of(&self, uri: &Uri, headers: &HeaderMap) -> Option<String> {
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).or(uri.host());
        let named = host.and_then(|host| self.forms.domains.parse_host_header(host).ok());
        let in_path = || uri.path().split('/').nth(1).filter(|bucket| !bucket.is_empty());
        named.as_ref().and_then(|named| named.bucket()).or_else(in_path).map(str::to_owned)
    }

    /// Refuses a method that no S3 operation has with 405, as S3 does. s3s would answer "not
    /// implemented".
    fn check_method(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> S3Result<()> {
        if *method == Method::POST && uri.path() == "/WriteGetObjectResponse" {
            // An object lambda's answer. Nobody here waits for one, and s3s would look for a bucket
            // of that name.
            return Err(S3ErrorCode::NotImplemented.into());
        }
        let known = match *method {
            Method::GET | Method::HEAD | Method::POST => true,
            Method::PUT | Method::DELETE => {
                uri.path() != "/" || self.bucket_of(uri, headers).is_some()
            }
            _ => false,
        };
        if known {
            return Ok(());
        }
        let message = "The specified method is not allowed against this resource.";
        Err(S3Error::with_message(S3ErrorCode::MethodNotAllowed, message))
    }

    /// Checks what s3s does not, and bounds the body.
    pub(super) fn prepare_request(
        &self,
        request: Request<HttpRequestBody>,
        exchange: &Arc<HttpExchange>,
    ) -> S3Result<Request<Body>> {
        let (mut parts, body) = request.into_parts();
        self.check_method(&parts.method, &parts.uri, &parts.headers)?;
        sigv2_demands::check_sigv2(
            &mut parts.uri,
            &parts.headers,
            self.forms.sigv2,
            self.clock_skew_max,
        )
        .inspect_err(|_| self.metrics.count_denial(DenialReason::SignatureVersion2))?;
        signed_url::check_expiry(&parts.uri)?;
        sigv4_demands::check_coverage(&parts.uri, &parts.headers).inspect_err(|error| {
            if error.source().is_some_and(|source| source.is::<UnsignedHeaders>()) {
                self.metrics.count_denial(DenialReason::UnsignedHeader);
                exchange.counted.store(true, Ordering::Relaxed);
            }
        })?;
        let body = if body.is_end_stream() {
            Body::empty()
        } else {
            let checks =
                document_checks::promised_checks(&parts.method, &parts.uri, &parts.headers)?;
            let declared = decoded_length(&parts.headers)?;
            let _ = exchange.body.set(self.bodies.make_reservation(&exchange.cx, &parts));
            let bytes_max = self.bodies.document_bytes_max;
            let is_document = !document_checks::is_upload(&parts.method, &parts.uri);
            if is_document && body.size_hint().lower() > bytes_max {
                // s3s refuses it by its announced length, and says only that something broke.
                *exchange.fault.lock() = Some(BodyFault::TooBig { bytes_max });
            }
            let inbound = self.bound_body(body, checks, exchange);
            match declared {
                None => Body::http_body(inbound),
                Some(declared) => {
                    *exchange.chunked.lock() = Some(inbound);
                    let chunk_bytes_max = self.bodies.document_bytes_max;
                    Body::http_body(FramedBody::new(exchange.clone(), declared, chunk_bytes_max))
                }
            }
        };
        parts.extensions.insert(exchange.clone());
        parts.extensions.insert(exchange.cx.clone());
        Ok(Request::from_parts(parts, body))
    }

    fn bound_body(
        &self,
        body: HttpRequestBody,
        checks: Option<BodyChecks>,
        exchange: &HttpExchange,
    ) -> InboundBody {
        let request = BodyRequest {
            cx: exchange.cx.clone(),
            fault: exchange.fault.clone(),
            reservation: exchange.body.get().cloned(),
        };
        InboundBody::new(body, checks, &self.bodies, request, self.metrics.clone())
    }

    /// Turns a form into the request that it stands for.
    pub(super) async fn prepare_form(
        &self,
        request: Request<HttpRequestBody>,
        exchange: &Arc<HttpExchange>,
        scheme: &str,
    ) -> S3Result<(Request<Body>, Option<FormResponsePlan>)> {
        let (mut parts, body) = request.into_parts();
        let body = self.bound_body(body, None, exchange);
        parts.extensions.insert(exchange.clone());
        parts.extensions.insert(exchange.cx.clone());
        let (put, posted) = self.forms.read(parts, body, exchange, scheme).await?;
        Ok((put, Some(posted)))
    }
}
