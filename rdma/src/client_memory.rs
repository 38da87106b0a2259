//! Defines writing into memory of a client that is no member of the cluster, and reading out of it:
//! what both ends tell each other, and in which order a connection is used.
//!
//! Moves nothing. `verbs/client_rail` does, over reliable connections.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use async_trait::async_trait;
use bytes::Bytes;

/// The address of a port, as queue pairs name it. RoCE makes it of an IP address.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PortGid(pub [u8; 16]);

impl PortGid {
    /// Returns the IP address that it is made of.
    pub fn ip_address(self) -> IpAddr {
        let address = Ipv6Addr::from(self.0);
        address.to_ipv4_mapped().map_or(IpAddr::V6(address), IpAddr::V4)
    }

    /// Returns whether it can be one host's on a network.
    pub fn is_of_one_host(self) -> bool {
        let address = self.ip_address();
        !(address.is_unspecified() || address.is_multicast() || address.is_loopback())
    }

    /// Returns whether it is an address of a link, which no router passes on.
    pub fn is_link_local(self) -> bool {
        Ipv6Addr::from(self.0).is_unicast_link_local()
    }
}

impl From<IpAddr> for PortGid {
    fn from(address: IpAddr) -> Self {
        Self(match address {
            IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
            IpAddr::V6(address) => address.octets(),
        })
    }
}

impl fmt::Debug for PortGid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ipv6Addr::from(self.0).fmt(f)
    }
}

/// This side of a connection to a client: what the client has to know to make its own ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnEnd {
    pub pair_number: u32,
    pub gid: PortGid,
    /// Number of the first packet: 24 bits, not 0.
    pub first_packet: u32,
    pub port: u8,
}

/// The client's side of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientEnd {
    /// 24 bits.
    pub pair_number: u32,
    pub gid: PortGid,
    /// 24 bits.
    pub first_packet: u32,
    /// RDMA READs that its queue pair answers at once: 1 or more.
    pub reads_max: u8,
}

/// A place in memory that a client has registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientPlace {
    pub address: u64,
    pub key: u32,
}

/// Why nothing is written or read, or nothing more.
#[derive(Debug, thiserror::Error)]
pub enum ClientMemoryError {
    /// No rail of this host can be used now, or none has an address of the client's kind.
    #[error("no rail reaches the client")]
    NoRail,
    /// All memory that writes go out of, and reads into, is in use.
    #[error("no memory is free to write from, or to read into")]
    NoMemory,
    /// The client's device refused a write or a read, or did not answer.
    #[error("the client's memory can't be written or read")]
    Refused(#[source] std::io::Error),
    /// Something of this host.
    #[error("can't write to the client, nor read from it")]
    Device(#[source] std::io::Error),
}

/// A rail over which clients are written to, and read from.
#[async_trait]
pub trait ClientMemoryRail: Send + Sync {
    /// Returns how well the rail suits a client: higher is better. `None`: it can't be reached.
    fn suits_client(&self, gid: PortGid) -> Option<u8>;

    /// Makes this side of a connection. Nothing can be moved before the client's is known.
    async fn prepare_connection(
        &self,
        gid: PortGid,
    ) -> Result<Box<dyn ClientConnection>, ClientMemoryError>;
}

/// One side of a connection to a client, for one transfer.
///
/// Each method may be cancelled. The connection is then good for `close_connection` alone.
#[async_trait]
pub trait ClientConnection: Send {
    fn own_end(&self) -> OwnEnd;

    /// Makes the connection.
    async fn connect_client(&mut self, client: ClientEnd) -> Result<(), ClientMemoryError>;

    /// Copies `bytes` and writes them to `place`, once there is room. With `immediate`, tells the
    /// client that value behind them.
    async fn write_bytes(
        &mut self,
        place: ClientPlace,
        bytes: &[u8],
        immediate: Option<u32>,
    ) -> Result<(), ClientMemoryError>;

    /// Posts the read of up to `bytes_max` bytes at `place`. Returns how many it is for; 0: no more
    /// reads may be on their way, or wait to be taken.
    fn post_read(&mut self, place: ClientPlace, bytes_max: u64) -> Result<u64, ClientMemoryError>;

    /// Waits for the oldest read that was posted and not taken whole, and takes its next bytes.
    /// `None`: there is none. After an error, no read's bytes are to be had.
    async fn take_read(&mut self) -> Result<Option<Bytes>, ClientMemoryError>;

    /// Waits until all that was written is in the client's memory.
    async fn await_written(&mut self) -> Result<(), ClientMemoryError>;

    /// Waits until the rail is gone. A connection keeps its device from going.
    async fn await_loss(&self);

    /// Ends the connection. Once this has ended, this host writes nothing more to the client, and
    /// reads nothing.
    async fn close_connection(self: Box<Self>);
}
