//! Lends memory to a gateway: connects, proves who this is, makes the memory and passes it.

use std::io::{self, IoSlice, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, socket_with,
};
use verbs3_lending_protocol::{
    LendingHello, LendingRefusal, LendingVerdict, LentMapping, MemoryOffer, RingLayout,
};

use crate::client_options::{ClientLendingError, LendingClientOptions};
use crate::client_signature::sign_claim;
use crate::memory_file::make_memory;
use crate::memory_pinner::MemoryPin;

/// Bounds of the wait for a message of the handshake.
const HANDSHAKE_MIN: Duration = Duration::from_millis(100);
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// How long one wait for the socket takes at most. A signal's handler has its turn after it.
pub(crate) const WAIT_SLICE: Duration = Duration::from_millis(100);

/// Memory that a gateway has taken.
pub(crate) struct LentSession {
    pub(crate) memory: LentMapping,
    pub(crate) layout: RingLayout,
    /// Reads of it wait for [`WAIT_SLICE`].
    pub(crate) stream: UnixStream,
}

/// Lends memory as the options say.
pub(crate) fn lend_memory(
    options: &LendingClientOptions,
) -> Result<LentSession, ClientLendingError> {
    let path = &options.socket;
    let unavailable = |source| ClientLendingError::Unavailable { path: path.clone(), source };
    let refused = |refusal| ClientLendingError::Refused { path: path.clone(), refusal };
    let patience = options.read_for.clamp(HANDSHAKE_MIN, HANDSHAKE_MAX);
    let mut stream = open_stream(path, patience).map_err(unavailable)?;
    let mut hello = [0; LendingHello::BYTES];
    stream.read_exact(&mut hello).map_err(unavailable)?;
    let hello = LendingHello::decode_hello(&hello)
        .map_err(|problem| unavailable(io::Error::other(problem)))?;
    let bytes = options.memory_bytes;
    if bytes > hello.memory_bytes_max {
        return Err(refused(LendingRefusal::MemoryBytes));
    }
    let claim = sign_claim(options, &hello.nonce).encode_claim();
    let claim = claim.ok_or_else(|| refused(LendingRefusal::Malformed))?;
    stream.write_all(&claim).map_err(unavailable)?;
    read_verdict(&mut stream).map_err(unavailable)?.map_err(refused)?;
    let (file, memory) =
        make_memory(bytes).map_err(|source| ClientLendingError::Memory { bytes, source })?;
    let offer = RingLayout::at_beginning(options.reads_max, options.page_loans);
    let layout =
        RingLayout::check_offer(offer, bytes).map_err(|_| refused(LendingRefusal::Layout))?;
    send_offer(&stream, &offer, &file).map_err(unavailable)?;
    drop(file);
    read_verdict(&mut stream).map_err(unavailable)?.map_err(refused)?;
    stream.set_read_timeout(Some(WAIT_SLICE)).map_err(unavailable)?;
    Ok(LentSession { memory, layout, stream })
}

/// Connects. Nothing waits longer than `patience`: not for a place in the queue of a gateway that
/// hangs, and not for a message.
fn open_stream(path: &Path, patience: Duration) -> io::Result<UnixStream> {
    let address = SocketAddrUnix::new(path)?;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    set_socket_timeout(&socket, Timeout::Send, Some(patience))?;
    set_socket_timeout(&socket, Timeout::Recv, Some(patience))?;
    rustix::net::connect(&socket, &address)?;
    Ok(UnixStream::from(socket))
}

/// Pins the memory where the client wants that. The gateway has taken it, and waits for nothing.
pub(crate) fn pin_memory(
    options: &LendingClientOptions,
    memory: &LentMapping,
) -> Result<Option<Box<dyn MemoryPin>>, ClientLendingError> {
    let Some(pinner) = &options.pinner else { return Ok(None) };
    let bytes = memory.mapped_bytes();
    let pinned = pinner.pin_memory(memory.locate_range(0, bytes)?, bytes);
    pinned.map(Some).map_err(|source| ClientLendingError::Pinning { bytes, source })
}

fn read_verdict(stream: &mut UnixStream) -> io::Result<Result<(), LendingRefusal>> {
    let mut verdict = [0; LendingVerdict::BYTES];
    stream.read_exact(&mut verdict)?;
    LendingVerdict::decode_verdict(verdict).map(|verdict| verdict.0).map_err(io::Error::other)
}

fn send_offer(stream: &UnixStream, offer: &MemoryOffer, file: &OwnedFd) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = [file.as_fd()];
    if !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::Error::other("no space for a descriptor"));
    }
    let message = offer.encode_offer();
    let slices = [IoSlice::new(&message)];
    let sent = rustix::net::sendmsg(stream, &slices, &mut control, SendFlags::NOSIGNAL)?;
    if sent == message.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}
