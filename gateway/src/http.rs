//! HTTP in front of s3s: listeners, TLS, connections, limits, request ids, the access log, the
//! admin endpoints. Owns everything that is about connections and messages. Knows no operation.

mod admin;
mod arriving;
mod body_loan;
mod caller;
mod date;
pub(crate) mod decoders;
mod document;
mod form;
mod host;
mod inbound;
mod lenient;
mod outbound;
mod outbound_queue;
mod presigned;
mod progress;
mod rate_floor;
mod server;
mod service;
mod sigv2;
mod sigv4;
mod stall;
mod tls;

pub use admin::{AdminEndpoints, AdminLimits, ReadinessCheck};
pub(crate) use caller::ConnectionCaller;
pub(crate) use form::{FormUploads, form_memory};
pub(crate) use host::HostDomains;
pub(crate) use inbound::{InboundBody, InboundBounds};
pub(crate) use lenient::LenientRoute;
pub use rate_floor::RateMin;
pub(crate) use server::HttpServer;
pub use server::{HttpListener, ListenError};
pub(crate) use service::{GatewayFront, slow_down};
pub use tls::{TlsError, TlsFiles};
