//! Owns the options and sockets of frames over TCP: Ethernet and IPoIB.
//!
//! Data goes from the owner's memory to the socket and from the socket into the landing. Only some
//! hundred bytes that come with a header pass through a buffer. Over TLS all bytes do. `calls` knows
//! what is said over the sockets.

mod client;
mod server;
mod stream_inlet;
mod tls;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::net::TcpStream;

pub use client::TcpTransport;
pub use server::{TcpBindError, TcpServer, TcpServerOptions};
pub use tls::TcpTls;

use crate::calls::{CallOptions, HandshakeSecret};

/// Options that both sides of a TCP connection need.
#[derive(Debug, Clone)]
pub struct TcpOptions {
    pub calls: CallOptions,
    /// Idle time before the first keep-alive probe.
    pub keepalive_idle: Duration,
    /// Time between two probes; three unanswered ones end the connection.
    pub keepalive_interval: Duration,
    /// Longest time that a peer may take no byte before it counts as gone (TCP_USER_TIMEOUT).
    pub send_stall_max: Duration,
    /// Network device to use ("ib0"); needs CAP_NET_RAW on older kernels.
    pub bind_device: Option<String>,
    /// Local address to connect from.
    pub bind_address: Option<IpAddr>,
    /// Certificates of both sides. `None`: connections are plain.
    pub tls: Option<TcpTls>,
}

impl TcpOptions {
    /// Sets the defaults: keep-alive probes after 15 s and then every 5 s, a send stall of 30 s. No
    /// device and no local address is bound.
    pub fn new(secret: HandshakeSecret) -> Self {
        Self {
            calls: CallOptions::new(secret),
            keepalive_idle: Duration::from_secs(15),
            keepalive_interval: Duration::from_secs(5),
            send_stall_max: Duration::from_secs(30),
            bind_device: None,
            bind_address: None,
            tls: None,
        }
    }

    fn open_socket(&self, address: SocketAddr) -> io::Result<Socket> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_nonblocking(true)?;
        if let Some(device) = &self.bind_device {
            socket
                .bind_device(Some(device.as_bytes()))
                .map_err(|error| io::Error::new(error.kind(), no_device(device, &error)))?;
        }
        Ok(socket)
    }

    fn tune_stream(&self, stream: &TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let keepalive = TcpKeepalive::new()
            .with_time(self.keepalive_idle)
            .with_interval(self.keepalive_interval)
            .with_retries(3);
        let socket = SockRef::from(stream);
        socket.set_tcp_keepalive(&keepalive)?;
        socket.set_tcp_user_timeout(Some(self.send_stall_max))
    }
}

fn no_device(device: &str, error: &io::Error) -> String {
    format!(
        "the network device {device} can't be used: {error}; `ip link` lists those of this host \
        (tcp.bind_device)"
    )
}
