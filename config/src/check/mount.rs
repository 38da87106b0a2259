//! Checks of `[[mount]]`: each by itself, and against the others.

use std::collections::BTreeMap;

use crate::mount::{AttributesTtl, CoherenceSetting, MountSettings, PopulateSetting};
use crate::process_role::ProcessRole;
use verbs3_cache_worker::WorkerPopulateSettings;
use verbs3_settings::{CheckFindings, suggest_name};
use verbs3_ufs::UfsSettings;

pub(super) fn check_mounts(
    mounts: &[MountSettings],
    list: &[UfsSettings],
    roles: &[ProcessRole],
    findings: &mut CheckFindings,
) {
    if mounts.is_empty() && roles.contains(&ProcessRole::Gateway) {
        findings.add_error(
            "mount",
            "there is none; add [[mount]] with a name (\"*\" for every bucket) and a ufs",
        );
    }
    let mut names = BTreeMap::new();
    for (index, mount) in mounts.iter().enumerate() {
        let path = |field: &str| format!("mount[{index}].{field}");
        if mount.name.is_empty() {
            findings.add_error(
                path("name"),
                "is missing; it is the bucket name that clients see, or \"*\"",
            );
        } else if let Some(first) = names.insert(mount.name.as_str(), index) {
            findings.add_error(
                path("name"),
                format!("{:?} is the name of mount[{first}] too; names are unique", mount.name),
            );
        }
        check_target(index, mount, list, roles, findings);
        check_one(index, mount, findings);
    }
    check_overlaps(mounts, findings);
}

fn check_target(
    index: usize,
    mount: &MountSettings,
    list: &[UfsSettings],
    roles: &[ProcessRole],
    findings: &mut CheckFindings,
) {
    let path = format!("mount[{index}].ufs");
    if mount.ufs.is_empty() {
        findings.add_error(path, "is missing; it is the name of a [[ufs]]");
    } else if !list.iter().any(|ufs| ufs.name == mount.ufs) {
        // The development process brings a store of its own, whose name is fixed.
        if roles.contains(&ProcessRole::Dev) && list.is_empty() {
            return findings.add_error(
                path,
                "add the [[ufs]] that it names, or leave out all mounts to get the built-in ones",
            );
        }
        let close = suggest_name(&mount.ufs, list.iter().map(|ufs| ufs.name.as_str()));
        findings.add_error(path, format!("no [[ufs]] is named {:?}{close}", mount.ufs));
    }
}

fn check_one(index: usize, mount: &MountSettings, findings: &mut CheckFindings) {
    let MountSettings { name, bucket, prefix, attributes_ttl, absence_ttl, coherence, .. } = mount;
    let path = |field: &str| format!("mount[{index}].{field}");
    if mount.is_wildcard() {
        if bucket.is_some() {
            findings.add_error(
                path("bucket"),
                "does nothing with name = \"*\": every bucket keeps its own name",
            );
        }
        if !prefix.is_empty() {
            findings.add_error(
                path("prefix"),
                "does nothing with name = \"*\": every bucket is seen whole",
            );
        }
    } else {
        if !name.is_empty() && !is_bucket_name(name) {
            findings.add_error(
                path("name"),
                format!(
                    "{name:?} is not a bucket name: 3 to 63 lower-case letters, digits, dots \
                    and hyphens"
                ),
            );
        }
        if bucket.as_deref().is_some_and(|bucket| bucket.is_empty() || bucket.contains('/')) {
            findings.add_error(path("bucket"), "is not a bucket name; put a folder into prefix");
        }
    }
    if !prefix.is_empty() && !prefix.ends_with('/') {
        findings.add_error(path("prefix"), format!("{prefix:?} does not end in '/'"));
    }
    if prefix.len() >= 1024 {
        findings.add_error(
            path("prefix"),
            "is as long as a key may be (1024 bytes); nothing fits below it",
        );
    }
    check_populate(index, mount, findings);
    if (*coherence, *attributes_ttl) == (CoherenceSetting::Ttl, AttributesTtl::Immutable) {
        findings.add_error(
            path("coherence"),
            "\"ttl\" lets a write through that readers see after attributes_ttl, which is \
            \"immutable\": never; set a duration, or coherence = \"strict\"",
        );
    }
    match attributes_ttl {
        AttributesTtl::For(ttl) if *ttl < absence_ttl.0 => {
            findings.add_warning(
                path("absence_ttl"),
                format!("{absence_ttl} is longer than attributes_ttl ({attributes_ttl})"),
            );
        }
        AttributesTtl::AlwaysAsk if !absence_ttl.0.is_zero() => {
            findings.add_warning(
                path("absence_ttl"),
                format!(
                    "attributes are asked for on every read, \
                but an absence is believed for {absence_ttl}; set it to \"0\""
                ),
            );
        }
        AttributesTtl::For(_) | AttributesTtl::AlwaysAsk | AttributesTtl::Immutable => {}
    }
}

