//! Owns queue pairs and the ids that they belong to: how they are made, connected and ended.
//!
//! Knows no frame and no credit. `states` moves the states, `queue` posts.

use std::io;
use std::mem::ManuallyDrop;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use rdma_mummy_sys as ffi;

use super::cm::{CmId, PRIVATE_BYTES_MAX};
use super::device_events::{DeviceHealth, PairWatch};
use super::memory::ProtectionDomain;
use super::port::PortAttributes;
use super::queue::{self, CompletionQueue, GatherElement, SGES_MAX, WorkOperation, WorkRequest};
use super::shared_queue::SharedQueue;
use super::{check_result, last_error, states};

/// Step in which fewer inline bytes are tried.
const INLINE_STEP: u32 = 32;

/// Id of the request that is posted behind all others, when a queue pair ends.
pub(in crate::verbs) const BEACON: u64 = 1 << 62;

/// Options of one connection.
#[derive(Debug, Clone, Copy)]
pub(in crate::verbs) struct ConnectOptions {
    pub(in crate::verbs) retry_count: u8,
    pub(in crate::verbs) rnr_retry: u8,
}

/// Depths of the queues of one queue pair.
#[derive(Debug, Clone, Copy)]
pub(in crate::verbs) struct QueueSizes {
    pub(in crate::verbs) send: u32,
    pub(in crate::verbs) receive: u32,
    pub(in crate::verbs) inline_bytes: u32,
}

/// Everything that a queue pair refers to.
pub(in crate::verbs) struct QueuePairParts<'a> {
    pub(in crate::verbs) domain: &'a Arc<ProtectionDomain>,
    pub(in crate::verbs) completions: &'a Arc<CompletionQueue>,
    /// Source of receive buffers, where the queue pair has no ring of its own.
    pub(in crate::verbs) shared: Option<&'a Arc<SharedQueue>>,
}

/// A connection's queue pair, with its id. [`CmQueuePair::destroy`] says whether the device has let
/// go of the memory; dropping it does the same, and says nothing.
pub(in crate::verbs) struct CmQueuePair {
    qp: NonNull<ffi::ibv_qp>,
    /// How many bytes the device takes inline.
    inline_bytes: u32,
    destroyed: bool,
    /// Dropped after the queue pair, which `drop` destroys, and before what that refers to.
    id: CmId,
    _completions: Arc<CompletionQueue>,
    shared: Option<Arc<SharedQueue>>,
    _domain: Arc<ProtectionDomain>,
}

// SAFETY: libibverbs serialises every call on a queue pair, and librdmacm on its id.
unsafe impl Send for CmQueuePair {}
// SAFETY: as for Send: `&CmQueuePair` reads fields that nothing changes.
unsafe impl Sync for CmQueuePair {}

impl CmQueuePair {
    /// Makes the queue pair of `id`, with its own receive queue or a shared one.
    pub(in crate::verbs) fn new(
        id: CmId,
        parts: QueuePairParts<'_>,
        sizes: QueueSizes,
    ) -> io::Result<Self> {
        let QueuePairParts { domain, completions, shared } = parts;
        if id.device_context() != Some(domain.device_context()) {
            return Err(io::Error::other(
                "the route leads over another device than that of the rail",
            ));
        }
        let (qp, inline_bytes) = make_with_inline(&id, &parts, sizes)?;
        let pair = Self {
            qp,
            inline_bytes: inline_bytes.min(sizes.inline_bytes),
            destroyed: false,
            id,
            _completions: completions.clone(),
            shared: shared.cloned(),
            _domain: domain.clone(),
        };
        if pair.id.moves_states() {
            // SAFETY: the id is alive, and the queue pair held by it.
            unsafe { states::to_init(pair.id.raw_id(), qp) }?;
        }
        Ok(pair)
    }

    /// Returns how many bytes the device takes inline.
    pub(in crate::verbs) fn inline_bytes(&self) -> u32 {
        self.inline_bytes
    }

    /// Begins to watch what the device says of this queue pair, whose completions go to
    /// `completions`.
    pub(in crate::verbs) fn watch_health(
        &self,
        device: &Arc<DeviceHealth>,
        completions: &CompletionQueue,
    ) -> PairWatch {
        // SAFETY: the queue pair lives as long as `self`; its number is set once.
        let number = unsafe { (*self.qp.as_ptr()).qp_num };
        let port = self.id.device_port().map_or(0, |(_, port)| port);
        device.watch_pair(number, port, completions.as_ptr().addr())
    }

    /// Returns true if this side moves the states of the queue pair.
    pub(in crate::verbs) fn moves_states(&self) -> bool {
        self.id.moves_states()
    }

