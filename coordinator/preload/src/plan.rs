//! Checks a job's description and derives what to load from it. Pure.

use std::sync::Arc;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use verbs3_protocol::{BLOCKS_TOGETHER, BlockGeometry, BlockIndex, WarmTier};

use crate::api::{PreloadByteRange, PreloadJobAction, PreloadJobSpec, PreloadTier};
use crate::mounts::{PreloadMount, PreloadMountTable};

/// Reason for refusing a job.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    #[error("id {0:?} is not 1 to 64 letters, digits, `.`, `_` and `-`")]
    Id(String),
    #[error("nothing is to be loaded; name paths, prefixes or a manifest")]
    Nothing,
    #[error("{0:?} is not s3://MOUNT/KEY")]
    Path(String),
    #[error("{path:?}: there is no mount {mount}")]
    Mount { path: String, mount: String },
    #[error("{path:?}: mount {mount} is not cached")]
    Uncached { path: String, mount: String },
    #[error("range {0}: its last byte is before its first")]
    Range(u64),
    #[error("replicas of 0 would load nothing; ask for 1 or more")]
    Replicas,
    #[error("pin_ttl keeps pages on disk; ask for tier disk as well")]
    Pin,
    #[error(
        "pages never change, so that skip_if_cached = false would only load the same again; leave \
        it out"
    )]
    SkipIfCached,
    #[error("bandwidth_bytes_per_second of 0 would load nothing; leave it out for no bound")]
    Bandwidth,
    #[error(
        "bandwidth_bytes_per_second of {asked} is below {min}, the least of a job that is begun \
        with an access key (coordinator.preload.guest_bandwidth_min); ask for more, or leave it out"
    )]
    GuestBandwidth { asked: u64, min: u64 },
    #[error("deadline {0:?} is no time of the form 2026-11-22T08:00:00Z")]
    Deadline(String),
    #[error("metadata_only loads no bytes; leave out {0}")]
    MetadataOnly(&'static str),
    #[error("only jobs that load have {0}; leave it out")]
    LoadsOnly(&'static str),
    #[error(
        "the description has {bytes} bytes as JSON, {max} are the most; put the paths into a \
        manifest"
    )]
    Long { bytes: usize, max: usize },
}

/// Source of object names.
pub(crate) enum PreloadSource {
    Paths(Vec<(Arc<PreloadMount>, String)>),
    /// The mount, and the prefix of the keys in the UFS.
    Prefix(Arc<PreloadMount>, String),
    Manifest(Arc<PreloadMount>, String),
}

pub(crate) struct PreloadPlan {
    pub(crate) sources: Vec<PreloadSource>,
    ranges: Vec<PreloadByteRange>,
    pub(crate) replicas: usize,
    pub(crate) tier: WarmTier,
    pub(crate) pin_until_ms: u64,
    /// Milliseconds since 1970.
    pub(crate) deadline_ms: Option<u64>,
    pub(crate) bandwidth: Option<u64>,
    pub(crate) verify: bool,
    pub(crate) metadata_only: bool,
    pub(crate) dry_run: bool,
    pub(crate) action: PreloadJobAction,
}

pub(crate) fn is_id(id: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    !id.is_empty() && id.len() <= 64 && id.chars().all(fits) && !id.starts_with('.')
}

/// Splits a path into its mount and the client's key. The key may be empty.
pub(crate) fn parse_path<'a>(
    mounts: &PreloadMountTable,
    path: &'a str,
) -> Result<(Arc<PreloadMount>, &'a str), SpecError> {
    let rest = path.strip_prefix("s3://").ok_or_else(|| SpecError::Path(path.to_owned()))?;
    let (name, key) = rest.split_once('/').unwrap_or((rest, ""));
    if name.is_empty() {
        return Err(SpecError::Path(path.to_owned()));
    }
    let mount = || name.to_owned();
    let found = mounts
        .find_mount(name)
        .ok_or_else(|| SpecError::Mount { path: path.to_owned(), mount: mount() })?;
    if !found.cached {
        return Err(SpecError::Uncached { path: path.to_owned(), mount: mount() });
    }
    Ok((found, key))
}

/// Returns the mount and the UFS's key of one object.
pub(crate) fn parse_object_path(
    mounts: &PreloadMountTable,
    path: &str,
) -> Result<(Arc<PreloadMount>, String), SpecError> {
    let (mount, key) = parse_path(mounts, path)?;
    if key.is_empty() {
        return Err(SpecError::Path(path.to_owned()));
    }
    let key = format!("{}{key}", mount.prefix);
    Ok((mount, key))
}

