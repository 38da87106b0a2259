//! Finds the other buckets that an input names: those that the store should write to. Owns where
//! they stand in a document, and which rights what is done there needs. `rights` judges whether
//! they may be named.

use crate::operation_table::AccessRight;

/// What the store needs to write there.
const WRITES: &[AccessRight] = &[AccessRight::write];
/// What it needs where the document also says who may see what it writes.
const WRITES_AND_OPENS: &[AccessRight] = &[AccessRight::write, AccessRight::acl];
/// What replicas need. Deletions are repeated there. Each has the ACL, the retention and the legal
/// hold of its source, or an owner that the document names.
const REPLICATES: &[AccessRight] =
    &[AccessRight::write, AccessRight::delete, AccessRight::acl, AccessRight::lock];

/// A place that an operation has the store write to, besides its own bucket.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NamedDestination<'a> {
    /// A bucket by its name or its ARN.
    Bucket {
        name: &'a mut String,
        /// What the identity has to have on all of its keys.
        rights: &'static [AccessRight],
    },
    /// A destination that can't be a mount.
    Foreign(&'static str),
}

pub(in crate::operations) mod put_bucket_replication {
    pub use super::super::plain::{listing_prefix, rewrite_inward, rewrite_outward};
    use super::{NamedDestination, REPLICATES};
    use s3s::dto::PutBucketReplicationInput;

    /// Returns the bucket of each replication rule.
    pub fn find_destinations(input: &mut PutBucketReplicationInput) -> Vec<NamedDestination<'_>> {
        let rules = input.replication_configuration.rules.iter_mut();
        rules
            .map(|rule| NamedDestination::Bucket {
                name: &mut rule.destination.bucket,
                rights: REPLICATES,
            })
            .collect()
    }
}

pub(in crate::operations) mod put_bucket_logging {
    pub use super::super::plain::{listing_prefix, rewrite_inward, rewrite_outward};
    use super::{NamedDestination, WRITES, WRITES_AND_OPENS};
    use s3s::dto::PutBucketLoggingInput;

    /// Returns the bucket for access logs, if logging is enabled. `TargetGrants` say who may see
    /// them.
    pub fn find_destinations(input: &mut PutBucketLoggingInput) -> Vec<NamedDestination<'_>> {
        let target = input.bucket_logging_status.logging_enabled.iter_mut();
        target
            .map(|target| NamedDestination::Bucket {
                rights: match target.target_grants.as_deref() {
                    None | Some([]) => WRITES,
                    Some(_) => WRITES_AND_OPENS,
                },
                name: &mut target.target_bucket,
            })
            .collect()
    }
}

pub(in crate::operations) mod put_bucket_inventory_configuration {
    pub use super::super::plain::{listing_prefix, rewrite_inward, rewrite_outward};
    use super::{NamedDestination, WRITES};
    use s3s::dto::PutBucketInventoryConfigurationInput;

    /// Returns the bucket for inventory lists.
    pub fn find_destinations(
        input: &mut PutBucketInventoryConfigurationInput,
    ) -> Vec<NamedDestination<'_>> {
        let bucket = &mut input.inventory_configuration.destination.s3_bucket_destination.bucket;
        vec![NamedDestination::Bucket { name: bucket, rights: WRITES }]
    }
}

pub(in crate::operations) mod put_bucket_analytics_configuration {
    pub use super::super::plain::{listing_prefix, rewrite_inward, rewrite_outward};
    use super::{NamedDestination, WRITES};
    use s3s::dto::PutBucketAnalyticsConfigurationInput;

    /// Returns the bucket that the analysis is exported to, if any.
    pub fn find_destinations(
        input: &mut PutBucketAnalyticsConfigurationInput,
    ) -> Vec<NamedDestination<'_>> {
        let export = input.analytics_configuration.storage_class_analysis.data_export.iter_mut();
        let bucket = export.map(|export| &mut export.destination.s3_bucket_destination.bucket);
        bucket.map(|name| NamedDestination::Bucket { name, rights: WRITES }).collect()
    }
}

pub(in crate::operations) mod create_bucket_metadata_table_configuration {
    pub use super::super::plain::{listing_prefix, rewrite_inward, rewrite_outward};
    use super::NamedDestination;
    use s3s::dto::CreateBucketMetadataTableConfigurationInput;

    /// Returns a table bucket, which can't be a mount: the operation is refused.
    pub fn find_destinations(
        _: &mut CreateBucketMetadataTableConfigurationInput,
    ) -> Vec<NamedDestination<'_>> {
        vec![NamedDestination::Foreign("a table bucket")]
    }
}

pub(in crate::operations) mod restore_object {
    pub use super::super::plain::{listing_prefix, rewrite_inward, rewrite_outward};
    use super::NamedDestination;
    use s3s::dto::RestoreObjectInput;

    /// Returns the place for results of a query over an archived object. They would be written
    /// without telling the homes of their keys, and with an ACL of their own.
    pub fn find_destinations(input: &mut RestoreObjectInput) -> Vec<NamedDestination<'_>> {
        let location =
            input.restore_request.as_ref().and_then(|request| request.output_location.as_ref());
        location.map(|_| NamedDestination::Foreign("an OutputLocation")).into_iter().collect()
    }
}
