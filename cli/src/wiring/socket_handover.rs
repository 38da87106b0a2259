//! The way of listening sockets from a gateway that serves to the one that takes its place on the
//! host, over a socket file: both accept from the same queues, so no client finds a port closed.
//!
//! The new one takes the sockets before it opens its own, and says when it serves. From then on the
//! old one leaves the admin address to it, and goes on with S3 until it is ended. Where the new one
//! goes first, the old one has everything again. Each says first whose gateway it is and where it
//! listens: one of another cluster, or at other addresses, takes no place.

use std::fs;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, bail};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Interest};
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use verbs3_config::ClusterSettings;
use verbs3_doors::{NAME_LOOK, NameHolder, NamedSocket, SocketFileOptions, connect_named};
use verbs3_gateway::GatewaySettings;

use super::passed_sockets;

/// S3's and the admin address'.
const SOCKETS: usize = 2;
/// How long either side may take for its greeting.
const GREETING_MAX: Duration = Duration::from_secs(5);
const GREETING_BYTES_MAX: usize = 4096;
/// Processes that take this one's place at once: what is no mistake is one.
const SUCCESSORS_MAX: usize = 8;
/// What comes with the sockets, since they can't come alone.
const GIVEN: u8 = b'S';
/// What the new process says once it serves.
const SERVING: u8 = b'R';
const REMEDY: &str =
    "end the gateway that serves first (in the chart: nodes.gateway.takesOver=false)";

/// Who a gateway is to the one before it: what clients of its sockets rely on.
#[derive(Clone, PartialEq, Eq)]
pub struct HandoverGreeting(Vec<u8>);

impl HandoverGreeting {
    /// Tells the cluster, addresses, devices, and whether clients speak TLS.
    pub fn of_gateway(gateway: &GatewaySettings, cluster: &ClusterSettings) -> Self {
        let GatewaySettings { listen, bind_device, admin_listen, admin_bind_device, tls, .. } =
            gateway;
        let (name, encrypts) = (&cluster.name, tls.certificate.is_some());
        Self(
            format!(
                "cluster {name:?}, gateway.listen {listen} over {bind_device:?}, \
                gateway.admin_listen {admin_listen} over {admin_bind_device:?}, TLS {encrypts}\n"
            )
            .into_bytes(),
        )
    }
}

/// The process whose place this one takes. Dropped, it is told that this one is gone.
pub struct Predecessor(UnixStream);

impl Predecessor {
    /// Takes the sockets of the process that offers them at `path`; `None`: there is none. Fails if
    /// it is another user's, another greeting's, or does not give them.
    pub async fn take_over(
        path: &Path,
        greeting: &HandoverGreeting,
    ) -> anyhow::Result<Option<Self>> {
        let connected = connect_named(path).await;
        let connected =
            connected.with_context(|| format!("can't connect to {}; {REMEDY}", path.display()))?;
        let Some(mut stream) = connected else { return Ok(None) };
        if !is_own_user(&stream)? {
            bail!("{} is another user's, whose sockets are not taken", path.display());
        }
        let received = timeout(GREETING_MAX, receive_sockets(&mut stream, greeting));
        let sockets =
            received.await.context("it does not answer").flatten().with_context(|| {
                format!("can't take the place of the gateway at {}; {REMEDY}", path.display())
            })?;
        passed_sockets::add_of_predecessor(sockets)?;
        tracing::info!(path = %path.display(), "takes the place of a gateway that serves here");
        Ok(Some(Self(stream)))
    }

    /// Follows the old process. When it is gone, or the token that is returned says that this one
    /// serves, the admin address is no longer ceded. The old one is told that it serves.
    pub fn follow(self, admin: watch::Sender<bool>) -> CancellationToken {
        let mut stream = self.0;
        let serving = CancellationToken::new();
        let told = serving.clone();
        tokio::spawn(async move {
            let is_gone = tokio::select! {
                () = told.cancelled() => false,
                _ = read_byte(&mut stream) => true,
            };
            admin.send_replace(false);
            if !is_gone && stream.write_u8(SERVING).await.is_ok() {
                // Open for as long as this process lives, which the old one sees.
                let _ = read_byte(&mut stream).await;
            }
        });
        serving
    }
}

/// Whether the other end is this process' user, or root. It may be of another PID namespace, where
/// it has no number here: rustix 1.1 takes such an answer for an error.
fn is_own_user(stream: &UnixStream) -> io::Result<bool> {
    let other = stream.peer_cred()?.uid();
    Ok(other == 0 || other == fs::metadata("/proc/self")?.uid())
}

async fn receive_sockets(
    stream: &mut UnixStream,
    greeting: &HandoverGreeting,
) -> anyhow::Result<Vec<OwnedFd>> {
    stream.write_all(&greeting.0).await?;
    let (byte, sockets) = loop {
        stream.readable().await?;
        match stream.try_io(Interest::READABLE, || receive_message(stream)) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            received => break received?,
        }
    };
    if byte == Some(GIVEN) && sockets.len() == SOCKETS {
        return Ok(sockets);
    }
    let mut told: Vec<u8> = byte.into_iter().collect();
    let _ = stream.take(GREETING_BYTES_MAX as u64).read_to_end(&mut told).await;
    bail!("it gives no sockets to this one; it is of {:?}", String::from_utf8_lossy(&told).trim())
}

