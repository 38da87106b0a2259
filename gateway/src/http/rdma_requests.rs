//! Answers what requests ask of RDMA before anything else looks at them, and says in every such
//! request's answer what became of it.

use http::Request;
use s3s::HttpResponse;

use super::gateway_front::{GatewayFront, answer_of};
use super::hyper_body::HttpRequestBody;
use crate::s3_rdma::{RdmaWish, decline_control};

impl GatewayFront {
    /// Answers a request that must not go on: one to an endpoint of S3 over RDMA, or an upload
    /// without its payload. `None`: it is like any other.
    pub(super) fn answer_rdma(&self, request: &Request<HttpRequestBody>) -> Option<HttpResponse> {
        let (method, headers) = (request.method(), request.headers());
        if let Some(declined) = decline_control(method, request.uri().path()) {
            return Some(declined);
        }
        RdmaWish::of_request(method, headers).check_body().err().map(answer_of)
    }

    /// Says in the answer of a request that wanted a payload by RDMA that it did not come so.
    pub(super) fn note_rdma(&self, wish: RdmaWish, response: &mut HttpResponse) {
        if wish != RdmaWish::Nothing {
            wish.note_decline(response.headers_mut());
            self.metrics.rdma_declines.inc();
        }
    }
}
