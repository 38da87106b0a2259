//! Owns the diagnosis of the way to one other host: name, route, connection, round trip, MTU, and
//! whether a rail is on it.
//!
//! `probe` queries the network; `judge_peer` judges the answers. Speaks no protocol of verbs3: a
//! worker sees connections that end before their handshake.

mod probe;
mod route;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

pub use probe::{ProbeOptions, probe_peer};

use super::check::{path_mtu, usable_rails};
use super::finding::{HostCheckKind, HostFinding};
use super::host::{HostDescription, HostRailView};

/// The network's answers about a peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerProbe {
    /// As the user wrote it.
    pub host: String,
    pub port: u16,
    /// All addresses of the name, or why it has none.
    pub resolved: Result<Vec<IpAddr>, String>,
    /// The address that answered, or else the first.
    pub address: Option<SocketAddr>,
    /// This host's source address towards the peer; otherwise the error of the routing table.
    pub source: Result<IpAddr, String>,
    /// Network device of `source`.
    pub device: Option<String>,
    /// Next hop, if there is one and the main routing table has it.
    pub gateway: Option<IpAddr>,
    /// The kernel's estimate of the whole path's MTU, in bytes.
    pub path_mtu: Option<u32>,
    pub reached: ConnectOutcome,
}

/// Outcome of connecting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConnectOutcome {
    /// Connected. Has the shortest round trip of some connections, and the segment size that both
    /// ends agreed on.
    Connected {
        round_trip: Duration,
        segment_bytes: Option<u32>,
    },
    /// The host answers, but nobody listens.
    Refused {
        round_trip: Duration,
    },
    Failed(String),
    /// There was no address to connect to.
    NotTried,
}

impl PeerProbe {
    /// Returns the rails on the way: the route leaves by their network device.
    pub fn route_rails<'a>(&self, host: &'a HostDescription) -> Vec<HostRailView<'a>> {
        let Some(device) = &self.device else { return Vec::new() };
        let on = |rail: &HostRailView<'_>| {
            host.netdevs_of(*rail).iter().any(|netdev| &netdev.name == device)
        };
        host.all_rails().filter(on).collect()
    }

    /// Returns true if the peer is this host. The kernel routes all of this host's addresses over
    /// the loopback device, and still names the address itself as the source.
    fn is_this(&self, host: &HostDescription) -> bool {
        let own = |to: SocketAddr| {
            to.ip().is_loopback()
                || host.netdevs.iter().any(|netdev| netdev.addresses.contains(&to.ip()))
        };
        self.address.is_some_and(own)
    }

    fn finding_subject(&self) -> String {
        match self.address {
            Some(address) if address.ip().to_string() == self.host => address.to_string(),
            Some(address) => format!("{} ({address})", self.host),
            None => self.host.clone(),
        }
    }
}

/// Returns findings about the way to the peer.
pub fn judge_peer(host: &HostDescription, probe: &PeerProbe) -> Vec<HostFinding> {
    if let Err(error) = &probe.resolved {
        let finding = HostFinding::new_failure(
            HostCheckKind::Peer,
            &probe.host,
            format!("can't be resolved: {error}"),
        );
        return vec![finding.with_explanation(
            "gateways find workers by this name",
            "getent hosts NAME; add it to DNS or /etc/hosts, or use an address",
        )];
    }
    let source = match &probe.source {
        Ok(source) => *source,
        Err(error) => {
            let finding = HostFinding::new_failure(
                HostCheckKind::Peer,
                probe.finding_subject(),
                format!("no route: {error}"),
            );
            return vec![finding.with_explanation(
                "nothing can be sent there",
                "ip route get ADDRESS; ip route add …",
            )];
        }
    };
    let mut found = vec![judge_route(probe, source)];
    found.push(judge_connect(probe));
    found.extend(judge_rail(host, probe));
    found.extend(judge_mtu(host, probe));
    found
}

fn judge_route(probe: &PeerProbe, source: IpAddr) -> HostFinding {
    let device = probe.device.as_deref().unwrap_or("an unknown device");
    let gateway =
        probe.gateway.map_or("on the link".to_owned(), |gateway| format!("by way of {gateway}"));
    HostFinding::new_ok(
        HostCheckKind::Peer,
        probe.finding_subject(),
        format!("route from {source} on {device}, {gateway}"),
    )
}

