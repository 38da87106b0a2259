//! Owns who may do what: the identities file, its rules, their enforcement, and the secrets. s3s
//! verifies signatures, but for those of plain reads (`plain_read`) and lent memory (`lending`).

mod access;
pub(crate) mod decoders;
mod file;
mod identities;
mod identity_store;
mod reload;
mod signature_claim;
mod signing_key;
mod tenant;
mod tenant_directory;

pub(crate) use access::{AuthAccessGate, AuthKeyProvider};
pub use identities::{AuthIdentity, IdentityFileProblem, IdentityRule};
pub use identity_store::{IdentitiesError, IdentityStore};
pub(crate) use signature_claim::{ProofClock, Sha256Digest, SignatureClaim};
pub(crate) use signing_key::{
    ALGORITHM, EMPTY_SHA256, SigningKey, compute_hmac, derive_signing_key,
};
pub use tenant::Tenant;
