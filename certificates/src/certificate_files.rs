//! The PEM files of a node: its certificate with its chain, its key, and the CAs of the cluster.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem};

use crate::node_name::{NodeName, NodeNameError};

/// The files of one process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The process's certificate, then its chain.
    pub certificate: PathBuf,
    /// PKCS#8, PKCS#1 or SEC1.
    pub key: PathBuf,
    /// The CAs whose certificates are believed: one, or two while the cluster changes its CA.
    pub ca_file: PathBuf,
}

/// Why certificates can't be used.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    #[error("{} can't be read as PEM", .path.display())]
    Unreadable {
        path: PathBuf,
        #[source]
        source: pem::Error,
    },
    #[error("{} holds no certificate", .path.display())]
    Empty { path: PathBuf },
    #[error("a CA in {} can't be used", .path.display())]
    Ca {
        path: PathBuf,
        #[source]
        source: rustls::Error,
    },
    #[error("{}: give it the alternative name of its process", .path.display())]
    Name {
        path: PathBuf,
        #[source]
        source: NodeNameError,
    },
    #[error("the certificate in {} is one of {found}, and this process is {own}", .path.display())]
    OtherNode { path: PathBuf, own: NodeName, found: NodeName },
    #[error("the certificate in {} and its key can't be used", .path.display())]
    Unusable {
        path: PathBuf,
        #[source]
        source: rustls::Error,
    },
    #[error(
        "the certificate in {} would be taken by nobody who believes the CAs in {}",
        .path.display(), .ca_file.display()
    )]
    Refused {
        path: PathBuf,
        ca_file: PathBuf,
        #[source]
        source: rustls::Error,
    },
    #[error("the CAs in {} can't verify anybody", .path.display())]
    Verifier {
        path: PathBuf,
        #[source]
        source: rustls::server::VerifierBuilderError,
    },
}

/// What the files hold.
pub(crate) struct CertificateContent {
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: PrivateKeyDer<'static>,
    pub(crate) roots: Arc<RootCertStore>,
}

impl CertificateFiles {
    pub(crate) fn all_paths(&self) -> [PathBuf; 3] {
        [&self.certificate, &self.key, &self.ca_file].map(PathBuf::clone)
    }

    pub(crate) fn read_content(&self) -> Result<CertificateContent, CertificateError> {
        let chain = read_certificates(&self.certificate)?;
        let key = PrivateKeyDer::from_pem_file(&self.key)
            .map_err(|source| CertificateError::Unreadable { path: self.key.clone(), source })?;
        let mut roots = RootCertStore::empty();
        for ca in read_certificates(&self.ca_file)? {
            roots
                .add(ca)
                .map_err(|source| CertificateError::Ca { path: self.ca_file.clone(), source })?;
        }
        Ok(CertificateContent { chain, key, roots: Arc::new(roots) })
    }
}

pub(crate) fn read_certificates(
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
    let unreadable = |source| CertificateError::Unreadable { path: path.to_owned(), source };
    let certificates = CertificateDer::pem_file_iter(path)
        .map_err(unreadable)?
        .collect::<Result<Vec<_>, _>>()
        .map_err(unreadable)?;
    if certificates.is_empty() {
        return Err(CertificateError::Empty { path: path.to_owned() });
    }
    Ok(certificates)
}
