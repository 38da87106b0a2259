//! Owns the read side of a connection: headers, descriptors and messages, and data straight into
//! landings.
//!
//! Reads the awaited bytes together with what may be behind them: small frames come many at a time.
//! Of large data no more than a few hundred bytes are copied in user space. Doesn't know what
//! frames mean.

use std::io::{self, IoSliceMut};
use std::sync::Arc;

use super::StreamSocket;
use crate::calls::{FrameHeader, HEADER_BYTES, InletError};
use crate::landing::LandingFill;

/// Pieces of one `readv`: descriptors and a message, 62 segments, and the bytes behind them.
const SLICES_MAX: usize = 64;

/// Bytes read at once while a header is awaited: a page of 4 KiB with its header and message, or
/// many requests.
const AHEAD_BYTES: usize = 8 << 10;

/// Bytes read behind data: the next header and most messages. Data that comes along is copied, so
/// this is short.
const BEHIND_DATA_BYTES: usize = 512;

/// Most awaited data bytes for which the kernel may delay the wake-up. Each wake-up costs both
/// sides.
const WAKE_BYTES_MAX: usize = 128 << 10;

/// Least such bytes; fewer are not worth telling the kernel.
const WAKE_BYTES_MIN: usize = 32 << 10;

pub(crate) struct FrameIntake<S: StreamSocket> {
    stream: Arc<S>,
    message_bytes_max: u32,
    ahead: ReadAheadBuffer,
    /// Bytes that have to be there before the kernel wakes the reader.
    wake_bytes: usize,
}

/// Bytes that were read before they were needed.
struct ReadAheadBuffer {
    buffer: Box<[u8; AHEAD_BYTES]>,
    start: usize,
    end: usize,
}

impl<S: StreamSocket> FrameIntake<S> {
    pub(crate) fn new(stream: Arc<S>, message_bytes_max: u32) -> Self {
        let ahead = ReadAheadBuffer { buffer: Box::new([0; AHEAD_BYTES]), start: 0, end: 0 };
        Self { stream, message_bytes_max, ahead, wake_bytes: 1 }
    }

    /// Reads the next header. Returns `None` when the stream ended between two frames.
    pub(crate) async fn next(&mut self) -> Result<Option<FrameHeader>, InletError> {
        // Frames that have all arrived would otherwise never let another task of this thread run.
        tokio::task::consume_budget().await;
        loop {
            if let Some(header) = self.ahead.take_exact(HEADER_BYTES).first_chunk::<HEADER_BYTES>()
            {
                return Ok(Some(FrameHeader::decode(header, self.message_bytes_max)?));
            }
            self.ahead.compact_buffer();
            let mut room = [IoSliceMut::new(&mut self.ahead.buffer[self.ahead.end..])];
            match read(&*self.stream, &mut room, &mut self.wake_bytes, 1).await? {
                0 if self.ahead.end == 0 => return Ok(None),
                0 => return Err(InletError::Truncated),
                bytes => self.ahead.end += bytes,
            }
        }
    }

    /// Reads the rest of a frame: `words` bytes of descriptors and message, then data until `fill`
    /// is full. The caller has bounded `words`.
    pub(crate) async fn read_rest(
        &mut self,
        words: usize,
        fill: &mut LandingFill,
    ) -> Result<Vec<u8>, InletError> {
        let there = self.ahead.take_up_to(words);
        let mut have = there.len();
        let mut words = if have == words {
            there.to_vec()
        } else {
            let mut all = vec![0; words];
            all[..have].copy_from_slice(there);
            all
        };
        let copied = fill.copy_from(self.ahead.unread_bytes());
        self.ahead.skip_bytes(copied);
        loop {
            let missing = words.len() - have + fill.missing_bytes();
            if missing == 0 {
                return Ok(words);
            }
            // Something is missing, so the read-ahead is used up.
            let behind = if missing > AHEAD_BYTES { BEHIND_DATA_BYTES } else { AHEAD_BYTES };
            let mut slices: [IoSliceMut<'_>; SLICES_MAX] =
                std::array::from_fn(|_| IoSliceMut::new(&mut []));
            slices[0] = IoSliceMut::new(&mut words[have..]);
            let used = 1 + fill.unwritten_slices(&mut slices[1..SLICES_MAX - 1]);
            let offered: usize = slices[..used].iter().map(|slice| slice.len()).sum();
            let last = if offered == missing { used + 1 } else { used };
            if last > used {
                slices[used] = IoSliceMut::new(&mut self.ahead.buffer[..behind]);
            }
            let bytes =
                read(&*self.stream, &mut slices[..last], &mut self.wake_bytes, missing).await?;
            if bytes == 0 {
                return Err(InletError::Truncated);
            }
            let of_words = bytes.min(words.len() - have);
            have += of_words;
            let of_data = (bytes - of_words).min(fill.missing_bytes());
            fill.record_written(of_data);
            (self.ahead.start, self.ahead.end) = (0, bytes - of_words - of_data);
        }
    }
}

impl ReadAheadBuffer {
    fn unread_bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    fn skip_bytes(&mut self, bytes: usize) {
        self.start += bytes;
    }

    /// Takes the next `bytes`, or nothing while there are fewer.
    fn take_exact(&mut self, bytes: usize) -> &[u8] {
        let bytes = if self.end - self.start < bytes { 0 } else { bytes };
        self.take_up_to(bytes)
    }

    fn take_up_to(&mut self, bytes: usize) -> &[u8] {
        let start = self.start;
        self.start = self.end.min(start + bytes);
        &self.buffer[start..self.start]
    }

