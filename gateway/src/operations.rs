//! The operation table: every method of [`s3s::S3`], and what the gateway does with it. Owns which
//! right an operation needs, which keys it announces, which way it takes and how its names are
//! rewritten. Clippy refuses a missing method of s3s's trait (stage `lint`). The compiler refuses
//! one that stands here twice or is not in the trait. Executes nothing: see `operation_core`,
//! `batch`, `copy`, `buckets`, `put`.
//!
//! Columns:
//! - *right*: the right that the identity needs; `seen` is any right on the mount. A copy's source
//!   needs `read` as well. `rights` has what headers and destinations need.
//! - *scope*: the subject of the right. `object`: the key. `listing`: the listed prefix. `bucket`:
//!   the mount. `settings`: the mount, refused if it is a part of a bucket. `service`: nothing.
//! - *announces*: the keys whose homes are told before the operation can be seen, and after. Every
//!   change of an object's bytes, existence or attributes is announced.
//! - *way*: `bypass` goes straight to the UFS; `cached` through the cache tier; `verified` has a
//!   body that is checked on its way; `listed` tells the homes what the answer showed; `copied`,
//!   `batch` and `mounts` have code of their own; `refused` is not possible through a gateway.
//! - *names*: the module of `rewrite` that rewrites names besides bucket and key, and finds other
//!   buckets that are named.

use async_trait::async_trait;
use s3s::dto::*;
use s3s::{S3, S3Request, S3Response, S3Result};

mod attributes;
mod batch;
mod buckets;
mod copy;
mod listings;
mod operation_core;
pub(crate) mod query;
mod reads;
mod rewrite;
mod rights;
mod table_operation;

pub(crate) use operation_core::{AuthorizedRequest, OperationCore, access_denied, no_such_bucket};
pub(crate) use rewrite::{MountNamePair, NamedDestination};
pub use table_operation::AccessRight;
pub(crate) use table_operation::{
    AccessScope, HomeNoticeScope, OperationRoute, OperationRow, TableOperation,
};

use table_operation::operation_name;

/// The gateway's implementation of s3s's trait.
#[derive(Clone)]
pub(crate) struct S3Implementation(pub(crate) std::sync::Arc<OperationCore>);

macro_rules! bucket_of {
    (service, $input:ident) => {
        None
    };
    ($scope:ident, $input:ident) => {
        Some(&mut $input.bucket)
    };
}

macro_rules! key_of {
    (object, $input:ident) => {
        Some(&mut $input.key)
    };
    ($scope:ident, $input:ident) => {
        None
    };
}

macro_rules! take_way {
    (bypass, $method:ident, $core:expr, $request:expr) => {
        $core.pass_to_ufs($request).await
    };
    (cached, $method:ident, $core:expr, $request:expr) => {
        reads::$method($core, $request).await
    };
    (verified, $method:ident, $core:expr, $request:expr) => {
        crate::write::put::$method($core, $request).await
    };
    (listed, $method:ident, $core:expr, $request:expr) => {
        listings::pass_listing($core, $request).await
    };
    (copied, $method:ident, $core:expr, $request:expr) => {
        copy::$method($core, $request).await
    };
    (batch, $method:ident, $core:expr, $request:expr) => {
        batch::$method($core, $request).await
    };
    (mounts, $method:ident, $core:expr, $request:expr) => {
        buckets::$method($core, $request).await
    };
    (refused, $method:ident, $core:expr, $request:expr) => {
        Err($core.refuse_operation($request))
    };
}

