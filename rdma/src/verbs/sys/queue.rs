//! Owns completion queues, and posting to a queue pair.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use rdma_mummy_sys as ffi;

use super::memory::ProtectionDomain;
use super::{check_result, last_error, set_nonblocking};
use crate::metrics::WorkFailure;

/// Pieces of memory that one work request gathers. Every device supports this many.
pub(in crate::verbs) const SGES_MAX: usize = 4;

/// Work requests that one call posts.
const POST_MAX: usize = 32;

/// What a completion queue tells of by an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::verbs) enum NotifyEvent {
    Completion,
    /// A message of a peer that marks its messages, or an error: a solicited event. Nothing that
    /// this side has sent.
    Message,
}

/// The completion queue of one connection.
pub(in crate::verbs) struct CompletionQueue {
    cq: NonNull<ffi::ibv_cq>,
    channel: NonNull<ffi::ibv_comp_channel>,
    _domain: Arc<ProtectionDomain>,
}

// SAFETY: libibverbs serialises every call on a completion queue and its channel.
unsafe impl Send for CompletionQueue {}
// SAFETY: as for Send.
unsafe impl Sync for CompletionQueue {}

/// A finished work request.
#[derive(Debug, Clone, Copy)]
pub(in crate::verbs) struct WorkCompletion {
    pub(in crate::verbs) id: u64,
    pub(in crate::verbs) bytes: u32,
    /// A message arrived by a SEND. Means nothing where `status` is an error.
    pub(in crate::verbs) is_message: bool,
    /// What the peer told with a WRITE, where it did so.
    #[cfg(test)]
    pub(in crate::verbs) immediate: u32,
    /// `Err` with the status, which ends the queue pair.
    pub(in crate::verbs) status: Result<(), u32>,
}

impl WorkCompletion {
    pub(in crate::verbs) const NONE: Self = Self {
        id: 0,
        bytes: 0,
        is_message: false,
        #[cfg(test)]
        immediate: 0,
        status: Ok(()),
    };

    /// Returns true when the queue pair was in error before this request ran. Such a status is not
    /// the cause.
    pub(in crate::verbs) fn is_flush(status: u32) -> bool {
        status == ffi::ibv_wc_status::IBV_WC_WR_FLUSH_ERR
    }

    /// Returns what the metric calls a status.
    pub(in crate::verbs) fn work_failure(status: u32) -> WorkFailure {
        match status {
            ffi::ibv_wc_status::IBV_WC_RETRY_EXC_ERR => WorkFailure::Retry,
            ffi::ibv_wc_status::IBV_WC_RNR_RETRY_EXC_ERR => WorkFailure::ReceiverNotReady,
            ffi::ibv_wc_status::IBV_WC_REM_ACCESS_ERR => WorkFailure::RemoteAccess,
            ffi::ibv_wc_status::IBV_WC_REM_OP_ERR | ffi::ibv_wc_status::IBV_WC_REM_INV_REQ_ERR => {
                WorkFailure::Remote
            }
            ffi::ibv_wc_status::IBV_WC_LOC_PROT_ERR | ffi::ibv_wc_status::IBV_WC_LOC_LEN_ERR => {
                WorkFailure::Local
            }
            ffi::ibv_wc_status::IBV_WC_WR_FLUSH_ERR => WorkFailure::Flushed,
            _ => WorkFailure::Other,
        }
    }

    pub(in crate::verbs) fn describe_status(status: u32) -> String {
        let reason = match status {
            ffi::ibv_wc_status::IBV_WC_RETRY_EXC_ERR => {
                "the peer did not acknowledge (transport retries exceeded)"
            }
            ffi::ibv_wc_status::IBV_WC_RNR_RETRY_EXC_ERR => {
                "the peer's receive queue was empty for too long"
            }
            ffi::ibv_wc_status::IBV_WC_REM_ACCESS_ERR => "the peer refused access to its memory",
            ffi::ibv_wc_status::IBV_WC_REM_OP_ERR => "the peer's NIC failed",
            ffi::ibv_wc_status::IBV_WC_WR_FLUSH_ERR => "the queue pair is in error",
            _ => "work request failed",
        };
        format!("{reason} (status {status})")
    }
}

