//! Owns connections by rdma_cm: ids and their event channels, and the order of their ends. The
//! address selects device, port, GID and P_Key.
//!
//! Makes no queue pair: `queue_pair` does, with an id.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::time::Duration;

use rdma_mummy_sys as ffi;
use socket2::SockAddr;

use super::{TRANSPORT_IWARP, check_result, last_error, set_nonblocking};

/// Private bytes that an InfiniBand connection request has room for.
pub(in crate::verbs) const PRIVATE_BYTES_MAX: usize = 56;

/// `RDMA_OPTION_ID` and its options, of <rdma/rdma_cma.h>. The bindings leave macros and anonymous
/// enums out.
const OPTION_ID: libc::c_int = 0;
const OPTION_ID_TOS: libc::c_int = 0;
const OPTION_ID_REUSEADDR: libc::c_int = 1;
const OPTION_ID_ACK_TIMEOUT: libc::c_int = 3;

/// The channel of events for one or more ids.
pub(in crate::verbs) struct EventChannel {
    channel: NonNull<ffi::rdma_event_channel>,
}

// SAFETY: librdmacm serialises every call on a channel.
unsafe impl Send for EventChannel {}
// SAFETY: as for Send.
unsafe impl Sync for EventChannel {}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::verbs) enum EventKind {
    AddressResolved,
    RouteResolved,
    ConnectRequest,
    /// The peer accepts. A queue pair whose states this side moves becomes ready; call
    /// `establish_connection` next.
    Accepted,
    Established,
    Disconnected,
    DeviceRemoved,
    /// The address moved to another port, as at a failover of bonded ports.
    AddressChanged,
    /// The peer did not accept.
    Refused,
    /// Connecting failed; the text says how.
    Failed(&'static str),
    /// An event that needs no action.
    Other,
}

/// An event, already acknowledged.
pub(in crate::verbs) struct CmEvent {
    pub(in crate::verbs) kind: EventKind,
    pub(in crate::verbs) status: i32,
    /// The new id of a connect request.
    pub(in crate::verbs) request: Option<CmId>,
    /// Private data of the peer's request, acceptance or refusal, padded with zeroes.
    pub(in crate::verbs) private: [u8; PRIVATE_BYTES_MAX],
}

impl EventChannel {
    pub(in crate::verbs) fn new() -> io::Result<Arc<Self>> {
        // SAFETY: takes nothing.
        let channel = unsafe { ffi::rdma_create_event_channel() };
        let channel = NonNull::new(channel)
            .ok_or_else(|| last_error("can't create an RDMA event channel"))?;
        let channel = Self { channel };
        set_nonblocking(channel.as_fd().as_raw_fd())?;
        Ok(Arc::new(channel))
    }