    /// Makes the queue pair ready, with a path MTU of at most `path_mtu_max` bytes. Call it before
    /// `accept`, or after [`EventKind::Accepted`](super::EventKind::Accepted).
    pub(in crate::verbs) fn get_ready(&self, path_mtu_max: u16) -> io::Result<()> {
        let context = self
            .id
            .device_context()
            .ok_or_else(|| io::Error::other("the id is bound to no device"))?;
        let id = self.id.raw_id();
        // SAFETY: the id is alive.
        let number = unsafe { (*id.as_ptr()).port_num };
        // SAFETY: the context is open as long as the id is bound to it.
        let infiniband = unsafe { PortAttributes::query_port(context, number) }?.infiniband;
        // SAFETY: the id is alive, and its queue pair.
        unsafe { states::to_ready(id, self.qp, path_mtu_max, infiniband) }.map(drop)
    }

    /// Tells the peer that this side is ready.
    pub(in crate::verbs) fn establish_connection(&self) -> io::Result<()> {
        check_result(
            // SAFETY: the id is alive.
            unsafe { ffi::rdma_establish(self.id.raw_id().as_ptr()) },
            "can't end the making of a connection",
        )
    }

    /// Returns the path MTU in bytes, once the queue pair is ready.
    pub(in crate::verbs) fn path_mtu(&self) -> io::Result<u16> {
        // SAFETY: the queue pair lives as long as `self`.
        unsafe { states::path_mtu(self.qp) }
    }

    pub(in crate::verbs) fn connect(
        &self,
        private: &[u8],
        options: ConnectOptions,
    ) -> io::Result<()> {
        let mut parameters = self.connect_parameters(private, options);
        check_result(
            // SAFETY: the parameters, and what they point to, live through the call.
            unsafe { ffi::rdma_connect(self.id.raw_id().as_ptr(), &raw mut parameters) },
            "can't connect",
        )
    }

    pub(in crate::verbs) fn accept(
        &self,
        private: &[u8],
        options: ConnectOptions,
    ) -> io::Result<()> {
        let mut parameters = self.connect_parameters(private, options);
        check_result(
            // SAFETY: as for `connect`.
            unsafe { ffi::rdma_accept(self.id.raw_id().as_ptr(), &raw mut parameters) },
            "can't accept",
        )
    }

    fn connect_parameters(&self, private: &[u8], options: ConnectOptions) -> ffi::rdma_conn_param {
        let mut parameters = base_parameters(private, options);
        if self.moves_states() {
            // SAFETY: the queue pair lives as long as `self`; its number is set once.
            parameters.qp_num = unsafe { (*self.qp.as_ptr()).qp_num };
            parameters.srq = u8::from(self.shared.is_some());
        }
        parameters
    }

    /// Ends all traffic: in the error state the device drops what arrives. Receive buffers taken
    /// for incomplete messages are completed with an error.
    pub(in crate::verbs) fn stop_traffic(&self) -> io::Result<()> {
        // SAFETY: the queue pair lives as long as `self`.
        unsafe { states::to_error(self.qp) }
    }

    /// Ends the connection. Once this succeeds, neither NIC touches memory for it. A queue pair that
    /// its device keeps is leaked with all that it refers to.
    pub(in crate::verbs) fn destroy(self) -> io::Result<()> {
        let mut pair = ManuallyDrop::new(self);
        pair.end_connection()?;
        drop(ManuallyDrop::into_inner(pair));
        Ok(())
    }

    fn end_connection(&mut self) -> io::Result<()> {
        let id = self.id.raw_id();
        // Tells the peer; fails harmlessly where there is no connection any more.
        // SAFETY: the id is alive.
        let _ = unsafe { ffi::rdma_disconnect(id.as_ptr()) };
        check_result(
            // SAFETY: made for this id alone, and destroyed once: `destroyed` is false. What
            // rdma_destroy_qp does beside this call is to forget the result.
            unsafe { ffi::ibv_destroy_qp(self.qp.as_ptr()) },
            "can't destroy a queue pair",
        )?;
        self.destroyed = true;
        // SAFETY: the id is alive; nothing else reads or writes the field any more.
        unsafe { (*id.as_ptr()).qp = ptr::null_mut() };
        Ok(())
    }

    /// Posts a request that sends nothing. Behind `stop_traffic`, its completion says that the device
    /// is done with all requests before it.
    pub(in crate::verbs) fn post_beacon(&self) -> io::Result<()> {
        let none = GatherElement { address: 0, bytes: 0, lkey: 0 };
        let (sges, op) = ([none; SGES_MAX], WorkOperation::Send);
        let beacon =
            WorkRequest { id: BEACON, op, sges, sges_used: 0, signalled: true, inline: false };
        // SAFETY: the queue pair lives as long as `self`; the request names no memory.
        unsafe { queue::post_send(self.qp, &[beacon]) }
    }

    /// Sets how long the peer waits when it meets no receive buffer. Call it once the queue pair is
    /// connected. rdma_cm's own choice is the longest wait, 655 ms.
    pub(in crate::verbs) fn set_rnr_timer(&self) -> io::Result<()> {
        if self.id.is_iwarp() {
            return Ok(());
        }
        // SAFETY: the queue pair lives as long as `self`.
        unsafe { states::set_rnr_timer(self.qp) }
    }

