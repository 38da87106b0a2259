//! The read side of a connection: headers, descriptors and messages, and data straight into landings.
//!
//! Owns the reads. A `readv` takes the rest of a frame and the next header at once: nothing is read ahead into a buffer,
//! so no payload byte is copied in user space. Doesn't know what frames mean.

use std::io::{self, IoSliceMut};
use std::sync::Arc;

use super::Socket;
use crate::calls::{HEADER_BYTES, Header, InletError};
use crate::landing::Fill;

/// Pieces of one `readv`: descriptors and a message, 62 segments, the next header.
const SLICES_MAX: usize = 64;

pub(crate) struct Intake<S: Socket> {
    stream: Arc<S>,
    message_bytes_max: u32,
    header: [u8; HEADER_BYTES],
    /// Bytes of the next header that have been read.
    have: usize,
}

impl<S: Socket> Intake<S> {
    pub(crate) fn new(stream: Arc<S>, message_bytes_max: u32) -> Self {
        Self { stream, message_bytes_max, header: [0; HEADER_BYTES], have: 0 }
    }

    /// The next header, or `None` when the stream ended between two frames.
    pub(crate) async fn next(&mut self) -> Result<Option<Header>, InletError> {
        // Frames that are all there already would otherwise never let another task of this thread run.
        tokio::task::consume_budget().await;
        while self.have < HEADER_BYTES {
            let target = &mut self.header[self.have..];
            match read(&*self.stream, &mut [IoSliceMut::new(target)]).await? {
                0 if self.have == 0 => return Ok(None),
                0 => return Err(InletError::Truncated),
                bytes => self.have += bytes,
            }
        }
        self.have = 0;
        Ok(Some(Header::decode(&self.header, self.message_bytes_max)?))
    }

    /// The rest of a frame: `words` bytes of descriptors and message, which the caller has bounded, then data until `fill`
    /// is full.
    pub(crate) async fn rest(&mut self, words: usize, fill: &mut Fill) -> Result<Vec<u8>, InletError> {
        let mut words = vec![0; words];
        let mut have = 0;
        loop {
            let missing = words.len() - have + fill.missing();
            if missing == 0 {
                return Ok(words);
            }
            let mut slices: [IoSliceMut<'_>; SLICES_MAX] = std::array::from_fn(|_| IoSliceMut::new(&mut []));
            slices[0] = IoSliceMut::new(&mut words[have..]);
            let used = 1 + fill.slices(&mut slices[1..SLICES_MAX - 1]);
            let offered: usize = slices[..used].iter().map(|slice| slice.len()).sum();
            let last = if offered == missing { used + 1 } else { used };
            if last > used {
                slices[used] = IoSliceMut::new(&mut self.header[..]);
            }
            let bytes = read(&*self.stream, &mut slices[..last]).await?;
            if bytes == 0 {
                return Err(InletError::Truncated);
            }
            let of_words = bytes.min(words.len() - have);
            have += of_words;
            let of_data = (bytes - of_words).min(fill.missing());
            fill.advance(of_data);
            self.have = bytes - of_words - of_data;
        }
    }
}

async fn read<S: Socket>(stream: &S, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
    loop {
        match stream.try_read(slices) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => stream.readable().await?,
            result => return result,
        }
    }
}
