//! Owns the queries to the network: it resolves, looks up the route, connects, and measures the
//! time. Every step has a deadline.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use socket2::{Domain, SockAddr, SockRef, Socket, Type};

use super::route;
use super::{ConnectOutcome, PeerProbe};
use crate::host::HostDescription;

/// Options for the connections to a peer. They should equal the tcp transport's settings, so that
/// both take one route.
#[derive(Debug, Clone)]
pub struct ProbeOptions {
    /// Deadline for one connection.
    pub deadline: Duration,
    /// `tcp.bind_device`, as gateways have it.
    pub bind_device: Option<String>,
    /// `tcp.bind_address`, as gateways have it.
    pub bind_address: Option<IpAddr>,
}

/// Connections, of which the shortest round trip counts: the first also pays for ARP.
const ROUNDS: usize = 3;

/// Finds the way to `host`. Blocks for at most some deadlines and that of the resolver.
pub fn probe_peer(
    this: &HostDescription,
    host: &str,
    port: u16,
    options: &ProbeOptions,
) -> PeerProbe {
    let mut probe = PeerProbe {
        host: host.to_owned(),
        port,
        resolved: resolve_host(host, port).map_err(|error| error.to_string()),
        address: None,
        source: Err("no address".to_owned()),
        device: None,
        gateway: None,
        path_mtu: None,
        reached: ConnectOutcome::NotTried,
    };
    for ip in probe.resolved.clone().unwrap_or_default() {
        let address = SocketAddr::new(ip, port);
        let reached = measure_connect(address, options);
        let answered =
            matches!(reached, ConnectOutcome::Connected { .. } | ConnectOutcome::Refused { .. });
        // The first address that answers counts; if none does, the first one.
        if answered || probe.address.is_none() {
            (probe.address, probe.reached) = (Some(address), reached);
        }
        if answered {
            break;
        }
    }
    if let Some(address) = probe.address {
        match find_source_address(address, options) {
            Ok((source, path_mtu)) => {
                (probe.source, probe.path_mtu) = (Ok(source), path_mtu);
                probe.device = device_of(this, source);
            }
            Err(error) => probe.source = Err(error.to_string()),
        }
        let device = probe.device.as_deref().unwrap_or_default();
        probe.gateway = route::find_next_hop(Path::new("/"), address.ip(), device);
    }
    probe
}

fn resolve_host(host: &str, port: u16) -> io::Result<Vec<IpAddr>> {
    let mut found: Vec<IpAddr> = Vec::new();
    for address in (host, port).to_socket_addrs()? {
        if !found.contains(&address.ip()) {
            found.push(address.ip());
        }
    }
    if found.is_empty() { Err(io::Error::other("the name has no address")) } else { Ok(found) }
}

fn device_of(this: &HostDescription, source: IpAddr) -> Option<String> {
    this.netdevs
        .iter()
        .find(|netdev| netdev.addresses.contains(&source))
        .map(|netdev| netdev.name.clone())
}

/// Finds the source address and path MTU. A connected UDP socket sends nothing, but knows both.
fn find_source_address(
    to: SocketAddr,
    options: &ProbeOptions,
) -> io::Result<(IpAddr, Option<u32>)> {
    let any = if to.is_ipv4() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED)
    } else {
        IpAddr::V6(Ipv6Addr::UNSPECIFIED)
    };
    let from =
        options.bind_address.filter(|address| address.is_ipv4() == to.is_ipv4()).unwrap_or(any);
    let socket = UdpSocket::bind((from, 0))?;
    if let Some(device) = &options.bind_device {
        SockRef::from(&socket).bind_device(Some(device.as_bytes()))?;
    }
    socket.connect(to)?;
    Ok((socket.local_addr()?.ip(), path_mtu(socket.as_fd(), to.is_ipv4())))
}

