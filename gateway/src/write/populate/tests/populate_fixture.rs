//! A tier that remembers, and a populator in front of it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use prometheus::{Registry, TextEncoder};
use s3s::dto::ETag;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use verbs3_client::{QuestionError, SettleRequest, StageRequest};
use verbs3_protocol::{
    BlockGeometry, BlockIndex, ContentVersion, ObjectKey, ObjectVolume, PopulateToken, WorkerId,
};
use verbs3_settings::TimePeriod;
use verbs3_tests::metrics::Metrics;
use verbs3_ufs::local::{LocalOptions, LocalStore};
use verbs3_ufs::{Ufs, UfsSettings};

use super::super::metrics::PopulateMetrics;
use super::super::{AnsweredVersion, BodySubject, PartName, PopulatedWrite};
use super::super::{GatewayPopulateSettings, PopulateTier, WritePopulator};
use crate::mount::{AttributeFreshness, MountedBucket, WriteCoherence};

/// Small, so that tests are.
pub(super) const GEOMETRY: BlockGeometry =
    BlockGeometry { block_bytes: 1 << 20, page_bytes: 64 << 10 };
pub(super) const PAGE: u64 = 64 << 10;
pub(super) const BLOCK: u64 = 1 << 20;

type Pages = HashMap<u64, Vec<u8>>;

/// Two workers: one owns even blocks, the other odd ones.
#[derive(Default)]
pub(super) struct ScriptedTier {
    /// Pages without a version, by token, by their offset in the object.
    pub(super) staged: Mutex<HashMap<PopulateToken, Pages>>,
    /// Pages of versions.
    pub(super) versions: Mutex<HashMap<ContentVersion, Pages>>,
    pub(super) discarded: AtomicUsize,
    pub(super) asked: AtomicUsize,
    /// Never answers.
    pub(super) hangs: AtomicBool,
    /// Fails what concerns odd blocks.
    pub(super) odd_fails: AtomicBool,
}

#[async_trait]
impl PopulateTier for Arc<ScriptedTier> {
    fn block_geometry(&self) -> BlockGeometry {
        GEOMETRY
    }

    fn stage_owner(&self, _: &ObjectKey, block: BlockIndex) -> Option<WorkerId> {
        Some(WorkerId(["even", "odd"][block.0 as usize % 2].into()))
    }

    async fn stage_pages(
        &self,
        worker: &WorkerId,
        request: StageRequest,
        until: Instant,
    ) -> Result<(), QuestionError> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        if self.hangs.load(Ordering::SeqCst) {
            tokio::time::sleep_until(until).await;
            return Err(QuestionError::Silent);
        }
        if self.odd_fails.load(Ordering::SeqCst) && worker.0 == "odd" {
            return Err(QuestionError::Silent);
        }
        let StageRequest { token, block, first_page, pages, .. } = request;
        let first = u64::from(block.0) * BLOCK + u64::from(first_page) * PAGE;
        let mut staged = self.staged.lock();
        let staged = staged.entry(token).or_default();
        for (index, page) in pages.iter().enumerate() {
            staged.insert(first + index as u64 * PAGE, page.to_vec());
        }
        Ok(())
    }

    async fn settle_pages(
        &self,
        request: &SettleRequest,
        _: Instant,
    ) -> Result<u64, QuestionError> {
        let odd = u64::from(request.worker.0 == "odd");
        let (mut settled, mut staged) = (0, self.staged.lock());
        for token in &request.tokens {
            let Some(pages) = staged.get_mut(token) else { continue };
            for (at, page) in pages.extract_if(|at, _| at / BLOCK % 2 == odd) {
                match &request.version {
                    Some(version) => {
                        let mut versions = self.versions.lock();
                        versions
                            .entry(ContentVersion::clone(version))
                            .or_default()
                            .insert(at, page);
                        settled += 1;
                    }
                    None => drop(self.discarded.fetch_add(1, Ordering::SeqCst)),
                }
            }
        }
        Ok(settled)
    }
}

pub(super) struct PopulateFixture {
    pub(super) tier: Arc<ScriptedTier>,
    pub(super) populator: WritePopulator,
    pub(super) tasks: TaskTracker,
    pub(super) mount: MountedBucket,
    pub(super) registry: Registry,
    _folder: tempfile::TempDir,
}

pub(super) fn settings() -> GatewayPopulateSettings {
    GatewayPopulateSettings {
        // No test waits for it to pass, unless it says so.
        commit_wait_max: TimePeriod(Duration::from_secs(600)),
        stage_wait_max: TimePeriod(Duration::from_secs(600)),
        ..GatewayPopulateSettings::default()
    }
}

