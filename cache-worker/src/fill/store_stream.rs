//! The answer to one request of a fill: opened under the version's identity, and copied into one
//! run after the other.
//!
//! Does not decide what is asked for, nor into which runs it goes.

use std::ops::RangeInclusive;

use bytes::Bytes;
use futures::StreamExt;
use verbs3_protocol::BlockIndex;
use verbs3_ufs::{ObjectStream, ReadObject, UfsError};

use super::body_writer::{FillBodyWriter, UnfilledCells};
use super::fill_error::{PageFillError, outcome_of};
use super::fill_run::PageFillRun;
use super::{FillTarget, PageFiller};
use crate::call_trace::ask_ufs;
use crate::metrics::{BusyReason, UfsRequestKind};

/// A body in transfer, which several runs take their bytes from.
pub(super) struct StoreStream {
    stream: ObjectStream,
    /// Bytes that have come, and that no run has taken yet.
    come: Bytes,
    /// Bytes of the body that no run has taken.
    left: u64,
}

impl StoreStream {
    pub(super) fn new(stream: ObjectStream) -> Self {
        let left = stream.range.end - stream.range.start;
        Self { stream, come: Bytes::new(), left }
    }

    /// Notes that a run has taken the first `taken` bytes of a chunk. The next run gets the others.
    fn take_bytes(&mut self, mut chunk: Bytes, taken: usize) {
        self.left = self.left.saturating_sub(taken as u64);
        self.come = chunk.split_off(taken);
    }
}

impl PageFiller {
    /// Requests bytes of the target's version only.
    pub(super) async fn open_ufs_stream(
        &self,
        target: &FillTarget,
        range: RangeInclusive<u64>,
    ) -> Result<StoreStream, PageFillError> {
        let version = &target.version;
        let mut read = ReadObject {
            bucket: target.source.bucket.clone(),
            key: target.object.key.clone(),
            version_id: version.version_id.clone(),
            if_match: Some(version.etag.clone()),
            range: Some(range.clone()),
            checksums: false,
        };
        let mut got = self.get(target, read.clone()).await;
        // The right to read the current version does not include the right to name it. The answer's
        // identity is checked anyway.
        if let Ok(Err(UfsError::Answer { answer, .. })) = &got
            && answer.status.as_u16() == 403
            && read.version_id.take().is_some()
        {
            got = self.get(target, read).await;
        }
        let stream = got?.map_err(|error| self.count_failure(&error))?;
        let (etag, bytes) = (stream.head.etag.as_ref(), stream.head.bytes);
        // `null` equals none: the bucket is unversioned, or the object is older than its
        // versioning.
        let version_id = stream.head.version_id.as_ref().filter(|id| *id != "null");
        if etag != Some(&version.etag)
            || bytes != version.bytes
            || version_id != version.version_id.as_ref()
        {
            let reason =
                format!("the ufs has etag {etag:?}, {bytes} bytes, version id {version_id:?} now");
            return Err(PageFillError::VersionGone(reason.into()));
        }
        if stream.range != (*range.start()..range.end() + 1) {
            return Err(PageFillError::Unreachable(
                format!("the ufs answered bytes {:?} for {range:?}", stream.range).into(),
            ));
        }
        Ok(StoreStream::new(stream))
    }

    async fn get(
        &self,
        target: &FillTarget,
        read: ReadObject,
    ) -> Result<Result<ObjectStream, UfsError>, PageFillError> {
        self.metrics.ufs_requests[UfsRequestKind::Get].inc();
        let ufs = &target.source.ufs;
        tokio::select! {
            biased;
            () = self.stop.cancelled() => Err(PageFillError::Stopping),
            got = ask_ufs(ufs, "GetObject", ufs.read(read)) => Ok(got),
        }
    }

    fn count_failure(&self, error: &UfsError) -> PageFillError {
        self.metrics.fills_failed.inc();
        if matches!(error, UfsError::Throttled { .. }) {
            self.metrics.busy[BusyReason::UfsRequests].inc();
        }
        outcome_of(error)
    }

    /// Copies the next bytes of the body into cells of a run.
    pub(super) async fn copy_body(
        &self,
        target: &FillTarget,
        block: BlockIndex,
        run: &PageFillRun,
        cells: UnfilledCells,
        stream: &mut StoreStream,
    ) -> Result<(), PageFillError> {
        let mut pump = FillBodyWriter::new(self, target, block, run, cells);
        while !pump.is_done() {
            let chunk = match std::mem::take(&mut stream.come) {
                come if come.is_empty() => self.next_chunk(&mut stream.stream).await?,
                come => come,
            };
            let taken = pump.absorb_chunk(&chunk)?;
            stream.take_bytes(chunk, taken);
        }
        Ok(())
    }

    async fn next_chunk(&self, stream: &mut ObjectStream) -> Result<Bytes, PageFillError> {
        let chunk = tokio::select! {
            biased;
            () = self.stop.cancelled() => return Err(PageFillError::Stopping),
            chunk = stream.body.next() => chunk,
        };
        match chunk {
            Some(Ok(chunk)) => {
                self.metrics.filled_bytes.inc_by(chunk.len() as u64);
                Ok(chunk)
            }
            Some(Err(error)) => Err(self.count_failure(&error)),
            None => {
                self.metrics.fills_failed.inc();
                Err(PageFillError::Unreachable("the ufs's body ended early".into()))
            }
        }
    }

    /// Ends a body. A connection whose body was read to its end can be used again. Every reader has
    /// been served by now. The UFS client bounds silence, and the rest of a longer body is ignored.
    pub(super) async fn end_stream(&self, mut stream: StoreStream) {
        if stream.left == 0 {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => {}
                _ = stream.stream.body.next() => {}
            }
        }
    }
}
