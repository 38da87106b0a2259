//! Loads one object: its attributes and first pages at its home, then its other blocks at their
//! owners.
//!
//! A question that can't be answered now is repeated for a limited time. It always goes to the
//! owner by the map, never to another worker.

use std::ops::Range;
use std::sync::Arc;

use futures::future::{BoxFuture, join_all};
use futures::stream::{FuturesUnordered, StreamExt};
use tokio::time::{Instant, sleep};
use verbs3_client::{WarmOutcome, WarmRequest};
use verbs3_protocol::{
    BlockIndex, ContentVersion, ObjectKey, RefusalKind, WarmPagesReply, WarmTier, WorkerRefusal,
};

use crate::metrics::BytesFound;
use crate::mounts::PreloadMount;
use crate::object_list::PreloadListItem;
use crate::plan::piece_bytes;
use crate::preload_run::PreloadRun;

/// How often an object is loaded anew because it changed.
const CHANGES_MAX: usize = 3;
/// How often a request is repeated after an error of the UFS itself.
const UFS_ERRORS_MAX: usize = 3;

/// Reason why an object, or a piece of it, could not be handled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PreloadItemError {
    /// The object does not exist.
    Absent,
    /// The object has another version now.
    Changed,
    Failed(String),
}

/// Piece that one question asks for.
#[derive(Clone)]
pub(crate) struct PreloadPiece {
    pub(crate) object: Arc<ObjectKey>,
    pub(crate) version: Option<Arc<ContentVersion>>,
    pub(crate) block: BlockIndex,
    pub(crate) pages: Range<u16>,
    pub(crate) replica: usize,
}

