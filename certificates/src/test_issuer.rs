//! A certificate authority for tests: node certificates as files. Included by path in the tests of
//! several crates.

use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair,
    SanType, date_time_ymd,
};

/// One authority.
pub struct TestIssuer {
    ca: CertifiedIssuer<'static, KeyPair>,
}

impl TestIssuer {
    /// Makes an authority.
    pub fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "CA of the tests");
        Self { ca: CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap() }
    }

    /// The authority's own certificate.
    pub fn ca_pem(&self) -> String {
        self.ca.pem()
    }

    /// Writes certificate, key and CA of a node: `verbs3://…` URIs, in a folder of its own. Returns
    /// the three paths.
    pub fn write_node(&self, folder: &Path, uris: &[&str]) -> [PathBuf; 3] {
        self.write_node_until(folder, uris, 4000)
    }

    /// Writes a node's files like [`TestIssuer::write_node`]; the certificate ends as `year` begins.
    pub fn write_node_until(&self, folder: &Path, uris: &[&str], year: i32) -> [PathBuf; 3] {
        std::fs::create_dir_all(folder).unwrap();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.distinguished_name = DistinguishedName::new();
        params.not_after = date_time_ymd(year, 1, 1);
        let names = uris.iter().map(|&uri| SanType::URI(uri.to_owned().try_into().unwrap()));
        params.subject_alt_names.extend(names);
        let certificate = params.signed_by(&key, &self.ca).unwrap();
        let files = ["tls.crt", "tls.key", "ca.crt"].map(|name| folder.join(name));
        std::fs::write(&files[0], certificate.pem()).unwrap();
        std::fs::write(&files[1], key.serialize_pem()).unwrap();
        std::fs::write(&files[2], self.ca_pem()).unwrap();
        files
    }
}
