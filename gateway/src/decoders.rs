//! What is read of a client's bytes by code of ours, as functions of bytes alone: for the fuzz
//! targets in `fuzz/`. Not an API.

pub use crate::auth::decoders::identities;
pub use crate::http::decoders::{form, lenient, signatures};
pub use crate::write::decoders::chunks;