macro_rules! operations {
    ($($method:ident($input:ident) -> $output:ident: $right:ident $scope:ident $announces:ident $way:ident $names:ident;)*) => {
        /// All operations, in the order of s3s's trait.
        pub(crate) static TABLE: &[OperationRow] = &[$(OperationRow {
            method: stringify!($method),
            name: operation_name(stringify!($input)),
            right: AccessRight::$right,
            scope: AccessScope::$scope,
            announces: HomeNoticeScope::$announces,
            way: OperationRoute::$way,
        }),*];

        /// Indexes of [`TABLE`].
        #[allow(non_camel_case_types, clippy::enum_variant_names)]
        enum OperationIndex { $($method),* }

        $(#[async_trait]
        impl TableOperation for $input {
            const INDEX: usize = OperationIndex::$method as usize;
            type Output = $output;

            fn bucket_field(&mut self) -> Option<&mut String> {
                let _input = self;
                bucket_of!($scope, _input)
            }

            fn key_field(&mut self) -> Option<&mut String> {
                let _input = self;
                key_of!($scope, _input)
            }

            fn listing_prefix(&self) -> &str {
                rewrite::$names::listing_prefix(self)
            }

            fn find_destinations(&mut self) -> Vec<NamedDestination<'_>> {
                rewrite::$names::find_destinations(self)
            }

            fn rewrite_inward(&mut self, names: &MountNamePair<'_>) {
                rewrite::$names::rewrite_inward(self, names);
            }

            fn rewrite_outward(output: &mut $output, names: &MountNamePair<'_>) {
                rewrite::$names::rewrite_outward(output, names);
            }

            async fn send_request(store: &dyn S3, request: S3Request<Self>) -> S3Result<S3Response<$output>> {
                store.$method(request).await
            }
        })*

        // The trait answers NotImplemented for each method left out; only a client would notice.
        #[deny(clippy::missing_trait_methods)]
        #[async_trait]
        impl S3 for S3Implementation {
            $(async fn $method(&self, request: S3Request<$input>) -> S3Result<S3Response<$output>> {
                take_way!($way, $method, &self.0, request)
            })*
        }
    };
}

