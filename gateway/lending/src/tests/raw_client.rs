//! A client that writes the protocol by hand, so that it can break it.

use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use verbs3_lending_protocol::{
    BELL_LOOK, IdentityClaim, LendingHello, LendingRefusal, LendingVerdict, LentCompletion,
    LentMapping, LentSubmission, MemoryOffer, RingLayout,
};

/// A connection in some state of the handshake.
pub(super) struct RawClient {
    pub(super) stream: UnixStream,
}

/// A client whose memory was taken.
pub(super) struct RawMemory {
    pub(super) stream: UnixStream,
    pub(super) memory: LentMapping,
    pub(super) layout: RingLayout,
    pub(super) submitted: u32,
    pub(super) consumed: u32,
}

pub(super) fn claim_of(access_key: &str) -> IdentityClaim {
    IdentityClaim {
        access_key: access_key.to_owned(),
        stamp: String::new(),
        scope: String::new(),
        signature: String::new(),
    }
}

pub(super) fn sealed_memory(bytes: u64) -> OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = memfd_create("test", flags).unwrap();
    ftruncate(&file, bytes).unwrap();
    // Its pages are touched.
    drop(LentMapping::map_file(file.as_fd(), bytes).unwrap());
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW).unwrap();
    file
}

impl RawClient {
    pub(super) fn connect(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Self { stream }
    }

    pub(super) fn read_hello(&mut self) -> LendingHello {
        let mut hello = [0; LendingHello::BYTES];
        self.stream.read_exact(&mut hello).unwrap();
        LendingHello::decode_hello(&hello).unwrap()
    }

    pub(super) fn verdict(&mut self) -> Result<(), LendingRefusal> {
        let mut verdict = [0; LendingVerdict::BYTES];
        self.stream.read_exact(&mut verdict).unwrap();
        LendingVerdict::decode_verdict(verdict).unwrap().0
    }

    /// Goes as far as the first verdict.
    pub(super) fn proven(socket: &Path, access_key: &str) -> Self {
        let mut client = Self::connect(socket);
        client.read_hello();
        client.stream.write_all(&claim_of(access_key).encode_claim().unwrap()).unwrap();
        client.verdict().unwrap();
        client
    }

    /// Sends bytes with descriptors.
    pub(super) fn pass(&self, bytes: &[u8], files: &[&OwnedFd]) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let descriptors: Vec<_> = files.iter().map(|file| file.as_fd()).collect();
        if !descriptors.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
        }
        let slices = [IoSlice::new(bytes)];
        rustix::net::sendmsg(&self.stream, &slices, &mut control, SendFlags::NOSIGNAL).unwrap();
    }

    pub(super) fn offer(
        &mut self,
        offer: &MemoryOffer,
        files: &[&OwnedFd],
    ) -> Result<(), LendingRefusal> {
        self.pass(&offer.encode_offer(), files);
        self.verdict()
    }

    /// Returns whether the other side has hung up, and its last byte.
    pub(super) fn last_byte(&mut self) -> Option<u8> {
        let mut bytes = Vec::new();
        if let Err(error) = self.stream.read_to_end(&mut bytes) {
            // The server had not read all bells when it closed. What it said before has come.
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
        }
        bytes.last().copied()
    }
}

impl RawMemory {
    pub(super) fn lend(socket: &Path, access_key: &str, bytes: u64) -> Self {
        let mut client = RawClient::proven(socket, access_key);
        let file = sealed_memory(bytes);
        let offer = RingLayout::at_beginning(16, 4);
        let memory = LentMapping::map_file(file.as_fd(), bytes).unwrap();
        client.offer(&offer, &[&file]).unwrap();
        let layout = RingLayout::check_offer(offer, bytes).unwrap();
        Self { stream: client.stream, memory, layout, submitted: 0, consumed: 0 }
    }

    pub(super) fn submit(&mut self, submission: &LentSubmission) {
        let place = self.layout.submission_offset(self.submitted);
        self.memory.write_bytes(place, &submission.encode_submission()).unwrap();
        self.submitted = self.submitted.wrapping_add(1);
        self.memory.store_cursor(self.layout.submitted_cursor(), self.submitted).unwrap();
        self.ring();
    }

    pub(super) fn ring(&mut self) {
        let _ = self.stream.write_all(&[BELL_LOOK]);
    }

    pub(super) fn complete(&mut self) -> LentCompletion {
        loop {
            self.memory.swap_flag(self.layout.client_sleeps_flag(), 1).unwrap();
            let completed = self.memory.load_cursor(self.layout.completed_cursor()).unwrap();
            if completed != self.consumed {
                break;
            }
            assert_ne!(self.stream.read(&mut [0; 8]).unwrap(), 0, "the server hung up");
        }
        let mut entry = [0; 64];
        let place = self.layout.completion_offset(self.consumed);
        self.memory.copy_bytes(place, &mut entry).unwrap();
        self.consumed = self.consumed.wrapping_add(1);
        self.memory.store_cursor(self.layout.consumed_cursor(), self.consumed).unwrap();
        LentCompletion::decode_completion(&entry)
    }

    /// Writes a read at `offset`, and returns a submission of it with its answer behind it.
    pub(super) fn request(&self, key: &str, offset: u64) -> LentSubmission {
        self.place(&super::get(key).encode_request().unwrap(), offset)
    }

    /// Writes a request as it is at `offset`, and returns a submission like `request`.
    pub(super) fn place(&self, bytes: &[u8], offset: u64) -> LentSubmission {
        self.memory.write_bytes(offset, bytes).unwrap();
        LentSubmission {
            token: offset,
            request_offset: offset,
            request_bytes: bytes.len() as u16,
            takes_pages: false,
            head_offset: offset + 4096,
            head_bytes_max: 4096,
            body_offset: offset + 8192,
            body_bytes_max: 8192,
            source_offset: 0,
            source_bytes: 0,
        }
    }
}