impl PreloadPlan {
    /// Checks a description. `created_ms` is the job's creation, from which pins count.
    pub(crate) fn new(
        spec: &PreloadJobSpec,
        mounts: &PreloadMountTable,
        created_ms: u64,
    ) -> Result<Self, SpecError> {
        validate_spec(spec)?;
        let mut sources = Vec::new();
        let paths: Result<Vec<_>, _> =
            spec.paths.iter().map(|path| parse_object_path(mounts, path)).collect();
        sources.push(PreloadSource::Paths(paths?));
        for prefix in &spec.prefixes {
            let (mount, key) = parse_path(mounts, prefix)?;
            let key = format!("{}{key}", mount.prefix);
            sources.push(PreloadSource::Prefix(mount, key));
        }
        if let Some(manifest) = &spec.manifest {
            let (mount, key) = parse_object_path(mounts, manifest)?;
            sources.push(PreloadSource::Manifest(mount, key));
        }
        Ok(Self {
            sources,
            ranges: merge_ranges(&spec.ranges),
            replicas: usize::from(spec.replicas),
            tier: match spec.tier {
                PreloadTier::Memory => WarmTier::Memory,
                PreloadTier::Disk => WarmTier::Disk,
            },
            pin_until_ms: spec
                .pin_ttl
                .map_or(0, |ttl| created_ms.saturating_add(ttl.saturating_mul(1000))),
            deadline_ms: deadline_of(spec)?,
            bandwidth: spec.bandwidth_bytes_per_second,
            verify: spec.verify,
            metadata_only: spec.metadata_only,
            dry_run: spec.dry_run,
            action: spec.action,
        })
    }

    /// Returns whether the job ends without a check, because it does not make pages present.
    pub(crate) fn is_over_without_check(&self) -> bool {
        self.action != PreloadJobAction::Load
    }

