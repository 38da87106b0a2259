//! Owns who may do what: the identities file, its rules, their enforcement, and the secrets. s3s
//! verifies signatures.

mod access;
pub(crate) mod decoders;
mod file;
mod identities;
mod reload;

pub(crate) use access::{AuthAccessGate, AuthKeyProvider};
pub use identities::{
    AuthIdentity, IdentitiesError, IdentityFileProblem, IdentityRule, IdentityStore,
};
