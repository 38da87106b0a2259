//! Verifies a server's certificate by the cluster's CAs and by its role. The host name does not
//! count: a process is who its certificate names, wherever it runs.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme,
};

use crate::node_name::{NodeName, NodeRole};

/// Takes servers of one cluster and one role.
#[derive(Debug)]
pub(crate) struct NodeServerVerifier {
    pub(crate) roots: Arc<RootCertStore>,
    pub(crate) provider: Arc<CryptoProvider>,
    pub(crate) cluster: String,
    pub(crate) role: NodeRole,
}

/// Fails if no client that believes `roots` would take a server with this certificate.
pub(crate) fn verify_server_chain(
    roots: &RootCertStore,
    provider: &CryptoProvider,
    end_entity: &CertificateDer<'_>,
    intermediates: &[CertificateDer<'_>],
    now: UnixTime,
) -> Result<(), Error> {
    verify_server_cert_signed_by_trust_anchor(
        &ParsedCertificate::try_from(end_entity)?,
        roots,
        intermediates,
        now,
        provider.signature_verification_algorithms.all,
    )
}

impl ServerCertVerifier for NodeServerVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        verify_server_chain(&self.roots, &self.provider, end_entity, intermediates, now)?;
        NodeName::of_certificate(end_entity, &self.cluster)
            .and_then(|name| name.require_role(self.role))
            .map_err(|error| CertificateError::Other(OtherError(Arc::new(error))))?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
