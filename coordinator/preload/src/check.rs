//! Whether an object is in the tier: looked for page by page, and read back where that was asked for.

use std::sync::Arc;

use verbs3_client::{BypassReason, OpenOutcome, OpenRequest, SpanItem, SpanRead, SpanRequest};
use verbs3_protocol::{BlockIndex, CacheVerdict, ObjectKey, Span, Version};

use crate::compare::Compare;
use crate::list::Item;
use crate::load::{Piece, Trouble, spread};
use crate::run::Run;

/// How often a read is tried for which there was no memory.
const ARENA_TRIES_MAX: usize = 100;

impl Run<'_> {
    /// Counts what is there. An error: something is not.
    pub(crate) async fn check(&self, item: &Item) -> Result<(), Trouble> {
        let (held, missing) = self.look(item).await?;
        self.job.count(|page| {
            page.bytes_checked += held;
            page.bytes_missing += missing;
        });
        if missing > 0 {
            let reason = format!("{missing} of {} bytes are not in the tier any more", held + missing);
            return Err(Trouble::Failed(reason));
        }
        match self.plan.verify {
            true => self.read_back(item).await,
            false => Ok(()),
        }
    }

    /// Bytes that are there, and bytes that are not.
    async fn look(&self, item: &Item) -> Result<(u64, u64), Trouble> {
        let (mount, object) = (&item.mount, item.mount.object(&item.key));
        let geometry = self.engine.tier.options().geometry;
        let piece = |version: Option<Arc<Version>>, block, pages, replica| {
            let object = object.clone();
            Piece { object, version, block, pages, replica }
        };
        let first = self.request(mount, piece(None, BlockIndex(0), 0..0, 0), true);
        let version = Arc::new(self.ask(mount, &first).await?.version);
        let replicas = self.plan.replicas.min(self.engine.tier.owners(&object, BlockIndex(0)));
        let (mut held, mut missing) = (0, 0);
        for (block, pages) in self.plan.pieces(geometry, version.bytes) {
            for replica in 0..replicas {
                let request = self.request(mount, piece(Some(version.clone()), block, pages.clone(), replica), true);
                let looked = self.ask(mount, &request).await?;
                held += u64::from(looked.held_bytes);
                missing += u64::from(looked.missing_bytes);
            }
        }
        Ok((held, missing))
    }

    /// Reads the wanted bytes through the tier's client, which holds each page against its checksum; whole objects are held
    /// against the UFS's, too.
    async fn read_back(&self, item: &Item) -> Result<(), Trouble> {
        let object = item.mount.object(&item.key);
        let open = OpenRequest {
            object: object.clone(),
            version_id: None,
            attributes_age_ms_max: u64::MAX,
            absence_age_ms_max: 0,
            checksums: true,
            want: None,
            trace: None,
        };
        let found = match self.engine.tier.open(&open).await {
            OpenOutcome::Found(found) => found,
            OpenOutcome::Absent(_) => return Err(Trouble::Absent),
            OpenOutcome::Ufs(answer) => {
                return Err(Trouble::Failed(format!("read back: the ufs answered {}", answer.status)));
            }
            OpenOutcome::Bypass(reason) => return Err(not_given(reason)),
        };
        let attributes = &found.opened.attributes;
        let version = Arc::new(attributes.version.clone());
        let mut compare = Compare::new(attributes).filter(|_| self.plan.is_whole());
        let geometry = self.engine.tier.options().geometry;
        for (block, pages) in self.plan.pieces(geometry, version.bytes) {
            let length = geometry.block_len(version.bytes, block);
            let byte = |page: u16| (u32::from(page) * geometry.page_bytes).min(length);
            let span = Span { block, range: byte(pages.start)..byte(pages.end) };
            self.read_span((&object, &version), span, compare.as_mut()).await?;
        }
        let Some(compare) = compare else { return Ok(()) };
        self.job.count(|page| page.objects_compared += 1);
        match compare.agrees() {
            true => Ok(()),
            false => Err(Trouble::Failed("read back: its bytes are not those of the ufs's checksum".to_owned())),
        }
    }

    async fn read_span(
        &self,
        (object, version): (&Arc<ObjectKey>, &Arc<Version>),
        span: Span,
        mut compare: Option<&mut Compare>,
    ) -> Result<(), Trouble> {
        let mut span = span;
        for _ in 0..ARENA_TRIES_MAX {
            let mut read = self.engine.tier.read_span(SpanRequest {
                object: object.clone(),
                version: version.clone(),
                span: span.clone(),
                ahead_bytes: 0,
                trace: None,
            });
            loop {
                match read.next().await {
                    SpanItem::Bytes(data) => {
                        if let Some(compare) = compare.as_deref_mut() {
                            data.iter().for_each(|bytes| compare.update(bytes));
                        }
                    }
                    SpanItem::End => return came_from_tier(&read),
                    SpanItem::VersionGone => return Err(Trouble::Failed("read back: it has changed".to_owned())),
                    SpanItem::Bypass(BypassReason::Arena) => break,
                    SpanItem::Bypass(reason) => return Err(not_given(reason)),
                }
            }
            came_from_tier(&read)?;
            span.range.start = read.at();
            tokio::time::sleep(spread(self.engine.options.pause_min)).await;
        }
        Err(not_given(BypassReason::Arena))
    }
}

/// Whether what was read was there already.
fn came_from_tier(read: &SpanRead) -> Result<(), Trouble> {
    match read.origin() {
        None | Some((CacheVerdict::Hit, _)) => Ok(()),
        Some((CacheVerdict::Partial | CacheVerdict::Miss, _)) => {
            let block = read.request().span.block.0;
            Err(Trouble::Failed(format!("read back: block {block} was not in the tier")))
        }
    }
}

fn not_given(reason: BypassReason) -> Trouble {
    Trouble::Failed(format!("read back: the tier does not give it ({})", reason.as_str()))
}
