//! Owns queue pairs whose two sides have told each other their numbers by other means: rdma_cm has
//! no part in them. Such a queue pair writes, and reads. It takes no message, and grants no right.

use std::io;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;

use rdma_mummy_sys as ffi;

use super::memory::ProtectionDomain;
use super::queue::{self, CompletionQueue, GatherElement, SGES_MAX, WorkOperation, WorkRequest};
use super::queue_pair::BEACON;
use super::{check_result, last_error, states};

/// Retries of a packet that nobody acknowledges. The programs on the other side have 7, which
/// soft-RoCE (Linux 6.1) takes as without end.
const RETRY_COUNT: u8 = 6;
/// Wait for an acknowledgement, as verbs encode it: 0.54 s. A client that is gone is given up after
/// some 4 s. Those programs have 14, 67 ms; soft-RoCE counts waits for a receive request into it.
const ACK_TIMEOUT: u8 = 17;
/// Retries where the peer has no receive request: 7 is without end. Whoever waits has a deadline.
const RNR_RETRY: u8 = 7;
/// Routers that a packet may pass.
const HOP_LIMIT: u8 = 64;

/// The number of a first packet: 24 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::verbs) struct PacketNumber(pub(in crate::verbs) u32);

/// Both ends of a connection that is to be made.
#[derive(Debug, Clone, Copy)]
pub(in crate::verbs) struct NumberedEnds {
    /// Index of this side's GID in the port's table.
    pub(in crate::verbs) gid_index: u8,
    pub(in crate::verbs) own_packet: PacketNumber,
    pub(in crate::verbs) peer_gid: [u8; 16],
    pub(in crate::verbs) peer_pair: u32,
    pub(in crate::verbs) peer_packet: PacketNumber,
    /// In bytes; the same on both sides.
    pub(in crate::verbs) path_mtu: u16,
    /// READs of this side that are on their way at once. The device holds others back.
    pub(in crate::verbs) own_reads: u8,
    /// READs of the peer that this side answers at once.
    pub(in crate::verbs) peer_reads: u8,
}

/// A queue pair that is connected by numbers.
pub(in crate::verbs) struct NumberedQueuePair {
    qp: NonNull<ffi::ibv_qp>,
    destroyed: bool,
    _completions: Arc<CompletionQueue>,
    domain: Arc<ProtectionDomain>,
}

// SAFETY: libibverbs serialises every call on a queue pair.
unsafe impl Send for NumberedQueuePair {}
// SAFETY: as for Send.
unsafe impl Sync for NumberedQueuePair {}

impl NumberedQueuePair {
    /// Makes a queue pair for `sends` requests, and one more, the beacon.
    pub(in crate::verbs) fn new(
        domain: &Arc<ProtectionDomain>,
        completions: &Arc<CompletionQueue>,
        sends: u32,
    ) -> io::Result<Self> {
        Self::with_rights(domain, completions, sends, ffi::ibv_access_flags(0))
    }

    fn with_rights(
        domain: &Arc<ProtectionDomain>,
        completions: &Arc<CompletionQueue>,
        sends: u32,
        rights: ffi::ibv_access_flags,
    ) -> io::Result<Self> {
        // SAFETY: plain data, for which zeroes are valid.
        let mut wanted: ffi::ibv_qp_init_attr = unsafe { std::mem::zeroed() };
        wanted.send_cq = completions.as_ptr();
        wanted.recv_cq = completions.as_ptr();
        wanted.qp_type = ffi::ibv_qp_type::IBV_QPT_RC;
        wanted.cap.max_send_wr = sends + 1;
        // Some devices refuse a queue of none.
        wanted.cap.max_recv_wr = 1;
        wanted.cap.max_send_sge = 1;
        wanted.cap.max_recv_sge = 1;
        // SAFETY: the domain is alive, as is the completion queue: the caller holds both.
        let qp = unsafe { ffi::ibv_create_qp(domain.as_ptr(), &raw mut wanted) };
        let qp = NonNull::new(qp).ok_or_else(|| last_error("can't create a queue pair"))?;
        let pair = Self {
            qp,
            destroyed: false,
            _completions: completions.clone(),
            domain: domain.clone(),
        };
        let mut to = pair.attributes(ffi::ibv_qp_state::IBV_QPS_INIT);
        to.port_num = domain.device_port().1;
        to.qp_access_flags = rights.0;
        let mask = ffi::ibv_qp_attr_mask::IBV_QP_STATE
            | ffi::ibv_qp_attr_mask::IBV_QP_PKEY_INDEX
            | ffi::ibv_qp_attr_mask::IBV_QP_PORT
            | ffi::ibv_qp_attr_mask::IBV_QP_ACCESS_FLAGS;
        pair.modify_pair(to, mask)?;
        Ok(pair)
    }

    /// Returns the number by which the peer names this queue pair.
    pub(in crate::verbs) fn pair_number(&self) -> u32 {
        // SAFETY: the queue pair lives as long as `self`; its number is set once.
        unsafe { (*self.qp.as_ptr()).qp_num }
    }

