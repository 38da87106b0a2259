//! Owns who may do what: the identities file, its rules, their enforcement, and the secrets. s3s
//! verifies signatures.

mod access;
pub(crate) mod decoders;
mod file;
mod identities;
mod identity_store;
mod reload;
mod tenant;
mod tenant_directory;

pub(crate) use access::{AuthAccessGate, AuthKeyProvider};
pub use identities::{AuthIdentity, IdentityFileProblem, IdentityRule};
pub use identity_store::{IdentitiesError, IdentityStore};
pub use tenant::Tenant;