impl CompletionQueue {
    /// Makes a queue whose interrupt is that of `vector`, one of those that the device has.
    pub(in crate::verbs) fn new(
        domain: Arc<ProtectionDomain>,
        entries: u32,
        vector: u32,
    ) -> io::Result<Self> {
        let context = domain.device_context().as_ptr();
        // SAFETY: the context stays open as long as the domain.
        let channel = unsafe { ffi::ibv_create_comp_channel(context) };
        let channel =
            NonNull::new(channel).ok_or_else(|| last_error("can't create a completion channel"))?;
        // SAFETY: a fresh channel has its descriptor.
        let fd = unsafe { (*channel.as_ptr()).fd };
        let entries = libc::c_int::try_from(entries).unwrap_or(libc::c_int::MAX);
        let cq = set_nonblocking(fd).and_then(|()| {
            // Below the device's count, which is an int.
            let vector = vector as libc::c_int;
            // SAFETY: context and channel are alive; there is no context pointer to keep.
            let cq = unsafe {
                ffi::ibv_create_cq(context, entries, ptr::null_mut(), channel.as_ptr(), vector)
            };
            NonNull::new(cq).ok_or_else(|| last_error("can't create a completion queue"))
        });
        match cq {
            Ok(cq) => Ok(Self { cq, channel, _domain: domain }),
            Err(error) => {
                // SAFETY: nothing uses the channel.
                let _ = unsafe { ffi::ibv_destroy_comp_channel(channel.as_ptr()) };
                Err(error)
            }
        }
    }

    pub(super) fn as_ptr(&self) -> *mut ffi::ibv_cq {
        self.cq.as_ptr()
    }

    /// Takes finished requests. Returns how many.
    pub(in crate::verbs) fn poll(&self, into: &mut [WorkCompletion]) -> io::Result<usize> {
        const BATCH: usize = 16;
        // SAFETY: a work completion is plain data, for which zeroes are valid.
        let mut polled: [ffi::ibv_wc; BATCH] = unsafe { std::mem::zeroed() };
        let entries = into.len().min(BATCH);
        // SAFETY: the queue is alive, and `polled` has room for `entries`.
        let count =
            unsafe { ffi::ibv_poll_cq(self.cq.as_ptr(), entries as i32, polled.as_mut_ptr()) };
        let count =
            usize::try_from(count).map_err(|_| last_error("can't poll the completion queue"))?;
        for (to, from) in into.iter_mut().zip(&polled[..count.min(BATCH)]) {
            let status = if from.status == ffi::ibv_wc_status::IBV_WC_SUCCESS {
                Ok(())
            } else {
                Err(from.status)
            };
            let is_message = from.opcode == ffi::ibv_wc_opcode::IBV_WC_RECV;
            *to = WorkCompletion {
                id: from.wr_id,
                bytes: from.byte_len,
                is_message,
                // SAFETY: any bytes are a number.
                #[cfg(test)]
                immediate: u32::from_be(unsafe { from.imm_data_invalidated_rkey_union.imm_data }),
                status,
            };
        }
        Ok(count)
    }

    /// Asks for an event on the channel at the next completion, or at the next message.
    pub(in crate::verbs) fn arm_notify(&self, event: NotifyEvent) -> io::Result<()> {
        let messages_only = libc::c_int::from(event == NotifyEvent::Message);
        check_result(
            // SAFETY: the queue is alive.
            unsafe { ffi::ibv_req_notify_cq(self.cq.as_ptr(), messages_only) },
            "can't arm the completion queue",
        )
    }