impl PreloadRun<'_> {
    pub(crate) async fn load_object(&self, item: &PreloadListItem) -> Result<(), PreloadItemError> {
        for _ in 0..CHANGES_MAX {
            match self.load_once(item).await {
                Err(PreloadItemError::Changed) => {}
                other => return other,
            }
        }
        Err(PreloadItemError::Failed("it changes faster than it can be loaded".to_owned()))
    }

    async fn load_once(&self, item: &PreloadListItem) -> Result<(), PreloadItemError> {
        let (mount, object) = (&item.mount, item.mount.object_key(&item.key));
        let geometry = self.environment.tier.tier_options().geometry;
        let listed = item.listed_bytes();
        let first = self.plan.first_pages(geometry, listed);
        let expected = piece_bytes(
            geometry,
            listed.unwrap_or(geometry.block_bytes.into()),
            BlockIndex(0),
            &first,
        );
        let piece = PreloadPiece {
            object: object.clone(),
            version: None,
            block: BlockIndex(0),
            pages: first.clone(),
            replica: 0,
        };
        let request =
            WarmRequest { listed_bytes: listed, ..self.build_warm_request(mount, piece, false) };
        let warmed = self.load_piece(mount, request, expected).await?;
        let version = Arc::new(warmed.version);
        let replicas =
            self.plan.replicas.min(self.environment.tier.owners_count(&object, BlockIndex(0)));
        let most = self.environment.options.settings.blocks_per_ufs_max.max(1) as usize;
        let mut loads: FuturesUnordered<BoxFuture<'_, Result<(), PreloadItemError>>> =
            FuturesUnordered::new();
        let mut failed = None;
        for (block, pages) in self.plan.spread_pieces(geometry, version.bytes) {
            let begun =
                if block == BlockIndex(0) && pages.start == first.start { first.end } else { 0 };
            if begun >= pages.end && replicas <= 1 {
                continue;
            }
            if loads.len() >= most {
                record_failure(loads.next().await, &mut failed)?;
            }
            let piece = PreloadPiece {
                object: object.clone(),
                version: Some(version.clone()),
                block,
                pages,
                replica: 0,
            };
            loads.push(Box::pin(self.load_copies(mount, piece, begun, replicas)));
        }
        while let Some(loaded) = loads.next().await {
            record_failure(Some(loaded), &mut failed)?;
        }
        failed.map_or(Ok(()), Err)
    }

    /// Loads at the owner first. The other workers take the pages from it, so that the UFS is read
    /// once. `begun` is the page up to which the owner has the pages already.
    async fn load_copies(
        &self,
        mount: &PreloadMount,
        piece: PreloadPiece,
        begun: u16,
        replicas: usize,
    ) -> Result<(), PreloadItemError> {
        let geometry = self.environment.tier.tier_options().geometry;
        let bytes = piece.version.as_ref().map_or(0, |version| version.bytes);
        let mut failed = None;
        // The object may have grown since it was listed.
        let rest = piece.pages.start.max(begun)..piece.pages.end;
        if !rest.is_empty() {
            let expected = piece_bytes(geometry, bytes, piece.block, &rest);
            let request = self.build_warm_request(
                mount,
                PreloadPiece { pages: rest, ..piece.clone() },
                false,
            );
            record_failure(
                Some(self.load_piece(mount, request, expected).await.map(drop)),
                &mut failed,
            )?;
        }
        let copies = (1..replicas).map(|replica| {
            let request =
                self.build_warm_request(mount, PreloadPiece { replica, ..piece.clone() }, false);
            self.load_piece(mount, request, 0)
        });
        for copied in join_all(copies).await {
            record_failure(Some(copied.map(drop)), &mut failed)?;
        }
        failed.map_or(Ok(()), Err)
    }

    /// Loads a piece. `expected` is the number of bytes that it will probably take from the UFS.
    /// Bytes beyond that are paid for afterwards.
    async fn load_piece(
        &self,
        mount: &PreloadMount,
        request: WarmRequest,
        expected: u64,
    ) -> Result<WarmPagesReply, PreloadItemError> {
        let replica = request.replica;
        self.spend_bandwidth(expected).await;
        let warmed = self.warm_with_retries(mount, &request, expected).await;
        match &warmed {
            Ok(warmed) => {
                self.give_back(expected.saturating_sub(warmed.loaded_bytes.into()));
                self.spend_bandwidth(u64::from(warmed.loaded_bytes).saturating_sub(expected)).await;
            }
            Err(PreloadItemError::Absent | PreloadItemError::Changed) => self.give_back(expected),
            // Nobody knows how much was taken.
            Err(PreloadItemError::Failed(_)) => {}
        }
        let warmed = warmed.map_err(|trouble| match trouble {
            PreloadItemError::Failed(reason) if replica > 0 => {
                PreloadItemError::Failed(format!("replica {replica}: {reason}"))
            }
            other => other,
        })?;
        let (loaded, held) = (u64::from(warmed.loaded_bytes), u64::from(warmed.held_bytes));
        self.job.update_counters(|page| {
            page.bytes_loaded += loaded;
            page.bytes_held += held;
        });
        self.environment.metrics.bytes[BytesFound::Loaded].inc_by(loaded);
        self.environment.metrics.bytes[BytesFound::Held].inc_by(held);
        Ok(warmed)
    }

    pub(crate) fn build_warm_request(
        &self,
        mount: &PreloadMount,
        piece: PreloadPiece,
        look_only: bool,
    ) -> WarmRequest {
        let PreloadPiece { object, version, block, pages, replica } = piece;
        // An earlier request has brought the attributes for a look.
        let attributes_age_ms_max = if look_only { u64::MAX } else { mount.attributes_age_ms_max };
        let pin_until_ms = if look_only || self.plan.tier == WarmTier::Memory {
            0
        } else {
            self.plan.pin_until_ms
        };
        let tier = self.plan.tier;
        WarmRequest {
            object,
            version,
            block,
            pages,
            attributes_age_ms_max,
            listed_bytes: None,
            replica,
            tier,
            pin_until_ms,
            look_only,
        }
    }

    /// Asks the owner until it answers or patience is over. `expected`: bytes that each attempt may
    /// take from the UFS. The caller has paid for the first attempt.
    pub(crate) async fn warm_with_retries(
        &self,
        mount: &PreloadMount,
        request: &WarmRequest,
        expected: u64,
    ) -> Result<WarmPagesReply, PreloadItemError> {
        let budget = self.environment.block_budget(mount.ufs.ufs_name());
        let (began, mut pause, mut ufs_errors) =
            (Instant::now(), self.environment.options.pauses, 0);
        let mut was_away = false;
        loop {
            let asked = async {
                let _permit = budget.acquire().await;
                self.environment.metrics.blocks.inc();
                let _asking = BlockInFlightGuard(self);
                self.environment.tier.warm_pages(request).await
            };
            let (reason, may_have_taken) = match asked.await {
                WarmOutcome::Warmed { worker, epoch, warmed } => {
                    self.job.record_worker_life(&worker, warmed.life, epoch);
                    return Ok(warmed);
                }
                WarmOutcome::Absent(absent) if absent.answer.status == 404 => {
                    return Err(PreloadItemError::Absent);
                }
                WarmOutcome::Absent(absent) => {
                    return Err(PreloadItemError::Failed(describe_status(absent.answer.status)));
                }
                WarmOutcome::Away { worker, cause } => {
                    // The first attempt may have begun. While the worker rests or is dead, no bytes
                    // are taken.
                    let is_first = !std::mem::replace(&mut was_away, true);
                    (format!("worker {} can't be asked: {cause}", worker.0), is_first)
                }
                WarmOutcome::Refused { worker, refusal: WorkerRefusal { kind, reason } } => {
                    match kind {
                        RefusalKind::VersionGone => return Err(PreloadItemError::Changed),
                        RefusalKind::Busy
                        | RefusalKind::Uncertain
                        | RefusalKind::UfsUnreachable
                        | RefusalKind::WrongEpoch(_)
                        | RefusalKind::NotHeld
                        | RefusalKind::NoLease => {
                            let took_none = matches!(
                                kind,
                                RefusalKind::Busy
                                    | RefusalKind::WrongEpoch(_)
                                    | RefusalKind::NoLease
                            );
                            (format!("worker {}: {reason}", worker.0), !took_none)
                        }
                        // The UFS is busy, as a worker may be.
                        RefusalKind::Ufs(answer) if matches!(answer.status, 429 | 503) => {
                            (describe_status(answer.status), false)
                        }
                        RefusalKind::Ufs(answer) => {
                            ufs_errors += 1;
                            if ufs_errors >= UFS_ERRORS_MAX || !matches!(answer.status, 408 | 500..)
                            {
                                return Err(PreloadItemError::Failed(describe_status(
                                    answer.status,
                                )));
                            }
                            (describe_status(answer.status), true)
                        }
                        RefusalKind::Uncacheable
                        | RefusalKind::UnknownVolume
                        | RefusalKind::GeometryMismatch(_)
                        | RefusalKind::Malformed
                        | RefusalKind::Denied => {
                            return Err(PreloadItemError::Failed(format!(
                                "worker {} refused: {reason}",
                                worker.0
                            )));
                        }
                    }
                }
            };
            if began.elapsed() >= self.environment.options.settings.patience.0 {
                return Err(PreloadItemError::Failed(reason));
            }
            tracing::debug!(
                object = %request.object, block = request.block.0, reason,
                "a block is asked for again"
            );
            self.job.update_counters(|page| page.retries += 1);
            self.environment.metrics.retries.inc();
            sleep(pause.next_jittered(rand::random())).await;
            if may_have_taken && expected > 0 {
                self.spend_bandwidth(expected).await;
            }
        }
    }
}

/// Records the failure of one piece, and keeps the first one as the reason. The rest of the object
/// may load nevertheless.
fn record_failure(
    loaded: Option<Result<(), PreloadItemError>>,
    failed: &mut Option<PreloadItemError>,
) -> Result<(), PreloadItemError> {
    match loaded {
        None | Some(Ok(())) => Ok(()),
        Some(Err(PreloadItemError::Failed(reason))) => {
            failed.get_or_insert(PreloadItemError::Failed(reason));
            Ok(())
        }
        Some(Err(trouble)) => Err(trouble),
    }
}

/// Counts a block as in flight until it is dropped.
struct BlockInFlightGuard<'a, 'b>(&'a PreloadRun<'b>);

impl Drop for BlockInFlightGuard<'_, '_> {
    fn drop(&mut self) {
        self.0.environment.metrics.blocks.dec();
    }
}

fn describe_status(status: u16) -> String {
    format!("the ufs answered {status}")
}
