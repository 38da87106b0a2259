//! Inputs that name other buckets: those that the store is to write to. Owns where in a document
//! they stand. Whether they may be named is `rights`' to judge.

/// Where an operation has the store write, besides its own bucket.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NamedDestination<'a> {
    /// By its name or its ARN.
    Bucket {
        name: &'a mut String,
        /// What is deleted here is deleted there.
        deletes: bool,
    },
    /// What no mount can be.
    Foreign(&'static str),
}

pub(in crate::operations) mod put_bucket_replication {
    pub use super::super::plain::{listing_prefix, rewrite_inward, rewrite_outward};
    use super::NamedDestination;
    use s3s::dto::PutBucketReplicationInput;

    /// The bucket of each replication rule. Deletions may be replicated to it.
    pub fn find_destinations(input: &mut PutBucketReplicationInput) -> Vec<NamedDestination<'_>> {
        let rules = input.replication_configuration.rules.iter_mut();
        rules
            .map(|rule| NamedDestination::Bucket {
                name: &mut rule.destination.bucket,
                deletes: true,
            })
            .collect()
    }
}

pub(in crate::operations) mod put_bucket_logging {
    pub use super::super::plain::{listing_prefix, rewrite_inward, rewrite_outward};
    use super::NamedDestination;
    use s3s::dto::PutBucketLoggingInput;

    /// The bucket that access logs are written to, if logging is switched on.
    pub fn find_destinations(input: &mut PutBucketLoggingInput) -> Vec<NamedDestination<'_>> {
        let target = input.bucket_logging_status.logging_enabled.iter_mut();
        target
            .map(|target| NamedDestination::Bucket {
                name: &mut target.target_bucket,
                deletes: false,
            })
            .collect()
    }
}

pub(in crate::operations) mod put_bucket_inventory_configuration {
    pub use super::super::plain::{listing_prefix, rewrite_inward, rewrite_outward};
    use super::NamedDestination;
    use s3s::dto::PutBucketInventoryConfigurationInput;

    /// The bucket that inventory lists are written to.
    pub fn find_destinations(
        input: &mut PutBucketInventoryConfigurationInput,
    ) -> Vec<NamedDestination<'_>> {
        let bucket = &mut input.inventory_configuration.destination.s3_bucket_destination.bucket;
        vec![NamedDestination::Bucket { name: bucket, deletes: false }]
    }
}

pub(in crate::operations) mod put_bucket_analytics_configuration {
    pub use super::super::plain::{listing_prefix, rewrite_inward, rewrite_outward};
    use super::NamedDestination;
    use s3s::dto::PutBucketAnalyticsConfigurationInput;

    /// The bucket that the analysis is exported to, if it is.
    pub fn find_destinations(
        input: &mut PutBucketAnalyticsConfigurationInput,
    ) -> Vec<NamedDestination<'_>> {
        let export = input.analytics_configuration.storage_class_analysis.data_export.iter_mut();
        let bucket = export.map(|export| &mut export.destination.s3_bucket_destination.bucket);
        bucket.map(|name| NamedDestination::Bucket { name, deletes: false }).collect()
    }
}

pub(in crate::operations) mod create_bucket_metadata_table_configuration {
    pub use super::super::plain::{listing_prefix, rewrite_inward, rewrite_outward};
    use super::NamedDestination;
    use s3s::dto::CreateBucketMetadataTableConfigurationInput;

    /// A table bucket, which no mount can be: the operation is refused.
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

    /// The results of a query over an archived object: they would be written past the homes of
    /// their keys, with an ACL of their own.
    pub fn find_destinations(input: &mut RestoreObjectInput) -> Vec<NamedDestination<'_>> {
        let location =
            input.restore_request.as_ref().and_then(|request| request.output_location.as_ref());
        location.map(|_| NamedDestination::Foreign("an OutputLocation")).into_iter().collect()
    }
}
