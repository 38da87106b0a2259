//! HTTP in front of `plain_read` and of s3s: listeners, TLS, connections, limits, request ids, the
//! access log. Owns everything about connections and messages. Knows no operation. `gateway_front`
//! answers one request: plain reads by `plain_read`, all else through s3s.

mod client_progress;
mod connection_caller;
mod connection_peer;
mod connection_threads;
mod date;
pub(crate) mod decoders;
mod document_checks;
mod form;
mod framed_body;
mod gateway_front;
mod host_domains;
mod hyper_body;
mod inbound_body;
mod known_connections;
mod lenient_headers;
mod lent_head_list;
mod lent_request;
mod outbound_body;
mod outbound_queue;
mod rate_floor;
mod rdma_object_request;
mod rdma_requests;
mod rdma_uploads;
mod request_preparation;
mod server;
mod signed_url;
mod sigv2_demands;
mod sigv4_demands;
mod stall_guard;
mod xml_references;

pub(crate) use client_progress::ClientProgress;
pub(crate) use connection_caller::ConnectionCaller;
pub(crate) use connection_peer::ConnectionPeer;
pub(crate) use form::FormUploads;
pub(crate) use gateway_front::GatewayFront;
pub(crate) use host_domains::{HostDomains, OwnHosts};
pub(crate) use inbound_body::{InboundBody, InboundBounds};
pub(crate) use known_connections::KnownConnections;
pub(crate) use lenient_headers::{LenientRoute, plain_range};
pub(crate) use lent_request::LentRequestBody;
pub(crate) use outbound_body::OutboundBody;
pub use rate_floor::RateMin;
pub(crate) use server::HttpServer;
pub use server::{HttpListener, ListenError};
pub(crate) use signed_url::URL_EXPIRES_S_MAX;