    /// Takes the event that made the channel readable. Returns `false` if there is none: the queue
    /// gives one each time that it is armed.
    pub(in crate::verbs) fn take_event(&self) -> bool {
        let (mut cq, mut context) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the channel is alive and does not block; both places are valid.
        let taken =
            unsafe { ffi::ibv_get_cq_event(self.channel.as_ptr(), &raw mut cq, &raw mut context) };
        if taken == 0 {
            // SAFETY: the event was just taken, and is acknowledged once.
            unsafe { ffi::ibv_ack_cq_events(cq, 1) };
        }
        taken == 0
    }
}

impl AsFd for CompletionQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel lives as long as `self`.
        let fd = unsafe { (*self.channel.as_ptr()).fd };
        // SAFETY: open until the channel is destroyed, in `drop`.
        unsafe { BorrowedFd::borrow_raw(fd) }
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        // SAFETY: queue pairs hold their completion queue, so none is left; every event was
        // acknowledged.
        let _ = check_result(unsafe { ffi::ibv_destroy_cq(self.cq.as_ptr()) }, "destroy_cq");
        let _ = check_result(
            // SAFETY: its only queue is gone.
            unsafe { ffi::ibv_destroy_comp_channel(self.channel.as_ptr()) },
            "destroy_comp_channel",
        );
    }
}

/// A piece of local, registered memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::verbs) struct GatherElement {
    pub(in crate::verbs) address: u64,
    pub(in crate::verbs) bytes: u32,
    pub(in crate::verbs) lkey: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::verbs) enum WorkOperation {
    /// Writes into the peer's memory.
    Write { address: u64, key: u32 },
    /// The same, and completes the peer's next receive request, to which it tells `value`.
    WriteWithImmediate { address: u64, key: u32, value: u32 },
    /// Reads out of the peer's memory, into the request's own.
    Read { address: u64, key: u32 },
    /// Sends into the peer's next receive buffer.
    Send,
    /// Opens `bytes` from `address` of a region to the peer that is told `key`.
    Bind { window: usize, region: usize, address: u64, bytes: u32, key: u32 },
    /// Closes what `key` opens.
    Invalidate { key: u32 },
}

/// A request to be posted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::verbs) struct WorkRequest {
    pub(in crate::verbs) id: u64,
    pub(in crate::verbs) op: WorkOperation,
    pub(in crate::verbs) sges: [GatherElement; SGES_MAX],
    pub(in crate::verbs) sges_used: u8,
    pub(in crate::verbs) signalled: bool,
    /// The NIC takes the bytes at once instead of fetching them later.
    pub(in crate::verbs) inline: bool,
}

