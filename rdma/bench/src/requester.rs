//! Owns the measuring side: it finds every way to a host, and opens those that work.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use super::BenchError;
use super::checked_call::fetch_host_info;
use super::left_out::{LeftOut, LeftOutCause};
use super::message::BenchHostInfo;
use super::pattern_pages::PatternPages;
use verbs3_rdma::arena::{Arena, ArenaOptions};
use verbs3_rdma::calls::CallOptions;
use verbs3_rdma::peer::TransportWays;
use verbs3_rdma::shm::ShmTransport;
use verbs3_rdma::tcp::{TcpOptions, TcpTransport};
use verbs3_rdma::transport::{
    PeerAddress, PeerConnection, PeerTransport, TransportError, TransportKind, WayTerms,
};
use verbs3_rdma::verbs::{self, VerbsOptions, VerbsTransport};

/// Memory beside the pages and the landings in bytes: each size class takes its own extents.
const SLACK_BYTES: usize = 32 << 20;

/// Options that say which host to measure, and from where.
#[derive(Debug, Clone)]
pub struct DialOptions {
    pub host: SocketAddr,
    pub tcp: TcpOptions,
    pub verbs: VerbsOptions,
    pub shm: CallOptions,
    /// Addresses of this side's rails; the first is used with the host's first. Without any, the
    /// address from which the route to the host's rail leads.
    pub rails: Vec<IpAddr>,
    /// Ways to try.
    pub kinds: Vec<TransportKind>,
    /// Connections over each way.
    pub connections: usize,
    pub page_bytes: usize,
    /// Most bytes in flight at once.
    pub in_flight_bytes_max: usize,
    /// The host is this process: its cost is the same, so it is not requested.
    pub in_process: bool,
}

/// One open way to the host.
pub struct MeasuredWay {
    pub kind: TransportKind,
    /// "tcp", "shm", the rail, or [`ALL_RAILS`].
    pub name: String,
    /// Rails that it uses at once; 1 for tcp and shm. Each has a load's depth of its own.
    pub rails: usize,
    pub(super) connections: Vec<Arc<dyn PeerConnection>>,
}

/// Name of the way over every rail that works, where there are several.
pub const ALL_RAILS: &str = "verbs, all rails";

/// All ways to one host.
pub struct BenchRequester {
    pub(super) ways: Vec<MeasuredWay>,
    pub(super) left_out: Vec<LeftOut>,
    pub(super) arena: Arena,
    pub(super) source: PatternPages,
    pub(super) about: BenchHostInfo,
    pub(super) host: SocketAddr,
    pub(super) connections: usize,
    pub(super) in_process: bool,
    /// Number of the next call, which selects the page that it begins with.
    pub(super) next: AtomicU32,
}

impl BenchRequester {
    /// Opens every way of `options.kinds` to the host. Ways that fail are left out with a reason.
    /// Fails if tcp can't connect, the host has another page size, or memory is short.
    pub async fn dial_host(options: DialOptions) -> Result<Self, BenchError> {
        let page_bytes = options.page_bytes;
        let transport = TcpTransport::new(options.tcp.clone());
        let address = PeerAddress::from(options.host);
        let tcp = open_connections(options.connections, || transport.connect(&address)).await?;
        let told = tcp[0].peer_ways().clone();
        let about = fetch_host_info(tcp[0].as_ref()).await?;
        if about.page_bytes as usize != page_bytes {
            let reason = format!(
                "pages of {} bytes, and this side has pages of {page_bytes}",
                about.page_bytes
            );
            return Err(BenchError::Refused(format!("it has {reason}; give both the same --page")));
        }
        let verbs = options.kinds.contains(&TransportKind::Verbs);
        let lanes = if verbs { told.rails.len().max(1) } else { 1 };
        let capacity_bytes = PatternPages::memory_bytes(page_bytes)
            + options.in_flight_bytes_max.saturating_mul(lanes)
            + SLACK_BYTES;
        let map = ArenaOptions { capacity_bytes, cell_bytes_max: page_bytes, populate: true };
        let arena = Arena::map_memory(map)
            .map_err(|error| BenchError::io_error("map memory")(std::io::Error::other(error)))?;
        let no_room = BenchError::NoRoom { bytes: PatternPages::memory_bytes(page_bytes) as u64 };
        let source = PatternPages::new(&arena, page_bytes).ok_or(no_room)?;
        let mut found = WayDiscovery { ways: Vec::new(), left_out: Vec::new() };
        if options.kinds.contains(&TransportKind::Shm) {
            found.open_shm(&options, &told).await;
        }
        if verbs {
            found.open_rails(&options, &told, &arena).await;
            found.join_rails();
        }
        if options.kinds.contains(&TransportKind::Tcp) {
            found.ways.push(MeasuredWay {
                kind: TransportKind::Tcp,
                name: "tcp".into(),
                rails: 1,
                connections: tcp,
            });
        }
        for line in about.left_out.lines() {
            let (way, reason) = line.split_once(": ").unwrap_or(("a way", line));
            let kind = if way == "shm" { TransportKind::Shm } else { TransportKind::Verbs };
            if options.kinds.contains(&kind) {
                found.leave_out(kind, way.to_owned(), LeftOutCause::OnHost(reason.to_owned()));
            }
        }
        let WayDiscovery { ways, left_out } = found;
        let (host, connections, in_process) =
            (options.host, options.connections, options.in_process);
        let next = AtomicU32::new(0);
        Ok(Self { ways, left_out, arena, source, about, host, connections, in_process, next })
    }

