//! Proves knowledge of the cluster secret, in requests and in answers.
//!
//! A request names a time, a nonce, its recipient and the digest of its body. An HMAC-SHA256 covers
//! these, its method and its path with the query, so it can be verified before its body is read. An
//! answer carries an HMAC over the request's nonce, its status and its body. So nobody without the
//! secret can make, change or reuse either. A request that changes something can't be replayed
//! ([`ReplayGuard`]), unless repeating it is harmless.
//!
//! The recipient is a name that the coordinator drew at its start ([`ProofRecipient`]). So a
//! recorded request is useless at another coordinator. It is also useless at the same one after a
//! restart, which forgets the nonces that it has seen.

use std::collections::HashSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hmac::{Hmac, KeyInit, Mac};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// Header of requests: `TIME.NONCE.RECIPIENT.BODY.MAC`.
pub const REQUEST_HEADER: &str = "x-verbs3-proof";
/// Header of answers: the MAC.
pub const ANSWER_HEADER: &str = "x-verbs3-answer-proof";

/// Header of answers: the [`ProofRecipient`]. Proves nothing and reveals nothing.
pub const RECIPIENT_HEADER: &str = "x-verbs3-coordinator";

const NONCE_BYTES: usize = 16;

/// Secret that the cluster shares. `Debug` does not show it.
#[derive(Clone)]
pub struct ClusterSecret(Vec<u8>);

impl std::fmt::Debug for ClusterSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl ClusterSecret {
    /// Creates a cluster's secret. Two clusters that share a secret by accident do not understand
    /// each other.
    pub fn new(cluster: &str, secret: &str) -> Self {
        Self(format!("{cluster}\n{secret}").into_bytes())
    }

    /// Returns an id that tells one cluster from another and reveals nothing about the secret.
    pub fn cluster_id(&self) -> String {
        hex::encode(&self.compute_mac(&[b"verbs3 cluster id 1"])[..16])
    }

    /// Returns whether a token equals the one given to [`ClusterSecret::from_token`]. Takes the
    /// same time for every token.
    pub fn matches_token(&self, token: &str) -> bool {
        bool::from(Sha256::digest(&self.0).ct_eq(&Sha256::digest(token.as_bytes())))
    }

    /// Creates a secret from a token that clients show as it is, because they can't prove it.
    pub fn from_token(token: &str) -> Self {
        Self(token.as_bytes().to_vec())
    }

    fn compute_mac(&self, parts: &[&[u8]]) -> Vec<u8> {
        let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(&self.0)
            .expect("HMAC takes keys of any length");
        for part in parts {
            // The length is included, so that no two lists of parts have the same bytes.
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part);
        }
        mac.finalize().into_bytes().to_vec()
    }
}

/// Name of one run of one coordinator: 32 hexadecimal digits, drawn at its start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProofRecipient(pub String);

impl ProofRecipient {
    /// Draws a new name for one run of a coordinator.
    pub fn draw_random() -> Self {
        Self(hex::encode(rand::random::<[u8; NONCE_BYTES]>()))
    }

    /// Returns the placeholder of a client that has not asked yet. The coordinator answers with its
    /// name.
    pub fn unknown_recipient() -> Self {
        Self(hex::encode([0; NONCE_BYTES]))
    }
}

/// Parts of a request that its proof covers.
#[derive(Debug, Clone, Copy)]
pub struct ProvenRequest<'a> {
    pub method: &'a str,
    pub path_and_query: &'a str,
    pub body: &'a [u8],
}

/// Parts of a request that are known before its body is read.
#[derive(Debug, Clone, Copy)]
pub struct ProvenRequestHead<'a> {
    pub method: &'a str,
    pub path_and_query: &'a str,
}

impl<'a> ProvenRequest<'a> {
    /// Returns the method and the path, without the body.
    pub fn request_head(&self) -> ProvenRequestHead<'a> {
        ProvenRequestHead { method: self.method, path_and_query: self.path_and_query }
    }
}

