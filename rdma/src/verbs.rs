//! Owns the options of RDMA over reliable connections (InfiniBand, RoCE, iWARP), and the probe of
//! this host's devices.
//!
//! The owner of data writes it into the requester's landing. It then sends the message that vouches
//! for the data on the same queue pair. The probe's answer "none" is a value with a reason, never a
//! failure. Nothing here depends on immediate data, shared receive queues, atomics or windows,
//! which some devices lack. Shared receive queues and windows are used where a device has them.

mod buffer_ledger;
mod chunk;
mod chunk_sender;
#[cfg(test)]
mod fake_devices;
#[cfg(test)]
mod hostile;
mod pinned_runtime;
mod pinning_turn;
pub(crate) mod port_counters;
mod queue_pair_wire;
mod queue_terms;
mod rail;
mod rail_connector;
mod rail_keeper;
mod rail_metrics;
mod rail_opener;
mod rail_presence;
mod rail_regions;
mod rail_watch;
mod readable_source;
mod receive_buffers;
mod server;
mod session_seals;
#[cfg(test)]
mod sharing;
mod sys;
mod window_pool;
mod wire_halves;
mod write_plan;

use std::io;
use std::time::Duration;

pub use pinned_runtime::PinnedRuntime;
pub use rail::RailIdentity;
pub use rail_connector::VerbsTransport;
pub use rail_keeper::FirstAttempt;
pub use rail_presence::RailPlace;
pub use server::{RailAddress, VerbsServer, VerbsServerOptions};

use tokio::runtime::Handle;

use crate::calls::{CallOptions, HandshakeSecret};

/// Options that both sides of a verbs connection need.
#[derive(Debug, Clone)]
pub struct VerbsOptions {
    pub calls: CallOptions,
    /// Most receive buffers of one connection that the peer has credits for. There are as many
    /// slots to send from.
    pub receive_count: u16,
    /// Length of each buffer; the smaller of both sides' holds. A connection takes about
    /// `receive_count` times this for what it sends. It takes as much again for what it receives,
    /// where it has a ring of its own.
    pub receive_bytes: u32,
    /// Lets connections of a rail share receive buffers, where its device can.
    pub shared_receive: bool,
    /// Count of shared buffers. A connection that finds no room among them has a ring of its own.
    pub shared_receives: u16,
    /// Lends landings through memory windows of type 2, where the requester's device has them.
    pub windows: bool,
    /// Wants data that peers write into this side's memory to be tagged with the session's key.
    pub data_tags: bool,
    /// Lets the NIC's transfers from and to the arena pass each other on PCIe.
    pub relaxed_ordering: bool,
    /// Depth of the send queue, in work requests.
    pub send_queue: u32,
    /// Bytes that the NIC takes along with a request, where it can, instead of fetching them.
    pub inline_bytes: u32,
    /// Time that the NIC waits for an acknowledgement before it repeats: 4.096 µs times two to this
    /// power, 0 to 31; 17 is half a second. With seven repetitions a dead link is noticed after
    /// some four seconds. rdma_cm's own choice takes more than forty (seen with soft-RoCE).
    pub ack_timeout: u8,
    /// Times that the NIC repeats an unacknowledged request, 0 to 7.
    pub retry_count: u8,
    /// Times that the NIC waits for a receive buffer of the peer, 0 to 7; 7 means for ever.
    pub rnr_retry: u8,
    /// Most bytes in a packet: 256, 512, 1024, 2048 or 4096; `None` leaves it to the fabric. The
    /// smaller of both sides' holds; iWARP has no bound.
    pub path_mtu_max: Option<u16>,
    /// Type of service (RFC 2474), for the switches' queues.
    pub tos: Option<u8>,
    /// Time that a connection polls after its last completion, before it waits for the NIC's event.
    pub busy_poll: Duration,
    /// Silence after which a heartbeat is sent, at most twice as long, so that a dead peer is
    /// noticed.
    pub heartbeat: Duration,
    /// Longest pause between two attempts to open a rail that is down.
    pub reopen_max: Duration,
    /// Runtime that drives the connections; `None` means the runtime that makes them. See
    /// [`PinnedRuntime`].
    pub runtime: Option<Handle>,
}

