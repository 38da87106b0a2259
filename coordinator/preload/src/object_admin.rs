//! Answers people about single objects: where their blocks are. Also takes their notices that an
//! object changed or that its cached attributes are out of date.
//!
//! Answers at once, unlike a job. Asks workers through the same client.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use verbs3_client::{CacheTierClient, InvalidObjects, TendError, WarmOutcome, WarmRequest};
use verbs3_protocol::{
    AbsentReply, BlockIndex, ContentVersion, ObjectKey, ObjectVolume, TENDED_BLOCKS_MAX, TendAct,
    WarmPagesReply, WarmTier, WorkerId,
};

use crate::api::{BlockView, InvalidationRequest, ObjectView, PlaceView};
use crate::mounts::{PreloadMount, PreloadMountTable};
use crate::plan::{SpecError, parse_object_path, parse_path};

/// How long to retry homes that do not answer, or change. It is longer than a lease, after which a
/// dead worker is no home any more.
const PATIENCE: Duration = Duration::from_secs(15);
/// Most names in one invalidation.
pub const NAMES_MAX: usize = 10_000;

/// Reason why a question has no answer.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ObjectError {
    #[error(transparent)]
    Spec(#[from] SpecError),
    #[error("{0} names at once; send {NAMES_MAX} at most")]
    TooMany(usize),
    #[error("there is no object {0}")]
    Absent(String),
    #[error("{path}: the ufs answered {status}")]
    Ufs { path: String, status: u16 },
    #[error(transparent)]
    Tier(#[from] TendError),
}

/// Queries and invalidates objects in the tier.
pub struct ObjectAdmin {
    tier: Arc<CacheTierClient>,
    mounts: Arc<PreloadMountTable>,
}

impl ObjectAdmin {
    /// Creates it. `tier` asks the workers; `mounts` resolves the names that clients use.
    pub fn new(tier: Arc<CacheTierClient>, mounts: Arc<PreloadMountTable>) -> Self {
        Self { tier, mounts }
    }

    /// Invalidates objects. After an `Ok`, every read that begins sees the UFS's present state or a
    /// later one.
    pub async fn invalidate_objects(&self, asked: &InvalidationRequest) -> Result<(), ObjectError> {
        let names = asked.paths.len() + asked.prefixes.len();
        match names {
            0 => return Err(SpecError::Nothing.into()),
            _ if names > NAMES_MAX => return Err(ObjectError::TooMany(names)),
            _ => {}
        }
        let mut keys: BTreeMap<ObjectVolume, Vec<String>> = BTreeMap::new();
        for path in &asked.paths {
            let (mount, key) = parse_object_path(&self.mounts, path)?;
            keys.entry(mount.object_volume()).or_default().push(key);
        }
        let mut prefixes = BTreeSet::new();
        for path in &asked.prefixes {
            let (mount, key) = parse_path(&self.mounts, path)?;
            prefixes.insert((mount.object_volume(), format!("{}{key}", mount.prefix)));
        }
        self.invalidate_keys(keys).await?;
        for (volume, prefix) in prefixes {
            self.tier
                .invalidate_objects(&volume, &InvalidObjects::Prefix(prefix), PATIENCE)
                .await?;
        }
        Ok(())
    }

    pub(crate) async fn invalidate_keys(
        &self,
        keys: BTreeMap<ObjectVolume, Vec<String>>,
    ) -> Result<(), TendError> {
        // One volume that can't be reached keeps no other from hearing of it.
        let mut told = Ok(());
        for (volume, keys) in keys {
            let keys = InvalidObjects::Keys(keys);
            told = told.and(self.tier.invalidate_objects(&volume, &keys, PATIENCE).await);
        }
        told
    }

    /// Returns the volume of this bucket in this UFS, or, if none is named, in each UFS with a
    /// mount of it.
    pub(crate) fn volumes_of(&self, ufs: Option<&str>, bucket: &str) -> BTreeSet<ObjectVolume> {
        let named = self
            .mounts
            .named
            .values()
            .filter(|mount| mount.bucket == bucket)
            .map(|mount| &mount.ufs);
        let whole = self.mounts.whole.iter().map(|mount| &mount.ufs);
        let fitting =
            named.chain(whole).filter(|found| ufs.is_none_or(|ufs| found.ufs_name() == ufs));
        fitting.map(|found| ObjectVolume::new(found.store_name(), bucket)).collect()
    }

    /// Returns the name that clients use. `None`: they have none, or the object is not cached.
    pub(crate) fn path_of(&self, volume: &ObjectVolume, key: &str) -> Option<String> {
        let shows = |mount: &&Arc<PreloadMount>| {
            mount.object_volume() == *volume && key.starts_with(mount.prefix.as_str())
        };
        if let Some(mount) = self.mounts.named.values().find(shows) {
            return mount.cached.then(|| mount.client_path(key));
        }
        let bucket = volume.0.split_once('/')?.1;
        let whole = self
            .mounts
            .find_mount(bucket)
            .filter(|mount| mount.object_volume() == *volume && mount.cached);
        whole.map(|mount| mount.client_path(key))
    }

    /// Returns an object's attributes and where its blocks are: up to 1024 blocks from
    /// `first_block` on.
    pub async fn locate_object(
        &self,
        path: &str,
        first_block: u32,
    ) -> Result<ObjectView, ObjectError> {
        let (mount, key) = parse_object_path(&self.mounts, path)?;
        let object = mount.object_key(&key);
        let version = self.fetch_home_version(&mount, &object, path).await?;
        let geometry = self.tier.tier_options().geometry;
        let all = version.bytes.div_ceil(u64::from(geometry.block_bytes));
        let count = all.saturating_sub(first_block.into()).min(TENDED_BLOCKS_MAX.into()) as u16;
        let range = first_block..first_block.saturating_add(count.into());
        let mut blocks: BTreeMap<u32, BlockView> = BTreeMap::new();
        let mut owners: BTreeSet<WorkerId> = BTreeSet::new();
        for at in range {
            let of = self.tier.owner_ids(&object, BlockIndex(at));
            owners.extend(of.iter().cloned());
            let bytes = geometry.block_len(version.bytes, BlockIndex(at));
            let owners = of.into_iter().map(|id| id.0).collect();
            blocks.insert(at, BlockView { block: at, bytes, owners, places: Vec::new() });
        }
        let mut silent = Vec::new();
        for worker in owners {
            let first = BlockIndex(first_block);
            let looked =
                self.tier.tend_blocks(&worker, &object, &version, first, count, TendAct::Look);
            match looked.await {
                Ok(found) => {
                    for found in found {
                        let Some(view) = blocks.get_mut(&found.block.0) else { continue };
                        view.places.push(PlaceView {
                            worker: worker.0.clone(),
                            memory_bytes: found.memory_bytes,
                            disk_bytes: found.disk_bytes,
                            pinned_bytes: found.pinned_bytes,
                            uses: found.uses,
                            idle_seconds: found.idle_s,
                        });
                    }
                }
                Err(error) => silent.push(error.to_string()),
            }
        }
        let home = self.tier.owner_ids(&object, BlockIndex(0)).into_iter().next().map(|id| id.0);
        Ok(ObjectView {
            path: path.to_owned(),
            volume: object.volume.to_string(),
            key: object.key.clone(),
            home,
            slot: object.home_slot().0,
            etag: version.etag,
            bytes: version.bytes,
            version_id: version.version_id,
            blocks_total: all,
            blocks: blocks.into_values().collect(),
            silent,
        })
    }

    /// Returns the version that its home knows, or learns from the UFS for this request.
    async fn fetch_home_version(
        &self,
        mount: &PreloadMount,
        object: &Arc<ObjectKey>,
        path: &str,
    ) -> Result<ContentVersion, ObjectError> {
        let request = WarmRequest {
            object: object.clone(),
            version: None,
            block: BlockIndex(0),
            pages: 0..0,
            attributes_age_ms_max: mount.attributes_age_ms_max,
            listed_bytes: None,
            replica: 0,
            tier: WarmTier::Memory,
            pin_until_ms: 0,
            look_only: true,
        };
        match self.tier.warm_pages(&request).await {
            WarmOutcome::Warmed { warmed: WarmPagesReply { version, .. }, .. } => Ok(version),
            WarmOutcome::Absent(AbsentReply { answer, .. }) if answer.status == 404 => {
                Err(ObjectError::Absent(path.to_owned()))
            }
            WarmOutcome::Absent(AbsentReply { answer, .. }) => {
                Err(ObjectError::Ufs { path: path.to_owned(), status: answer.status })
            }
            WarmOutcome::Refused { worker, refusal } => {
                Err(TendError::Refused { worker, refusal }.into())
            }
            WarmOutcome::Away { worker, cause } => {
                let cause = cause.into();
                Err(TendError::Away { worker, cause }.into())
            }
        }
    }
}
