//! Owns the TLS of a listener whose callers are no nodes: certificate and key from PEM files, read
//! again when they change. A pair that can't be used changes nothing. Does no handshake itself.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tracing::{error, info};
use verbs3_file_changes::{FileChanges, LOOK_EVERY};

use crate::metrics::ReloadOutcome;
use crate::node_certificates::chain_end;

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
        Ok(read(self, &[])?.not_after)
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
pub struct ListenerCertificates {
    files: TlsFiles,
    /// Protocols that are offered by ALPN, the best first.
    protocols: &'static [&'static str],
    in_force: ArcSwap<CertificatePair>,
    /// Knows the files as they were when the first pair was read.
    changes: FileChanges,
}

impl ListenerCertificates {
    /// Reads both files. `protocols` are offered by ALPN, the best first. Fails if a file can't be
    /// read, or the pair can't be used.
    pub fn read(files: &TlsFiles, protocols: &'static [&'static str]) -> Result<Self, TlsError> {
        let changes = FileChanges::since_now(&files.all_paths());
        let in_force = ArcSwap::from_pointee(read(files, protocols)?);
        Ok(Self { files: files.clone(), protocols, in_force, changes })
    }

    /// Returns an acceptor with the pair that is in force now. Make one for each connection.
    pub fn tls_acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.in_force.load().config.clone())
    }

    /// Returns the end of the certificate in force, in seconds since 1970.
    pub fn not_after(&self) -> i64 {
        self.in_force.load().not_after
    }

    /// Follows the files until told to stop. `count_reload` hears of each change. May be cancelled
    /// at any time.
    pub async fn follow_files(
        self: Arc<Self>,
        count_reload: impl Fn(ReloadOutcome),
        stop: CancellationToken,
    ) {
        let (paths, mut changes) = (self.files.all_paths(), self.changes.clone());
        while stop.run_until_cancelled(tokio::time::sleep(LOOK_EVERY)).await.is_some() {
            match changes.read_changed(&paths, || read(&self.files, self.protocols)) {
                None => {}
                Some(Ok(pair)) => {
                    info!(
                        path = %self.files.certificate.display(), not_after = pair.not_after,
                        "the certificate is in force"
                    );
                    self.in_force.store(Arc::new(pair));
                    count_reload(ReloadOutcome::Taken);
                }
                Some(Err(error)) => {
                    count_reload(ReloadOutcome::Refused);
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

fn read(files: &TlsFiles, protocols: &[&str]) -> Result<CertificatePair, TlsError> {
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
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    Ok(CertificatePair { config: Arc::new(config), not_after })
}