/// A byte, and what came with it.
fn receive_message(stream: &UnixStream) -> io::Result<(Option<u8>, Vec<OwnedFd>)> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SOCKETS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let received = recvmsg(stream, &mut [IoSliceMut::new(&mut byte)], &mut control, flags)?;
    let mut sockets = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(passed) = message {
            sockets.extend(passed);
        }
    }
    Ok(((received.bytes == 1).then_some(byte[0]), sockets))
}

/// The listening sockets of this process, for the one that takes its place.
pub struct OfferedSockets {
    pub path: PathBuf,
    pub greeting: HandoverGreeting,
    pub sockets: [OwnedFd; SOCKETS],
    /// Whether the admin address is another process'.
    pub admin: watch::Sender<bool>,
}

impl OfferedSockets {
    /// Offers them until `stop`, and then lets them go. Fails if the socket file can't be made.
    pub fn start_offer(self, stop: CancellationToken) -> anyhow::Result<()> {
        let path = self.path.clone();
        let options =
            SocketFileOptions { path: path.clone(), mode: 0o600, owner: None, group: None };
        let named = NamedSocket::open(options).with_context(|| {
            format!("can't make {}; is its folder there, and this user's to write?", path.display())
        })?;
        tokio::spawn(async move { stop.run_until_cancelled(self.offer_at(named)).await });
        Ok(())
    }

    /// The admin address is this process' while no other serves, and none has the name.
    async fn offer_at(self, mut named: NamedSocket) {
        let offered = Arc::new(self);
        let mut successors = JoinSet::new();
        let serving = Arc::new(AtomicUsize::new(0));
        let mut looks = tokio::time::interval(NAME_LOOK);
        loop {
            tokio::select! {
                accepted = named.accept() => match accepted {
                    Ok(stream) if successors.len() < SUCCESSORS_MAX => {
                        successors.spawn(offered.clone().attend_successor(stream, serving.clone()));
                    }
                    Ok(_) => tracing::warn!("too many processes take this gateway's place"),
                    Err(error) => {
                        tracing::warn!(%error, "no gateway can take this one's place for now");
                        tokio::time::sleep(NAME_LOOK).await;
                    }
                },
                _ = successors.join_next(), if !successors.is_empty() => {}
                _ = looks.tick() => {}
            }
            let holder = named.keep_name().await;
            let is_own = matches!(holder, Ok(NameHolder::Own));
            if serving.load(Ordering::Relaxed) == 0 && is_own && offered.admin.send_replace(false) {
                tracing::warn!("the other gateway is gone; this one has everything again");
            }
        }
    }

    /// Until the process at the other end has ended.
    async fn attend_successor(self: Arc<Self>, mut stream: UnixStream, serving: Arc<AtomicUsize>) {
        match timeout(GREETING_MAX, self.greet_successor(&mut stream)).await {
            Ok(Ok(true)) => tracing::info!("another gateway starts to take this one's place"),
            Ok(Ok(false)) | Err(_) => return,
            Ok(Err(error)) => {
                tracing::warn!("this gateway's sockets were not given: {error:#}");
                return;
            }
        }
        if read_byte(&mut stream).await == Some(SERVING) {
            let _counted = CountedSuccessor::of(&serving);
            self.admin.send_replace(true);
            tracing::info!("the other gateway serves; this one does S3 alone until it is ended");
            while read_byte(&mut stream).await.is_some() {}
        }
    }

    /// Gives the sockets to one that greets as this one would; false: it has said nothing.
    async fn greet_successor(&self, stream: &mut UnixStream) -> anyhow::Result<bool> {
        if !is_own_user(stream)? {
            bail!("another user asked for them");
        }
        let mut greeting = Vec::new();
        let read = (&mut *stream).take(GREETING_BYTES_MAX as u64);
        if BufReader::new(read).read_until(b'\n', &mut greeting).await? == 0 {
            return Ok(false);
        }
        if greeting != self.greeting.0 {
            let _ = stream.write_all(&self.greeting.0).await;
            bail!(
                "a gateway asked for them that is of {:?}, and this one is of {:?}",
                String::from_utf8_lossy(&greeting).trim(),
                String::from_utf8_lossy(&self.greeting.0).trim()
            );
        }
        self.send_sockets(stream)?;
        Ok(true)
    }

    /// A message this short fits a new socket.
    fn send_sockets(&self, stream: &UnixStream) -> io::Result<()> {
        let sockets = self.sockets.each_ref().map(OwnedFd::as_fd);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SOCKETS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !control.push(SendAncillaryMessage::ScmRights(&sockets)) {
            return Err(io::Error::other("no space for them"));
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        sendmsg(stream, &[IoSlice::new(&[GIVEN])], &mut control, flags)?;
        Ok(())
    }
}

/// A successor that serves, counted for as long as this lives.
struct CountedSuccessor(Arc<AtomicUsize>);

impl CountedSuccessor {
    fn of(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count.clone())
    }
}

impl Drop for CountedSuccessor {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// `None`: the other end is gone.
async fn read_byte(stream: &mut UnixStream) -> Option<u8> {
    stream.read_u8().await.ok()
}
