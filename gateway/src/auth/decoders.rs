//! Entry point for fuzzing, see `crate::decoders`.

use std::path::Path;

/// Reads an identities file's text: gives a table, or a list of problems.
pub fn decode_identities(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Err(problems) = super::file::parse_identities(text, Path::new("/nowhere")) {
        assert!(!problems.is_empty(), "refused without a reason");
    }
}
