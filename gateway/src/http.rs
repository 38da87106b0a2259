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

pub use admin::{Admin, AdminLimits, Readiness};
pub(crate) use caller::Caller;
pub(crate) use form::{Forms, memory as form_memory};
pub(crate) use host::Domains;
pub(crate) use inbound::{Inbound, InboundBounds};
pub(crate) use lenient::Lenient;
pub use rate_floor::RateMin;
pub(crate) use server::Server;
pub use server::{ListenError, Listener};
pub(crate) use service::{Front, slow_down};
pub use tls::{TlsError, TlsFiles};