    /// Makes the queue pair ready to write to the peer, and to read from it.
    pub(in crate::verbs) fn connect_ends(&self, ends: &NumberedEnds) -> io::Result<()> {
        let mut to = self.attributes(ffi::ibv_qp_state::IBV_QPS_RTR);
        to.path_mtu = states::mtu_of(ends.path_mtu);
        to.dest_qp_num = ends.peer_pair;
        to.rq_psn = ends.peer_packet.0;
        to.max_dest_rd_atomic = ends.peer_reads;
        to.min_rnr_timer = states::RNR_TIMER;
        to.ah_attr.is_global = 1;
        to.ah_attr.port_num = self.domain.device_port().1;
        to.ah_attr.grh.dgid = ffi::ibv_gid { raw: ends.peer_gid };
        to.ah_attr.grh.sgid_index = ends.gid_index;
        to.ah_attr.grh.hop_limit = HOP_LIMIT;
        let mask = ffi::ibv_qp_attr_mask::IBV_QP_STATE
            | ffi::ibv_qp_attr_mask::IBV_QP_AV
            | ffi::ibv_qp_attr_mask::IBV_QP_PATH_MTU
            | ffi::ibv_qp_attr_mask::IBV_QP_DEST_QPN
            | ffi::ibv_qp_attr_mask::IBV_QP_RQ_PSN
            | ffi::ibv_qp_attr_mask::IBV_QP_MAX_DEST_RD_ATOMIC
            | ffi::ibv_qp_attr_mask::IBV_QP_MIN_RNR_TIMER;
        self.modify_pair(to, mask)?;
        let mut to = self.attributes(ffi::ibv_qp_state::IBV_QPS_RTS);
        to.timeout = ACK_TIMEOUT;
        to.retry_cnt = RETRY_COUNT;
        to.rnr_retry = RNR_RETRY;
        to.sq_psn = ends.own_packet.0;
        to.max_rd_atomic = ends.own_reads;
        let mask = ffi::ibv_qp_attr_mask::IBV_QP_STATE
            | ffi::ibv_qp_attr_mask::IBV_QP_TIMEOUT
            | ffi::ibv_qp_attr_mask::IBV_QP_RETRY_CNT
            | ffi::ibv_qp_attr_mask::IBV_QP_RNR_RETRY
            | ffi::ibv_qp_attr_mask::IBV_QP_SQ_PSN
            | ffi::ibv_qp_attr_mask::IBV_QP_MAX_QP_RD_ATOMIC;
        self.modify_pair(to, mask)
    }

    fn attributes(&self, state: ffi::ibv_qp_state::Type) -> ffi::ibv_qp_attr {
        // SAFETY: plain data, for which zeroes are valid.
        let mut to: ffi::ibv_qp_attr = unsafe { std::mem::zeroed() };
        to.qp_state = state;
        to
    }

    fn modify_pair(&self, to: ffi::ibv_qp_attr, mask: ffi::ibv_qp_attr_mask) -> io::Result<()> {
        // SAFETY: the queue pair lives as long as `self`.
        unsafe { states::modify_state(self.qp, to, mask.0 as libc::c_int) }
    }

    /// Ends all traffic: in the error state the device sends nothing and drops what arrives.
    pub(in crate::verbs) fn stop_traffic(&self) -> io::Result<()> {
        // SAFETY: the queue pair lives as long as `self`.
        unsafe { states::to_error(self.qp) }
    }

    /// Posts a request that sends nothing, like that of
    /// [`CmQueuePair`](super::CmQueuePair::post_beacon).
    pub(in crate::verbs) fn post_beacon(&self) -> io::Result<()> {
        let none = GatherElement { address: 0, bytes: 0, lkey: 0 };
        let (sges, op) = ([none; SGES_MAX], WorkOperation::Send);
        let beacon =
            WorkRequest { id: BEACON, op, sges, sges_used: 0, signalled: true, inline: false };
        // SAFETY: the queue pair lives as long as `self`; the request names no memory.
        unsafe { queue::post_send(self.qp, &[beacon]) }
    }

    /// Posts one request.
    ///
    /// # Safety
    /// Its memory stays valid until it is complete, or this queue pair is destroyed. Nobody else
    /// changes it until then, nor looks at what a read goes to.
    pub(in crate::verbs) unsafe fn post_request(&self, work: WorkRequest) -> io::Result<()> {
        // SAFETY: the queue pair lives as long as `self`; the caller vouches for the memory.
        unsafe { queue::post_send(self.qp, &[work]) }
    }

    /// Destroys the queue pair. One that its device keeps is leaked with all that it refers to.
    pub(in crate::verbs) fn destroy(self) -> io::Result<()> {
        let mut pair = ManuallyDrop::new(self);
        pair.end_pair()?;
        drop(ManuallyDrop::into_inner(pair));
        Ok(())
    }

    fn end_pair(&mut self) -> io::Result<()> {
        check_result(
            // SAFETY: this side has made it, and destroys it once: `destroyed` is false.
            unsafe { ffi::ibv_destroy_qp(self.qp.as_ptr()) },
            "can't destroy a queue pair",
        )?;
        self.destroyed = true;
        Ok(())
    }
}

/// The other side of such a connection, as a client has it.
#[cfg(test)]
impl NumberedQueuePair {
    pub(in crate::verbs) fn for_client(
        domain: &Arc<ProtectionDomain>,
        completions: &Arc<CompletionQueue>,
    ) -> io::Result<Self> {
        let rights = ffi::ibv_access_flags::IBV_ACCESS_REMOTE_WRITE
            | ffi::ibv_access_flags::IBV_ACCESS_REMOTE_READ;
        Self::with_rights(domain, completions, 1, rights)
    }

    /// Posts the receive request that an immediate value completes.
    pub(in crate::verbs) fn post_immediate_receive(&self, id: u64) -> io::Result<()> {
        let none = GatherElement { address: 0, bytes: 0, lkey: 0 };
        // SAFETY: the queue pair lives as long as `self`; the request has no memory.
        unsafe { queue::post_receive(self.qp, id, none) }
    }
}

impl Drop for NumberedQueuePair {
    fn drop(&mut self) {
        // Without `destroy`, nothing was ever posted: the making of it failed.
        if !self.destroyed {
            drop(self.end_pair());
        }
    }
}