    /// Returns the next event, if there is one.
    pub(in crate::verbs) fn next(self: &Arc<Self>) -> io::Result<Option<CmEvent>> {
        let mut event = ptr::null_mut();
        // SAFETY: the channel is alive and does not block.
        if unsafe { ffi::rdma_get_cm_event(self.channel.as_ptr(), &raw mut event) } != 0 {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::WouldBlock { Ok(None) } else { Err(error) };
        }
        // SAFETY: the call succeeded: the event is valid until it is acknowledged below.
        let (event_type, status, id) = unsafe { ((*event).event, (*event).status, (*event).id) };
        let kind = map_event_type(event_type);
        let mut private = [0; PRIVATE_BYTES_MAX];
        let tells = [
            ffi::rdma_cm_event_type::RDMA_CM_EVENT_CONNECT_REQUEST,
            ffi::rdma_cm_event_type::RDMA_CM_EVENT_CONNECT_RESPONSE,
            ffi::rdma_cm_event_type::RDMA_CM_EVENT_ESTABLISHED,
            ffi::rdma_cm_event_type::RDMA_CM_EVENT_REJECTED,
        ];
        if tells.contains(&event_type) {
            // SAFETY: these kinds carry connection parameters.
            let (data, bytes) = unsafe {
                (
                    (*event).param.conn.private_data.cast::<u8>(),
                    (*event).param.conn.private_data_len,
                )
            };
            let bytes = usize::from(bytes).min(PRIVATE_BYTES_MAX);
            if !data.is_null() {
                // SAFETY: librdmacm says that so many bytes are there until the acknowledgement.
                unsafe { ptr::copy_nonoverlapping(data, private.as_mut_ptr(), bytes) };
            }
        }
        // SAFETY: taken above, and acknowledged once. Nothing of it is used after this but the id
        // of a request, which is the caller's from now on.
        unsafe { ffi::rdma_ack_cm_event(event) };
        let request = match (kind, NonNull::new(id)) {
            (EventKind::ConnectRequest, Some(id)) => {
                Some(CmId { id, channel: self.clone(), own_states: false })
            }
            _ => None,
        };
        Ok(Some(CmEvent { kind, status, request, private }))
    }
}

fn map_event_type(event: ffi::rdma_cm_event_type::Type) -> EventKind {
    use ffi::rdma_cm_event_type as event_type;
    match event {
        event_type::RDMA_CM_EVENT_ADDR_RESOLVED => EventKind::AddressResolved,
        event_type::RDMA_CM_EVENT_ROUTE_RESOLVED => EventKind::RouteResolved,
        event_type::RDMA_CM_EVENT_CONNECT_REQUEST => EventKind::ConnectRequest,
        event_type::RDMA_CM_EVENT_CONNECT_RESPONSE => EventKind::Accepted,
        event_type::RDMA_CM_EVENT_ESTABLISHED => EventKind::Established,
        event_type::RDMA_CM_EVENT_DISCONNECTED => EventKind::Disconnected,
        event_type::RDMA_CM_EVENT_DEVICE_REMOVAL => EventKind::DeviceRemoved,
        event_type::RDMA_CM_EVENT_ADDR_CHANGE => EventKind::AddressChanged,
        event_type::RDMA_CM_EVENT_ADDR_ERROR => EventKind::Failed("no RDMA route to its address"),
        event_type::RDMA_CM_EVENT_ROUTE_ERROR => EventKind::Failed("its route can't be resolved"),
        event_type::RDMA_CM_EVENT_CONNECT_ERROR => {
            EventKind::Failed("the connection can't be made")
        }
        event_type::RDMA_CM_EVENT_UNREACHABLE => EventKind::Failed("it does not answer"),
        event_type::RDMA_CM_EVENT_REJECTED => EventKind::Refused,
        _ => EventKind::Other,
    }
}

impl AsFd for EventChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel lives as long as `self`.
        let fd = unsafe { (*self.channel.as_ptr()).fd };
        // SAFETY: open until the channel is destroyed, in `drop`.
        unsafe { BorrowedFd::borrow_raw(fd) }
    }
}

impl Drop for EventChannel {
    fn drop(&mut self) {
        // SAFETY: ids hold their channel, so none is left.
        unsafe { ffi::rdma_destroy_event_channel(self.channel.as_ptr()) };
    }
}

/// A connection or a listener, without a queue pair. [`CmQueuePair`](super::CmQueuePair) adds one.
pub(in crate::verbs) struct CmId {
    id: NonNull<ffi::rdma_cm_id>,
    /// Dropped after the id, which `drop` destroys.
    channel: Arc<EventChannel>,
    own_states: bool,
}

// SAFETY: librdmacm serialises every call on an id.
unsafe impl Send for CmId {}
// SAFETY: as for Send: `&CmId` reads fields that only `&mut self` calls change.
unsafe impl Sync for CmId {}

impl CmId {
    pub(in crate::verbs) fn new(channel: &Arc<EventChannel>) -> io::Result<Self> {
        let mut id = ptr::null_mut();
        let space = ffi::rdma_port_space::RDMA_PS_TCP;
        // SAFETY: the channel is alive and held by the new id; `id` is a valid place.
        let made = unsafe {
            ffi::rdma_create_id(channel.channel.as_ptr(), &raw mut id, ptr::null_mut(), space)
        };
        check_result(made, "can't create an RDMA id")?;
        let id = NonNull::new(id).ok_or_else(|| io::Error::other("librdmacm gave no id"))?;
        Ok(Self { id, channel: channel.clone(), own_states: false })
    }

