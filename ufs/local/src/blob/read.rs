//! Owns the read of an object's extents as a body: in bounded pieces, off the async threads, one
//! piece ahead of the client. Knows no ranges of objects and no headers; the caller cuts the
//! extents.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::Stream;
use s3s::StdError;
use s3s::stream::{ByteStream, RemainingLength};
use tokio::task::JoinHandle;

use super::{BlobDir, BlobExtent, PinGuard};

/// A position in a list of extents. Blobs are opened when they are reached, so that an object of
/// 10,000 parts does not hold 10,000 files open. The pin keeps the later blobs in place.
pub struct ExtentReader {
    dir: Arc<BlobDir>,
    extents: VecDeque<BlobExtent>,
    file: Option<File>,
    chunk_bytes: usize,
    _pin: PinGuard,
}

impl ExtentReader {
    /// Starts at the first extent and opens no file yet. `pin` must hold all blobs of `extents`.
    pub fn new(
        dir: Arc<BlobDir>,
        extents: Vec<BlobExtent>,
        chunk_bytes: usize,
        pin: PinGuard,
    ) -> Self {
        let extents = extents.into_iter().filter(|e| e.len > 0).collect();
        ExtentReader { dir, extents, file: None, chunk_bytes, _pin: pin }
    }

    /// Returns the next piece, empty at the end. Blocks.
    pub fn next_piece(&mut self) -> io::Result<Bytes> {
        let Some(extent) = self.extents.front_mut() else { return Ok(Bytes::new()) };
        let file = match &self.file {
            Some(file) => file,
            None => {
                let path = self.dir.blob_path(extent.blob);
                let named = |e: io::Error| {
                    io::Error::new(e.kind(), format!("blob file {}: {e}", path.display()))
                };
                self.file.insert(File::open(&path).map_err(named)?)
            }
        };
        let len = extent.len.min(self.chunk_bytes as u64);
        let mut piece = vec![0; len as usize];
        file.read_exact_at(&mut piece, extent.offset).map_err(|e| {
            let path = self.dir.blob_path(extent.blob);
            io::Error::new(
                e.kind(),
                format!("blob file {} at {}: {e}", path.display(), extent.offset),
            )
        })?;
        extent.offset += len;
        extent.len -= len;
        if extent.len == 0 {
            self.extents.pop_front();
            self.file = None;
        }
        Ok(piece.into())
    }
}

type PieceTask = JoinHandle<io::Result<(ExtentReader, Bytes)>>;

/// A body of known length. Its first piece is read when it is made, so that an unreadable object
/// fails before the first byte.
pub struct ObjectBody {
    first: Option<Bytes>,
    next: Option<PieceTask>,
    remaining: u64,
}

impl ObjectBody {
    /// Reads the first piece. Blocks; must be called within a Tokio runtime.
    pub fn open_body(mut reader: ExtentReader, len: u64) -> io::Result<Self> {
        let first = reader.next_piece()?;
        let next = (len > first.len() as u64).then(|| read_ahead(reader));
        Ok(ObjectBody { first: Some(first), next, remaining: len })
    }

    fn hand_out_piece(&mut self, piece: Bytes) -> Option<Result<Bytes, StdError>> {
        if piece.is_empty() && self.remaining > 0 {
            return self
                .fail_body(io::Error::other("the object's index record is longer than its blobs"));
        }
        self.remaining -= piece.len() as u64;
        Some(Ok(piece))
    }

    fn fail_body(&mut self, e: io::Error) -> Option<Result<Bytes, StdError>> {
        tracing::error!(error = %e, "an object's bytes could not be read; the response is cut");
        (self.next, self.first) = (None, None);
        self.remaining = 0;
        Some(Err(Box::new(e)))
    }
}

fn read_ahead(mut reader: ExtentReader) -> PieceTask {
    tokio::task::spawn_blocking(move || {
        let piece = reader.next_piece()?;
        Ok((reader, piece))
    })
}

impl Stream for ObjectBody {
    type Item = Result<Bytes, StdError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(first) = self.first.take()
            && !first.is_empty()
        {
            return Poll::Ready(self.hand_out_piece(first));
        }
        let Some(task) = self.next.as_mut() else { return Poll::Ready(None) };
        let done = std::task::ready!(Pin::new(task).poll(cx));
        self.next = None;
        Poll::Ready(match done {
            Ok(Ok((reader, piece))) => {
                if self.remaining > piece.len() as u64 && !piece.is_empty() {
                    self.next = Some(read_ahead(reader));
                }
                self.hand_out_piece(piece)
            }
            Ok(Err(e)) => self.fail_body(e),
            Err(e) => self.fail_body(io::Error::other(e)),
        })
    }
}

impl ByteStream for ObjectBody {
    fn remaining_length(&self) -> RemainingLength {
        RemainingLength::new_exact(usize::try_from(self.remaining).unwrap_or(usize::MAX))
    }
}
