//! The secrets of a cluster that hold at one time, and their change while processes run.
//!
//! One secret makes proofs; others may be accepted beside it. So a cluster changes its secret
//! without a moment in which two processes refuse each other: first everybody accepts the new one,
//! then everybody uses it, then nobody accepts the old one. An answer is proved with the secret
//! that its request was proved with.

use std::sync::Arc;

use tokio::sync::watch;

use crate::proof::{ClusterSecret, ProofError, ProvenRequestHead, RequestProof};

/// The secrets that hold now. Clones share them, and see them replaced.
#[derive(Debug, Clone)]
pub struct ClusterSecrets(Arc<watch::Sender<HeldSecrets>>);

#[derive(Debug, Clone)]
struct HeldSecrets {
    used: ClusterSecret,
    accepted: Vec<ClusterSecret>,
}

/// A proof that was verified, and the secret that it was made with.
#[derive(Debug, Clone)]
pub struct VerifiedProof {
    pub secret: ClusterSecret,
    pub proof: RequestProof,
}

impl From<ClusterSecret> for ClusterSecrets {
    fn from(used: ClusterSecret) -> Self {
        Self::new(used, Vec::new())
    }
}

impl ClusterSecrets {
    /// Holds `used`, which proofs are made with, and those that are accepted besides.
    pub fn new(used: ClusterSecret, accepted: Vec<ClusterSecret>) -> Self {
        Self(Arc::new(watch::channel(HeldSecrets { used, accepted }).0))
    }

    /// Puts other secrets into force, for this and for all its clones.
    pub fn replace_secrets(&self, used: ClusterSecret, accepted: Vec<ClusterSecret>) {
        self.0.send_replace(HeldSecrets { used, accepted });
    }

    /// Returns the secret that proofs are made with now.
    pub fn used_secret(&self) -> ClusterSecret {
        self.0.borrow().used.clone()
    }

    /// Returns the secrets that are accepted, the used one first.
    pub fn accepted_secrets(&self) -> Vec<ClusterSecret> {
        let held = self.0.borrow();
        std::iter::once(&held.used).chain(&held.accepted).cloned().collect()
    }

    /// Waits until proofs are made with another secret than the one of this
    /// [`ClusterSecret::cluster_id`]. May be cancelled.
    pub async fn wait_for_other(&self, cluster_id: &str) {
        let mut changes = self.0.subscribe();
        // The sender lives as long as `self`.
        let _ = changes.wait_for(|held| held.used.cluster_id() != cluster_id).await;
    }

    /// Verifies a request's header by each secret that is accepted. See
    /// [`ClusterSecret::check_request`].
    pub fn check_request(
        &self,
        head: ProvenRequestHead<'_>,
        header: Option<&str>,
    ) -> Result<VerifiedProof, ProofError> {
        let mut refused = ProofError::Missing;
        for secret in self.accepted_secrets() {
            match secret.check_request(head, header) {
                Ok(proof) => return Ok(VerifiedProof { secret, proof }),
                Err(error) => refused = error,
            }
        }
        Err(refused)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::proof::{ProofRecipient, ProvenRequest};

    const SAID: ProvenRequest<'static> =
        ProvenRequest { method: "GET", path_and_query: "/v1/map", body: b"" };

    fn secret(text: &str) -> ClusterSecret {
        ClusterSecret::new("train", text)
    }

    /// Returns whether a proof by `from` is taken, and answered so that `from` believes it.
    fn understands(server: &ClusterSecrets, from: &ClusterSecret) -> bool {
        let (header, asked) = from.prove_request(SAID, &ProofRecipient::unknown_recipient(), 1);
        match server.check_request(SAID.request_head(), Some(&header)) {
            Ok(VerifiedProof { secret, proof }) => {
                let answer = secret.prove_answer(&proof, 200, b"map");
                from.check_answer(&asked, 200, b"map", Some(&answer))
            }
            Err(error) => {
                assert_eq!(error, ProofError::Wrong);
                false
            }
        }
    }

    #[test]
    fn accepted_secrets_are_taken_and_answered_with() {
        let (old, new) = (secret("old"), secret("new"));
        let server = ClusterSecrets::from(old.clone());
        let clone = server.clone();
        assert!(understands(&server, &old) && !understands(&server, &new));
        clone.replace_secrets(old.clone(), vec![new.clone()]);
        assert!(understands(&server, &old) && understands(&server, &new));
        clone.replace_secrets(new.clone(), vec![old.clone()]);
        assert!(understands(&server, &old) && understands(&server, &new));
        clone.replace_secrets(new.clone(), Vec::new());
        assert!(!understands(&server, &old) && understands(&server, &new));
        assert!(!understands(&server, &secret("other")));
    }
}
