//! Entry point for fuzzing, see `crate::decoders`.

use bytes::Bytes;
use time::OffsetDateTime;

use super::{fields, policy};

/// Reads a form and checks it against its policy. A refusal is fine.
pub(in crate::http) fn read(document: &Bytes, boundary: &str) {
    let Ok(mut form) = fields::parse_form(document, boundary, super::FIELDS_BYTES_MAX) else {
        return;
    };
    assert!(form.file.len() <= document.len());
    form.name_file();
    let _ = policy::check_form(&form, "bucket", OffsetDateTime::UNIX_EPOCH);
    let _ = super::redirect_uri(&form);
}