impl PopulateFixture {
    pub(super) fn new() -> Self {
        Self::with(&settings())
    }

    pub(super) fn with(settings: &GatewayPopulateSettings) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = LocalStore::open_store(LocalOptions::new(folder.path())).unwrap();
        let ufs = Ufs::new(Arc::new(store), UfsSettings::with_name("u"));
        let mount = MountedBucket {
            name: "data".into(),
            volume: ObjectVolume::new("u", "data"),
            ufs,
            bucket: "data".into(),
            prefix: String::new(),
            attributes: AttributeFreshness::AlwaysAsk,
            absence_ttl: Duration::ZERO,
            coherence: WriteCoherence::Strict,
            read_only: false,
            cached: true,
            populate_bytes_max: Some(1 << 30),
        };
        let (tier, tasks, registry) =
            (Arc::new(ScriptedTier::default()), TaskTracker::new(), Registry::new());
        let metrics = PopulateMetrics::new(&registry).unwrap();
        let shown: Arc<dyn PopulateTier> = Arc::new(tier.clone());
        let populator = WritePopulator::new(settings, shown, tasks.clone(), metrics);
        Self { tier, populator, tasks, mount, registry, _folder: folder }
    }

    /// Begins a PUT of "k" and has its body pass, in frames of `frame` bytes.
    pub(super) fn pass_object(&self, content: &[u8], frame: usize) -> Option<PopulatedWrite> {
        let subject = BodySubject { key: "k".into(), part: None, is_plain: true };
        let length = content.len() as u64;
        let mut write =
            PopulatedWrite::begin_write(&self.populator, &self.mount, subject, length, None)?;
        let mut feed = write.take_feed().unwrap();
        content.chunks(frame).for_each(|frame| feed.copy_bytes(frame));
        Some(write)
    }

    /// Has a part of upload `upload` pass, and the store answer with this ETag.
    pub(super) async fn upload_part(&self, upload: &str, number: i32, content: &[u8], etag: &str) {
        let part = Some(PartName { upload: upload.into(), number });
        let subject = BodySubject { key: "k".into(), part, is_plain: true };
        let length = content.len() as u64;
        let mut write =
            PopulatedWrite::begin_write(&self.populator, &self.mount, subject, length, None)
                .unwrap();
        if let Some(mut feed) = write.take_feed() {
            content.chunks(100_000).for_each(|frame| feed.copy_bytes(frame));
        }
        write.finish_write(answered(etag)).await;
    }

    pub(super) async fn complete_upload(&self, upload: &str, listed: &[(i32, &str)]) {
        let listed: Vec<(i32, ETag)> = listed
            .iter()
            .map(|(number, etag)| (*number, ETag::Strong((*etag).to_owned())))
            .collect();
        let (object, upload) = (self.mount.object_key("k"), upload.to_owned());
        let answered = answered("whole");
        self.populator.finish_upload(&self.mount, object, upload, &listed, answered).await;
    }

    /// The value of a metric that is shown.
    pub(super) fn metric(&self, family: &str) -> u64 {
        self.metrics().sum_shown(family, &[]).unwrap() as u64
    }

    /// How many pages were given up for this reason.
    pub(super) fn given_up(&self, reason: &str) -> u64 {
        let label = format!("reason=\"{reason}\"");
        let family = "verbs3_populate_given_up_pages_total";
        self.metrics().sum_shown(family, &[&label]).unwrap() as u64
    }

    fn metrics(&self) -> Metrics {
        Metrics::parse(&TextEncoder::new().encode_to_string(&self.registry.gather()).unwrap())
    }

    /// Waits for everything in the background.
    pub(super) async fn settle(&self) {
        self.tasks.close();
        self.tasks.wait().await;
        self.tasks.reopen();
    }
}

pub(super) fn answered(etag: &str) -> AnsweredVersion {
    AnsweredVersion { etag: Some(ETag::Strong(etag.to_owned())), version_id: None }
}

pub(super) fn version(etag: &str, bytes: u64) -> ContentVersion {
    ContentVersion { etag: format!("\"{etag}\""), bytes, version_id: None }
}

/// Bytes that tell any two places apart.
pub(super) fn content(seed: u8, bytes: u64) -> Vec<u8> {
    (0..bytes).map(|at| (at.wrapping_mul(31) >> 3) as u8 ^ (at >> 13) as u8 ^ seed).collect()
}

/// Cuts content as its version's pages are cut.
pub(super) fn pages_of(content: &[u8]) -> HashMap<u64, Vec<u8>> {
    let pages = content.chunks(PAGE as usize).enumerate();
    pages.map(|(index, page)| (index as u64 * PAGE, page.to_vec())).collect()
}
