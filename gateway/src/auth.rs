//! Who may do what: the identities file, its rules, and their enforcement. Owns secrets. Signatures
//! are s3s's to verify.

mod access;
pub(crate) mod decoders;
mod file;
mod identities;
mod reload;

pub(crate) use access::{AuthAccessGate, AuthKeyProvider};
pub use identities::{
    AuthIdentity, IdentitiesError, IdentityFileProblem, IdentityRule, IdentityStore,
};
