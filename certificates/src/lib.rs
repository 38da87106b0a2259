//! Who a process of the cluster is, by its certificate: role and name, from PEM files that are read
//! again when they change. Makes the TLS of both sides, and that of listeners for clients. Knows no
//! protocol that goes over it, and decides nothing about what a role may do.
#![forbid(unsafe_code)]

mod certificate_files;
mod listener_certificates;
pub mod metrics;
mod node_certificates;
mod node_name;
mod node_verifier;

pub use certificate_files::{CertificateError, CertificateFiles};
pub use listener_certificates::{ListenerCertificates, TlsError, TlsFiles};
pub use node_certificates::{ClientDemand, NodeCertificates, certificate_end, chain_end};
pub use node_name::{NodeName, NodeNameError, NodeRole};
