//! Owns the memory that a gateway has passed, whose pages may be read where they lie: mapped once, and
//! kept while an answer lies in it.

use std::collections::{HashMap, VecDeque};
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags};
use verbs3_lending_protocol::{
    BodySegment, GatewayMessage, GatewayMessages, LENT_SOURCE, PAGE_DESCRIPTORS_MAX, PageMapping,
    PassedSource, SEGMENT_BYTES,
};

/// Bytes of the socket that are read at once.
const SOCKET_BYTES: usize = 64;
/// Most descriptors whose message is not all there, and most memories: an honest gateway has one for
/// each of its connections to workers of its host.
const DESCRIPTORS_MAX: usize = 16;
const SOURCES_MAX: usize = 1024;

/// Memory whose pages answers lie in.
#[derive(Debug)]
pub(crate) struct PageSource {
    pub(crate) pages: Arc<PageMapping>,
    /// The worker takes its pages back once this is closed everywhere. It goes after the mapping.
    _lifeline: Option<OwnedFd>,
}

/// What a gateway has passed over one connection.
#[derive(Debug, Default)]
pub(crate) struct PassedPages {
    messages: GatewayMessages,
    descriptors: VecDeque<OwnedFd>,
    sources: HashMap<u32, Arc<PageSource>>,
    /// The number of the one that was passed last. Numbers grow: whoever knows one has read the
    /// messages of all before it.
    last_source: u32,
    /// The gateway keeps what it has lent until this is closed.
    session_lifeline: Option<OwnedFd>,
    /// An answer lies in memory whose message nobody has read yet.
    pub(crate) is_awaited: bool,
    /// This process can't have what the gateway passes: no descriptor is left for it, or it can't be
    /// mapped. What it has stays.
    pub(crate) refuses_more: bool,
}

/// A part of a body.
#[derive(Debug, Clone)]
pub(crate) struct LandedSegment {
    /// `None`: the connection's own memory, from the body's place on.
    pub(crate) source: Option<Arc<PageSource>>,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

/// What came over the socket.
pub(crate) struct ReceivedBytes {
    bytes: [u8; SOCKET_BYTES],
    pub(crate) length: usize,
    descriptors: Vec<OwnedFd>,
    is_cut: bool,
}

/// Reads the socket, with the descriptors that come along.
pub(crate) fn receive_bytes(stream: &UnixStream, flags: RecvFlags) -> io::Result<ReceivedBytes> {
    let mut bytes = [0; SOCKET_BYTES];
    let mut descriptors = Vec::new();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PAGE_DESCRIPTORS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let slices = &mut [IoSliceMut::new(&mut bytes)];
    let flags = flags | RecvFlags::CMSG_CLOEXEC;
    let received = rustix::net::recvmsg(stream, slices, &mut control, flags)?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(passed) = message {
            descriptors.extend(passed);
        }
    }
    // No descriptor was left for all of them, or the gateway passes more than it may.
    let is_cut = received.flags.contains(ReturnFlags::CTRUNC);
    Ok(ReceivedBytes { bytes, length: received.bytes, descriptors, is_cut })
}

impl PassedPages {
    /// Takes what has come.
    pub(crate) fn take_received(&mut self, received: ReceivedBytes) {
        self.messages.take_bytes(&received.bytes[..received.length]);
        let held = self.descriptors.len() + received.descriptors.len();
        if received.is_cut || held > DESCRIPTORS_MAX || self.sources.len() > SOURCES_MAX {
            self.refuses_more = true;
        }
        if self.refuses_more {
            self.descriptors.clear();
        } else {
            self.descriptors.extend(received.descriptors);
        }
        while let Some(message) = self.messages.next_message() {
            match message {
                GatewayMessage::Bell => {}
                GatewayMessage::Passed(passed) => {
                    self.refuses_more |= self.take_source(passed).is_err();
                    self.last_source = self.last_source.max(passed.source);
                    self.is_awaited = false;
                }
                GatewayMessage::Retired(source) => drop(self.sources.remove(&source)),
            }
        }
    }

    fn take_source(&mut self, passed: PassedSource) -> io::Result<()> {
        if self.descriptors.len() < passed.descriptor_count() {
            return Err(io::Error::other("the gateway has passed fewer descriptors than it says"));
        }
        let mut next = || self.descriptors.pop_front();
        let memory = next().ok_or(io::ErrorKind::InvalidData)?;
        let lifeline = if passed.has_lifeline { next() } else { None };
        if passed.has_session_lifeline {
            self.session_lifeline = next();
        }
        if passed.source <= self.last_source {
            return Err(io::Error::other("the gateway has passed memories out of their order"));
        }
        let identity = PageMapping::identity_of(&memory)?;
        let known = self.sources.values().find(|other| other.pages.file_identity() == identity);
        let pages = match known {
            Some(known) => known.pages.clone(),
            None => Arc::new(PageMapping::map_pages(&memory)?),
        };
        self.sources.insert(passed.source, Arc::new(PageSource { pages, _lifeline: lifeline }));
        Ok(())
    }

    /// Reads a list of segments, of `body_bytes` together, of which those in the lent memory lie within
    /// the first `place_bytes` of the body's place. `Ok(None)`: a message has to be read first. Fails
    /// where some of them lie in what this process does not have.
    pub(crate) fn find_segments(
        &mut self,
        list: &[u8],
        body_bytes: u64,
        place_bytes: u64,
    ) -> io::Result<Option<Vec<LandedSegment>>> {
        let (list, _) = list.as_chunks::<SEGMENT_BYTES>();
        let malformed = || io::Error::other("the gateway has listed what is no part of a body");
        let (mut segments, mut sum) = (Vec::with_capacity(list.len()), 0_u64);
        for BodySegment { source, offset, bytes } in list.iter().map(BodySegment::decode_segment) {
            let source = match source {
                LENT_SOURCE => {
                    let end = offset.checked_add(bytes).filter(|&end| end <= place_bytes);
                    end.ok_or_else(malformed)?;
                    None
                }
                source => {
                    // Without the session's lifeline the gateway would not know that it is read.
                    let has_lifeline = self.session_lifeline.is_some();
                    let known = self.sources.get(&source).filter(|_| has_lifeline);
                    let Some(known) = known else {
                        if source <= self.last_source {
                            return Err(malformed());
                        }
                        self.is_awaited = true;
                        return Ok(None);
                    };
                    known.pages.locate_range(offset, bytes).map_err(|_| malformed())?;
                    Some(known.clone())
                }
            };
            sum = sum.saturating_add(bytes);
            segments.push(LandedSegment { source, offset, bytes });
        }
        if sum == body_bytes { Ok(Some(segments)) } else { Err(malformed()) }
    }
}
