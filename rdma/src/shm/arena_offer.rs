//! Owns the one message between the handshake and the first call: the worker's memory, and the
//! lifeline.
//!
//! Owns its layout and the passing of descriptors. It is sent only after both proofs. So without
//! the secret nobody maps the arena, and nobody can be made to map anything.
//!
//! The lifeline is the reading end of a pipe that nothing is ever written to. The worker keeps the
//! writing end. The kernel tells it when the last reader has closed: the requester has unmapped the
//! arena, or is dead. The stream can't tell that: it ends when calls end, and pieces of their
//! replies live longer.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use tokio::io::Interest;
use tokio::net::UnixStream;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use super::PinQuota;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct WireOffer {
    arena_bytes: U64,
    pin_bytes_max: U64,
    pins_max: U32,
    reserved: U32,
}

/// Count of passed descriptors: memory and lifeline.
const DESCRIPTORS: usize = 2;

/// A worker's offer after the handshake.
pub(super) struct ShmArenaOffer<T> {
    pub(super) arena_bytes: u64,
    pub(super) quota: PinQuota,
    pub(super) memory: T,
    pub(super) lifeline: T,
}

pub(super) async fn send_offer(
    stream: &UnixStream,
    offer: ShmArenaOffer<BorrowedFd<'_>>,
) -> io::Result<()> {
    let wire = WireOffer {
        arena_bytes: offer.arena_bytes.into(),
        pin_bytes_max: offer.quota.bytes_max.into(),
        pins_max: offer.quota.pins_max.into(),
        reserved: U32::ZERO,
    };
    let descriptors = [offer.memory, offer.lifeline];
    let sent = stream.async_io(Interest::WRITABLE, || {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
            return Err(io::Error::other("no space for two descriptors"));
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        Ok(rustix::net::sendmsg(
            stream.as_fd(),
            &[IoSlice::new(wire.as_bytes())],
            &mut control,
            flags,
        )?)
    });
    if sent.await? == size_of::<WireOffer>() {
        Ok(())
    } else {
        Err(io::ErrorKind::WriteZero.into())
    }
}

/// Receives a worker's offer. Closes all descriptors that it does not keep, however many the worker
/// sends.
pub(super) async fn receive_offer(stream: &UnixStream) -> io::Result<ShmArenaOffer<OwnedFd>> {
    let malformed = |reason: &'static str| io::Error::new(io::ErrorKind::InvalidData, reason);
    let mut wire = WireOffer::new_zeroed();
    let mut descriptors = Vec::with_capacity(DESCRIPTORS);
    let received = stream.async_io(Interest::READABLE, || {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let slices = &mut [IoSliceMut::new(wire.as_mut_bytes())];
        let received = rustix::net::recvmsg(stream.as_fd(), slices, &mut control, flags)?;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(passed) = message {
                descriptors.extend(passed);
            }
        }
        Ok(received)
    });
    let received = received.await?;
    if received.bytes == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    if received.bytes != size_of::<WireOffer>() || wire.reserved.get() != 0 {
        return Err(malformed("what follows its welcome offers no memory"));
    }
    if received.flags.contains(ReturnFlags::CTRUNC) {
        return Err(malformed("it passed more descriptors than memory and lifeline"));
    }
    let Ok([memory, lifeline]) = <[OwnedFd; DESCRIPTORS]>::try_from(descriptors) else {
        return Err(malformed("it passed no descriptors of memory and lifeline"));
    };
    let quota = PinQuota { pins_max: wire.pins_max.get(), bytes_max: wire.pin_bytes_max.get() };
    Ok(ShmArenaOffer { arena_bytes: wire.arena_bytes.get(), quota, memory, lifeline })
}
