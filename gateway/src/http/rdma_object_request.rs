//! Asks for an object, or writes one, for a client whose request is to an endpoint of S3 over RDMA:
//! as its sender could by HTTP, under the same rights, bounds, checks and log.

use std::sync::Arc;

use http::{HeaderValue, Method, Request, Response, StatusCode, Uri, header};

use super::client_progress::ClientProgress;
use super::connection_peer::ConnectionPeer;
use super::gateway_front::GatewayFront;
use super::lent_request::LentRequestBody;
use super::outbound_body::OutboundBody;
use crate::auth::AuthIdentity;
use crate::http_exchange::HttpExchange;

/// The host of requests that no client has sent. Without a bucket in it, they are path style.
const OWN_HOST: HeaderValue = HeaderValue::from_static("localhost");

impl GatewayFront {
    /// Asks for an object, or writes one, in the name of an identity.
    pub(super) async fn ask_object(
        &self,
        request: Request<LentRequestBody>,
        identity: &Arc<AuthIdentity>,
        exchange: &HttpExchange,
    ) -> Response<OutboundBody> {
        // Its progress is its own: no answer of this connection waits for its client meanwhile.
        let (progress, caller) = (ClientProgress::new(), exchange.caller.clone());
        let peer = ConnectionPeer { progress, caller };
        self.answer_known_request(request, None, identity.clone(), &peer, None).await
    }
}

/// Builds a request for the object at `path`. `None`: it is no path.
pub(super) fn object_request(method: Method, path: &str) -> Option<Request<LentRequestBody>> {
    let mut request = Request::new(None);
    *request.method_mut() = method;
    *request.uri_mut() = Uri::try_from(path).ok().filter(|uri| uri.authority().is_none())?;
    request.headers_mut().insert(header::HOST, OWN_HOST);
    Some(request)
}

/// Returns the status of an object's answer that is not what was asked for.
pub(super) fn error_status(found: StatusCode) -> StatusCode {
    match found.is_client_error() || found.is_server_error() {
        true => found,
        false => StatusCode::INTERNAL_SERVER_ERROR,
    }
}
