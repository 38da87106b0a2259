//! Owns the states of a queue pair that this side moves by itself. rdma_cm's own way leaves no room
//! for a smaller path MTU.
//!
//! Owns the attributes of each step, which come from rdma_cm, and the one attribute that is
//! changed. Makes no queue pair and no event. The model is what librdmacm 44 does for its own queue
//! pairs (`ucma_modify_qp_rtr`, `ucma_modify_qp_rts`).

use std::io;
use std::ptr::NonNull;

use rdma_mummy_sys as ffi;

use super::check_result;

/// Mask bits that rdma_cm sets for RoCE. It sets them for InfiniBand too, by mistake, and
/// InfiniBand refuses them.
const ROCE_BITS: libc::c_int = 0x00e0_0000;

/// Wait of a peer that met no receive buffer, as verbs encode it: 0.64 ms. 0 is 655 ms.
pub(super) const RNR_TIMER: u8 = 12;

/// Maps a path MTU in bytes to verbs' name for it. Other values map to the next smaller MTU.
pub(super) fn mtu_of(bytes: u16) -> ffi::ibv_mtu::Type {
    match bytes {
        4096.. => ffi::ibv_mtu::IBV_MTU_4096,
        2048.. => ffi::ibv_mtu::IBV_MTU_2048,
        1024.. => ffi::ibv_mtu::IBV_MTU_1024,
        512.. => ffi::ibv_mtu::IBV_MTU_512,
        _ => ffi::ibv_mtu::IBV_MTU_256,
    }
}

/// Returns the bytes of a path MTU; 0 for an unknown one.
pub(in crate::verbs) fn mtu_bytes(mtu: ffi::ibv_mtu::Type) -> u16 {
    match mtu {
        1..=5 => 128 << mtu,
        _ => 0,
    }
}

/// Returns the attributes that rdma_cm demands for entering `state`.
///
/// # Safety
/// `id` is alive.
unsafe fn state_attributes(
    id: NonNull<ffi::rdma_cm_id>,
    state: ffi::ibv_qp_state::Type,
) -> io::Result<(ffi::ibv_qp_attr, libc::c_int)> {
    // SAFETY: plain data, for which zeroes are valid.
    let mut attributes: ffi::ibv_qp_attr = unsafe { std::mem::zeroed() };
    attributes.qp_state = state;
    let mut mask = 0;
    // SAFETY: the caller vouches for the id; both places are valid.
    let made = unsafe { ffi::rdma_init_qp_attr(id.as_ptr(), &raw mut attributes, &raw mut mask) };
    check_result(made, "rdma_cm knows no attributes for the queue pair")?;
    Ok((attributes, mask))
}

/// # Safety
/// `qp` is alive.
pub(super) unsafe fn modify_state(
    qp: NonNull<ffi::ibv_qp>,
    mut to: ffi::ibv_qp_attr,
    mask: libc::c_int,
) -> io::Result<()> {
    check_result(
        // SAFETY: the caller vouches for the queue pair; the attributes live through the call.
        unsafe { ffi::ibv_modify_qp(qp.as_ptr(), &raw mut to, mask) },
        "can't move the queue pair on",
    )
}

/// Moves the queue pair to INIT. Receive buffers can be posted from here on.
///
/// # Safety
/// `id` and `qp` are alive.
pub(super) unsafe fn to_init(
    id: NonNull<ffi::rdma_cm_id>,
    qp: NonNull<ffi::ibv_qp>,
) -> io::Result<()> {
    // SAFETY: the caller vouches for the id.
    let (to, mask) = unsafe { state_attributes(id, ffi::ibv_qp_state::IBV_QPS_INIT) }?;
    // SAFETY: the caller vouches for the queue pair.
    unsafe { modify_state(qp, to, mask) }
}

/// Moves the queue pair to ERR. Nothing is sent or received from here on.
///
/// # Safety
/// `qp` is alive.
pub(super) unsafe fn to_error(qp: NonNull<ffi::ibv_qp>) -> io::Result<()> {
    // SAFETY: plain data, for which zeroes are valid.
    let mut to: ffi::ibv_qp_attr = unsafe { std::mem::zeroed() };
    to.qp_state = ffi::ibv_qp_state::IBV_QPS_ERR;
    // SAFETY: the caller vouches for the queue pair.
    unsafe { modify_state(qp, to, ffi::ibv_qp_attr_mask::IBV_QP_STATE.0 as libc::c_int) }
}