/// Proof of a request; its answer refers to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestProof {
    pub time_ms: u64,
    pub nonce: String,
    pub recipient: ProofRecipient,
    /// SHA-256.
    body: [u8; 32],
}

impl RequestProof {
    /// Returns whether this is the body that was proved.
    pub fn covers_body(&self, body: &[u8]) -> bool {
        bool::from(Sha256::digest(body)[..].ct_eq(&self.body[..]))
    }
}

/// Reason for rejecting a request's proof.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProofError {
    #[error("the request proves nothing; send {REQUEST_HEADER}")]
    Missing,
    #[error(
        "the proof is not one of this cluster's secret; compare cluster.name and cluster.secret on \
        both sides"
    )]
    Wrong,
    #[error("the request's time is too far from this host's; compare the clocks")]
    Clock,
    #[error("the request was seen before")]
    Replayed,
    #[error("the request is for another coordinator, or for this one before it was started again")]
    Recipient,
}

/// Returns milliseconds since 1970.
pub fn wall_clock_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

impl ClusterSecret {
    /// Returns the header of a request that is sent to `recipient` at `time_ms`, and the proof that
    /// its answer will refer to.
    pub fn prove_request(
        &self,
        said: ProvenRequest<'_>,
        recipient: &ProofRecipient,
        time_ms: u64,
    ) -> (String, RequestProof) {
        let nonce = hex::encode(rand::random::<[u8; NONCE_BYTES]>());
        let body = Sha256::digest(said.body).into();
        let proof = RequestProof { time_ms, nonce, recipient: recipient.clone(), body };
        let mac = hex::encode(self.request_mac(said.request_head(), &proof));
        let RequestProof { time_ms, nonce, recipient: ProofRecipient(recipient), body } = &proof;
        (format!("{time_ms}.{nonce}.{recipient}.{}.{mac}", hex::encode(body)), proof)
    }

    /// Verifies a request's header. Leaves its time, recipient, replay and body to the caller.
    pub fn check_request(
        &self,
        head: ProvenRequestHead<'_>,
        header: Option<&str>,
    ) -> Result<RequestProof, ProofError> {
        let header = header.ok_or(ProofError::Missing)?;
        let parts: Vec<&str> = header.splitn(6, '.').collect();
        let [time, nonce, recipient, body, mac] = parts[..] else {
            return Err(ProofError::Missing);
        };
        let (Ok(time_ms), Ok(mac)) = (time.parse(), hex::decode(mac)) else {
            return Err(ProofError::Wrong);
        };
        let mut digest = [0; 32];
        if nonce.len() != 2 * NONCE_BYTES
            || recipient.len() != 2 * NONCE_BYTES
            || hex::decode_to_slice(body, &mut digest).is_err()
        {
            return Err(ProofError::Wrong);
        }
        let recipient = ProofRecipient(recipient.to_owned());
        let proof = RequestProof { time_ms, nonce: nonce.to_owned(), recipient, body: digest };
        match bool::from(self.request_mac(head, &proof).ct_eq(&mac)) {
            true => Ok(proof),
            false => Err(ProofError::Wrong),
        }
    }

    /// Returns the header of an answer.
    pub fn prove_answer(&self, proof: &RequestProof, status: u16, body: &[u8]) -> String {
        hex::encode(self.answer_mac(proof, status, body))
    }

    /// Returns whether `header` proves this status and body as the answer to `proof`'s request.
    /// Compares in constant time. A missing header proves nothing.
    pub fn check_answer(
        &self,
        proof: &RequestProof,
        status: u16,
        body: &[u8],
        header: Option<&str>,
    ) -> bool {
        let given = header.and_then(|header| hex::decode(header).ok());
        given.is_some_and(|given| bool::from(self.answer_mac(proof, status, body).ct_eq(&given)))
    }