/// Posts `works` in order, in as few calls as possible.
///
/// # Safety
/// `qp` is alive. The memory of every piece stays valid, and is changed by nobody else, until its
/// request is complete, or the queue pair destroyed; what a read goes to is looked at by nobody
/// until then. Windows and regions that requests name are alive.
pub(super) unsafe fn post_send(qp: NonNull<ffi::ibv_qp>, works: &[WorkRequest]) -> io::Result<()> {
    for batch in works.chunks(POST_MAX) {
        // SAFETY: a request is plain data, for which zeroes are valid.
        let mut requests: [ffi::ibv_send_wr; POST_MAX] = unsafe { std::mem::zeroed() };
        // SAFETY: as above.
        let mut pieces: [[ffi::ibv_sge; SGES_MAX]; POST_MAX] = unsafe { std::mem::zeroed() };
        let mut next: *mut ffi::ibv_send_wr = ptr::null_mut();
        for (at, work) in batch.iter().enumerate().rev() {
            for (to, from) in pieces[at].iter_mut().zip(&work.sges[..usize::from(work.sges_used)]) {
                *to = ffi::ibv_sge { addr: from.address, length: from.bytes, lkey: from.lkey };
            }
            let request = &mut requests[at];
            request.wr_id = work.id;
            request.next = next;
            request.sg_list = pieces[at].as_mut_ptr();
            request.num_sge = libc::c_int::from(work.sges_used);
            request.opcode = match work.op {
                WorkOperation::Send => ffi::ibv_wr_opcode::IBV_WR_SEND,
                WorkOperation::Write { address, key } => {
                    request.wr.rdma = ffi::rdma_t { remote_addr: address, rkey: key };
                    ffi::ibv_wr_opcode::IBV_WR_RDMA_WRITE
                }
                WorkOperation::WriteWithImmediate { address, key, value } => {
                    request.wr.rdma = ffi::rdma_t { remote_addr: address, rkey: key };
                    request.imm_data_invalidated_rkey_union.imm_data = value.to_be();
                    ffi::ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM
                }
                WorkOperation::Read { address, key } => {
                    request.wr.rdma = ffi::rdma_t { remote_addr: address, rkey: key };
                    ffi::ibv_wr_opcode::IBV_WR_RDMA_READ
                }
                WorkOperation::Bind { window, region, address, bytes, key } => {
                    let access = ffi::ibv_access_flags::IBV_ACCESS_REMOTE_WRITE;
                    let bind_info = ffi::ibv_mw_bind_info {
                        mr: region as *mut ffi::ibv_mr,
                        addr: address,
                        length: u64::from(bytes),
                        mw_access_flags: access.0,
                    };
                    let mw = window as *mut ffi::ibv_mw;
                    request.bind_mw_tso_union.bind_mw = ffi::bind_mw_t { mw, rkey: key, bind_info };
                    ffi::ibv_wr_opcode::IBV_WR_BIND_MW
                }
                WorkOperation::Invalidate { key } => {
                    request.imm_data_invalidated_rkey_union.invalidated_rkey = key;
                    ffi::ibv_wr_opcode::IBV_WR_LOCAL_INV
                }
            };
            let flag = |set: bool, flag: ffi::ibv_send_flags| if set { flag.0 } else { 0 };
            request.send_flags = flag(work.signalled, ffi::ibv_send_flags::IBV_SEND_SIGNALED)
                | flag(work.inline, ffi::ibv_send_flags::IBV_SEND_INLINE)
                // Marks messages, for peers that are told of nothing else.
                | flag(work.op == WorkOperation::Send, ffi::ibv_send_flags::IBV_SEND_SOLICITED);
            next = request;
        }
        let mut bad = ptr::null_mut();
        check_result(
            // SAFETY: the chain ends with a null pointer and lives through the call; the caller
            // vouches for the rest.
            unsafe { ffi::ibv_post_send(qp.as_ptr(), next, &raw mut bad) },
            "can't post to the send queue",
        )?;
        for work in batch {
            if let WorkOperation::Bind { window, key, .. } = work.op {
                // The next binding of a window names the key of this one. For type 2 the caller
                // of libibverbs must record it.
                // SAFETY: the caller vouches for the window, which nobody else uses while it is
                // bound.
                unsafe { (*(window as *mut ffi::ibv_mw)).rkey = key };
            }
        }
    }
    Ok(())
}

/// Posts one receive buffer.
///
/// # Safety
/// `qp` is alive. The memory stays valid and untouched until a completion with `id`, or until the
/// queue pair is destroyed.
pub(super) unsafe fn post_receive(
    qp: NonNull<ffi::ibv_qp>,
    id: u64,
    piece: GatherElement,
) -> io::Result<()> {
    let mut sge = ffi::ibv_sge { addr: piece.address, length: piece.bytes, lkey: piece.lkey };
    let mut request =
        ffi::ibv_recv_wr { wr_id: id, next: ptr::null_mut(), sg_list: &raw mut sge, num_sge: 1 };
    let mut bad = ptr::null_mut();
    check_result(
        // SAFETY: request and piece live through the call; the caller vouches for the rest.
        unsafe { ffi::ibv_post_recv(qp.as_ptr(), &raw mut request, &raw mut bad) },
        "can't post a receive buffer",
    )
}