    /// Returns whether whole objects are wanted.
    pub(crate) fn is_whole(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Returns the wanted pages of an object of this length, block by block, in runs of adjacent
    /// pages.
    pub(crate) fn wanted_pieces(
        &self,
        geometry: BlockGeometry,
        object_bytes: u64,
    ) -> impl Iterator<Item = (BlockIndex, std::ops::Range<u16>)> + Send + use<> {
        let per_block = u64::from(geometry.pages_per_block());
        self.page_runs(geometry, object_bytes).into_iter().flat_map(move |run| {
            (run.start / per_block..run.end.div_ceil(per_block)).map(move |block| {
                let base = block * per_block;
                let start = run.start.max(base) - base;
                let end = run.end.min(base + per_block) - base;
                // An object of 5 TiB has 5 million blocks of the smallest size, so the number fits.
                (BlockIndex(block as u32), start as u16..end as u16)
            })
        })
    }

    /// Returns the same pieces in an order in which adjacent ones lie with different workers, as far
    /// as there are several groups of blocks: a long object is loaded by many workers at once.
    pub(crate) fn spread_pieces(
        &self,
        geometry: BlockGeometry,
        object_bytes: u64,
    ) -> impl Iterator<Item = (BlockIndex, std::ops::Range<u16>)> + Send {
        (0..BLOCKS_TOGETHER).flat_map(move |turn| {
            let pieces = self.wanted_pieces(geometry, object_bytes);
            pieces.filter(move |(block, _)| block.0 % BLOCKS_TOGETHER == turn)
        })
    }

    /// Returns the wanted pages of an object of this length, in runs of adjacent pages.
    fn page_runs(&self, geometry: BlockGeometry, object_bytes: u64) -> Vec<std::ops::Range<u64>> {
        let page_bytes = u64::from(geometry.page_bytes);
        let end = object_bytes.div_ceil(page_bytes);
        let mut runs: Vec<std::ops::Range<u64>> = Vec::new();
        let whole = [PreloadByteRange { first: 0, last: None }];
        let ranges = if self.ranges.is_empty() || self.metadata_only {
            &whole[..]
        } else {
            &self.ranges[..]
        };
        for range in ranges.iter().filter(|range| range.first < object_bytes) {
            let first = range.first / page_bytes;
            let last = range.last.map_or(end, |last| (last / page_bytes + 1).min(end));
            match runs.last_mut() {
                Some(before) if before.end >= first => before.end = before.end.max(last),
                _ if first < last => runs.push(first..last),
                _ => {}
            }
        }
        if self.metadata_only {
            runs.clear();
        }
        runs
    }

    /// Returns the pages of block 0 that are asked for together with the attributes, before the
    /// object's length is certain. `listed` is its length in a listing.
    pub(crate) fn first_pages(
        &self,
        geometry: BlockGeometry,
        listed: Option<u64>,
    ) -> std::ops::Range<u16> {
        let block_bytes = u64::from(geometry.block_bytes);
        let first =
            self.wanted_pieces(geometry, listed.unwrap_or(block_bytes).min(block_bytes)).next();
        first.map_or(0..0, |(_, pages)| pages)
    }

    /// Returns the wanted pieces for all `replicas`, without the `first` pages that were asked for
    /// together with the attributes.
    pub(crate) fn other_pieces(
        &self,
        geometry: BlockGeometry,
        object_bytes: u64,
        first: std::ops::Range<u16>,
        replicas: usize,
    ) -> impl Iterator<Item = (BlockIndex, std::ops::Range<u16>, usize)> + Send + use<> {
        let pieces = self.wanted_pieces(geometry, object_bytes);
        let of_all = pieces.flat_map(move |(block, pages)| {
            (0..replicas).map(move |replica| (block, pages.clone(), replica))
        });
        of_all.filter_map(move |(block, pages, replica)| {
            let is_begun = block == BlockIndex(0) && replica == 0 && pages.start == first.start;
            // The object may have grown since it was listed.
            let start = if is_begun { first.end.max(pages.start) } else { pages.start };
            (start < pages.end).then_some((block, start..pages.end, replica))
        })
    }

    /// Returns the bytes of the wanted pages.
    pub(crate) fn wanted_bytes(&self, geometry: BlockGeometry, object_bytes: u64) -> u64 {
        let byte = |page: u64| (page * u64::from(geometry.page_bytes)).min(object_bytes);
        self.page_runs(geometry, object_bytes)
            .into_iter()
            .map(|run| byte(run.end) - byte(run.start))
            .sum()
    }
}

/// Returns the bytes of these pages of an object of this length.
pub(crate) fn piece_bytes(
    geometry: BlockGeometry,
    object_bytes: u64,
    block: BlockIndex,
    pages: &std::ops::Range<u16>,
) -> u64 {
    let length = geometry.block_len(object_bytes, block);
    let byte = |page: u16| (u32::from(page) * geometry.page_bytes).min(length);
    u64::from(byte(pages.end) - byte(pages.start))
}

fn validate_spec(spec: &PreloadJobSpec) -> Result<(), SpecError> {
    if let Some(id) = spec.id.as_ref().filter(|id| !is_id(id)) {
        return Err(SpecError::Id(id.clone()));
    }
    if spec.paths.is_empty() && spec.prefixes.is_empty() && spec.manifest.is_none() {
        return Err(SpecError::Nothing);
    }
    if let Some(range) =
        spec.ranges.iter().find(|range| range.last.is_some_and(|last| last < range.first))
    {
        return Err(SpecError::Range(range.first));
    }
    let problems = [
        (spec.replicas == 0, SpecError::Replicas),
        (spec.pin_ttl.is_some() && spec.tier != PreloadTier::Disk, SpecError::Pin),
        (!spec.skip_if_cached, SpecError::SkipIfCached),
        (spec.bandwidth_bytes_per_second == Some(0), SpecError::Bandwidth),
        (spec.metadata_only && !spec.ranges.is_empty(), SpecError::MetadataOnly("ranges")),
        (spec.metadata_only && spec.verify, SpecError::MetadataOnly("verify")),
        (spec.metadata_only && spec.tier == PreloadTier::Disk, SpecError::MetadataOnly("tier")),
    ];
    let loads_only = [
        (!spec.ranges.is_empty(), "ranges"),
        (spec.tier != PreloadTier::Memory, "tier"),
        (spec.pin_ttl.is_some(), "pin_ttl"),
        (spec.verify, "verify"),
        (spec.metadata_only, "metadata_only"),
    ];
    let idle = loads_only
        .into_iter()
        .find(|(is_there, _)| *is_there && spec.action != PreloadJobAction::Load);
    if let Some((_, field)) = idle {
        return Err(SpecError::LoadsOnly(field));
    }
    problems.into_iter().find(|(is_wrong, _)| *is_wrong).map_or(Ok(()), |(_, error)| Err(error))
}

/// Returns the deadline in milliseconds since 1970.
pub(crate) fn deadline_of(spec: &PreloadJobSpec) -> Result<Option<u64>, SpecError> {
    spec.deadline.as_deref().map(deadline_ms).transpose()
}

fn deadline_ms(text: &str) -> Result<u64, SpecError> {
    let wrong = || SpecError::Deadline(text.to_owned());
    let time = OffsetDateTime::parse(text, &Rfc3339).map_err(|_| wrong())?;
    u64::try_from(time.unix_timestamp_nanos() / 1_000_000).map_err(|_| wrong())
}

/// Sorts the ranges and merges overlapping ones.
fn merge_ranges(ranges: &[PreloadByteRange]) -> Vec<PreloadByteRange> {
    let mut sorted = ranges.to_vec();
    sorted.sort_by_key(|range| range.first);
    let mut merged: Vec<PreloadByteRange> = Vec::new();
    for range in sorted {
        match merged.last_mut() {
            Some(before) if before.last.is_none_or(|last| last >= range.first) => {
                before.last = before.last.zip(range.last).map(|(a, b)| a.max(b));
            }
            _ => merged.push(range),
        }
    }
    merged
}

#[cfg(test)]
mod tests;
