//! Inputs that name other buckets: those that the store is to write to. Owns where in a document
//! they stand. Whether they may be named is `rights`' to judge.

/// Where an operation has the store write, besides its own bucket.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Destination<'a> {
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
    pub use super::super::plain::{inward, listed, outward};
    use super::Destination;
    use s3s::dto::PutBucketReplicationInput;

    pub fn destinations(input: &mut PutBucketReplicationInput) -> Vec<Destination<'_>> {
        let rules = input.replication_configuration.rules.iter_mut();
        rules
            .map(|rule| Destination::Bucket { name: &mut rule.destination.bucket, deletes: true })
            .collect()
    }
}

pub(in crate::operations) mod put_bucket_logging {
    pub use super::super::plain::{inward, listed, outward};
    use super::Destination;
    use s3s::dto::PutBucketLoggingInput;

    pub fn destinations(input: &mut PutBucketLoggingInput) -> Vec<Destination<'_>> {
        let target = input.bucket_logging_status.logging_enabled.iter_mut();
        target
            .map(|target| Destination::Bucket { name: &mut target.target_bucket, deletes: false })
            .collect()
    }
}

pub(in crate::operations) mod put_bucket_inventory_configuration {
    pub use super::super::plain::{inward, listed, outward};
    use super::Destination;
    use s3s::dto::PutBucketInventoryConfigurationInput;

    pub fn destinations(input: &mut PutBucketInventoryConfigurationInput) -> Vec<Destination<'_>> {
        let bucket = &mut input.inventory_configuration.destination.s3_bucket_destination.bucket;
        vec![Destination::Bucket { name: bucket, deletes: false }]
    }
}

pub(in crate::operations) mod put_bucket_analytics_configuration {
    pub use super::super::plain::{inward, listed, outward};
    use super::Destination;
    use s3s::dto::PutBucketAnalyticsConfigurationInput;

    pub fn destinations(input: &mut PutBucketAnalyticsConfigurationInput) -> Vec<Destination<'_>> {
        let export = input.analytics_configuration.storage_class_analysis.data_export.iter_mut();
        let bucket = export.map(|export| &mut export.destination.s3_bucket_destination.bucket);
        bucket.map(|name| Destination::Bucket { name, deletes: false }).collect()
    }
}

pub(in crate::operations) mod create_bucket_metadata_table_configuration {
    pub use super::super::plain::{inward, listed, outward};
    use super::Destination;
    use s3s::dto::CreateBucketMetadataTableConfigurationInput;

    pub fn destinations(
        _: &mut CreateBucketMetadataTableConfigurationInput,
    ) -> Vec<Destination<'_>> {
        vec![Destination::Foreign("a table bucket")]
    }
}

pub(in crate::operations) mod restore_object {
    pub use super::super::plain::{inward, listed, outward};
    use super::Destination;
    use s3s::dto::RestoreObjectInput;

    /// The results of a query over an archived object: they would be written past the homes of
    /// their keys, with an ACL of their own.
    pub fn destinations(input: &mut RestoreObjectInput) -> Vec<Destination<'_>> {
        let location =
            input.restore_request.as_ref().and_then(|request| request.output_location.as_ref());
        location.map(|_| Destination::Foreign("an OutputLocation")).into_iter().collect()
    }
}