/// What S3 allows as a new bucket's name, but for its rarer rules, which the store itself enforces.
fn is_bucket_name(name: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    (3..=63).contains(&name.len())
        && name.chars().all(inner)
        && edge(name.chars().next())
        && edge(name.chars().last())
}

/// A mount that copies writes has to keep something, and has to have writes.
fn check_populate(index: usize, mount: &MountSettings, findings: &mut CheckFindings) {
    if mount.populate_on_write == PopulateSetting::Off {
        return;
    }
    let path = format!("mount[{index}].populate_on_write");
    if !mount.cached {
        findings.add_error(
            path,
            "copies writes to workers, which keep nothing of a mount with cached = false; set it to \
            \"off\"",
        );
    } else if mount.read_only {
        findings
            .add_error(path, "copies writes, and read_only refuses them all; set it to \"off\"");
    }
}

/// Warns where this process's worker takes no copies of writes. Other workers' settings are not
/// known here.
pub(super) fn check_copies_are_taken(
    mounts: &[MountSettings],
    populate: &WorkerPopulateSettings,
    roles: &[ProcessRole],
    findings: &mut CheckFindings,
) {
    let is_worker = roles.contains(&ProcessRole::Worker) || roles.contains(&ProcessRole::Dev);
    let copied = mounts.iter().find(|mount| mount.populate_bytes_max().is_some());
    if let (Some(mount), true, 0) = (copied, is_worker, populate.staged_max.0) {
        findings.add_warning(
            "worker.populate.staged_max",
            format!(
                "mount {} copies its writes, and this worker takes none; give it memory for them",
                mount.name
            ),
        );
    }
}

/// Two mounts that show the same object: allowed (they share its cache), but rules such as
/// `read_only` then hold for one way in and not for the other.
fn check_overlaps(mounts: &[MountSettings], findings: &mut CheckFindings) {
    for (index, mount) in mounts.iter().enumerate() {
        for (other_index, other) in mounts.iter().enumerate().take(index) {
            if mount.ufs.is_empty() || mount.ufs != other.ufs {
                continue;
            }
            let path = format!("mount[{index}]");
            match (mount.ufs_bucket(), other.ufs_bucket()) {
                // Both are called "*", which has been reported.
                (None, None) => {}
                (Some(bucket), Some(other_bucket)) => {
                    let nested = mount.prefix.starts_with(&other.prefix)
                        || other.prefix.starts_with(&mount.prefix);
                    if bucket == other_bucket && nested {
                        findings.add_warning(
                            path,
                            format!(
                                "{:?} and {:?} (mount[{other_index}]) show the same objects of \
                            {}/{bucket}; the rules of each hold only for its own clients",
                                mount.name, other.name, mount.ufs
                            ),
                        );
                    }
                }
                (Some(bucket), None) | (None, Some(bucket)) => {
                    let named = if mount.is_wildcard() { other } else { mount };
                    // Under its own name the named mount takes the place of the bucket; under
                    // another, both show it.
                    if named.name != bucket {
                        findings.add_warning(
                            path,
                            format!(
                                "{:?} and \"*\" both show {}/{bucket}; the rules of each hold only \
                                for its own clients",
                                named.name, mount.ufs
                            ),
                        );
                    }
                }
            }
        }
    }
}
