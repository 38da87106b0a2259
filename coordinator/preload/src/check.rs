//! Whether an object is in the tier: looked for page by page, and read back where that was asked
//! for.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use verbs3_client::{
    BypassReason, Found, OpenOutcome, OpenRequest, SpanItem, SpanRead, SpanRequest, WarmRequest,
};
use verbs3_protocol::{BlockIndex, CacheVerdict, ObjectKey, Span, Version, Warmed};

use crate::compare::Compare;
use crate::list::Item;
use crate::load::{Piece, Trouble, spread};
use crate::run::Run;

/// What an object has in the tier.
struct Looked {
    version: Arc<Version>,
    held: u64,
    missing: u64,
}

impl Run<'_> {
    /// Counts what is there. An error: something is not.
    pub(crate) async fn check(&self, item: &Item) -> Result<(), Trouble> {
        let Looked { version, held, missing } = self.look(item).await?;
        self.job.count(|page| {
            page.bytes_checked += held;
            page.bytes_missing += missing;
        });
        if missing > 0 {
            let reason =
                format!("{missing} of {} bytes are not in the tier any more", held + missing);
            return Err(Trouble::Failed(reason));
        }
        match self.plan.verify {
            true => self.read_back(item, &version).await,
            false => Ok(()),
        }
    }

    /// Bytes that are there, and bytes that are not, of the version that readers get now.
    async fn look(&self, item: &Item) -> Result<Looked, Trouble> {
        let (mount, object) = (&item.mount, item.mount.object(&item.key));
        let geometry = self.engine.tier.options().geometry;
        let piece = |version: Option<Arc<Version>>, block, pages, replica| {
            let object = object.clone();
            Piece { object, version, block, pages, replica }
        };
        // Of most objects these are all the pages.
        let first = self.plan.first_pages(geometry, item.listed_bytes());
        let request = self.request(mount, piece(None, BlockIndex(0), first.clone(), 0), true);
        let Warmed { version, held_bytes, missing_bytes, .. } = self.current(item, request).await?;
        let (version, mut held, mut missing) =
            (Arc::new(version), u64::from(held_bytes), u64::from(missing_bytes));
        let replicas = self.plan.replicas.min(self.engine.tier.owners(&object, BlockIndex(0)));
        for (block, pages, replica) in
            self.plan.other_pieces(geometry, version.bytes, first, replicas)
        {
            let request =
                self.request(mount, piece(Some(version.clone()), block, pages, replica), true);
            let looked = self.ask(mount, &request, 0).await?;
            held += u64::from(looked.held_bytes);
            missing += u64::from(looked.missing_bytes);
        }
        Ok(Looked { version, held, missing })
    }

    /// What was loaded may have been replaced since, behind the tier's back. The listing shows
    /// that, where there is one; a named object is known to its home as long as gateways would
    /// believe it.
    async fn current(&self, item: &Item, first: WarmRequest) -> Result<Warmed, Trouble> {
        let first = WarmRequest { attributes_age_ms_max: item.believed_ms(), ..first };
        let looked = self.ask(&item.mount, &first, 0).await?;
        if !item.shows_another(&looked.version) {
            return Ok(looked);
        }
        // Its home was not told what the list shows, or knows a newer one.
        let now = WarmRequest { attributes_age_ms_max: 0, ..first };
        self.ask(&item.mount, &now, 0).await
    }

    /// Reads the wanted bytes through the tier's client, which holds each page against its
    /// checksum; whole objects are held against the UFS's, too.
    async fn read_back(&self, item: &Item, looked: &Version) -> Result<(), Trouble> {
        let object = item.mount.object(&item.key);
        let found = self.open(&object).await?;
        let attributes = &found.opened.attributes;
        let version = Arc::new(attributes.version.clone());
        if *version != *looked {
            return Err(changed());
        }
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
            false => Err(Trouble::Failed(
                "read back: its bytes are not those of the ufs's checksum".to_owned(),
            )),
        }
    }

    async fn open(&self, object: &Arc<ObjectKey>) -> Result<Box<Found>, Trouble> {
        let open = OpenRequest {
            object: object.clone(),
            version_id: None,
            attributes_age_ms_max: u64::MAX,
            absence_age_ms_max: 0,
            checksums: true,
            want: None,
            trace: None,
        };
        let mut tries = self.tries();
        loop {
            match self.engine.tier.open(&open).await {
                OpenOutcome::Found(found) => return Ok(found),
                OpenOutcome::Absent(_) => return Err(Trouble::Absent),
                OpenOutcome::Ufs(answer) => {
                    return Err(Trouble::Failed(format!(
                        "read back: the ufs answered {}",
                        answer.status
                    )));
                }
                OpenOutcome::Bypass(reason) => self.before_another(&mut tries, reason).await?,
            }
        }
    }

    fn tries(&self) -> Tries {
        Tries { began: Instant::now(), pause: self.engine.options.pause_min }
    }

    /// Waits before another try. An error: there is none.
    async fn before_another(&self, tries: &mut Tries, reason: BypassReason) -> Result<(), Trouble> {
        let options = &self.engine.options;
        let is_final = matches!(reason, BypassReason::Uncacheable | BypassReason::Misconfigured);
        if is_final || tries.began.elapsed() >= options.patience {
            return Err(Trouble::Failed(format!(
                "read back: the tier does not give it ({})",
                reason.as_str()
            )));
        }
        self.job.count(|page| page.retries += 1);
        self.engine.metrics.retries.inc();
        sleep(spread(tries.pause)).await;
        tries.pause = (tries.pause * 2).min(options.pause_max);
        Ok(())
    }

    async fn read_span(
        &self,
        (object, version): (&Arc<ObjectKey>, &Arc<Version>),
        span: Span,
        mut compare: Option<&mut Compare>,
    ) -> Result<(), Trouble> {
        // Held over pauses, too: whoever has begun is to end first.
        let _turn = self.engine.reads.acquire().await;
        let (mut span, mut tries) = (span, self.tries());
        loop {
            let mut read = self.engine.tier.read_span(SpanRequest {
                object: object.clone(),
                version: version.clone(),
                span: span.clone(),
                ahead_bytes: 0,
                trace: None,
            });
            let reason = loop {
                match read.next().await {
                    SpanItem::Bytes(data) => {
                        if let Some(compare) = compare.as_deref_mut() {
                            data.iter().for_each(|bytes| compare.update(bytes));
                        }
                    }
                    SpanItem::End => return came_from_tier(&read),
                    SpanItem::VersionGone => return Err(changed()),
                    SpanItem::Bypass(reason) => break reason,
                }
            };
            came_from_tier(&read)?;
            if read.at() > span.range.start {
                span.range.start = read.at();
                tries = self.tries();
            }
            self.before_another(&mut tries, reason).await?;
        }
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

fn changed() -> Trouble {
    Trouble::Failed("read back: it has changed".to_owned())
}

/// Of one question or one span.
struct Tries {
    began: Instant,
    pause: Duration,
}
