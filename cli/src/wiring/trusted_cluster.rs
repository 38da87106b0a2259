//! What a process proves itself by within its cluster, and the files that it comes from.
//!
//! Owns the interval of looking at the files, and the rule that a bad file changes nothing: what
//! was read last stays in force.

use std::ops::Deref;
use std::sync::Arc;

use anyhow::Context;
use prometheus::Registry;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use verbs3_certificates::metrics::CertificateMetrics;
use verbs3_certificates::{CertificateFiles, NodeCertificates, NodeRole};
use verbs3_config::{
    ClusterSecretTexts, ClusterSettings, ClusterTlsFiles, ClusterTlsMode, ConfigSecret,
};
use verbs3_coordinator_client::proof::ClusterSecret;
use verbs3_coordinator_client::{ClusterSecrets, CoordinatorTls};
use verbs3_file_changes::{FileChanges, LOOK_EVERY};
use verbs3_rdma::calls::HandshakeSecret;
use verbs3_rdma::tcp::TcpTls;
use verbs3_rdma::way_ticket::TicketRules;

/// A cluster's settings, and what this process proves itself by. Reads as the settings. Clones
/// share the secrets.
#[derive(Clone)]
pub struct TrustedCluster {
    pub settings: ClusterSettings,
    secrets: ClusterSecrets,
    handshake: HandshakeSecret,
    certificates: Option<Arc<NodeCertificates>>,
    /// Where there are certificates.
    tickets: Option<TicketRules>,
}

impl Deref for TrustedCluster {
    type Target = ClusterSettings;

    fn deref(&self) -> &ClusterSettings {
        &self.settings
    }
}

impl TrustedCluster {
    /// Reads the secrets, and the certificates where there are some.
    pub fn load(settings: ClusterSettings) -> anyhow::Result<Self> {
        let texts = settings.read_secrets()?;
        let secret = proof_secret(&settings, &texts.used);
        let handshake = HandshakeSecret::new(named_secret(&settings, &texts.used));
        let certificates = settings.tls.tls_files().map(|files| {
            let ClusterTlsFiles { certificate, key, ca_file } = files;
            let files = CertificateFiles { certificate, key, ca_file };
            NodeCertificates::read(&settings.name, files).map(Arc::new)
        });
        let certificates = certificates.transpose().context("cluster.tls")?;
        let is_required = settings.tls.tls_mode() == ClusterTlsMode::Require;
        let tickets = certificates.is_some().then(|| TicketRules::new(is_required));
        let loaded = Self { secrets: secret.into(), handshake, certificates, tickets, settings };
        loaded.adopt_secrets(&texts);
        Ok(loaded)
    }

    /// The secrets that prove requests to coordinators and their answers.
    pub fn proof_secrets(&self) -> ClusterSecrets {
        self.secrets.clone()
    }

    /// The secrets of the transports' handshakes.
    pub fn handshake_secret(&self) -> HandshakeSecret {
        self.handshake.clone()
    }

    /// What connections to coordinators are made with; `None`: they are plain.
    pub fn coordinator_tls(&self) -> Option<CoordinatorTls> {
        let certificates = self.certificates.clone()?;
        let plain_allowed = self.settings.tls.tls_mode() != ClusterTlsMode::Require;
        Some(CoordinatorTls { certificates, plain_allowed })
    }

    /// What connections between gateways and workers over TCP are made with; `None`: they are plain.
    pub fn tcp_tls(&self) -> Option<TcpTls> {
        let certificates = self.certificates.clone()?;
        let mode = self.settings.tls.tls_mode();
        let (dials_tls, plain_allowed) =
            (mode != ClusterTlsMode::Accept, mode != ClusterTlsMode::Require);
        Some(TcpTls { certificates, dials_tls, plain_allowed })
    }

    /// What carries certificates over to ways without TLS; `None`: there are none.
    pub fn ticket_rules(&self) -> Option<TicketRules> {
        self.tickets.clone()
    }

    /// Fails if this process has a certificate of another role, or of another name.
    pub fn require_certificate(&self, role: NodeRole, name: Option<&str>) -> anyhow::Result<()> {
        let Some(certificates) = &self.certificates else { return Ok(()) };
        let own = certificates.own_name();
        own.require_role(role)
            .and_then(|()| name.map_or(Ok(()), |name| own.require_name(name)))
            .context("cluster.tls.certificate")
    }