impl VerbsOptions {
    /// Sets the defaults. Both sides need the same secret. Shared receive buffers are on; memory
    /// windows and busy polling are off.
    pub fn new(secret: HandshakeSecret) -> Self {
        Self {
            calls: CallOptions::new(secret),
            receive_count: 32,
            receive_bytes: 8192,
            shared_receive: true,
            shared_receives: 1024,
            windows: false,
            data_tags: false,
            relaxed_ordering: true,
            send_queue: 256,
            inline_bytes: 128,
            ack_timeout: 17,
            retry_count: 7,
            rnr_retry: 7,
            path_mtu_max: None,
            tos: None,
            busy_poll: Duration::ZERO,
            heartbeat: Duration::from_secs(15),
            reopen_max: Duration::from_secs(60),
            runtime: None,
        }
    }

    fn runtime_handle(&self) -> Handle {
        self.runtime.clone().unwrap_or_else(Handle::current)
    }
}

/// The kind of fabric that a device speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RdmaFabricKind {
    /// InfiniBand or RoCE; the listing does not tell them apart.
    InfiniBand,
    Iwarp,
}

/// One device that libibverbs lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RdmaDevice {
    pub name: String,
    pub fabric: RdmaFabricKind,
}

/// Reason why there is no RDMA device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoRdma {
    /// EOPNOTSUPP.
    #[error("no RDMA device: libibverbs is not installed; install rdma-core")]
    NoLibrary,
    /// The library is there. ENOSYS.
    #[error("no RDMA device: the kernel has no verbs; load ib_uverbs and the driver of the NIC")]
    NoKernelVerbs,
    /// Library and verbs are there.
    #[error(
        "no RDMA device: no device is present; check `rdma dev` and, in a container, \
        /dev/infiniband"
    )]
    NoDevice,
    /// The listing failed in another way.
    #[error("no RDMA device: {0}")]
    Other(String),
}

/// Returns a port's active MTU in bytes, as its device reports it. No kernel file has it. Returns
/// `None` where the device reports none, or can't be asked.
pub fn active_mtu(device: &str, port: u8) -> Option<u32> {
    let port = sys::PortAttributes::open_and_query(device, port).ok()?;
    (port.active_mtu > 0).then_some(u32::from(port.active_mtu))
}

/// Lists this host's RDMA devices. Returns at least one, or the reason why there is none.
pub fn probe_devices() -> Result<Vec<RdmaDevice>, NoRdma> {
    classify_listing(sys::list_devices())
}

fn classify_listing(listed: io::Result<Vec<(String, u32)>>) -> Result<Vec<RdmaDevice>, NoRdma> {
    match listed {
        Ok(devices) if devices.is_empty() => Err(NoRdma::NoDevice),
        Ok(devices) => {
            let named = devices.into_iter().map(|(name, transport)| RdmaDevice {
                name,
                fabric: if transport == sys::TRANSPORT_IWARP {
                    RdmaFabricKind::Iwarp
                } else {
                    RdmaFabricKind::InfiniBand
                },
            });
            Ok(named.collect())
        }
        Err(error) => Err(match error.raw_os_error() {
            Some(libc::EOPNOTSUPP) => NoRdma::NoLibrary,
            Some(libc::ENOSYS) => NoRdma::NoKernelVerbs,
            _ => NoRdma::Other(error.to_string()),
        }),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_way_of_having_no_device_is_a_value_with_its_reason() {
        let errno = |code| classify_listing(Err(io::Error::from_raw_os_error(code))).unwrap_err();
        assert_eq!(errno(95), NoRdma::NoLibrary);
        assert_eq!(errno(38), NoRdma::NoKernelVerbs);
        assert!(matches!(errno(13), NoRdma::Other(_)));
        assert_eq!(classify_listing(Ok(vec![])), Err(NoRdma::NoDevice));
        assert!(NoRdma::NoLibrary.to_string().starts_with("no RDMA device: libibverbs"));
    }

    #[test]
    fn devices_are_listed_with_their_fabric() {
        let devices = classify_listing(Ok(vec![("rxe0".into(), 0), ("siw0".into(), 1)])).unwrap();
        let fabrics: Vec<_> = devices.iter().map(|device| device.fabric).collect();
        assert_eq!(fabrics, [RdmaFabricKind::InfiniBand, RdmaFabricKind::Iwarp]);
    }

    #[test]
    fn the_probe_answers_on_any_host() {
        // A device directory that the kernel shows and the probe does not find would be a broken
        // probe.
        let kernel_has =
            std::fs::read_dir("/sys/class/infiniband").is_ok_and(|mut dir| dir.next().is_some());
        match probe_devices() {
            Ok(devices) => assert!(kernel_has && !devices.is_empty()),
            // Devices without the library are not usable, and that is the reason given.
            Err(reason) => assert!(!kernel_has || reason == NoRdma::NoLibrary, "{reason}"),
        }
    }
}
