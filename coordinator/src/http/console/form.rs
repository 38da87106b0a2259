//! Reads forms: bounded, UTF-8, each field once.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, header};
use http_body_util::{BodyExt, Limited};
use hyper::body::Body;
use percent_encoding::percent_decode_str;
use tokio::time::timeout;

/// Longest form of somebody who is not known yet, in bytes: name, password and ticket, escaped.
pub(super) const STRANGER_FORM_BYTES_MAX: usize = 4 << 10;
/// Longest form of a user: some hundred paths.
pub(super) const USER_FORM_BYTES_MAX: usize = 256 << 10;
/// Most fields of a form.
const FIELDS_MAX: usize = 24;
const READ_MAX: Duration = Duration::from_secs(10);

/// Why a form can't be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum FormFlaw {
    #[error("The form is too long, or did not come in time.")]
    Long,
    #[error("This is not what a form of this page sends.")]
    Form,
}

/// Fields of a form.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ConsoleForm(BTreeMap<String, String>);

impl ConsoleForm {
    /// Returns a field. Fields that were left empty are absent.
    pub(super) fn field(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// Returns the lines of a field, without blanks around them and without empty ones.
    pub(super) fn lines(&self, name: &str) -> Vec<String> {
        let lines = self.field(name).unwrap_or_default().lines().map(str::trim);
        lines.filter(|line| !line.is_empty()).map(str::to_owned).collect()
    }

    /// Reads fields from a form or a query.
    pub(super) fn parse_fields(encoded: &[u8]) -> Result<Self, FormFlaw> {
        let encoded = std::str::from_utf8(encoded).map_err(|_| FormFlaw::Form)?;
        let mut fields = BTreeMap::new();
        for pair in encoded.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (name, value) = (decode_part(name)?, decode_part(value)?);
            if fields.insert(name, value).is_some() || fields.len() > FIELDS_MAX {
                return Err(FormFlaw::Form);
            }
        }
        Ok(Self(fields))
    }

    /// Reads a body of at most `bytes_max` bytes.
    pub(super) async fn read_body<B>(
        headers: &HeaderMap,
        body: B,
        bytes_max: usize,
    ) -> Result<Self, FormFlaw>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let kind = kind.and_then(|kind| kind.split(';').next()).unwrap_or_default();
        if !kind.trim().eq_ignore_ascii_case("application/x-www-form-urlencoded") {
            return Err(FormFlaw::Form);
        }
        match timeout(READ_MAX, Limited::new(body, bytes_max).collect()).await {
            Ok(Ok(body)) => Self::parse_fields(&body.to_bytes()),
            Ok(Err(_)) | Err(_) => Err(FormFlaw::Long),
        }
    }
}

fn decode_part(part: &str) -> Result<String, FormFlaw> {
    let spaced = part.replace('+', "%20");
    let decoded = percent_decode_str(&spaced).decode_utf8().map_err(|_| FormFlaw::Form)?;
    Ok(decoded.into_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use http_body_util::Full;

    use super::*;

    #[test]
    fn fields_are_decoded_and_each_comes_once() {
        let form = ConsoleForm::parse_fields(b"a=1+2&b=%C3%A4%26&c=&d").unwrap();
        assert_eq!((form.field("a"), form.field("b")), (Some("1 2"), Some("ä&")));
        assert_eq!((form.field("c"), form.field("d"), form.field("e")), (None, None, None));
        let many: Vec<String> = (0..=FIELDS_MAX).map(|number| format!("f{number}=1")).collect();
        for wrong in ["a=1&a=2", "a=%FF", &many.join("&")] {
            assert_eq!(ConsoleForm::parse_fields(wrong.as_bytes()), Err(FormFlaw::Form), "{wrong}");
        }
        assert_eq!(ConsoleForm::parse_fields(b"\xff"), Err(FormFlaw::Form));
    }

    #[test]
    fn lines_are_trimmed() {
        let form = ConsoleForm::parse_fields(b"p=a%0D%0A%0D%0A++b%0A").unwrap();
        assert_eq!(form.lines("p"), ["a", "b"]);
        assert!(form.lines("q").is_empty());
    }

    #[tokio::test]
    async fn bodies_are_bounded_and_of_one_kind() {
        let mut headers = HeaderMap::new();
        let read = async |headers: &HeaderMap, length: usize| {
            let body = Full::new(Bytes::from(format!("a={}", "x".repeat(length))));
            ConsoleForm::read_body(headers, body, 100).await.map(|_| ())
        };
        assert_eq!(read(&headers, 10).await, Err(FormFlaw::Form));
        // What another site's script may send without asking first.
        headers.insert(header::CONTENT_TYPE, "text/plain".parse().unwrap());
        assert_eq!(read(&headers, 10).await, Err(FormFlaw::Form));
        let kind = "application/x-www-form-urlencoded; charset=utf-8";
        headers.insert(header::CONTENT_TYPE, kind.parse().unwrap());
        assert_eq!(read(&headers, 98).await, Ok(()));
        assert_eq!(read(&headers, 99).await, Err(FormFlaw::Long));
    }
}