    /// Starts the task that reads the files again when they change. It ends with `stop`. Fails if
    /// the registry has the metrics of certificates.
    pub fn follow_files(
        &self,
        registry: &Registry,
        stop: CancellationToken,
    ) -> anyhow::Result<FollowedFiles> {
        let metrics = CertificateMetrics::new(registry)?;
        let followed = self.clone();
        let ended = stop.clone();
        let task = tokio::spawn(async move {
            let certificates = followed.certificates.clone();
            let certificates = async {
                if let Some(certificates) = certificates {
                    certificates.follow_files(metrics, ended.clone()).await;
                }
            };
            tokio::join!(certificates, followed.follow_secrets(ended.clone()));
        });
        Ok(FollowedFiles { task, stop })
    }

    async fn follow_secrets(&self, stop: CancellationToken) {
        let files = self.settings.secret_files();
        if files.is_empty() {
            return;
        }
        // They may have changed since they were first read.
        let mut changes = FileChanges::default();
        while stop.run_until_cancelled(tokio::time::sleep(LOOK_EVERY)).await.is_some() {
            match changes.read_changed(&files, || self.settings.read_secrets()) {
                None => {}
                Some(Ok(texts)) => {
                    self.adopt_secrets(&texts);
                    tracing::info!(
                        accepted = texts.accepted.len(),
                        "the cluster's secret is in force, and those accepted besides"
                    );
                }
                Some(Err(error)) => tracing::warn!(
                    setting = error.setting(),
                    error = format!("{:#}", anyhow::Error::new(error)),
                    "the changed secret can't be used: the one read before stays"
                ),
            }
        }
    }

    fn adopt_secrets(&self, texts: &ClusterSecretTexts) {
        let settings = &self.settings;
        let ClusterSecretTexts { used, accepted } = texts;
        let proofs = accepted.iter().map(|secret| proof_secret(settings, secret));
        self.secrets.replace_secrets(proof_secret(settings, used), proofs.collect());
        let accepted: Vec<_> =
            accepted.iter().map(|secret| named_secret(settings, secret)).collect();
        self.handshake.replace_secrets(named_secret(settings, used), &accepted);
    }
}

/// The task that reads a process's files again.
pub struct FollowedFiles {
    task: JoinHandle<()>,
    stop: CancellationToken,
}

impl FollowedFiles {
    /// Ends the task and waits for it.
    pub async fn shutdown(self) -> anyhow::Result<()> {
        self.stop.cancel();
        self.task.await.context("the following of the cluster's secret ended badly")
    }
}

fn proof_secret(cluster: &ClusterSettings, secret: &ConfigSecret) -> ClusterSecret {
    ClusterSecret::new(&cluster.name, secret.reveal_text())
}

/// Clusters that share a secret by accident still refuse each other: the proof is over the name
/// too.
fn named_secret(cluster: &ClusterSettings, secret: &ConfigSecret) -> String {
    format!("{}\n{}", cluster.name, secret.reveal_text())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs;
    use std::time::Duration;

    use super::*;

    const ONE: &str = "5ee7cbe4d98f6e32bd3ec4f8ef0aa3e05d45b6cb1adf8f5b2c88f1e1b1eb46c1";
    const OTHER: &str = "0b1f1c5be6a1a37e1cf2d52ea5a33d4bcf10a9ba2b0a43f6f1dd21b0d6a2c998";

    async fn until(condition: impl Fn() -> bool) {
        for _ in 0..500 {
            if condition() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("did not come true within 10 s");
    }

    #[tokio::test]
    async fn a_good_secret_comes_into_force_and_a_weak_one_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let (used, accepted) = (folder.path().join("used"), folder.path().join("accepted"));
        fs::write(&used, ONE).unwrap();
        fs::write(&accepted, "").unwrap();
        let cluster = TrustedCluster::load(ClusterSettings {
            secret_file: Some(used.clone()),
            secret_accepted_file: Some(accepted.clone()),
            ..ClusterSettings::default()
        })
        .unwrap();
        let followed = cluster.follow_files(&Registry::new(), CancellationToken::new()).unwrap();
        let id = |text: &str| ClusterSecret::new(&cluster.name, text).cluster_id();
        let holds = |wanted: &[&str]| {
            let held = cluster.proof_secrets().accepted_secrets();
            let held: Vec<String> = held.iter().map(ClusterSecret::cluster_id).collect();
            held == wanted.iter().map(|text| id(text)).collect::<Vec<_>>()
        };
        assert!(holds(&[ONE]));
        fs::write(&accepted, format!("{OTHER}\n")).unwrap();
        until(|| holds(&[ONE, OTHER])).await;
        fs::write(&used, "weak").unwrap();
        tokio::time::sleep(LOOK_EVERY * 2).await;
        assert!(holds(&[ONE, OTHER]), "a weak secret took the good one away");
        fs::write(&used, OTHER).unwrap();
        fs::write(&accepted, format!("{OTHER}\n{ONE}\n")).unwrap();
        until(|| holds(&[OTHER, OTHER, ONE])).await;
        followed.shutdown().await.unwrap();
    }
}
