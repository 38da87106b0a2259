//! Owns the verbs bindings and every `unsafe` call into them. The listing is here, connections in
//! `cm`, a device's events in `device_events`, their queue pairs in `queue_pair`, those that are
//! connected by numbers in `numbered_pair`, the states of both in `states`, memory in `memory`,
//! windows over it in `window`, queues in `queue`, `shared_queue` and `siw_first_queue`, a port's
//! attributes in `port`. No other file of the crate names the bindings.
//!
//! `rdma-mummy-sys` carries the declarations of libibverbs and librdmacm. It loads both at run
//! time, so the binary starts on a host without them. The `ibverbs` family was tried and left out.
//! `ibverbs` 0.9.2, the newest published, has no RDMA WRITE. `ibverbs-sys` needs the system's
//! headers and links dynamically, so its binary does not start where libibverbs is missing. The
//! choice stays inside this folder.

mod cm;
mod device_events;
mod memory;
mod numbered_pair;
mod port;
mod queue;
mod queue_pair;
mod shared_queue;
mod siw_first_queue;
mod states;
mod window;

use std::ffi::CStr;
use std::io;
use std::os::fd::RawFd;

use rdma_mummy_sys as ffi;

pub(super) use cm::{CmEvent, CmId, EventChannel, EventKind, PRIVATE_BYTES_MAX};
pub(super) use device_events::{DeviceEvents, DeviceHealth, DeviceReport, PairWatch};
pub(super) use memory::{
    MemoryRegion, ProtectionDomain, RegionAccess, RegionTerms, RegisteredBuffer,
};
pub(super) use numbered_pair::{NumberedEnds, NumberedQueuePair, PacketNumber};
pub(super) use port::PortAttributes;
pub(super) use queue::{
    CompletionQueue, GatherElement, NotifyEvent, SGES_MAX, WorkCompletion, WorkOperation,
    WorkRequest,
};
pub(super) use queue_pair::{BEACON, CmQueuePair, ConnectOptions, QueuePairParts, QueueSizes};
pub(super) use shared_queue::SharedQueue;
pub(super) use window::MemoryWindow;

/// Makes the error of a call that returns -1 or a null pointer and sets `errno`.
fn last_error(what: &str) -> io::Error {
    let error = io::Error::last_os_error();
    io::Error::new(error.kind(), format!("{what}: {error}"))
}

/// Checks the result of a call that returns 0, an errno, or -1 with `errno` set. libibverbs returns
/// an errno, librdmacm returns -1.
fn check_result(result: libc::c_int, what: &str) -> io::Result<()> {
    match result {
        0 => Ok(()),
        -1 => Err(last_error(what)),
        code => {
            let error = io::Error::from_raw_os_error(code.abs());
            Err(io::Error::new(error.kind(), format!("{what}: {error}")))
        }
    }
}

/// Makes reads of a descriptor return at once.
fn set_nonblocking(fd: RawFd) -> io::Result<()> {
    // SAFETY: the descriptor is open, and F_GETFL takes no argument.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    // SAFETY: as above; F_SETFL takes an int.
    if flags < 0 || unsafe { libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK) } < 0 {
        return Err(last_error("can't make a channel non-blocking"));
    }
    Ok(())
}

/// Lists the name and kind of each RDMA device of this host.
pub(super) fn list_devices() -> io::Result<Vec<(String, u32)>> {
    let mut count = 0;
    // SAFETY: `count` is a valid place for an int.
    let list = unsafe { ffi::ibv_get_device_list(&raw mut count) };
    if list.is_null() {
        return Err(io::Error::last_os_error());
    }
    let mut devices = Vec::new();
    for at in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: the list has `count` entries and lives until it is freed below.
        let device = unsafe { *list.add(at) };
        if device.is_null() {
            break;
        }
        // SAFETY: `device` is an entry of the live list.
        let name = unsafe { ffi::ibv_get_device_name(device) };
        if name.is_null() {
            continue;
        }
        // SAFETY: libibverbs returns a NUL-terminated string that lives as long as the device.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
        // SAFETY: as for the name; the field is plain data that nobody writes to after the listing.
        let transport = unsafe { (*device).transport_type };
        devices.push((name, transport as u32));
    }
    // SAFETY: the list came from `ibv_get_device_list`, and nothing of it is used after this.
    unsafe { ffi::ibv_free_device_list(list) };
    Ok(devices)
}

/// `IBV_TRANSPORT_IWARP` of `enum ibv_transport_type`; InfiniBand and RoCE are 0.
pub(super) const TRANSPORT_IWARP: u32 = 1;