/// Returns IP_MTU, which socket2 doesn't have.
fn path_mtu(socket: BorrowedFd<'_>, ipv4: bool) -> Option<u32> {
    let (level, option) =
        if ipv4 { (libc::IPPROTO_IP, libc::IP_MTU) } else { (libc::IPPROTO_IPV6, libc::IPV6_MTU) };
    let mut mtu: libc::c_int = 0;
    let mut length = libc::socklen_t::try_from(size_of::<libc::c_int>()).ok()?;
    // SAFETY: the socket is open while it is borrowed; value and length are valid places of the
    // sizes that they tell.
    let result = unsafe {
        libc::getsockopt(socket.as_raw_fd(), level, option, (&raw mut mtu).cast(), &raw mut length)
    };
    if result == 0 { u32::try_from(mtu).ok() } else { None }
}

fn measure_connect(to: SocketAddr, options: &ProbeOptions) -> ConnectOutcome {
    let mut best: Option<ConnectOutcome> = None;
    for _ in 0..ROUNDS {
        let begin = Instant::now();
        let connected = open_connection(to, options);
        let round_trip = begin.elapsed();
        let now = match connected {
            Ok(socket) => {
                ConnectOutcome::Connected { round_trip, segment_bytes: socket.tcp_mss().ok() }
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                ConnectOutcome::Refused { round_trip }
            }
            // A failure after others worked is the network's, not the peer's. The earlier results
            // stay.
            Err(error) => return best.unwrap_or(ConnectOutcome::Failed(error.to_string())),
        };
        best = Some(best.map_or(now.clone(), |best| shorter_outcome(best, now)));
    }
    best.unwrap_or(ConnectOutcome::NotTried)
}

fn open_connection(to: SocketAddr, options: &ProbeOptions) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, None)?;
    if let Some(device) = &options.bind_device {
        socket.bind_device(Some(device.as_bytes()))?;
    }
    if let Some(from) = options.bind_address.filter(|address| address.is_ipv4() == to.is_ipv4()) {
        socket.bind(&SockAddr::from(SocketAddr::new(from, 0)))?;
    }
    socket.connect_timeout(&SockAddr::from(to), options.deadline)?;
    Ok(socket)
}

fn shorter_outcome(one: ConnectOutcome, other: ConnectOutcome) -> ConnectOutcome {
    let time = |reached: &ConnectOutcome| match reached {
        ConnectOutcome::Connected { round_trip, .. } | ConnectOutcome::Refused { round_trip } => {
            *round_trip
        }
        ConnectOutcome::Failed(_) | ConnectOutcome::NotTried => Duration::MAX,
    };
    if time(&other) < time(&one) { other } else { one }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::net::TcpListener;

    use super::*;
    use crate::list_addresses;

    fn options() -> ProbeOptions {
        ProbeOptions { deadline: Duration::from_secs(5), bind_device: None, bind_address: None }
    }

    fn this() -> HostDescription {
        HostDescription::read(Path::new("/"), &list_addresses().unwrap())
    }

    #[test]
    fn a_listening_peer_is_reached_and_its_way_is_known() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let probe =
            probe_peer(&this(), "127.0.0.1", listener.local_addr().unwrap().port(), &options());
        assert!(
            matches!(probe.reached, ConnectOutcome::Connected { segment_bytes: Some(1..), .. }),
            "{probe:?}"
        );
        assert_eq!(probe.source, Ok("127.0.0.1".parse().unwrap()));
        assert_eq!(probe.device.as_deref(), Some("lo"));
        assert!(probe.path_mtu.is_some_and(|mtu| mtu >= 1280), "{probe:?}");
    }

    #[test]
    fn a_peer_where_nobody_listens_refuses() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let probe = probe_peer(&this(), "127.0.0.1", port, &options());
        assert!(matches!(probe.reached, ConnectOutcome::Refused { .. }), "{probe:?}");
    }

    #[test]
    fn a_name_that_is_none_is_told_as_such() {
        // RFC 6761: never resolves.
        let probe = probe_peer(&this(), "nobody.invalid", 1, &options());
        assert!(probe.resolved.is_err() && probe.reached == ConnectOutcome::NotTried, "{probe:?}");
    }
}
