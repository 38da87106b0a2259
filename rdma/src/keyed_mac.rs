//! Owns the computation of what handshakes and tickets are proved with.

use std::sync::Arc;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// Bytes of a proof.
pub(crate) const PROOF_BYTES: usize = 32;

/// A key that both sides of a handshake prove: the cluster's secret, or a ticket bound to it.
pub(crate) type HandshakeKey = Arc<[u8]>;

/// One side of a handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HandshakeSide {
    Requester,
    Server,
}

impl HandshakeSide {
    pub(crate) fn other_side(self) -> Self {
        match self {
            Self::Requester => Self::Server,
            Self::Server => Self::Requester,
        }
    }
}

/// A key that the two sides of one handshake know, and nobody else. Never printed.
#[derive(Clone)]
pub(crate) struct SessionKey([u8; PROOF_BYTES]);

impl SessionKey {
    pub(crate) fn from_bytes(bytes: [u8; PROOF_BYTES]) -> Self {
        Self(bytes)
    }

    /// Returns the key for one purpose of what `sender` sends.
    pub(crate) fn derive_key(&self, purpose: &[u8], sender: HandshakeSide) -> [u8; PROOF_BYTES] {
        let sender: &[u8] = match sender {
            HandshakeSide::Requester => b"\0requester",
            HandshakeSide::Server => b"\0server",
        };
        compute_mac(&self.0, &[b"verbs3 seals\0", purpose, sender])
    }
}

/// Computes HMAC-SHA-256 over all parts, one after another.
pub(crate) fn compute_mac(key: &[u8], parts: &[&[u8]]) -> [u8; PROOF_BYTES] {
    let mut mac =
        <Hmac<Sha256> as KeyInit>::new_from_slice(key).expect("HMAC takes keys of any length");
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().into()
}
