//! Owns the keys that signatures of version 4 are made with. An identity's key for a day and region
//! is derived once, not for each request.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use zeroize::Zeroizing;

/// The only algorithm of signatures of version 4 that is taken.
pub(crate) const ALGORITHM: &str = "AWS4-HMAC-SHA256";
/// SHA-256 of nothing: of a body without bytes, and of what a chunk has in place of headers.
pub(crate) const EMPTY_SHA256: &str =
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// A key that signs, or a signature. Wiped when it is dropped.
pub(crate) type SigningKey = Zeroizing<Vec<u8>>;

/// The signing key that an identity has used last.
#[derive(Default)]
pub(super) struct SigningKeySlot(ArcSwapOption<ScopedSigningKey>);

/// A copy begins without a key.
impl Clone for SigningKeySlot {
    fn clone(&self) -> Self {
        Self::default()
    }
}

struct ScopedSigningKey {
    scope: Box<str>,
    key: SigningKey,
}

impl SigningKeySlot {
    /// Signs a text, given in parts, with the secret's key for `scope`. `None`: HMAC takes no such
    /// key.
    pub(super) fn sign_text(&self, secret: &str, scope: &str, text: &[&str]) -> Option<SigningKey> {
        let last = self.0.load();
        if let Some(last) = last.as_ref().filter(|last| *last.scope == *scope) {
            return compute_hmac(&last.key, text);
        }
        let key = derive_signing_key(secret, scope)?;
        let signature = compute_hmac(&key, text);
        self.0.store(Some(Arc::new(ScopedSigningKey { scope: scope.into(), key })));
        signature
    }
}

/// Derives the key for `scope`, which is `DAY/REGION/SERVICE/aws4_request` ("Calculating a
/// signature", S3 reference).
pub(crate) fn derive_signing_key(secret: &str, scope: &str) -> Option<SigningKey> {
    let first = Zeroizing::new(format!("AWS4{secret}").into_bytes());
    scope.split('/').try_fold(first, |key, part| compute_hmac(&key, &[part]))
}

/// Returns the HMAC of a text that is given in parts.
pub(crate) fn compute_hmac(key: &[u8], text: &[&str]) -> Option<SigningKey> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).ok()?;
    for part in text {
        mac.update(part.as_bytes());
    }
    Some(Zeroizing::new(mac.finalize().into_bytes().to_vec()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_key_is_of_its_secret_and_scope_whatever_came_before() {
        let slot = SigningKeySlot::default();
        let scopes = ["20130524/us-east-1/s3/aws4_request", "20130525/eu-1/s3/aws4_request"];
        for scope in [scopes[0], scopes[0], scopes[1], scopes[0]] {
            let fresh = compute_hmac(&derive_signing_key("secret", scope).unwrap(), &["text"]);
            assert_eq!(slot.sign_text("secret", scope, &["te", "xt"]), fresh, "{scope}");
        }
    }
}