    #[cfg(test)]
    pub(in crate::verbs) fn rnr_timer(&self) -> io::Result<u8> {
        // SAFETY: the queue pair lives as long as `self`.
        unsafe { states::rnr_timer(self.qp) }
    }

    /// Posts `works` in order.
    ///
    /// # Safety
    /// The memory of every piece stays valid and unchanged until its request is complete, or this
    /// queue pair is dropped.
    pub(in crate::verbs) unsafe fn post_send(&self, works: &[WorkRequest]) -> io::Result<()> {
        // SAFETY: the queue pair lives as long as `self`; the caller vouches for the memory.
        unsafe { queue::post_send(self.qp, works) }
    }

    /// Posts one receive buffer.
    ///
    /// # Safety
    /// The memory stays valid and untouched until a completion with `request`, or until this queue
    /// pair is dropped.
    pub(in crate::verbs) unsafe fn post_receive(
        &self,
        request: u64,
        piece: GatherElement,
    ) -> io::Result<()> {
        // SAFETY: the queue pair lives as long as `self`; the caller vouches for the memory.
        unsafe { queue::post_receive(self.qp, request, piece) }
    }
}

impl Drop for CmQueuePair {
    fn drop(&mut self) {
        // Without `destroy`, a queue pair was never connected: no memory is lent over it.
        if !self.destroyed {
            drop(self.end_connection());
        }
    }
}

/// Makes a queue pair with the most inline bytes that its device takes. Devices differ (irdma takes
/// 101), and none says its bound beforehand.
fn make_with_inline(
    id: &CmId,
    parts: &QueuePairParts<'_>,
    mut sizes: QueueSizes,
) -> io::Result<(NonNull<ffi::ibv_qp>, u32)> {
    loop {
        match make_queue_pair(id, parts, sizes) {
            Err(_) if sizes.inline_bytes > 0 => {
                sizes.inline_bytes = smaller_inline(sizes.inline_bytes);
            }
            made => return made,
        }
    }
}

/// Returns the number of inline bytes to try after `refused`.
fn smaller_inline(refused: u32) -> u32 {
    (refused - 1) / INLINE_STEP * INLINE_STEP
}

/// Makes a queue pair. Returns it, and how many bytes its device takes inline.
fn make_queue_pair(
    id: &CmId,
    parts: &QueuePairParts<'_>,
    sizes: QueueSizes,
) -> io::Result<(NonNull<ffi::ibv_qp>, u32)> {
    // SAFETY: plain data, for which zeroes are valid.
    let mut attributes: ffi::ibv_qp_init_attr = unsafe { std::mem::zeroed() };
    attributes.send_cq = parts.completions.as_ptr();
    attributes.recv_cq = parts.completions.as_ptr();
    attributes.srq = parts.shared.map_or(ptr::null_mut(), |shared| shared.as_ptr());
    attributes.qp_type = ffi::ibv_qp_type::IBV_QPT_RC;
    // One place is the beacon's.
    attributes.cap.max_send_wr = sizes.send + 1;
    attributes.cap.max_recv_wr = sizes.receive;
    attributes.cap.max_send_sge = SGES_MAX as u32;
    attributes.cap.max_recv_sge = 1;
    attributes.cap.max_inline_data = sizes.inline_bytes;
    let domain = parts.domain.as_ptr();
    let qp = if id.moves_states() {
        // rdma_cm does not learn of this queue pair, since this side moves its states.
        // SAFETY: the domain is alive, as is the completion queue in the attributes: the caller
        // holds both.
        unsafe { ffi::ibv_create_qp(domain, &raw mut attributes) }
    } else {
        let id = id.raw_id().as_ptr();
        check_result(
            // SAFETY: as above; rdma_cm keeps the queue pair with the id.
            unsafe { ffi::rdma_create_qp(id, domain, &raw mut attributes) },
            "can't create a queue pair",
        )?;
        // SAFETY: the id is alive; the call that succeeded has set the field.
        unsafe { (*id).qp }
    };
    let qp = NonNull::new(qp).ok_or_else(|| last_error("can't create a queue pair"))?;
    Ok((qp, attributes.cap.max_inline_data))
}

fn base_parameters(private: &[u8], options: ConnectOptions) -> ffi::rdma_conn_param {
    // SAFETY: plain data, for which zeroes are valid.
    let mut parameters: ffi::rdma_conn_param = unsafe { std::mem::zeroed() };
    parameters.private_data = private.as_ptr().cast();
    parameters.private_data_len = private.len().min(PRIVATE_BYTES_MAX) as u8;
    // No RDMA READ and no atomics are used; some devices refuse a depth of 0.
    parameters.responder_resources = 1;
    parameters.initiator_depth = 1;
    parameters.retry_count = options.retry_count;
    parameters.rnr_retry_count = options.rnr_retry;
    parameters
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fewer_inline_bytes_are_tried_step_by_step_down_to_none() {
        assert_eq!((smaller_inline(128), smaller_inline(101), smaller_inline(32)), (96, 96, 0));
    }
}