/// Makes the queue pair ready to receive and to send, in packets of at most `path_mtu_max` bytes.
/// Returns the path MTU. Both sides must come to the same value: a receiver refuses packets of
/// another length than its own.
///
/// # Safety
/// `id` and `qp` are alive.
pub(super) unsafe fn to_ready(
    id: NonNull<ffi::rdma_cm_id>,
    qp: NonNull<ffi::ibv_qp>,
    path_mtu_max: u16,
    infiniband: bool,
) -> io::Result<u16> {
    // The port and the P_Key may have changed since the queue pair was made.
    // SAFETY: the caller vouches for both.
    unsafe { to_init(id, qp) }?;
    // SAFETY: the caller vouches for the id.
    let (mut to, mut mask) = unsafe { state_attributes(id, ffi::ibv_qp_state::IBV_QPS_RTR) }?;
    let path_mtu = to.path_mtu.min(mtu_of(path_mtu_max));
    to.path_mtu = path_mtu;
    to.min_rnr_timer = RNR_TIMER;
    if infiniband {
        mask &= !ROCE_BITS;
    }
    // SAFETY: the caller vouches for the queue pair.
    unsafe { modify_state(qp, to, mask) }?;
    // SAFETY: the caller vouches for the id.
    let (send, mask) = unsafe { state_attributes(id, ffi::ibv_qp_state::IBV_QPS_RTS) }?;
    // SAFETY: the caller vouches for the queue pair.
    unsafe { modify_state(qp, send, mask) }?;
    Ok(mtu_bytes(path_mtu))
}

/// Sets the wait of a peer that meets no receive buffer. The queue pair is ready to send.
///
/// # Safety
/// `qp` is alive.
pub(super) unsafe fn set_rnr_timer(qp: NonNull<ffi::ibv_qp>) -> io::Result<()> {
    // SAFETY: plain data, for which zeroes are valid.
    let mut to: ffi::ibv_qp_attr = unsafe { std::mem::zeroed() };
    to.min_rnr_timer = RNR_TIMER;
    let mask = ffi::ibv_qp_attr_mask::IBV_QP_MIN_RNR_TIMER.0 as libc::c_int;
    // SAFETY: the caller vouches for the queue pair.
    unsafe { modify_state(qp, to, mask) }
}

/// Returns the path MTU in bytes, as the device has it; 0 where it reports none.
///
/// # Safety
/// `qp` is alive.
pub(super) unsafe fn path_mtu(qp: NonNull<ffi::ibv_qp>) -> io::Result<u16> {
    // SAFETY: plain data, for which zeroes are valid.
    let (mut attributes, mut made): (ffi::ibv_qp_attr, ffi::ibv_qp_init_attr) =
        unsafe { std::mem::zeroed() };
    let mask = ffi::ibv_qp_attr_mask::IBV_QP_PATH_MTU.0 as libc::c_int;
    // SAFETY: the caller vouches for the queue pair; both places are valid.
    let asked = unsafe { ffi::ibv_query_qp(qp.as_ptr(), &raw mut attributes, mask, &raw mut made) };
    check_result(asked, "can't ask the queue pair")?;
    Ok(mtu_bytes(attributes.path_mtu))
}

/// Returns the wait of a peer that meets no receive buffer, as verbs encode it.
///
/// # Safety
/// `qp` is alive.
#[cfg(test)]
pub(super) unsafe fn rnr_timer(qp: NonNull<ffi::ibv_qp>) -> io::Result<u8> {
    // SAFETY: plain data, for which zeroes are valid.
    let (mut attributes, mut made): (ffi::ibv_qp_attr, ffi::ibv_qp_init_attr) =
        unsafe { std::mem::zeroed() };
    let mask = ffi::ibv_qp_attr_mask::IBV_QP_MIN_RNR_TIMER.0 as libc::c_int;
    // SAFETY: the caller vouches for the queue pair; both places are valid.
    let asked = unsafe { ffi::ibv_query_qp(qp.as_ptr(), &raw mut attributes, mask, &raw mut made) };
    check_result(asked, "can't ask the queue pair")?;
    Ok(attributes.min_rnr_timer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_mtus_are_those_of_verbs() {
        for bytes in [256, 512, 1024, 2048, 4096] {
            assert_eq!(mtu_bytes(mtu_of(bytes)), bytes);
        }
        assert_eq!(
            (mtu_bytes(mtu_of(1500)), mtu_bytes(mtu_of(9000)), mtu_bytes(mtu_of(0))),
            (1024, 4096, 256)
        );
        assert_eq!((mtu_bytes(0), mtu_bytes(9)), (0, 0));
    }
}