#[rustfmt::skip]
operations! {
    abort_multipart_upload(AbortMultipartUploadInput) -> AbortMultipartUploadOutput: write object nothing bypass plain;
    complete_multipart_upload(CompleteMultipartUploadInput) -> CompleteMultipartUploadOutput: write object key bypass complete_multipart_upload;
    copy_object(CopyObjectInput) -> CopyObjectOutput: write object key copied plain;
    create_bucket(CreateBucketInput) -> CreateBucketOutput: admin settings nothing bypass create_bucket;
    create_bucket_metadata_table_configuration(CreateBucketMetadataTableConfigurationInput) -> CreateBucketMetadataTableConfigurationOutput: admin settings nothing bypass create_bucket_metadata_table_configuration;
    create_multipart_upload(CreateMultipartUploadInput) -> CreateMultipartUploadOutput: write object nothing bypass create_multipart_upload;
    create_session(CreateSessionInput) -> CreateSessionOutput: admin service nothing refused plain;
    delete_bucket(DeleteBucketInput) -> DeleteBucketOutput: admin settings nothing bypass plain;
    delete_bucket_analytics_configuration(DeleteBucketAnalyticsConfigurationInput) -> DeleteBucketAnalyticsConfigurationOutput: admin settings nothing bypass plain;
    delete_bucket_cors(DeleteBucketCorsInput) -> DeleteBucketCorsOutput: admin settings nothing bypass plain;
    delete_bucket_encryption(DeleteBucketEncryptionInput) -> DeleteBucketEncryptionOutput: admin settings nothing bypass plain;
    delete_bucket_intelligent_tiering_configuration(DeleteBucketIntelligentTieringConfigurationInput) -> DeleteBucketIntelligentTieringConfigurationOutput: admin settings nothing bypass plain;
    delete_bucket_inventory_configuration(DeleteBucketInventoryConfigurationInput) -> DeleteBucketInventoryConfigurationOutput: admin settings nothing bypass plain;
    delete_bucket_lifecycle(DeleteBucketLifecycleInput) -> DeleteBucketLifecycleOutput: admin settings nothing bypass plain;
    delete_bucket_metadata_table_configuration(DeleteBucketMetadataTableConfigurationInput) -> DeleteBucketMetadataTableConfigurationOutput: admin settings nothing bypass plain;
    delete_bucket_metrics_configuration(DeleteBucketMetricsConfigurationInput) -> DeleteBucketMetricsConfigurationOutput: admin settings nothing bypass plain;
    delete_bucket_ownership_controls(DeleteBucketOwnershipControlsInput) -> DeleteBucketOwnershipControlsOutput: admin settings nothing bypass plain;
    delete_bucket_policy(DeleteBucketPolicyInput) -> DeleteBucketPolicyOutput: admin settings nothing bypass plain;
    delete_bucket_replication(DeleteBucketReplicationInput) -> DeleteBucketReplicationOutput: admin settings nothing bypass plain;
    delete_bucket_tagging(DeleteBucketTaggingInput) -> DeleteBucketTaggingOutput: admin settings nothing bypass plain;
    delete_bucket_website(DeleteBucketWebsiteInput) -> DeleteBucketWebsiteOutput: admin settings nothing bypass plain;
    delete_object(DeleteObjectInput) -> DeleteObjectOutput: delete object key bypass plain;
    delete_object_tagging(DeleteObjectTaggingInput) -> DeleteObjectTaggingOutput: write object key bypass plain;
    delete_objects(DeleteObjectsInput) -> DeleteObjectsOutput: delete bucket keys batch delete_objects;
    delete_public_access_block(DeletePublicAccessBlockInput) -> DeletePublicAccessBlockOutput: admin settings nothing bypass plain;
    get_bucket_accelerate_configuration(GetBucketAccelerateConfigurationInput) -> GetBucketAccelerateConfigurationOutput: admin settings nothing bypass plain;
    get_bucket_acl(GetBucketAclInput) -> GetBucketAclOutput: admin settings nothing bypass plain;
    get_bucket_analytics_configuration(GetBucketAnalyticsConfigurationInput) -> GetBucketAnalyticsConfigurationOutput: admin settings nothing bypass plain;
    get_bucket_cors(GetBucketCorsInput) -> GetBucketCorsOutput: admin settings nothing bypass plain;
    get_bucket_encryption(GetBucketEncryptionInput) -> GetBucketEncryptionOutput: admin settings nothing bypass plain;
    get_bucket_intelligent_tiering_configuration(GetBucketIntelligentTieringConfigurationInput) -> GetBucketIntelligentTieringConfigurationOutput: admin settings nothing bypass plain;
    get_bucket_inventory_configuration(GetBucketInventoryConfigurationInput) -> GetBucketInventoryConfigurationOutput: admin settings nothing bypass plain;
    get_bucket_lifecycle_configuration(GetBucketLifecycleConfigurationInput) -> GetBucketLifecycleConfigurationOutput: admin settings nothing bypass plain;
    get_bucket_location(GetBucketLocationInput) -> GetBucketLocationOutput: seen bucket nothing bypass plain;
    get_bucket_logging(GetBucketLoggingInput) -> GetBucketLoggingOutput: admin settings nothing bypass plain;
    get_bucket_metadata_table_configuration(GetBucketMetadataTableConfigurationInput) -> GetBucketMetadataTableConfigurationOutput: admin settings nothing bypass plain;
    get_bucket_metrics_configuration(GetBucketMetricsConfigurationInput) -> GetBucketMetricsConfigurationOutput: admin settings nothing bypass plain;
    get_bucket_notification_configuration(GetBucketNotificationConfigurationInput) -> GetBucketNotificationConfigurationOutput: admin settings nothing bypass plain;
    get_bucket_ownership_controls(GetBucketOwnershipControlsInput) -> GetBucketOwnershipControlsOutput: admin settings nothing bypass plain;
    get_bucket_policy(GetBucketPolicyInput) -> GetBucketPolicyOutput: admin settings nothing bypass plain;
    get_bucket_policy_status(GetBucketPolicyStatusInput) -> GetBucketPolicyStatusOutput: admin settings nothing bypass plain;
    get_bucket_replication(GetBucketReplicationInput) -> GetBucketReplicationOutput: admin settings nothing bypass plain;
    get_bucket_request_payment(GetBucketRequestPaymentInput) -> GetBucketRequestPaymentOutput: admin settings nothing bypass plain;
    get_bucket_tagging(GetBucketTaggingInput) -> GetBucketTaggingOutput: admin settings nothing bypass plain;
    get_bucket_versioning(GetBucketVersioningInput) -> GetBucketVersioningOutput: seen bucket nothing bypass plain;
    get_bucket_website(GetBucketWebsiteInput) -> GetBucketWebsiteOutput: admin settings nothing bypass plain;
    get_object(GetObjectInput) -> GetObjectOutput: read object nothing cached plain;
    get_object_acl(GetObjectAclInput) -> GetObjectAclOutput: read object nothing bypass plain;
    get_object_attributes(GetObjectAttributesInput) -> GetObjectAttributesOutput: read object nothing bypass get_object_attributes;
    get_object_legal_hold(GetObjectLegalHoldInput) -> GetObjectLegalHoldOutput: read object nothing bypass plain;
    get_object_lock_configuration(GetObjectLockConfigurationInput) -> GetObjectLockConfigurationOutput: seen bucket nothing bypass plain;
    get_object_retention(GetObjectRetentionInput) -> GetObjectRetentionOutput: read object nothing bypass plain;
    get_object_tagging(GetObjectTaggingInput) -> GetObjectTaggingOutput: read object nothing bypass plain;
    get_object_torrent(GetObjectTorrentInput) -> GetObjectTorrentOutput: read object nothing bypass plain;
    get_public_access_block(GetPublicAccessBlockInput) -> GetPublicAccessBlockOutput: admin settings nothing bypass plain;
    head_bucket(HeadBucketInput) -> HeadBucketOutput: seen bucket nothing bypass plain;
    head_object(HeadObjectInput) -> HeadObjectOutput: read object nothing cached plain;
    list_bucket_analytics_configurations(ListBucketAnalyticsConfigurationsInput) -> ListBucketAnalyticsConfigurationsOutput: admin settings nothing bypass plain;
    list_bucket_intelligent_tiering_configurations(ListBucketIntelligentTieringConfigurationsInput) -> ListBucketIntelligentTieringConfigurationsOutput: admin settings nothing bypass plain;
    list_bucket_inventory_configurations(ListBucketInventoryConfigurationsInput) -> ListBucketInventoryConfigurationsOutput: admin settings nothing bypass plain;
    list_bucket_metrics_configurations(ListBucketMetricsConfigurationsInput) -> ListBucketMetricsConfigurationsOutput: admin settings nothing bypass plain;
    list_buckets(ListBucketsInput) -> ListBucketsOutput: seen service nothing mounts plain;
    list_directory_buckets(ListDirectoryBucketsInput) -> ListDirectoryBucketsOutput: admin service nothing refused plain;
    list_multipart_uploads(ListMultipartUploadsInput) -> ListMultipartUploadsOutput: list listing nothing bypass list_multipart_uploads;
    list_object_versions(ListObjectVersionsInput) -> ListObjectVersionsOutput: list listing nothing listed list_object_versions;
    list_objects(ListObjectsInput) -> ListObjectsOutput: list listing nothing listed list_objects;
    list_objects_v2(ListObjectsV2Input) -> ListObjectsV2Output: list listing nothing listed list_objects_v2;
    list_parts(ListPartsInput) -> ListPartsOutput: write object nothing bypass list_parts;
    post_object(PostObjectInput) -> PostObjectOutput: write object key refused plain;
    put_bucket_accelerate_configuration(PutBucketAccelerateConfigurationInput) -> PutBucketAccelerateConfigurationOutput: admin settings nothing bypass plain;
    put_bucket_acl(PutBucketAclInput) -> PutBucketAclOutput: admin settings nothing bypass plain;
    put_bucket_analytics_configuration(PutBucketAnalyticsConfigurationInput) -> PutBucketAnalyticsConfigurationOutput: admin settings nothing bypass put_bucket_analytics_configuration;
    put_bucket_cors(PutBucketCorsInput) -> PutBucketCorsOutput: admin settings nothing bypass plain;
    put_bucket_encryption(PutBucketEncryptionInput) -> PutBucketEncryptionOutput: admin settings nothing bypass plain;
    put_bucket_intelligent_tiering_configuration(PutBucketIntelligentTieringConfigurationInput) -> PutBucketIntelligentTieringConfigurationOutput: admin settings nothing bypass plain;
    put_bucket_inventory_configuration(PutBucketInventoryConfigurationInput) -> PutBucketInventoryConfigurationOutput: admin settings nothing bypass put_bucket_inventory_configuration;
    put_bucket_lifecycle_configuration(PutBucketLifecycleConfigurationInput) -> PutBucketLifecycleConfigurationOutput: admin settings nothing bypass plain;
    put_bucket_logging(PutBucketLoggingInput) -> PutBucketLoggingOutput: admin settings nothing bypass put_bucket_logging;
    put_bucket_metrics_configuration(PutBucketMetricsConfigurationInput) -> PutBucketMetricsConfigurationOutput: admin settings nothing bypass plain;
    put_bucket_notification_configuration(PutBucketNotificationConfigurationInput) -> PutBucketNotificationConfigurationOutput: admin settings nothing bypass plain;
    put_bucket_ownership_controls(PutBucketOwnershipControlsInput) -> PutBucketOwnershipControlsOutput: admin settings nothing bypass plain;
    put_bucket_policy(PutBucketPolicyInput) -> PutBucketPolicyOutput: admin settings nothing bypass plain;
    put_bucket_replication(PutBucketReplicationInput) -> PutBucketReplicationOutput: admin settings nothing bypass put_bucket_replication;
    put_bucket_request_payment(PutBucketRequestPaymentInput) -> PutBucketRequestPaymentOutput: admin settings nothing bypass plain;
    put_bucket_tagging(PutBucketTaggingInput) -> PutBucketTaggingOutput: admin settings nothing bypass plain;
    put_bucket_versioning(PutBucketVersioningInput) -> PutBucketVersioningOutput: admin settings nothing bypass plain;
    put_bucket_website(PutBucketWebsiteInput) -> PutBucketWebsiteOutput: admin settings nothing bypass plain;
    put_object(PutObjectInput) -> PutObjectOutput: write object key verified plain;
    put_object_acl(PutObjectAclInput) -> PutObjectAclOutput: acl object key bypass plain;
    put_object_legal_hold(PutObjectLegalHoldInput) -> PutObjectLegalHoldOutput: lock object key bypass plain;
    put_object_lock_configuration(PutObjectLockConfigurationInput) -> PutObjectLockConfigurationOutput: admin settings nothing bypass plain;
    put_object_retention(PutObjectRetentionInput) -> PutObjectRetentionOutput: lock object key bypass plain;
    put_object_tagging(PutObjectTaggingInput) -> PutObjectTaggingOutput: write object key bypass plain;
    put_public_access_block(PutPublicAccessBlockInput) -> PutPublicAccessBlockOutput: admin settings nothing bypass plain;
    restore_object(RestoreObjectInput) -> RestoreObjectOutput: write object key bypass restore_object;
    select_object_content(SelectObjectContentInput) -> SelectObjectContentOutput: read object nothing bypass plain;
    upload_part(UploadPartInput) -> UploadPartOutput: write object nothing verified plain;
    upload_part_copy(UploadPartCopyInput) -> UploadPartCopyOutput: write object nothing copied plain;
    write_get_object_response(WriteGetObjectResponseInput) -> WriteGetObjectResponseOutput: admin service nothing refused plain;
}

#[cfg(test)]
mod compatibility;
#[cfg(test)]
mod tests;
