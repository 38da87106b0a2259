//! Owns the text that a client signs to say who it is: signature version 4, over this connection's
//! nonce and the socket's path. A signature of another connection, of another gateway's socket, or
//! of an HTTP request is none of this text.

/// The last part of every scope.
pub const SIGNED_TERMINATION: &str = "s3/aws4_request";

/// What the first signed text begins with: no HTTP method, so no request has the same.
const PURPOSE: &str = "VERBS3-LENDING";

/// The parts of the signed text.
#[derive(Debug, Clone, Copy)]
pub struct ProofText<'a> {
    pub nonce: &'a [u8; 32],
    /// The path that the gateway was configured with, which is the one that clients connect to.
    pub socket_path: &'a str,
    pub access_key: &'a str,
}

impl ProofText<'_> {
    /// Returns what takes the place of a canonical request: its SHA-256 is signed.
    pub fn canonical_text(&self) -> String {
        let nonce: String = self.nonce.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{PURPOSE}\n{}\n{}\n{nonce}", self.access_key, self.socket_path)
    }
}
