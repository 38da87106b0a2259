//! Owns the TLS of a listener: certificate and key from PEM files, read again when they change. A
//! pair that can't be used changes nothing. Handshakes are done by `server`.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::{self, ServerConfig, crypto::aws_lc_rs};
use tokio_util::sync::CancellationToken;
use tracing::{error, info};
use verbs3_certificates::chain_end;
use verbs3_certificates::metrics::ReloadOutcome;
use verbs3_file_changes::{FileChanges, LOOK_EVERY};

use crate::metrics::GatewayHttpMetrics;

/// The files of one listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// PEM: the listener's certificate, then its chain.
    pub certificate: PathBuf,
    /// PEM: PKCS#8, PKCS#1 or SEC1.
    pub key: PathBuf,
}

impl TlsFiles {
    /// Reads both files, as a start does. Returns the end of the certificate, in seconds since 1970.
    /// Fails if the pair can't be used.
    pub fn read_end(&self) -> Result<i64, TlsError> {
        Ok(read(self)?.not_after)
    }

    fn all_paths(&self) -> [PathBuf; 2] {
        [&self.certificate, &self.key].map(PathBuf::clone)
    }
}

/// Reason why a listener can't speak TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("{} can't be read", .path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("{} holds no {what} in PEM form", .path.display())]
    Empty { path: PathBuf, what: &'static str },
    #[error("the certificate in {} and its key can't be used", .path.display())]
    Unusable {
        path: PathBuf,
        #[source]
        source: rustls::Error,
    },
}

/// A certificate and key that can be used.
struct CertificatePair {
    config: Arc<ServerConfig>,
    /// End of the certificate's validity, in seconds since 1970. 0: it can't be parsed.
    not_after: i64,
}

/// The pair of a listener. Handshakes use the pair in force when they begin; connections keep
/// theirs.
pub(super) struct TlsCertificates {
    files: TlsFiles,
    in_force: ArcSwap<CertificatePair>,
    /// Knows the files as they were when the first pair was read.
    changes: FileChanges,
}

impl TlsCertificates {
    /// Reads both files. Fails if one can't be read, or the pair can't be used.
    pub fn read(files: &TlsFiles) -> Result<Self, TlsError> {
        let changes = FileChanges::since_now(&files.all_paths());
        Ok(Self { files: files.clone(), in_force: ArcSwap::from_pointee(read(files)?), changes })
    }

    /// Returns an acceptor with the pair that is in force now. Make one for each connection.
    pub fn tls_acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.in_force.load().config.clone())
    }

    /// Follows the files until told to stop. May be cancelled at any time.
    pub async fn follow_files(
        self: Arc<Self>,
        metrics: Arc<GatewayHttpMetrics>,
        stop: CancellationToken,
    ) {
        metrics.tls_not_after.set(self.in_force.load().not_after);
        let (paths, mut changes) = (self.files.all_paths(), self.changes.clone());
        while stop.run_until_cancelled(tokio::time::sleep(LOOK_EVERY)).await.is_some() {
            match changes.read_changed(&paths, || read(&self.files)) {
                None => {}
                Some(Ok(pair)) => {
                    metrics.tls_reloads[ReloadOutcome::Taken].inc();
                    metrics.tls_not_after.set(pair.not_after);
                    info!(
                        path = %self.files.certificate.display(), not_after = pair.not_after,
                        "the certificate is in force"
                    );
                    self.in_force.store(Arc::new(pair));
                }
                Some(Err(error)) => {
                    metrics.tls_reloads[ReloadOutcome::Refused].inc();
                    let cause = std::error::Error::source(&error)
                        .map(ToString::to_string)
                        .unwrap_or_default();
                    error!(path = %self.files.certificate.display(), %error, cause,
                        "the changed certificate or key can't be used: the pair read before stays \
                        in force");
                }
            }
        }
    }
}

fn read(files: &TlsFiles) -> Result<CertificatePair, TlsError> {
    let read = |path: &Path| {
        File::open(path)
            .map(BufReader::new)
            .map_err(|source| TlsError::Read { path: path.to_owned(), source })
    };
    let certificates = rustls_pemfile::certs(&mut read(&files.certificate)?)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|source| TlsError::Read { path: files.certificate.clone(), source })?;
    if certificates.is_empty() {
        return Err(TlsError::Empty { path: files.certificate.clone(), what: "certificate" });
    }
    let key = rustls_pemfile::private_key(&mut read(&files.key)?)
        .map_err(|source| TlsError::Read { path: files.key.clone(), source })?
        .ok_or_else(|| TlsError::Empty { path: files.key.clone(), what: "private key" })?;
    let not_after = chain_end(&certificates);
    let unusable = |source| TlsError::Unusable { path: files.certificate.clone(), source };
    // The provider is named: a process-wide default may be missing, or another crate's choice.
    let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(unusable)?
        .with_no_client_auth()
        .with_single_cert(certificates, key)
        .map_err(unusable)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(CertificatePair { config: Arc::new(config), not_after })
}
