//! Certificates of processes for the talk within a cluster.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use verbs3_settings::SettingsTable;

/// The `[cluster.tls]` table.
#[derive(Debug, Clone, Serialize, Deserialize, SettingsTable)]
#[serde(default, deny_unknown_fields)]
pub struct ClusterTlsSettings {
    /// PEM file of this process's certificate and its chain; none: no TLS. Its URI
    /// `verbs3://CLUSTER/ROLE/NAME` says who it is: role `gateway`, `worker` (NAME is
    /// `worker.id`), `coordinator` or `operator`. Read again when it changes, like the two others.
    #[setting(example = "/etc/verbs3/node.crt")]
    pub certificate: Option<PathBuf>,
    /// PEM file of its key.
    #[setting(example = "/etc/verbs3/node.key")]
    pub key: Option<PathBuf>,
    /// PEM file of the CAs whose certificates are believed: one, or two while the CA is changed. No
    /// other CA is.
    #[setting(example = "/etc/verbs3/node-ca.crt")]
    pub ca_file: Option<PathBuf>,
    /// `"require"`: coordinators and, over tcp, workers take TLS alone, and are asked over nothing
    /// else. `"use"`: plain connections are taken, too. `"accept"`: the same, and workers are asked
    /// over plain connections. The two are steps on the way from a cluster without certificates.
    /// Default, where there are files: `"require"`.
    #[setting(example = "use")]
    pub mode: Option<ClusterTlsMode>,
}

/// How far a cluster has come with certificates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClusterTlsMode {
    Accept,
    Use,
    Require,
}

/// The files of a process that has a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterTlsFiles {
    pub certificate: PathBuf,
    pub key: PathBuf,
    pub ca_file: PathBuf,
}

impl ClusterTlsSettings {
    /// The files; `None` unless all three are named.
    pub fn tls_files(&self) -> Option<ClusterTlsFiles> {
        Some(ClusterTlsFiles {
            certificate: self.certificate.clone()?,
            key: self.key.clone()?,
            ca_file: self.ca_file.clone()?,
        })
    }

    /// How far the cluster has come, where it has certificates.
    pub fn tls_mode(&self) -> ClusterTlsMode {
        self.mode.unwrap_or(ClusterTlsMode::Require)
    }

    /// The scheme of a coordinator's URL that is made by default.
    pub fn url_scheme(&self) -> &'static str {
        match self.tls_files() {
            Some(_) if self.tls_mode() != ClusterTlsMode::Accept => "https",
            _ => "http",
        }
    }
}
