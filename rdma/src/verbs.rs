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
mod chunk_slots;
mod client_connection;
mod client_rail;
mod completion_vectors;
mod foreign_regions;
mod gid_table;
mod message_events;
mod pinned_runtime;
mod pinning_turn;
mod poll_budget;
pub(crate) mod port_counters;
mod queue_pair_wire;
mod queue_terms;
mod rail;
mod rail_connector;
mod rail_drivers;
mod rail_keeper;
mod rail_metrics;
mod rail_opener;
mod rail_presence;
mod rail_regions;
mod rail_watch;
mod readable_source;
mod receive_buffers;
mod registration_trial;
mod send_requests;
mod server;
mod session_seals;
mod setup_runtime;
mod sys;
#[cfg(test)]
mod tests;
mod window_pool;
mod wire_halves;
mod write_plan;

use std::io;

pub use client_connection::{CLIENT_PIECE_BYTES, CLIENT_PIECES};
pub use client_rail::VerbsClientRail;
pub use pinned_runtime::{PinnedRuntime, RailDriver};
pub use rail::RailIdentity;
pub use rail_connector::VerbsTransport;
pub use rail_drivers::RailDrivers;
pub use rail_keeper::FirstAttempt;
pub use rail_presence::RailPlace;
pub use registration_trial::{
    RailRegistration, RegistrationOrder, has_memory_windows, time_registration,
};
pub use server::{RailAddress, VerbsServer, VerbsServerOptions};

use tokio::runtime::Handle;

use crate::calls::{CallOptions, HandshakeSecret};
use crate::cpu_affinity::{CpuSet, process_cpus};
use crate::settings::VerbsSettings;

/// Options that both sides of a verbs connection need.
#[derive(Debug, Clone)]
pub struct VerbsOptions {
    pub calls: CallOptions,
    pub settings: VerbsSettings,
    /// What drives the connections; `None` means the runtime that makes them.
    pub driver: Option<RailDriver>,
}

impl VerbsOptions {
    /// The default settings. Both sides need the same secret.
    pub fn new(secret: HandshakeSecret) -> Self {
        Self { calls: CallOptions::new(secret), settings: VerbsSettings::default(), driver: None }
    }

    /// Returns the CPUs on which the connections are driven.
    fn driver_cpus(&self) -> CpuSet {
        self.driver
            .as_ref()
            .map_or_else(process_cpus, |driver| driver.cpus.iter().copied().collect())
    }

    fn runtime_handle(&self) -> Handle {
        self.driver.as_ref().map_or_else(Handle::current, |driver| driver.runtime.clone())
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
