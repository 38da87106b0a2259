//! What `verbs3 doctor --json` says on another host, asked over ssh. Owns the reading of the document
//! there: what a host says is checked, bounded, and never trusted further.

use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::json::SCHEMA;
use crate::bounded_process::ProcessBounds;
use crate::ssh::{RemoteRunError, SshHost, printable_text, run_remote};

/// Longest document in bytes. A host of 16 ports says some 64 KiB.
const DOCUMENT_BYTES_MAX: usize = 4 << 20;

/// The document of one host, as far as other hosts are compared with it.
#[derive(Debug, Clone, Deserialize)]
pub struct RemoteReport {
    pub schema: u32,
    pub version: String,
    pub kernel: String,
    /// `None`: an older verbs3 does not say.
    #[serde(default)]
    pub page_bytes: Option<u64>,
    pub exit_status: u8,
    pub usable_rails: Vec<String>,
    pub devices: Vec<RemoteDevice>,
    pub findings: Vec<RemoteFinding>,
}

/// One RDMA device there.
#[derive(Debug, Clone, Deserialize)]
pub struct RemoteDevice {
    pub name: String,
    pub firmware: String,
    pub ports: Vec<RemotePort>,
}

/// One port of it.
#[derive(Debug, Clone, Deserialize)]
pub struct RemotePort {
    pub port: u32,
    pub rate_gbits: Option<f64>,
    pub active_mtu: Option<u32>,
    pub netdevs: Vec<RemoteNetdev>,
    pub addresses: Vec<IpAddr>,
}

/// A network device of a port.
#[derive(Debug, Clone, Deserialize)]
pub struct RemoteNetdev {
    pub mtu: u32,
}

/// Something that was found there.
#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct RemoteFinding {
    pub check: String,
    pub subject: String,
    pub severity: String,
    pub seen: String,
}

/// A rail of another host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteRail {
    pub device: String,
    pub address: IpAddr,
}

/// Why a host's document is not there.
#[derive(Debug, thiserror::Error)]
pub enum RemoteReportError {
    #[error(transparent)]
    Run(#[from] RemoteRunError),
    #[error("`{program} doctor --json` there said no document: {said}")]
    Malformed { program: String, said: String },
    #[error(
        "its document has schema {theirs}, this verbs3 reads {SCHEMA}; install the same release"
    )]
    Schema { theirs: u32 },
}

/// Asks `host` over ssh.
pub fn fetch_report(
    host: &SshHost,
    program: &str,
    deadline: Duration,
) -> Result<RemoteReport, RemoteReportError> {
    let words = [program, "doctor", "--json"].map(str::to_owned);
    let bounds = ProcessBounds { deadline, stdout_bytes_max: DOCUMENT_BYTES_MAX };
    let output = run_remote(host, &words, &bounds)?;
    let parsed: Result<RemoteReport, _> = serde_json::from_slice(&output.stdout);
    let report = parsed.map_err(|error| {
        let said = match output.last_error_line() {
            "" => error.to_string(),
            line => line.to_owned(),
        };
        RemoteReportError::Malformed { program: program.to_owned(), said: printable_text(&said) }
    })?;
    match report.schema {
        SCHEMA => Ok(report),
        theirs => Err(RemoteReportError::Schema { theirs }),
    }
}

impl RemoteReport {
    /// Returns the usable rails that have an address, in their order.
    pub fn list_rails(&self) -> Vec<RemoteRail> {
        let ports = self.devices.iter().flat_map(|device| {
            device
                .ports
                .iter()
                .map(move |port| (format!("{}/{}", device.name, port.port), device, port))
        });
        let usable = ports.filter(|(rail, ..)| self.usable_rails.contains(rail));
        let rails = usable.filter_map(|(_, device, port)| {
            // A name goes into a command line there.
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
            let device =
                Some(&device.name).filter(|name| !name.is_empty() && name.bytes().all(plain))?;
            Some(RemoteRail { device: device.clone(), address: *port.addresses.first()? })
        });
        rails.collect()
    }
}
