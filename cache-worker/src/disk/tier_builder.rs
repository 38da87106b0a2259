//! Opens the disk tier at startup: decides which folders are usable and ours, and reads their
//! pages' headers.

use std::collections::HashMap;
use std::sync::Arc;

use prometheus::Registry;
use verbs3_protocol::{BlockGeometry, ObjectVolume};

use super::disk_headers::FolderHeader;
use super::folder_files::{self, FolderFiles};
use super::folder_index::FolderIndex;
use super::folder_store::FolderPageStore;
use super::metrics::{CorruptPart, DiskMetrics};
use super::segment_medium::SegmentMedium;
use super::volume_quota::VolumeQuotaRule;
use super::{
    DiskError, DiskFolderSettings, DiskTier, DiskTierParts, DiskVolumeSettings, ResidencyCheck,
    WorkerDiskSettings, segment_layout,
};
use crate::digest::{DigestSecret, KeyedDigester};
use crate::tenants::TenantAccounts;

/// Folders that are locked and known to be ours, before their pages are read.
pub(crate) struct DiskTierBuilder {
    settings: WorkerDiskSettings,
    folders: Vec<(DiskFolderSettings, FolderHeader, FolderFiles)>,
    /// Folders that can't be read or written.
    failed: Vec<DiskError>,
    secret: DigestSecret,
    metrics: DiskMetrics,
}

impl DiskTierBuilder {
    /// Locks the folders. One that fails (a dead drive) is left out, with a warning. One that
    /// belongs to another worker is an error: the configuration is wrong.
    pub(crate) fn lock_folders(
        settings: WorkerDiskSettings,
        registry: &Registry,
    ) -> Result<Self, DiskError> {
        let metrics = DiskMetrics::new(registry).map_err(DiskError::Metrics)?;
        let mut opened = Vec::new();
        let mut failed = Vec::new();
        for folder in &settings.folders {
            match FolderFiles::lock_folder(&folder.path, settings.direct) {
                Ok(found) => opened.push((folder.clone(), found)),
                Err(error @ DiskError::Io { .. }) => failed.push(error),
                Err(error) => return Err(error),
            }
        }
        let known = |found: &folder_files::LockedFolder| found.header.map(|header| header.secret);
        let first = opened.iter().find_map(|(folder, found)| Some((&folder.path, known(found)?)));
        let drawn = || DigestSecret(rand::random(), rand::random());
        let secret = first.map_or_else(drawn, |(_, secret)| secret);
        for (folder, found) in &opened {
            if let (Some((other, secret)), Some(own)) = (first, known(found))
                && own != secret
            {
                return Err(DiskError::Mixed { folder: folder.path.clone(), other: other.clone() });
            }
        }
        let mut folders = Vec::new();
        for (folder, found) in opened {
            if found.damaged {
                tracing::warn!(
                    folder = %folder.path.display(),
                    "the disk tier's header is damaged; the folder starts empty"
                );
                let values = metrics.folders.select_table(&folder.path.display().to_string());
                values.corrupt[CorruptPart::Header].inc();
            }
            let header = match found.header {
                Some(header) => Ok(header),
                None => found.files.initialize_folder(secret),
            };
            match header {
                Ok(header) => folders.push((folder, header, found.files)),
                Err(source) => failed.push(DiskError::Io { folder: folder.path.clone(), source }),
            }
        }
        Ok(Self { settings, folders, failed, secret, metrics })
    }

    /// Creates the hasher of page keys. Another geometry cuts objects otherwise, so its pages have
    /// other keys.
    pub(crate) fn create_digester(&self, geometry: BlockGeometry) -> KeyedDigester {
        KeyedDigester::of_tier(self.secret, geometry)
    }

    /// Reads the folders' indexes, each in a thread of its own, and starts their writers. Blocks.
    pub(crate) fn start_tier(
        self,
        digests: &KeyedDigester,
        arena_bytes: u64,
        resident: ResidencyCheck,
        tenants: Arc<TenantAccounts>,
    ) -> Result<DiskTier, DiskError> {
        let Self { settings, folders, mut failed, metrics, .. } = self;
        let all: u64 = folders.iter().map(|(folder, ..)| folder.capacity.0).sum();
        let default_rule =
            VolumeQuotaRule { bytes_max: None, age_max: settings.page_age_max.unless_zero() };
        let open = |(place, header, files): (DiskFolderSettings, FolderHeader, FolderFiles)| {
            let (capacity, segment) =
                (place.capacity.0, segment_layout::segment_bytes(place.capacity.0));
            let rule = |rule: &DiskVolumeSettings| {
                let bytes_max = rule
                    .capacity
                    .unless_zero()
                    .map(|bytes| proportional_share(bytes, capacity, all));
                (
                    digests.digest_volume(&ObjectVolume(rule.volume.clone())),
                    VolumeQuotaRule { bytes_max, age_max: rule.page_age_max.unless_zero() },
                )
            };
            let rules: HashMap<u64, VolumeQuotaRule> = settings.volumes.iter().map(rule).collect();
            let mut index = FolderIndex::new(capacity, segment, default_rule, rules);
            index.pages_max = proportional_share(settings.pages_max.into(), capacity, all);
            index.tenants = tenants.clone();
            let medium: Box<dyn SegmentMedium> = Box::new(files);
            let opened =
                FolderPageStore::open_medium(&place.path, header.id, medium, index, &metrics);
            opened.map_err(|source| DiskError::Io { folder: place.path.clone(), source })
        };
        let results: Vec<Result<FolderPageStore, DiskError>> = std::thread::scope(|scope| {
            let threads: Vec<_> =
                folders.into_iter().map(|folder| scope.spawn(|| open(folder))).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().expect("reading a folder does not panic"))
                .collect()
        });
        let mut opened = Vec::new();
        for result in results {
            match result {
                Ok(folder) => opened.push(folder),
                Err(error) => failed.push(error),
            }
        }
        for error in &failed {
            let cause = std::error::Error::source(error).map(ToString::to_string);
            tracing::warn!(
                %error, cause,
                "a folder of the disk tier can't be used, and is left out until the next start"
            );
            if let DiskError::Io { folder, .. } = error {
                metrics.folders.select_table(&folder.display().to_string()).folder_up.set(0);
            }
        }
        let parts = DiskTierParts { metrics, arena_bytes, resident, tenants };
        DiskTier::new(&settings, opened, parts)
    }
}

/// Returns a folder's share of a bound on all folders.
fn proportional_share(bound: u64, bytes: u64, all_bytes: u64) -> u64 {
    let part = u128::from(bound) * u128::from(bytes) / u128::from(all_bytes.max(1));
    u64::try_from(part).unwrap_or(u64::MAX).max(1)
}
