//! Answers ListBuckets: the mounts on which the identity has any right, with the dates of the
//! buckets behind them. Owns the merge of several stores' answers.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use s3s::dto::{Bucket, ListBucketsInput, ListBucketsOutput, Owner, Timestamp};
use s3s::{S3Request, S3Response, S3Result};

use super::bucket_lists::StoreBuckets;
use super::operation_core::OperationCore;
use crate::operation_table::AccessRight;

/// Most names in one answer, by S3.
const BUCKETS_MAX: usize = 10_000;

pub(super) async fn list_buckets(
    core: &OperationCore,
    request: S3Request<ListBucketsInput>,
) -> S3Result<S3Response<ListBucketsOutput>> {
    let (_, identity) = core.identify_caller(&request)?;
    let input = request.input;
    let mut stores: HashMap<String, Arc<StoreBuckets>> = HashMap::new();
    for ufs in core.mounts.distinct_stores() {
        stores.insert(ufs.ufs_name().to_owned(), core.bucket_lists.list_store(ufs).await);
    }
    // Clients need a date. A store that gives none (a key without the right to list buckets is
    // common) leaves the epoch.
    let unknown = || Timestamp::from(SystemTime::UNIX_EPOCH + Duration::ZERO);
    let mut seen: BTreeMap<String, Timestamp> = BTreeMap::new();
    for (ufs, buckets) in &stores {
        for (name, date) in buckets.iter() {
            if core
                .mounts
                .resolve_bucket(name)
                .is_some_and(|mount| mount.ufs.ufs_name() == ufs && &mount.bucket == name)
            {
                seen.insert(name.clone(), date.clone().unwrap_or_else(unknown));
            }
        }
    }
    for mount in core.mounts.iter() {
        let date = stores
            .get(mount.ufs.ufs_name())
            .and_then(|buckets| buckets.get(&mount.bucket))
            .cloned()
            .flatten();
        seen.insert(mount.name.clone(), date.unwrap_or_else(unknown));
    }
    let prefix = input.prefix.clone().unwrap_or_default();
    let after = input.continuation_token.unwrap_or_default();
    let max = input
        .max_buckets
        .and_then(|max| usize::try_from(max).ok())
        .unwrap_or(BUCKETS_MAX)
        .clamp(1, BUCKETS_MAX);
    let mut names = seen
        .into_iter()
        .filter(|(name, _)| {
            name.starts_with(&prefix)
                && *name > after
                && identity.allows_right(name, "", AccessRight::seen)
        })
        .map(|(name, date)| Bucket {
            name: Some(name),
            creation_date: Some(date),
            ..Bucket::default()
        });
    let buckets: Vec<Bucket> = names.by_ref().take(max).collect();
    let more = names.next().is_some();
    let continuation_token = buckets.last().and_then(|last| last.name.clone()).filter(|_| more);
    let owner = Owner {
        display_name: Some(identity.identity_name().to_owned()),
        id: Some(identity.identity_name().to_owned()),
    };
    Ok(S3Response::new(ListBucketsOutput {
        buckets: Some(buckets),
        continuation_token,
        owner: Some(owner),
        prefix: input.prefix,
    }))
}