    /// Binds to a local address, and thereby to its device, if it has one.
    pub(in crate::verbs) fn bind(&self, address: SocketAddr) -> io::Result<()> {
        let one: libc::c_int = 1;
        // SAFETY: the option takes an int.
        let _ = unsafe {
            ffi::rdma_set_option(
                self.id.as_ptr(),
                OPTION_ID,
                OPTION_ID_REUSEADDR,
                (&raw const one).cast_mut().cast(),
                4,
            )
        };
        let address = SockAddr::from(address);
        // SAFETY: the address lives through the call, which does not write to it.
        let bound =
            unsafe { ffi::rdma_bind_addr(self.id.as_ptr(), address.as_ptr().cast_mut().cast()) };
        check_result(bound, "can't bind the RDMA address")
    }

    pub(in crate::verbs) fn start_listening(&self, backlog: i32) -> io::Result<()> {
        check_result(
            // SAFETY: the id is alive and bound.
            unsafe { ffi::rdma_listen(self.id.as_ptr(), backlog) },
            "can't listen for RDMA connections",
        )
    }

    /// Returns a listener's port, also where it asked for any.
    pub(in crate::verbs) fn local_port(&self) -> u16 {
        // The port lies at the same place in addresses of both families.
        // SAFETY: the id is alive and bound, so its address is set.
        u16::from_be(unsafe { (*self.id.as_ptr()).route.addr.src_addr_union.src_sin.sin_port })
    }

    /// Returns the source of a connection request. `None` means that it is no IP address.
    pub(in crate::verbs) fn peer_ip(&self) -> Option<IpAddr> {
        // SAFETY: the id is alive; librdmacm has written the peer's address, or left zeros.
        let peer = unsafe { &(*self.id.as_ptr()).route.addr.dst_addr_union };
        // SAFETY: the family lies at the same place in all members, and any bytes are one.
        match i32::from(unsafe { peer.dst_addr.sa_family }) {
            libc::AF_INET => {
                // SAFETY: the family says which member it is; any bytes are an address.
                let bits = unsafe { peer.dst_sin.sin_addr.s_addr };
                Some(Ipv4Addr::from_bits(u32::from_be(bits)).into())
            }
            libc::AF_INET6 => {
                // SAFETY: as above.
                let bytes = unsafe { peer.dst_sin6.sin6_addr.s6_addr };
                Some(Ipv6Addr::from(bytes).into())
            }
            _ => None,
        }
    }

    pub(in crate::verbs) fn set_tos(&self, mut tos: u8) -> io::Result<()> {
        let value = (&raw mut tos).cast();
        // SAFETY: the option takes one byte.
        let set =
            unsafe { ffi::rdma_set_option(self.id.as_ptr(), OPTION_ID, OPTION_ID_TOS, value, 1) };
        check_result(set, "can't set the type of service")
    }

    /// Sets how long this side's NIC waits for an acknowledgement: 4.096 µs times two to this
    /// power.
    pub(in crate::verbs) fn set_ack_timeout(&self, mut exponent: u8) -> io::Result<()> {
        let value = (&raw mut exponent).cast();
        // SAFETY: the option takes one byte.
        let set = unsafe {
            ffi::rdma_set_option(self.id.as_ptr(), OPTION_ID, OPTION_ID_ACK_TIMEOUT, value, 1)
        };
        check_result(set, "can't set the acknowledgement timeout")
    }

    pub(in crate::verbs) fn resolve_address(
        &self,
        from: IpAddr,
        to: SocketAddr,
        within: Duration,
    ) -> io::Result<()> {
        let (from, to) = (SockAddr::from(SocketAddr::new(from, 0)), SockAddr::from(to));
        let (from, to) = (from.as_ptr().cast_mut().cast(), to.as_ptr().cast_mut().cast());
        check_result(
            // SAFETY: both addresses live through the call, which does not write to them.
            unsafe { ffi::rdma_resolve_addr(self.id.as_ptr(), from, to, timeout_millis(within)) },
            "can't resolve it",
        )
    }

