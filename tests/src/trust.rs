//! What the processes of a cluster prove themselves by: each has a node certificate, and a file of
//! the cluster's secret. They are changed while the processes run, one file after the other, and
//! each by renaming. Who reads them, and when, is the processes' affair.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::cluster::CLUSTER_SECRET;

#[path = "../../certificates/src/test_issuer.rs"]
#[allow(clippy::unwrap_used, clippy::new_without_default)]
mod test_issuer;

pub use test_issuer::TestIssuer;

/// Stands for a process's name in the configuration that all processes share.
pub(crate) const NAME_MARK: &str = "@NAME@";

/// Whose commands [`crate::Cluster::command`] runs, where there are certificates.
pub(crate) const OPERATOR: &str = "operator-0";

/// The files of one process, in a folder of its own.
#[derive(Debug, Clone)]
pub struct TrustFiles {
    pub folder: PathBuf,
    /// Role and name of the certificate: `verbs3://tests/ROLE/NAME`.
    uri: String,
}

impl TrustFiles {
    /// The files of the process `name`, whose role is what its name begins with.
    pub(crate) fn of_process(cluster: &Path, name: &str) -> Self {
        let role = name.split('-').next().unwrap_or_default();
        let folder = cluster.join(format!("{name}.trust"));
        Self { folder, uri: format!("verbs3://tests/{role}/{name}") }
    }

    /// Makes all of them: a certificate by `issuer`, and the secret of all tests.
    pub(crate) fn make_all(&self, issuer: &TestIssuer) -> anyhow::Result<()> {
        issuer.write_node(&self.folder, &[&self.uri]);
        self.replace_file("secret", CLUSTER_SECRET)?;
        self.replace_file("accepted", "")
    }

    /// Puts a certificate by `issuer` and its key into place, in this order.
    pub fn replace_certificate(&self, issuer: &TestIssuer) -> anyhow::Result<()> {
        let next = self.folder.join("next");
        issuer.write_node(&next, &[&self.uri]);
        for file in ["tls.crt", "tls.key"] {
            fs::rename(next.join(file), self.folder.join(file))?;
        }
        Ok(())
    }

    /// Says whose certificates are believed from now on.
    pub fn replace_authorities(&self, issuers: &[&TestIssuer]) -> anyhow::Result<()> {
        let authorities: String = issuers.iter().map(|issuer| issuer.ca_pem()).collect();
        self.replace_file("ca.crt", &authorities)
    }

    /// Replaces the file `secret`, or `accepted`: those accepted besides, one a line.
    pub fn replace_file(&self, name: &str, text: &str) -> anyhow::Result<()> {
        let next = self.folder.join("next.text");
        fs::write(&next, text)?;
        fs::rename(&next, self.folder.join(name)).with_context(|| format!("can't replace {name}"))
    }
}

/// Lines of `[cluster]` that name the files of each process.
pub(crate) fn trust_settings(cluster: &Path) -> String {
    let file = |name: &str| cluster.join(format!("{NAME_MARK}.trust")).join(name);
    format!(
        "secret_file = \"{}\"\nsecret_accepted_file = \"{}\"\n\
         tls = {{ certificate = \"{}\", key = \"{}\", ca_file = \"{}\" }}\n",
        file("secret").display(),
        file("accepted").display(),
        file("tls.crt").display(),
        file("tls.key").display(),
        file("ca.crt").display(),
    )
}
