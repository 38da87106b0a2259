//! The certificates of a process that are in force, the TLS of both sides made from them, and their
//! change while the process runs. Files that can't be used change nothing.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls::client::Resumption;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{ClientConfig, ServerConfig};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use verbs3_file_changes::FileChanges;

use crate::certificate_files::{
    CertificateContent, CertificateError, CertificateFiles, read_certificates,
};
use crate::metrics::{CertificateMetrics, ReloadOutcome};
use crate::node_name::{NodeName, NodeNameError, NodeRole};
use crate::node_verifier::{NodeServerVerifier, verify_server_chain};

const LOOK_EVERY: Duration =
    if cfg!(test) { Duration::from_millis(50) } else { verbs3_file_changes::LOOK_EVERY };

/// Whether a listener takes connections without a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientDemand {
    /// The handshake fails without one.
    Required,
    /// Such a peer is let in; it is nobody. One that is shown has to be good.
    Optional,
}

/// The certificates of one process.
#[derive(Debug)]
pub struct NodeCertificates {
    cluster: String,
    files: CertificateFiles,
    in_force: ArcSwap<CertificateSet>,
    /// Knows the files as they were when those in force were read first.
    changes: FileChanges,
}

/// What was made from the files, all at once.
#[derive(Debug)]
struct CertificateSet {
    own: NodeName,
    required: Arc<ServerConfig>,
    optional: Arc<ServerConfig>,
    to_coordinators: Arc<ClientConfig>,
    to_workers: Arc<ClientConfig>,
    /// End of the own certificate's validity, in seconds since 1970.
    not_after: i64,
}

impl NodeCertificates {
    /// Reads the files. Fails if they can't be used, or name no node of `cluster`.
    pub fn read(cluster: &str, files: CertificateFiles) -> Result<Self, CertificateError> {
        let changes = FileChanges::since_now(&files.all_paths());
        let in_force = ArcSwap::from_pointee(read_set(cluster, &files)?);
        Ok(Self { cluster: cluster.to_owned(), files, in_force, changes })
    }

    /// Returns who this process is.
    pub fn own_name(&self) -> NodeName {
        self.in_force.load().own.clone()
    }

    /// Returns the end of the own certificate's validity, in seconds since 1970.
    pub fn not_after(&self) -> i64 {
        self.in_force.load().not_after
    }

    /// Returns an acceptor by what is in force now. Make one for each connection.
    pub fn tls_acceptor(&self, demand: ClientDemand) -> TlsAcceptor {
        let set = self.in_force.load();
        TlsAcceptor::from(match demand {
            ClientDemand::Required => set.required.clone(),
            ClientDemand::Optional => set.optional.clone(),
        })
    }

    /// Returns the client's side by what is in force now. It takes coordinators alone. Take it anew
    /// for each connection.
    pub fn coordinator_config(&self) -> Arc<ClientConfig> {
        self.in_force.load().to_coordinators.clone()
    }

    /// Returns the client's side for connections to workers, like
    /// [`NodeCertificates::coordinator_config`].
    pub fn worker_config(&self) -> Arc<ClientConfig> {
        self.in_force.load().to_workers.clone()
    }

