//! Frames over TCP: Ethernet and IPoIB. Data goes from the owner's memory to the socket and from the socket into the
//! landing, without a buffer between.
//!
//! Owns the options and the making of sockets. `client` calls, `server` and `session` serve, `handshake` comes before both.

mod call;
mod client;
mod frame;
mod handshake;
mod intake;
mod outbox;
mod server;
mod session;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::net::TcpStream;

pub use client::TcpTransport;
pub use handshake::Secret;
pub use server::{BindError, TcpServer, TcpServerOptions};

use handshake::Terms;

/// What both sides of a TCP connection need.
#[derive(Debug, Clone)]
pub struct TcpOptions {
    /// Known to every host of the cluster.
    pub secret: Secret,
    /// Name of this host: what its peers expect it to say, and write to their logs. At most 64 bytes are sent.
    pub name: String,
    /// Longest time for connecting and the handshake together.
    pub connect_deadline: Duration,
    /// Credits: calls under way on one connection. The smaller of both sides' bounds holds.
    pub calls_in_flight_max: u32,
    /// Longest message in bytes; data has no such bound. The smaller of both sides' bounds holds.
    pub frame_bytes_max: u32,
    /// Bytes that wait for one socket; a writer beyond them waits itself.
    pub write_queue_bytes_max: usize,
    /// A peer that has not acknowledged a cancel after this loses its connection, so that landings come back.
    pub cancel_ack_deadline: Duration,
    /// Idle time before the first keep-alive probe.
    pub keepalive_idle: Duration,
    /// Time between two probes; three unanswered ones end the connection.
    pub keepalive_interval: Duration,
    /// A peer that takes no byte for this long is gone (TCP_USER_TIMEOUT).
    pub send_stall_max: Duration,
    /// Network device to use ("ib0"); needs CAP_NET_RAW on older kernels.
    pub bind_device: Option<String>,
    /// Local address to connect from.
    pub bind_address: Option<IpAddr>,
}

impl TcpOptions {
    pub fn new(secret: Secret) -> Self {
        Self {
            secret,
            name: String::new(),
            connect_deadline: Duration::from_secs(5),
            calls_in_flight_max: 256,
            frame_bytes_max: 64 << 10,
            write_queue_bytes_max: 8 << 20,
            cancel_ack_deadline: Duration::from_secs(10),
            keepalive_idle: Duration::from_secs(15),
            keepalive_interval: Duration::from_secs(5),
            send_stall_max: Duration::from_secs(30),
            bind_device: None,
            bind_address: None,
        }
    }

    fn terms(&self) -> Terms<'_> {
        Terms {
            secret: &self.secret,
            name: &self.name,
            frame_bytes_max: self.frame_bytes_max,
            calls_in_flight_max: self.calls_in_flight_max,
        }
    }

    fn socket(&self, address: SocketAddr) -> io::Result<Socket> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_nonblocking(true)?;
        if let Some(device) = &self.bind_device {
            socket
                .bind_device(Some(device.as_bytes()))
                .map_err(|error| io::Error::new(error.kind(), format!("can't use device {device}: {error}")))?;
        }
        Ok(socket)
    }

    fn tune(&self, stream: &TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let keepalive =
            TcpKeepalive::new().with_time(self.keepalive_idle).with_interval(self.keepalive_interval).with_retries(3);
        let socket = SockRef::from(stream);
        socket.set_tcp_keepalive(&keepalive)?;
        socket.set_tcp_user_timeout(Some(self.send_stall_max))
    }
}

/// More control frames than a peer's calls can cause: an acknowledgement or a failure for each, twice over.
fn controls_max(calls_in_flight_max: u32) -> usize {
    calls_in_flight_max as usize * 2 + 16
}