    fn compact_buffer(&mut self) {
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
    }
}

/// Reads what is there. When that is nothing, waits. `wake_bytes` is what the kernel was last told
/// to wait for; `missing` is what it may wait for now.
async fn read<S: StreamSocket>(
    stream: &S,
    slices: &mut [IoSliceMut<'_>],
    wake_bytes: &mut usize,
    missing: usize,
) -> io::Result<usize> {
    loop {
        match stream.try_read(slices) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let wanted = if missing < WAKE_BYTES_MIN { 1 } else { missing.min(WAKE_BYTES_MAX) };
                if wanted != *wake_bytes {
                    // The kernel wakes the reader at once if enough is there already.
                    stream.wake_at(wanted)?;
                    *wake_bytes = wanted;
                }
                stream.wait_readable().await?;
            }
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::low_water;
    use super::*;
    use crate::arena::{Arena, ArenaOptions};
    use crate::calls::FrameKind;
    use crate::landing::Landing;
    use bytes::Bytes;
    use std::time::Duration;
    use tokio::io::AsyncWriteExt;
    use tokio::net::{TcpListener, TcpStream};

    const DATA_BYTES: usize = 300 << 10;

    async fn pair() -> (TcpStream, Arc<TcpStream>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (to, from) =
            tokio::join!(TcpStream::connect(listener.local_addr().unwrap()), listener.accept());
        (to.unwrap(), Arc::new(from.unwrap().0))
    }

    fn part(message_bytes: usize, data_bytes: usize) -> [u8; HEADER_BYTES] {
        let (message_bytes, data_bytes) = (message_bytes as u32, data_bytes as u64);
        FrameHeader { message_bytes, data_bytes, ..FrameHeader::new(FrameKind::Part, 1) }.encode()
    }

    fn fill(bytes: usize) -> (Landing, LandingFill) {
        let options =
            ArenaOptions { capacity_bytes: 4 << 20, cell_bytes_max: 256 << 10, populate: false };
        let pages = [bytes.min(100 << 10), bytes.saturating_sub(100 << 10)];
        let mut landing =
            Landing::allocate_segments(&Arena::map_memory(options).unwrap(), &pages).unwrap();
        let fill = landing.claim_range(0, bytes as u64).unwrap();
        (landing, fill)
    }

    fn byte_at(at: usize) -> u8 {
        (at * 7 % 251) as u8
    }

    fn assert_right(pieces: &[Bytes]) {
        let all = pieces.concat();
        assert_eq!(all.len(), DATA_BYTES);
        assert!(all.iter().enumerate().all(|(at, &byte)| byte == byte_at(at)));
    }

    /// Without the reset of the low-water mark the second header would never be heard of.
    #[tokio::test]
    async fn a_small_frame_is_heard_after_a_large_part_was_waited_for() {
        let (mut to, from) = pair().await;
        let mut intake = FrameIntake::new(from.clone(), 1024);
        let data: Vec<u8> = (0..DATA_BYTES).map(byte_at).collect();
        let (_landing, mut target) = fill(DATA_BYTES);
        let reading = async {
            let header = intake.next().await.unwrap().unwrap();
            let words = intake.read_rest(header.message_bytes as usize, &mut target).await.unwrap();
            (words, intake.next().await.unwrap().unwrap())
        };
        let writing = async {
            to.write_all(&part(5, DATA_BYTES)).await.unwrap();
            to.write_all(b"hello").await.unwrap();
            to.write_all(&data[..1000]).await.unwrap();
            while low_water::get(&from) <= 1 {
                tokio::task::yield_now().await;
            }
            to.write_all(&data[1000..]).await.unwrap();
            while low_water::get(&from) > 1 {
                tokio::task::yield_now().await;
            }
            to.write_all(&FrameHeader::new(FrameKind::CancelAck, 7).encode()).await.unwrap();
        };
        let both = async { tokio::join!(reading, writing).0 };
        let (words, header) = tokio::time::timeout(Duration::from_secs(20), both).await.unwrap();
        assert_eq!(
            (&words[..], header.kind, header.call),
            (&b"hello"[..], FrameKind::CancelAck, 7)
        );
        assert_right(&target.into_vouched_bytes());
    }

    #[tokio::test]
    async fn frames_arrive_whole_however_they_are_cut() {
        // Small frames before, between and behind data, so that each kind of read finds something
        // behind what it wants.
        let data: Vec<u8> = (0..DATA_BYTES).map(byte_at).collect();
        let mut stream = Vec::new();
        for message in ["", "a", "some words"] {
            stream.extend_from_slice(&part(message.len(), 0));
            stream.extend_from_slice(message.as_bytes());
        }
        stream.extend_from_slice(&part(3, DATA_BYTES));
        stream.extend_from_slice(b"big");
        stream.extend_from_slice(&data);
        stream.extend_from_slice(&part(4, 0));
        stream.extend_from_slice(b"last");
        for cut in [1009, 8192, 70_001, stream.len()] {
            let (mut to, from) = pair().await;
            let mut intake = FrameIntake::new(from, 1024);
            let (_landing, mut target) = fill(DATA_BYTES);
            let reading = async {
                let mut messages = Vec::new();
                while let Some(header) = intake.next().await.unwrap() {
                    let mut none = LandingFill::default();
                    let wanted = if header.data_bytes > 0 { &mut target } else { &mut none };
                    messages.push(
                        intake.read_rest(header.message_bytes as usize, wanted).await.unwrap(),
                    );
                }
                messages
            };
            let writing = async {
                for piece in stream.chunks(cut) {
                    to.write_all(piece).await.unwrap();
                    tokio::task::yield_now().await;
                }
                drop(to);
            };
            let (messages, ()) = tokio::join!(reading, writing);
            assert_eq!(
                messages,
                ["", "a", "some words", "big", "last"].map(|word| word.as_bytes().to_vec()),
                "{cut}"
            );
            assert_right(&target.into_vouched_bytes());
        }
    }
}
