//! Decides which answers of a store name a version that can be cached. Workers and gateways go by
//! it alike: a version that one side took and the other did not would cost reads. Pure.

use crate::{ContentVersion, is_strong_etag};

/// What a store's answer says of the version that it answers with.
#[derive(Debug, Clone, Copy)]
pub struct StatedVersion<'a> {
    pub etag: Option<&'a str>,
    pub bytes: u64,
    pub version_id: Option<&'a str>,
    /// The object is encrypted with a key that the client alone has.
    pub has_client_key: bool,
}

/// The reason why an object is not cached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UncacheableError {
    #[error("the ufs sent no etag")]
    NoETag,
    #[error("the ufs sent a weak etag")]
    WeakETag,
    #[error("the ufs sent an etag that is not a quoted string")]
    BareETag,
    #[error("the object is encrypted with a client's key")]
    ClientKey,
    #[error("a version was named, and the ufs did not say that it answered with that one")]
    OtherVersion,
}

impl StatedVersion<'_> {
    /// Returns the version, if it can be cached. `named` is the id that was asked for.
    ///
    /// # Errors
    /// Why it can't.
    pub fn cacheable_version(
        self,
        named: Option<&str>,
    ) -> Result<ContentVersion, UncacheableError> {
        let etag = self.etag.unwrap_or_default().trim();
        if etag.is_empty() || etag == "\"\"" {
            return Err(UncacheableError::NoETag);
        }
        if etag.starts_with("W/") {
            return Err(UncacheableError::WeakETag);
        }
        if !is_strong_etag(etag) {
            return Err(UncacheableError::BareETag);
        }
        if self.has_client_key {
            return Err(UncacheableError::ClientKey);
        }
        // `null` names no version: a suspended bucket overwrites it again and again.
        let version_id = self.version_id.filter(|id| *id != "null");
        if named.is_some() && named != version_id {
            return Err(UncacheableError::OtherVersion);
        }
        let version_id = version_id.map(Into::into);
        Ok(ContentVersion { etag: etag.into(), bytes: self.bytes, version_id })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stated<'a>(etag: Option<&'a str>, version_id: Option<&'a str>) -> StatedVersion<'a> {
        StatedVersion { etag, bytes: 5, version_id, has_client_key: false }
    }

    fn id_of(stated: StatedVersion<'_>, named: Option<&str>) -> Result<String, UncacheableError> {
        stated.cacheable_version(named).map(|version| format!("{:?}", version.version_id))
    }

    #[test]
    fn only_strong_etags_are_identity() {
        for (etag, error) in [
            (None, UncacheableError::NoETag),
            (Some(""), UncacheableError::NoETag),
            (Some("\"\""), UncacheableError::NoETag),
            (Some("W/\"x\""), UncacheableError::WeakETag),
        ] {
            assert_eq!(id_of(stated(etag, None), None), Err(error), "{etag:?}");
        }
        for bare in ["x", "\"", "\"x", "x\"", "\"x\"y\"", "w/\"x\""] {
            assert_eq!(id_of(stated(Some(bare), None), None), Err(UncacheableError::BareETag));
        }
        let good = stated(Some(" \"x\" "), None).cacheable_version(None);
        assert_eq!(good.map(|version| version.etag), Ok("\"x\"".into()));
    }

    #[test]
    fn the_null_version_is_no_identity() {
        let null = stated(Some("\"x\""), Some("null"));
        assert_eq!(id_of(null, None), Ok("None".into()));
        assert_eq!(id_of(null, Some("null")), Err(UncacheableError::OtherVersion));
    }

    #[test]
    fn a_named_version_must_be_the_one_that_answers() {
        for answered in [Some("b"), None] {
            let stated = stated(Some("\"x\""), answered);
            assert_eq!(id_of(stated, Some("a")), Err(UncacheableError::OtherVersion));
        }
        assert!(id_of(stated(Some("\"x\""), Some("a")), Some("a")).is_ok());
    }

    #[test]
    fn a_client_key_is_not_cached() {
        let secret = StatedVersion { has_client_key: true, ..stated(Some("\"x\""), None) };
        assert_eq!(id_of(secret, None), Err(UncacheableError::ClientKey));
    }
}