    pub(in crate::verbs) fn resolve_route(&self, within: Duration) -> io::Result<()> {
        check_result(
            // SAFETY: the id is alive.
            unsafe { ffi::rdma_resolve_route(self.id.as_ptr(), timeout_millis(within)) },
            "can't resolve the route",
        )
    }

    /// Returns the device's context; `None` while the id is bound to no device.
    pub(in crate::verbs) fn device_context(&self) -> Option<NonNull<ffi::ibv_context>> {
        // SAFETY: the id is alive; the field is set by bind and resolve.
        NonNull::new(unsafe { (*self.id.as_ptr()).verbs })
    }

    /// Returns the device's name and the port's number; `None` while the id is bound to no device.
    pub(in crate::verbs) fn device_port(&self) -> Option<(String, u8)> {
        let context = self.device_context()?;
        // SAFETY: an open context has its device.
        let name = unsafe { ffi::ibv_get_device_name((*context.as_ptr()).device) };
        if name.is_null() {
            return None;
        }
        // SAFETY: libibverbs returns a NUL-terminated string that lives as long as the device.
        let name = unsafe { std::ffi::CStr::from_ptr(name) }.to_string_lossy().into_owned();
        // SAFETY: the id is alive.
        Some((name, unsafe { (*self.id.as_ptr()).port_num }))
    }

    /// Moves the id to a channel of its own, as a listener's new connection needs.
    pub(in crate::verbs) fn move_to_channel(
        &mut self,
        channel: &Arc<EventChannel>,
    ) -> io::Result<()> {
        check_result(
            // SAFETY: both channels are alive, and every event of this id was acknowledged.
            unsafe { ffi::rdma_migrate_id(self.id.as_ptr(), channel.channel.as_ptr()) },
            "can't move an RDMA id",
        )?;
        self.channel = channel.clone();
        Ok(())
    }

    /// Lets this side move the states of the queue pair: see
    /// [`CmQueuePair::get_ready`](super::CmQueuePair::get_ready). Call it before
    /// the queue pair is made.
    pub(in crate::verbs) fn move_states(&mut self) {
        self.own_states = true;
    }

    /// Returns true if this side moves the states of the queue pair.
    pub(in crate::verbs) fn moves_states(&self) -> bool {
        self.own_states
    }

    /// Returns true if the device speaks iWARP, where TCP decides on packets.
    pub(in crate::verbs) fn is_iwarp(&self) -> bool {
        // SAFETY: an open context has its device, whose kind nobody writes to.
        self.device_context().is_some_and(|context| unsafe {
            (*(*context.as_ptr()).device).transport_type as u32 == TRANSPORT_IWARP
        })
    }

    /// Refuses a connect request and sends `private` with the refusal.
    pub(in crate::verbs) fn reject_request(&self, private: &[u8]) {
        let bytes = private.len().min(PRIVATE_BYTES_MAX) as u8;
        // SAFETY: the id is alive; the data lives through the call.
        let _ = unsafe { ffi::rdma_reject(self.id.as_ptr(), private.as_ptr().cast(), bytes) };
    }

    /// Returns the id for calls of librdmacm. It is alive as long as `self`.
    pub(super) fn raw_id(&self) -> NonNull<ffi::rdma_cm_id> {
        self.id
    }
}

impl Drop for CmId {
    fn drop(&mut self) {
        // SAFETY: destroyed once; every event was acknowledged, so the call does not wait.
        let _ = unsafe { ffi::rdma_destroy_id(self.id.as_ptr()) };
    }
}

fn timeout_millis(duration: Duration) -> libc::c_int {
    libc::c_int::try_from(duration.as_millis()).unwrap_or(libc::c_int::MAX)
}
