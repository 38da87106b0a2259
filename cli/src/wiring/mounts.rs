//! The mounts of the configuration, as gateways and preload jobs take them.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::Context;
use verbs3_config::{AttributesTtl, CoherenceSetting, MountSettings};
use verbs3_gateway::mount::{AttributeFreshness, MountTable, MountedBucket, WriteCoherence};
use verbs3_preload::{PreloadMount, PreloadMountTable};
use verbs3_protocol::ObjectVolume;
use verbs3_ufs::Ufs;

/// The mount table of a gateway.
pub fn build_gateway_mounts(
    list: &[MountSettings],
    stores: &HashMap<String, Ufs>,
) -> anyhow::Result<MountTable> {
    let (named, whole) = build_mounts(list, stores, build_gateway_mount)?;
    let mounts = MountTable::new(named)?;
    Ok(match whole {
        Some(pattern) => mounts.with_open(pattern),
        None => mounts,
    })
}

/// The mounts that preload jobs may name.
pub fn build_preload_mounts(
    list: &[MountSettings],
    stores: &HashMap<String, Ufs>,
) -> anyhow::Result<PreloadMountTable> {
    let (named, whole) = build_mounts(list, stores, build_preload_mount)?;
    let named = named.into_iter().map(|mount| (mount.name.clone(), Arc::new(mount))).collect();
    Ok(PreloadMountTable { named, whole })
}

/// Those that are named, and the one of a whole store.
fn build_mounts<T>(
    list: &[MountSettings],
    stores: &HashMap<String, Ufs>,
    build: impl Fn(&MountSettings, Ufs, String) -> T,
) -> anyhow::Result<(Vec<T>, Option<T>)> {
    let (mut named, mut whole) = (Vec::new(), None);
    for mount in list {
        let MountSettings { name, ufs, .. } = mount;
        let ufs =
            stores.get(ufs).with_context(|| format!("mount {name}: there is no ufs {ufs}"))?;
        // Of a mount of a whole store, the bucket is not used.
        let bucket = mount.ufs_bucket().unwrap_or(name).to_owned();
        let made = build(mount, ufs.clone(), bucket);
        if mount.is_wildcard() {
            whole = Some(made);
        } else {
            named.push(made);
        }
    }
    Ok((named, whole))
}

fn build_gateway_mount(mount: &MountSettings, ufs: Ufs, bucket: String) -> MountedBucket {
    let MountSettings {
        name,
        ufs: _,
        bucket: _,
        prefix,
        attributes_ttl,
        absence_ttl,
        coherence,
        read_only,
        cached,
        populate_on_write: _,
        populate_max: _,
    } = mount;
    MountedBucket {
        name: name.clone(),
        volume: ObjectVolume::new(ufs.store_name(), &bucket),
        ufs,
        bucket,
        prefix: prefix.clone(),
        attributes: match attributes_ttl {
            AttributesTtl::AlwaysAsk => AttributeFreshness::AlwaysAsk,
            AttributesTtl::For(ttl) => AttributeFreshness::Ttl(*ttl),
            AttributesTtl::Immutable => AttributeFreshness::Immutable,
        },
        absence_ttl: absence_ttl.0,
        coherence: match coherence {
            CoherenceSetting::Strict => WriteCoherence::Strict,
            CoherenceSetting::Ttl => WriteCoherence::Ttl,
        },
        read_only: *read_only,
        cached: *cached,
        populate_bytes_max: mount.populate_bytes_max(),
    }
}

/// What concerns reads of clients alone is not looked at.
fn build_preload_mount(mount: &MountSettings, ufs: Ufs, bucket: String) -> PreloadMount {
    PreloadMount {
        name: mount.name.clone(),
        ufs,
        bucket,
        prefix: mount.prefix.clone(),
        attributes_age_ms_max: match mount.attributes_ttl {
            AttributesTtl::AlwaysAsk => 0,
            AttributesTtl::For(ttl) => u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX - 1),
            AttributesTtl::Immutable => u64::MAX,
        },
        cached: mount.cached,
    }
}