    /// Reads the name of a peer whose handshake is done.
    pub fn peer_name(
        &self,
        chain: Option<&[CertificateDer<'_>]>,
    ) -> Result<NodeName, NodeNameError> {
        let own = chain.and_then(<[_]>::first).ok_or(NodeNameError::Missing)?;
        NodeName::of_certificate(own, &self.cluster)
    }

    /// Reads the files again. A process stays who it is.
    fn read_next(&self) -> Result<CertificateSet, CertificateError> {
        let (set, own) = (read_set(&self.cluster, &self.files)?, self.own_name());
        if set.own != own {
            let (path, found) = (self.files.certificate.clone(), set.own);
            return Err(CertificateError::OtherNode { path, own, found });
        }
        Ok(set)
    }

    /// Follows the files until told to stop. May be cancelled at any time. Connections keep the
    /// certificates that they began with.
    pub async fn follow_files(
        self: Arc<Self>,
        metrics: CertificateMetrics,
        stop: CancellationToken,
    ) {
        metrics.not_after.set(self.not_after());
        let (paths, mut changes) = (self.files.all_paths(), self.changes.clone());
        while stop.run_until_cancelled(tokio::time::sleep(LOOK_EVERY)).await.is_some() {
            match changes.read_changed(&paths, || self.read_next()) {
                None => {}
                Some(Ok(set)) => {
                    metrics.reloads[ReloadOutcome::Taken].inc();
                    metrics.not_after.set(set.not_after);
                    tracing::info!(
                        path = %self.files.certificate.display(), node = %set.own,
                        not_after = set.not_after, "the node's certificate is in force"
                    );
                    self.in_force.store(Arc::new(set));
                }
                Some(Err(error)) => {
                    metrics.reloads[ReloadOutcome::Refused].inc();
                    let cause = std::error::Error::source(&error)
                        .map(ToString::to_string)
                        .unwrap_or_default();
                    tracing::error!(
                        path = %self.files.certificate.display(), %error, cause,
                        "the node's changed certificate, key or CAs can't be used: those read \
                        before stay in force"
                    );
                }
            }
        }
    }
}

fn read_set(cluster: &str, files: &CertificateFiles) -> Result<CertificateSet, CertificateError> {
    let CertificateContent { chain, key, roots } = files.read_content()?;
    let path = &files.certificate;
    let unusable = |source| CertificateError::Unusable { path: path.clone(), source };
    let own = NodeName::of_certificate(&chain[0], cluster)
        .map_err(|source| CertificateError::Name { path: path.clone(), source })?;
    // The provider is named: a process-wide default may be missing, or another crate's choice.
    let provider = Arc::new(aws_lc_rs::default_provider());
    let client_verifier = |demand: ClientDemand| {
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone());
        let verifier = match demand {
            ClientDemand::Required => verifier,
            ClientDemand::Optional => verifier.allow_unauthenticated(),
        };
        let unusable = |source| CertificateError::Verifier { path: files.ca_file.clone(), source };
        verifier.build().map_err(unusable)
    };
    // A certificate that is over, or of a CA that this very file does not name, serves nobody.
    let (now, required) = (UnixTime::now(), client_verifier(ClientDemand::Required)?);
    verify_server_chain(&roots, &provider, &chain[0], &chain[1..], now)
        .and_then(|()| required.verify_client_cert(&chain[0], &chain[1..], now).map(drop))
        .map_err(|source| CertificateError::Refused {
            path: path.clone(),
            ca_file: files.ca_file.clone(),
            source,
        })?;
    let accept = |verifier: Arc<dyn ClientCertVerifier>| {
        let mut config = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&TLS13])
            .map_err(unusable)?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain.clone(), key.clone_key())
            .map_err(unusable)?;
        // Each handshake verifies the certificate: connections are few and long.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok::<_, CertificateError>(Arc::new(config))
    };
    let connect = |role: NodeRole| {
        let verifier = NodeServerVerifier {
            roots: roots.clone(),
            provider: provider.clone(),
            cluster: cluster.to_owned(),
            role,
        };
        let mut config = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&TLS13])
            .map_err(unusable)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_client_auth_cert(chain.clone(), key.clone_key())
            .map_err(unusable)?;
        config.resumption = Resumption::disabled();
        Ok::<_, CertificateError>(Arc::new(config))
    };
    Ok(CertificateSet {
        own,
        required: accept(required)?,
        optional: accept(client_verifier(ClientDemand::Optional)?)?,
        to_coordinators: connect(NodeRole::Coordinator)?,
        to_workers: connect(NodeRole::Worker)?,
        not_after: chain_end(&chain),
    })
}

/// Returns when the first certificate of a PEM file ends, in seconds since 1970.
pub fn certificate_end(path: &Path) -> Result<i64, CertificateError> {
    Ok(chain_end(&read_certificates(path)?))
}

/// Returns the end of a chain's first certificate, in seconds since 1970. 0: it has none that can
/// be parsed.
pub fn chain_end(chain: &[CertificateDer<'_>]) -> i64 {
    let first = chain.first().map(|first| x509_parser::parse_x509_certificate(first));
    match first {
        Some(Ok((_, first))) => first.validity().not_after.timestamp(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests;