    /// Returns the open ways, in the order in which they were found: shm, rails, tcp.
    pub fn open_ways(&self) -> &[MeasuredWay] {
        &self.ways
    }

    /// Returns the ways that are not measured, with the reason. Those that the host could not open
    /// are among them.
    pub fn left_out(&self) -> &[LeftOut] {
        &self.left_out
    }
}

struct WayDiscovery {
    ways: Vec<MeasuredWay>,
    left_out: Vec<LeftOut>,
}

impl WayDiscovery {
    async fn open_shm(&mut self, options: &DialOptions, told: &TransportWays) {
        let leave = |found: &mut Self, cause| {
            found.leave_out(TransportKind::Shm, "shm".into(), cause);
        };
        let Some(way) = &told.shm else {
            return leave(self, LeftOutCause::NoSocket);
        };
        if !way.is_here() {
            return leave(self, LeftOutCause::OtherHost);
        }
        let transport = ShmTransport::new(options.shm.clone());
        let terms = WayTerms { name: None, ticket: told.ticket.clone() };
        match open_connections(options.connections, || {
            transport.connect_to(way.socket_path(), &terms)
        })
        .await
        {
            Ok(connections) => self.ways.push(MeasuredWay {
                kind: TransportKind::Shm,
                name: "shm".into(),
                rails: 1,
                connections,
            }),
            Err(error) => leave(self, error.into()),
        }
    }

    async fn open_rails(&mut self, options: &DialOptions, told: &TransportWays, arena: &Arena) {
        if told.rails.is_empty() {
            return self.leave_out(TransportKind::Verbs, "verbs".into(), LeftOutCause::NoRail);
        }
        if let Err(none) = verbs::probe_devices() {
            return self.leave_out(TransportKind::Verbs, "verbs".into(), none.into());
        }
        for (at, to) in told.rails.iter().enumerate() {
            let Some(to) = *to else {
                self.leave_out(
                    TransportKind::Verbs,
                    format!("verbs rail {at}"),
                    LeftOutCause::RailDown,
                );
                continue;
            };
            let mine = options.rails.get(at).copied().map_or_else(|| source_address(to), Ok);
            let mut name = format!("verbs {to}");
            let terms = WayTerms { name: None, ticket: told.ticket.clone() };
            let opened = async {
                let transport = VerbsTransport::new(mine?, options.verbs.clone(), arena.clone())?;
                if let Some(rail) = transport.current_rail() {
                    name = format!("verbs {}", rail.metric_label());
                }
                let connections =
                    open_connections(options.connections, || transport.connect_to(to, &terms))
                        .await;
                connections.map_err(LeftOutCause::from)
            };
            match opened.await {
                Ok(connections) => {
                    let kind = TransportKind::Verbs;
                    self.ways.push(MeasuredWay { kind, name, rails: 1, connections });
                }
                Err(cause) => self.leave_out(TransportKind::Verbs, name, cause),
            }
        }
    }

    /// Adds the way over all open rails at once, where there are several. It shares their
    /// connections, in turn by rail.
    fn join_rails(&mut self) {
        let open: Vec<&MeasuredWay> =
            self.ways.iter().filter(|way| way.kind == TransportKind::Verbs).collect();
        let (rails, each) = (open.len(), open.first().map_or(0, |way| way.connections.len()));
        if rails < 2 {
            return;
        }
        let turns =
            (0..each).flat_map(|at| open.iter().map(move |way| way.connections[at].clone()));
        let connections = turns.collect();
        let (kind, name) = (TransportKind::Verbs, ALL_RAILS.to_owned());
        self.ways.push(MeasuredWay { kind, name, rails, connections });
    }

    fn leave_out(&mut self, kind: TransportKind, way: String, cause: LeftOutCause) {
        self.left_out.push(LeftOut { kind, way, cause });
    }
}

/// Opens `count` connections, or returns the first error.
async fn open_connections<F>(
    count: usize,
    connect: impl Fn() -> F,
) -> Result<Vec<Arc<dyn PeerConnection>>, TransportError>
where
    F: Future<Output = Result<Arc<dyn PeerConnection>, TransportError>>,
{
    let mut connections = Vec::with_capacity(count);
    for _ in 0..count.max(1) {
        connections.push(connect().await?);
    }
    Ok(connections)
}

/// Returns the local address from which the route to `to` leads. Sends nothing.
fn source_address(to: SocketAddr) -> std::io::Result<IpAddr> {
    let any: SocketAddr =
        if to.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0u16; 8], 0).into() };
    let socket = UdpSocket::bind(any)?;
    socket.connect(to)?;
    Ok(socket.local_addr()?.ip())
}
