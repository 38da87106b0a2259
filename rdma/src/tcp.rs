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
use std::net::SocketAddr;

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
    /// Certificates of both sides. `None`: connections are plain.
    pub tls: Option<TcpTls>,
}

impl TcpOptions {
    /// The default settings, and no certificates.
    pub fn new(secret: HandshakeSecret) -> Self {
        Self { calls: CallOptions::new(secret), tls: None }
    }

    /// Fails if this host has not the device or the address that connections are to leave by.
    pub fn check_binding(&self) -> io::Result<()> {
        let any = match self.calls.settings.bind_address {
            Some(address) => SocketAddr::new(address, 0),
            None => SocketAddr::from(([0, 0, 0, 0], 0)),
        };
        let socket = self.open_socket(any)?;
        socket.bind(&any.into()).map_err(|error| {
            let address = any.ip();
            let text = format!(
                "connections can't leave by {address}: {error}; `ip address` lists those of this \
                host (tcp.bind_address)"
            );
            io::Error::new(error.kind(), text)
        })
    }

    fn open_socket(&self, address: SocketAddr) -> io::Result<Socket> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_nonblocking(true)?;
        if let Some(device) = &self.calls.settings.bind_device {
            socket
                .bind_device(Some(device.as_bytes()))
                .map_err(|error| io::Error::new(error.kind(), no_device(device, &error)))?;
        }
        Ok(socket)
    }

    fn tune_stream(&self, stream: &TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let settings = &self.calls.settings;
        let keepalive = TcpKeepalive::new()
            .with_time(settings.keepalive_idle.0)
            .with_interval(settings.keepalive_interval.0)
            .with_retries(3);
        let socket = SockRef::from(stream);
        socket.set_tcp_keepalive(&keepalive)?;
        socket.set_tcp_user_timeout(Some(settings.send_stall_max.0))
    }
}

fn no_device(device: &str, error: &io::Error) -> String {
    format!(
        "the network device {device} can't be used: {error}; `ip link` lists those of this host \
        (tcp.bind_device)"
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::settings::TcpSettings;

    #[test]
    fn what_connections_are_to_leave_by_has_to_be_there() {
        let bound_to = |device: Option<&str>, address: Option<&str>| {
            let mut options = TcpOptions::new(HandshakeSecret::new("a secret of the tests"));
            options.calls.settings = TcpSettings {
                bind_device: device.map(str::to_owned),
                bind_address: address.map(|address| address.parse().unwrap()),
                ..TcpSettings::default()
            };
            options.check_binding().map_err(|error| error.to_string())
        };
        for address in [None, Some("127.0.0.1"), Some("::1")] {
            assert_eq!(bound_to(None, address), Ok(()), "{address:?}");
        }
        // An address of documentation: no host has it.
        for address in ["192.0.2.1", "2001:db8::1"] {
            let refused = bound_to(None, Some(address)).unwrap_err();
            assert!(refused.contains(address) && refused.contains("tcp.bind_address"), "{refused}");
        }
        let refused = bound_to(Some("verbs3-none"), None).unwrap_err();
        assert!(
            refused.contains("verbs3-none") && refused.contains("tcp.bind_device"),
            "{refused}"
        );
    }
}