fn judge_connect(probe: &PeerProbe) -> HostFinding {
    let subject = probe.finding_subject();
    let milliseconds = |time: Duration| format!("{:.3} ms", time.as_secs_f64() * 1e3);
    let port = probe.port;
    match &probe.reached {
        ConnectOutcome::Connected { round_trip, .. } => HostFinding::new_ok(
            HostCheckKind::Peer,
            subject,
            format!("port {port} connects; round trip {}", milliseconds(*round_trip)),
        ),
        ConnectOutcome::Refused { round_trip } => {
            let seen = format!(
                "the host answers after {}, and refuses port {port}",
                milliseconds(*round_trip)
            );
            let remedy = format!(
                "systemctl status verbs3@worker there; worker.listen must have port {port} on this \
                network"
            );
            HostFinding::new_failure(HostCheckKind::Peer, subject, seen)
                .with_explanation("no worker listens there", remedy)
        }
        ConnectOutcome::Failed(error) => {
            let why = "connections to the worker would fail alike: its blocks would be read from \
                the object store";
            let remedy = format!(
                "ping it; open TCP port {port} in firewalls and network policies on the way"
            );
            HostFinding::new_failure(
                HostCheckKind::Peer,
                subject,
                format!("port {port} does not connect: {error}"),
            )
            .with_explanation(why, remedy)
        }
        ConnectOutcome::NotTried => {
            HostFinding::new_failure(HostCheckKind::Peer, subject, "no address to connect to")
                .with_explanation("nothing was learned", "use an address")
        }
    }
}

fn judge_rail(host: &HostDescription, probe: &PeerProbe) -> Option<HostFinding> {
    let device = probe.device.as_deref()?;
    if probe.is_this(host) {
        return Some(HostFinding::new_ok(
            HostCheckKind::Peer,
            probe.finding_subject(),
            "is this host: shm is used",
        ));
    }
    let names: Vec<_> = probe.route_rails(host).iter().map(HostRailView::rail_name).collect();
    if !names.is_empty() {
        return Some(HostFinding::new_ok(
            HostCheckKind::Peer,
            probe.finding_subject(),
            format!("{device} is on rail {}: verbs can be used", names.join(", ")),
        ));
    }
    let usable: Vec<_> = usable_rails(host).iter().map(HostRailView::rail_name).collect();
    if usable.is_empty() {
        return Some(HostFinding::new_ok(
            HostCheckKind::Peer,
            probe.finding_subject(),
            format!("{device} has no RDMA: tcp is used"),
        ));
    }
    let seen = format!(
        "the way leads out of {device}, which is on no rail; this host has {}",
        usable.join(", ")
    );
    let why = "rdma_cm follows the same route: to this address, tcp is used";
    let remedy = "give the peer's address on the RDMA network in cluster.workers, or route its \
        network over the rail";
    Some(
        HostFinding::new_warning(HostCheckKind::Peer, probe.finding_subject(), seen)
            .with_explanation(why, remedy),
    )
}

/// Returns the bytes of IP and TCP headers without options, and of the time stamps that nearly
/// every host sends.
const fn segment_headers(address: SocketAddr) -> u32 {
    let ip = if address.is_ipv4() { 20 } else { 40 };
    ip + 20 + 12
}

fn judge_mtu(host: &HostDescription, probe: &PeerProbe) -> Option<HostFinding> {
    let path = probe.path_mtu?;
    if probe.is_this(host) {
        return None;
    }
    let local = host.find_netdev(probe.device.as_deref()?)?;
    let roce = probe.route_rails(host).iter().any(HostRailView::is_roce);
    let packets = match path_mtu(path) {
        Some(size) if roce => format!("; RDMA packets carry {size} bytes"),
        _ => String::new(),
    };
    let why = "the smaller end decides; where ends or switches disagree, large packets vanish and \
        connections hang after small ones worked";
    let remedy = format!(
        "the same MTU on every host and switch port of the fabric; try: ping -M do -s {} {}",
        local.mtu.saturating_sub(28),
        probe.host
    );
    let agreed = match (&probe.reached, probe.address) {
        (ConnectOutcome::Connected { segment_bytes: Some(segment), .. }, Some(address)) => {
            Some(segment + segment_headers(address))
        }
        _ => None,
    };
    let seen = match agreed {
        // Allows the time stamps' 12 bytes, as a peer may not send them.
        Some(agreed) if agreed + 12 < path => {
            format!("{} has MTU {}, the peer takes about {agreed}{packets}", local.name, local.mtu)
        }
        _ if path < local.mtu => {
            format!("{} has MTU {}, the path {path}{packets}", local.name, local.mtu)
        }
        _ => {
            return Some(HostFinding::new_ok(
                HostCheckKind::Peer,
                probe.finding_subject(),
                format!("path MTU {path}{packets}"),
            ));
        }
    };
    Some(
        HostFinding::new_warning(HostCheckKind::Peer, probe.finding_subject(), seen)
            .with_explanation(why, remedy),
    )
}

#[cfg(test)]
mod tests;
