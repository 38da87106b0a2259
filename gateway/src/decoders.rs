//! Exports the gateway's own parsers of clients' bytes as functions of bytes alone, for the fuzz
//! targets in `fuzz/`. Not an API.

pub use crate::auth::decoders::decode_identities;
pub use crate::http::decoders::{decode_form, decode_lenient_headers, decode_signatures};
pub use crate::write::decoders::decode_chunks;