    /// Returns the proof of one line of a streamed answer; lines are numbered from 0.
    pub fn prove_line(&self, proof: &RequestProof, number: u64, line: &[u8]) -> String {
        hex::encode(self.line_mac(proof, number, line))
    }

    /// Returns whether `given` proves line `number` (from 0) of the answer to `proof`'s request.
    pub fn check_line(&self, proof: &RequestProof, number: u64, line: &[u8], given: &str) -> bool {
        hex::decode(given)
            .is_ok_and(|given| bool::from(self.line_mac(proof, number, line).ct_eq(&given)))
    }

    fn line_mac(&self, proof: &RequestProof, number: u64, line: &[u8]) -> Vec<u8> {
        self.compute_mac(&[
            b"verbs3 coordinator line 1",
            proof.nonce.as_bytes(),
            &number.to_be_bytes(),
            &Sha256::digest(line),
        ])
    }

    fn request_mac(&self, head: ProvenRequestHead<'_>, proof: &RequestProof) -> Vec<u8> {
        self.compute_mac(&[
            b"verbs3 coordinator request 2",
            head.method.as_bytes(),
            head.path_and_query.as_bytes(),
            &proof.time_ms.to_be_bytes(),
            proof.nonce.as_bytes(),
            proof.recipient.0.as_bytes(),
            &proof.body,
        ])
    }

    fn answer_mac(&self, proof: &RequestProof, status: u16, body: &[u8]) -> Vec<u8> {
        let body = Sha256::digest(body);
        self.compute_mac(&[
            b"verbs3 coordinator answer 1",
            proof.nonce.as_bytes(),
            &status.to_be_bytes(),
            &body,
        ])
    }
}

/// Remembers requests as long as their times would be accepted. The rate of proven requests bounds
/// it: clients without the secret add nothing.
#[derive(Debug)]
pub struct ReplayGuard {
    skew: Duration,
    state: Mutex<ReplayGuardState>,
}

#[derive(Debug, Default)]
struct ReplayGuardState {
    /// Nonces of the present period, and of the one before. Each period lasts two skews, as long as
    /// a proof may be accepted.
    now: HashSet<String>,
    before: HashSet<String>,
    began_ms: u64,
}

impl ReplayGuard {
    /// Creates a guard. `skew` is how far clocks may be apart.
    pub fn new(skew: Duration) -> Self {
        Self { skew, state: Mutex::default() }
    }

    /// Returns whether a proven request's time is within the skew.
    pub fn is_timely(&self, proof: &RequestProof, now_ms: u64) -> bool {
        now_ms.abs_diff(proof.time_ms) <= self.skew_ms()
    }

    /// Accepts a proven request once.
    pub fn admit_proof(&self, proof: &RequestProof, now_ms: u64) -> Result<(), ProofError> {
        if !self.is_timely(proof, now_ms) {
            return Err(ProofError::Clock);
        }
        let mut state = self.state.lock();
        if now_ms.abs_diff(state.began_ms) > 2 * self.skew_ms() {
            state.before = std::mem::take(&mut state.now);
            state.began_ms = now_ms;
        }
        if state.before.contains(&proof.nonce) || !state.now.insert(proof.nonce.clone()) {
            return Err(ProofError::Replayed);
        }
        Ok(())
    }

    /// Returns how many requests are remembered.
    pub fn nonce_count(&self) -> usize {
        let state = self.state.lock();
        state.now.len() + state.before.len()
    }

