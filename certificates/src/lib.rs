//! Who a process of the cluster is, by its certificate: role and name, from PEM files that are read
//! again when they change. Makes the TLS of both sides. Knows no protocol that goes over it, and
//! decides nothing about what a role may do.
#![forbid(unsafe_code)]

mod certificate_files;
pub mod metrics;
mod node_certificates;
mod node_name;
mod node_verifier;

pub use certificate_files::{CertificateError, CertificateFiles};
pub use node_certificates::{ClientDemand, NodeCertificates, chain_end};
pub use node_name::{NodeName, NodeNameError, NodeRole};
