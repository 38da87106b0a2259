//! Owns the write of one blob. It gathers a body's pieces, hashes and writes them off the async
//! threads, and makes the file durable.
//!
//! Does not decide whether the bytes are wanted. A blob that is not kept removes its own file.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use tokio::task::JoinHandle;

use super::{BlobDir, BlobExtent, BlobId, sync_dir};
use crate::checksum::BodyHasher;

/// A blob being written, or written but not committed. Dropping it removes the file.
#[derive(Debug)]
pub struct UnfinishedBlob {
    id: BlobId,
    dir: Arc<BlobDir>,
    path: PathBuf,
    keep: bool,
}

impl UnfinishedBlob {
    fn new(id: BlobId, dir: Arc<BlobDir>, path: PathBuf) -> Self {
        dir.unfinished.fetch_add(1, Ordering::Relaxed);
        UnfinishedBlob { id, dir, path, keep: false }
    }

    /// Hands the blob over to the index.
    pub fn keep_blob(mut self) {
        self.keep = true;
    }
}

impl Drop for UnfinishedBlob {
    fn drop(&mut self) {
        self.dir.unfinished.fetch_sub(1, Ordering::Relaxed);
        // Removing the file is little work. A failure leaves an orphan that the next start sweeps
        // away.
        if !self.keep
            && let Err(e) = std::fs::remove_file(&self.path)
        {
            tracing::warn!(
                blob = self.id.0, error = %e,
                "could not remove an unfinished blob; the next start will"
            );
        }
    }
}

struct BlobSink {
    file: File,
    hasher: BodyHasher,
    blob: UnfinishedBlob,
}

/// A writer that takes a body's pieces in order.
pub struct BlobWriter {
    dir: Arc<BlobDir>,
    idle: Option<BlobSink>,
    busy: Option<JoinHandle<io::Result<BlobSink>>>,
    gathered: Vec<Bytes>,
    gathered_bytes: usize,
    chunk_bytes: usize,
    len: u64,
}

/// A blob whose bytes are durable and hashed.
pub struct FinishedBlob {
    pub extent: BlobExtent,
    pub blob: UnfinishedBlob,
    pub hasher: BodyHasher,
}

impl BlobWriter {
    /// Makes a new file. `chunk_bytes` are gathered before a write.
    pub async fn create_blob(
        dir: Arc<BlobDir>,
        hasher: BodyHasher,
        chunk_bytes: usize,
    ) -> io::Result<Self> {
        let made = dir.clone();
        let sink = run_blocking(move || {
            let id = made.next_id()?;
            let path = made.blob_path(id);
            let file = OpenOptions::new().write(true).create_new(true).open(&path)?;
            Ok(BlobSink { file, hasher, blob: UnfinishedBlob::new(id, made, path) })
        })
        .await?;
        let (gathered, gathered_bytes) = (Vec::new(), 0);
        Ok(BlobWriter {
            dir,
            idle: Some(sink),
            busy: None,
            gathered,
            gathered_bytes,
            chunk_bytes,
            len: 0,
        })
    }

    /// Returns the bytes pushed so far, written or not.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Appends a piece. Once a chunk is gathered, waits for the previous write.
    pub async fn push(&mut self, piece: Bytes) -> io::Result<()> {
        self.len += piece.len() as u64;
        self.gathered_bytes += piece.len();
        self.gathered.push(piece);
        if self.gathered_bytes >= self.chunk_bytes { self.flush_gathered().await } else { Ok(()) }
    }

    /// Writes the rest and makes the file durable, if the store is. Dropping the result removes the
    /// file.
    pub async fn finish_blob(mut self) -> io::Result<FinishedBlob> {
        self.flush_gathered().await?;
        let mut sink = self.take_sink().await?;
        let (dir, len) = (self.dir, self.len);
        run_blocking(move || {
            sink.file.flush()?;
            if dir.sync {
                sink.file.sync_all()?;
                if let Some(folder) = sink.blob.path.parent() {
                    sync_dir(folder)?;
                }
            }
            let extent = BlobExtent { blob: sink.blob.id, offset: 0, len };
            Ok(FinishedBlob { extent, blob: sink.blob, hasher: sink.hasher })
        })
        .await
    }

    /// Starts to write what is gathered. The next pieces may arrive meanwhile.
    async fn flush_gathered(&mut self) -> io::Result<()> {
        if self.gathered.is_empty() {
            return Ok(());
        }
        let mut sink = self.take_sink().await?;
        let pieces = std::mem::take(&mut self.gathered);
        self.gathered_bytes = 0;
        self.busy = Some(tokio::task::spawn_blocking(move || {
            for piece in pieces {
                sink.hasher.update(&piece);
                sink.file.write_all(&piece)?;
            }
            Ok(sink)
        }));
        Ok(())
    }

    async fn take_sink(&mut self) -> io::Result<BlobSink> {
        match self.busy.take() {
            Some(task) => task.await.map_err(io::Error::other)?,
            None => self
                .idle
                .take()
                .ok_or_else(|| io::Error::other("the blob's writer has failed before")),
        }
    }
}

/// Runs file work off the async threads. A panic becomes an error.
pub async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}
