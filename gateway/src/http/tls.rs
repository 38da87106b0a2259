//! TLS of a listener: certificate and key from PEM files. Owns their reading. Handshakes are `server`'s.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::{self, ServerConfig, crypto::aws_lc_rs};

/// The files of one listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// PEM: the listener's certificate, then its chain.
    pub certificate: PathBuf,
    /// PEM: PKCS#8, PKCS#1 or SEC1.
    pub key: PathBuf,
}

/// Why a listener can't speak TLS.
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

pub(super) fn acceptor(files: &TlsFiles) -> Result<TlsAcceptor, TlsError> {
    let read = |path: &Path| {
        File::open(path).map(BufReader::new).map_err(|source| TlsError::Read { path: path.to_owned(), source })
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
    let unusable = |source| TlsError::Unusable { path: files.certificate.clone(), source };
    // The provider is named: a process-wide default may not be there, or be another crate's choice.
    let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(unusable)?
        .with_no_client_auth()
        .with_single_cert(certificates, key)
        .map_err(unusable)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}
