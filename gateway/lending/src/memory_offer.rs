//! Takes the one message that carries a descriptor: the memory. It is asked for only after a proof.
//! Every other read of the socket has no place for descriptors, and the kernel closes them.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags};
use tokio::io::Interest;
use tokio::net::UnixStream;
use verbs3_lending_protocol::{LendingRefusal, MemoryOffer};

/// Receives the offer and its descriptor. `Err` within: the client is to be told.
pub(crate) async fn receive_offer(
    stream: &UnixStream,
) -> io::Result<Result<(MemoryOffer, OwnedFd), LendingRefusal>> {
    let mut message = [0; MemoryOffer::BYTES];
    let mut filled = 0;
    let mut passed = Vec::new();
    let mut is_cut = false;
    while filled < message.len() {
        let rest = &mut message[filled..];
        let received = stream.async_io(Interest::READABLE, || {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
            let slices = &mut [IoSliceMut::new(rest)];
            let received = rustix::net::recvmsg(stream.as_fd(), slices, &mut control, flags)?;
            for message in control.drain() {
                if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                    passed.extend(descriptors);
                }
            }
            Ok(received)
        });
        let received = received.await?;
        if received.bytes == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        filled += received.bytes;
        is_cut |= received.flags.contains(ReturnFlags::CTRUNC);
        if is_cut || passed.len() > 1 {
            return Ok(Err(LendingRefusal::Descriptor));
        }
    }
    let Some(file) = passed.pop() else { return Ok(Err(LendingRefusal::Descriptor)) };
    let offer = MemoryOffer::decode_offer(&message).map_err(|_| LendingRefusal::Malformed);
    Ok(offer.map(|offer| (offer, file)))
}
