//! Owns the computation of what handshakes and tickets are proved with.

use std::sync::Arc;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// Bytes of a proof.
pub(crate) const PROOF_BYTES: usize = 32;

/// A key that both sides of a handshake prove: the cluster's secret, or a ticket bound to it.
pub(crate) type HandshakeKey = Arc<[u8]>;

/// Computes HMAC-SHA-256 over all parts, one after another.
pub(crate) fn compute_mac(key: &[u8], parts: &[&[u8]]) -> [u8; PROOF_BYTES] {
    let mut mac =
        <Hmac<Sha256> as KeyInit>::new_from_slice(key).expect("HMAC takes keys of any length");
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().into()
}
