//! Owns the serving side of a measurement: one service behind every transport that this host has.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use super::BenchError;
use super::left_out::{LeftOut, LeftOutCause};
use super::message::BenchHostInfo;
use super::pattern_pages::PatternPages;
use super::plain_server::PlainServer;
use super::service::BenchService;
use verbs3_rdma::arena::{Arena, ArenaOptions};
use verbs3_rdma::calls::CallOptions;
use verbs3_rdma::peer::{ShmWay, TransportWays};
use verbs3_rdma::shm::{ShmServer, ShmServerOptions};
use verbs3_rdma::tcp::{TcpOptions, TcpServer, TcpServerOptions};
use verbs3_rdma::transport::{CallService, TransportKind};
use verbs3_rdma::verbs::{VerbsOptions, VerbsServer, VerbsServerOptions};

/// Options that say where to serve.
#[derive(Debug, Clone)]
pub struct HostOptions {
    /// Address of the tcp transport; a requester finds the other ways by it.
    pub listen: SocketAddr,
    pub tcp: TcpOptions,
    pub verbs: VerbsOptions,
    /// Addresses of the rails to offer.
    pub rails: Vec<IpAddr>,
    pub shm: CallOptions,
    /// Socket to offer to processes of this host.
    pub socket: Option<PathBuf>,
    /// Unit of pushed data in bytes, like a worker's page.
    pub page_bytes: usize,
    /// Bytes of memory for pages, and for what requesters push.
    pub arena_bytes: usize,
    /// Runtimes that serve tcp connections; see [`TcpServerOptions`].
    pub runtimes: Vec<tokio::runtime::Handle>,
}

/// A host that serves until it is shut down or dropped.
pub struct BenchHost {
    tcp: TcpServer,
    rails: Vec<VerbsServer>,
    shm: Option<ShmServer>,
    ways: TransportWays,
    left_out: Vec<LeftOut>,
    _plain: PlainServer,
}

impl BenchHost {
    /// Opens what can be opened. Fails without tcp. Other failures are left out and reported.
    pub async fn start(options: HostOptions) -> Result<Self, BenchError> {
        let page_bytes = options.page_bytes;
        let map = ArenaOptions {
            capacity_bytes: options.arena_bytes,
            cell_bytes_max: page_bytes,
            populate: true,
        };
        let arena = Arena::map_memory(map)
            .map_err(|error| BenchError::io_error("map memory")(std::io::Error::other(error)))?;
        let no_room = BenchError::NoRoom { bytes: PatternPages::memory_bytes(page_bytes) as u64 };
        let source = Arc::new(PatternPages::new(&arena, page_bytes).ok_or(no_room)?);
        let word = rand::random();
        let plain = PlainServer::bind(options.listen, word, source.clone())
            .map_err(BenchError::io_error(format!("listen on {}", options.listen.ip())))?;

        // The service reports what was left out, so it can be made only after all is opened. Nobody
        // asks it before.
        let service = Arc::new(DeferredService::default());
        let mut opened = HostWaySetup { ways: TransportWays::default(), left_out: Vec::new() };
        let rails = opened.bind_rails(&options, &arena, &service).await;
        let shm = opened.bind_shm(&options, &arena, &service).await;
        let HostWaySetup { ways, left_out } = opened;
        let about = BenchHostInfo {
            page_bytes: page_bytes as u32,
            plain_port: plain.port,
            plain_word: word,
            left_out: left_out
                .iter()
                .map(|left| format!("{}: {}\n", left.way, left.cause))
                .collect(),
        };
        // Set once, here.
        let _ = service.0.set(BenchService { arena, source, about });
        let tcp = TcpServerOptions {
            ways: ways.clone().into(),
            runtimes: options.runtimes,
            ..TcpServerOptions::new(options.tcp)
        };
        let tcp = TcpServer::bind(options.listen, tcp, service).await.map_err(|error| {
            BenchError::io_error(format!("listen on {}", error.address))(error.source)
        })?;
        Ok(Self { tcp, rails, shm, ways, left_out, _plain: plain })
    }

    /// Returns the address of the tcp listener. A port of 0 in `HostOptions::listen` is resolved
    /// here.
    pub fn local_addr(&self) -> SocketAddr {
        self.tcp.local_addr()
    }

    /// Returns the ways offered beside tcp.
    pub fn offered_ways(&self) -> &TransportWays {
        &self.ways
    }

    /// Returns the ways that this host could not open, with the reason.
    pub fn left_out(&self) -> &[LeftOut] {
        &self.left_out
    }

    /// Closes every transport and waits until its tasks have ended. The listener for plain streams
    /// closes last.
    pub async fn shutdown(self) {
        self.tcp.shutdown().await;
        for rail in self.rails {
            rail.shutdown().await;
        }
        if let Some(shm) = self.shm {
            shm.shutdown().await;
        }
    }
}

struct HostWaySetup {
    ways: TransportWays,
    left_out: Vec<LeftOut>,
}

impl HostWaySetup {
    async fn bind_rails(
        &mut self,
        options: &HostOptions,
        arena: &Arena,
        service: &Arc<DeferredService>,
    ) -> Vec<VerbsServer> {
        let mut rails = Vec::new();
        for &address in &options.rails {
            let serve = VerbsServerOptions::new(options.verbs.clone());
            match VerbsServer::bind(
                SocketAddr::new(address, 0),
                serve,
                arena.clone(),
                service.clone(),
            )
            .await
            {
                Ok(server) => {
                    self.ways.rails.push(server.local_addr());
                    rails.push(server);
                }
                Err(error) => {
                    self.leave_out(TransportKind::Verbs, format!("verbs {address}"), error.into())
                }
            }
        }
        rails
    }

    async fn bind_shm(
        &mut self,
        options: &HostOptions,
        arena: &Arena,
        service: &Arc<DeferredService>,
    ) -> Option<ShmServer> {
        let path = options.socket.as_ref()?;
        let serve = ShmServerOptions::new(options.shm.clone());
        let serving = async {
            let server = ShmServer::bind(path, serve, arena.clone(), service.clone()).await?;
            self.ways.shm = Some(ShmWay::of_this_host(path)?);
            Ok(server)
        };
        match serving.await {
            Ok(server) => Some(server),
            Err(cause) => {
                self.leave_out(TransportKind::Shm, "shm".into(), cause);
                None
            }
        }
    }

    fn leave_out(&mut self, kind: TransportKind, way: String, cause: LeftOutCause) {
        self.left_out.push(LeftOut { kind, way, cause });
    }
}

/// A service that is set after the transports are opened.
#[derive(Default)]
struct DeferredService(std::sync::OnceLock<BenchService>);

#[async_trait::async_trait]
impl CallService for DeferredService {
    async fn serve_call(
        &self,
        request: verbs3_rdma::transport::IncomingCall,
        reply: verbs3_rdma::transport::ReplySender,
    ) {
        // An earlier call is dropped, and its requester is told. Nobody knows of the ways before.
        if let Some(service) = self.0.get() {
            service.serve_call(request, reply).await;
        }
    }
}
