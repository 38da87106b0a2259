//! The read side of a connection: headers, messages, and data straight into landings.
//!
//! Owns the reads. A `readv` takes the rest of a frame and the next header at once: nothing is read ahead into a buffer,
//! so no payload byte is copied in user space. Doesn't know what frames mean.

use std::io::{self, IoSliceMut};
use std::sync::Arc;

use bytes::Bytes;
use tokio::net::TcpStream;

use crate::calls::{Body, HEADER_BYTES, Header, Inlet, InletError};
use crate::landing::Fill;

/// Pieces of one `readv`: a message, 62 segments, the next header.
const SLICES_MAX: usize = 64;

pub(super) struct Intake {
    stream: Arc<TcpStream>,
    message_bytes_max: u32,
    header: [u8; HEADER_BYTES],
    /// Bytes of the next header that have been read.
    have: usize,
}

impl Intake {
    pub(super) fn new(stream: Arc<TcpStream>, message_bytes_max: u32) -> Self {
        Self { stream, message_bytes_max, header: [0; HEADER_BYTES], have: 0 }
    }
}

impl Inlet for Intake {
    async fn header(&mut self) -> Result<Option<Header>, InletError> {
        // Frames that are all there already would otherwise never let another task of this thread run.
        tokio::task::consume_budget().await;
        while self.have < HEADER_BYTES {
            let target = &mut self.header[self.have..];
            match read(&self.stream, &mut [IoSliceMut::new(target)]).await? {
                0 if self.have == 0 => return Ok(None),
                0 => return Err(InletError::Truncated),
                bytes => self.have += bytes,
            }
        }
        self.have = 0;
        let header = Header::decode(&self.header, self.message_bytes_max)?;
        if header.placed || header.segments > 0 {
            return Err(InletError::Rules(format!("{:?} frame over tcp that names memory", header.kind)));
        }
        Ok(Some(header))
    }

    async fn body(&mut self, header: &Header, fill: &mut Fill) -> Result<Body, InletError> {
        // Bounded by `message_bytes_max`, which the decoder has checked.
        let mut message = vec![0; header.message_bytes as usize];
        let mut have = 0;
        loop {
            let missing = message.len() - have + fill.missing();
            if missing == 0 {
                return Ok(Body { message: Bytes::from(message), ..Body::default() });
            }
            let mut slices: [IoSliceMut<'_>; SLICES_MAX] = std::array::from_fn(|_| IoSliceMut::new(&mut []));
            slices[0] = IoSliceMut::new(&mut message[have..]);
            let used = 1 + fill.slices(&mut slices[1..SLICES_MAX - 1]);
            let offered: usize = slices[..used].iter().map(|slice| slice.len()).sum();
            let last = if offered == missing { used + 1 } else { used };
            if last > used {
                slices[used] = IoSliceMut::new(&mut self.header[..]);
            }
            let bytes = read(&self.stream, &mut slices[..last]).await?;
            if bytes == 0 {
                return Err(InletError::Truncated);
            }
            let of_message = bytes.min(message.len() - have);
            have += of_message;
            let of_data = (bytes - of_message).min(fill.missing());
            fill.advance(of_data);
            self.have = bytes - of_message - of_data;
        }
    }
}

async fn read(stream: &TcpStream, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
    loop {
        match stream.try_read_vectored(slices) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => stream.readable().await?,
            result => return result,
        }
    }
}