    fn skew_ms(&self) -> u64 {
        u64::try_from(self.skew.as_millis()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const SAID: ProvenRequest<'static> =
        ProvenRequest { method: "POST", path_and_query: "/v1/workers?x=1", body: b"{}" };

    fn secret() -> ClusterSecret {
        ClusterSecret::new("train", "a secret of some length")
    }

    fn prove(time_ms: u64) -> (String, RequestProof) {
        secret().prove_request(
            SAID,
            &ProofRecipient("0123456789abcdef0123456789abcdef".to_owned()),
            time_ms,
        )
    }

    #[test]
    fn a_proof_holds_for_one_request_alone() {
        let (header, proof) = prove(1000);
        assert_eq!(secret().check_request(SAID.request_head(), Some(&header)), Ok(proof.clone()));
        let others = [
            ProvenRequest { method: "GET", ..SAID },
            ProvenRequest { path_and_query: "/v1/workers?x=2", ..SAID },
            ProvenRequest { method: "POS", path_and_query: "T/v1/workers?x=1", ..SAID },
        ];
        for said in others {
            assert_eq!(
                secret().check_request(said.request_head(), Some(&header)),
                Err(ProofError::Wrong),
                "{said:?}"
            );
        }
        assert!(proof.covers_body(b"{}") && !proof.covers_body(b"{} ") && !proof.covers_body(b""));
        for other in [
            ClusterSecret::new("train", "another secret"),
            ClusterSecret::new("prod", "a secret of some length"),
        ] {
            assert_eq!(
                other.check_request(SAID.request_head(), Some(&header)),
                Err(ProofError::Wrong)
            );
            assert_ne!(other.cluster_id(), secret().cluster_id());
        }
        // Another time, recipient or body than was proved.
        let digest = hex::encode(Sha256::digest(b"{}"));
        for (from, to) in [
            ("1000.", "1001."),
            ("0123456789abcdef.", "fedcba9876543210."),
            (&digest, &hex::encode(Sha256::digest(b""))),
        ] {
            let changed = header.replacen(from, to, 1);
            assert_ne!(changed, header);
            assert_eq!(
                secret().check_request(SAID.request_head(), Some(&changed)),
                Err(ProofError::Wrong),
                "{to}"
            );
        }
        for garbage in [
            "",
            "1",
            "1.2.3",
            "x.y.z",
            "1.00.zz",
            "....",
            "1.2.3.4.5",
            ".....",
            &format!("{header}.0"),
        ] {
            assert!(secret().check_request(SAID.request_head(), Some(garbage)).is_err());
        }
        assert_eq!(secret().check_request(SAID.request_head(), None), Err(ProofError::Missing));
    }

    #[test]
    fn an_answer_belongs_to_its_request() {
        let (_, proof) = prove(1000);
        let (_, other) = prove(1000);
        let header = secret().prove_answer(&proof, 200, b"map");
        assert!(secret().check_answer(&proof, 200, b"map", Some(&header)));
        assert!(!secret().check_answer(&other, 200, b"map", Some(&header)));
        assert!(!secret().check_answer(&proof, 204, b"map", Some(&header)));
        assert!(!secret().check_answer(&proof, 200, b"mop", Some(&header)));
        assert!(!secret().check_answer(&proof, 200, b"map", None));
    }

    #[test]
    fn a_request_is_taken_once_and_in_time() {
        let seen = ReplayGuard::new(Duration::from_secs(60));
        let at = |time_ms| prove(time_ms).1;
        let first = at(1_000_000);
        assert_eq!(seen.admit_proof(&first, 1_000_000), Ok(()));
        // As long as its time is believed, whenever that is within the stretches.
        for now in (1_000_000..=1_060_000).step_by(1000) {
            assert_eq!(seen.admit_proof(&first, now), Err(ProofError::Replayed));
            assert_eq!(seen.admit_proof(&at(now), now), Ok(()));
        }
        assert_eq!(seen.admit_proof(&first, 1_060_001), Err(ProofError::Clock));
        let ahead = at(1_200_000);
        assert_eq!(seen.admit_proof(&ahead, 1_140_000), Ok(()));
        for now in (1_140_000..=1_260_000).step_by(1000) {
            assert_eq!(seen.admit_proof(&ahead, now), Err(ProofError::Replayed), "{now}");
            assert_eq!(seen.admit_proof(&at(now), now), Ok(()));
        }
    }
}
