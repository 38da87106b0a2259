//! The operation table: every method of [`s3s::S3`], and what the gateway does with it. Owns which
//! right an operation needs, which keys it announces, which way it takes and how its names are
//! rewritten. Executes nothing: see `operations`.
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
//!   `batch`, `ended` and `mounts` have code of their own; `refused` is not possible through a gateway.
//! - *names*: the module of `rewrite` that rewrites names besides bucket and key, and finds other
//!   buckets that are named; `own`: the module that is called like the operation's method.

/// A right that an identity may have.
#[allow(non_camel_case_types)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AccessRight {
    read,
    write,
    list,
    delete,
    /// May grant others access to an object.
    acl,
    /// May forbid changes of an object until a date.
    lock,
    /// May administer the whole bucket. Includes `acl` and `lock`.
    admin,
    /// May have objects loaded into the cache (`preload`). No operation needs it.
    warm,
    /// Any right on the mount.
    seen,
}

/// The subject of a right.
#[allow(non_camel_case_types)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AccessScope {
    object,
    listing,
    bucket,
    settings,
    service,
}

/// The keys that are announced to their homes.
#[allow(non_camel_case_types)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HomeNoticeScope {
    nothing,
    key,
    /// Each key of the batch.
    keys,
}

/// The way an operation takes.
#[allow(non_camel_case_types)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OperationRoute {
    bypass,
    cached,
    verified,
    listed,
    copied,
    batch,
    ended,
    mounts,
    refused,
}

/// A row of the table: one operation.
#[derive(Debug)]
pub(crate) struct OperationRow {
    /// Name in s3s's trait.
    pub method: &'static str,
    /// Name in S3.
    pub name: &'static str,
    pub right: AccessRight,
    pub scope: AccessScope,
    pub announces: HomeNoticeScope,
    /// The table's expansion uses it. The field is kept for the tests, which check the columns
    /// against each other and make `COMPATIBILITY.md`.
    #[cfg_attr(not(test), allow(dead_code))]
    pub way: OperationRoute,
}

/// Hands all operations, in the order of s3s's trait, to the macro `$callback`: each as
/// `Name method(Input) -> Output: columns;`.
macro_rules! every_operation {
    ($callback:ident) => {
        verbs3_operation_names::name_operations! {
            $callback;
            // operation                                right  scope    announces way      names
            AbortMultipartUpload                        write  object   nothing   ended    plain;
            CompleteMultipartUpload                     write  object   key       ended    own;
            CopyObject                                  write  object   key       copied   plain;
            CreateBucket                                admin  settings nothing   bypass   own;
            CreateBucketMetadataTableConfiguration      admin  settings nothing   bypass   own;
            CreateMultipartUpload                       write  object   nothing   bypass   own;
            CreateSession                               admin  service  nothing   refused  plain;
            DeleteBucket                                admin  settings nothing   bypass   plain;
            DeleteBucketAnalyticsConfiguration          admin  settings nothing   bypass   plain;
            DeleteBucketCors                            admin  settings nothing   bypass   plain;
            DeleteBucketEncryption                      admin  settings nothing   bypass   plain;
            DeleteBucketIntelligentTieringConfiguration admin  settings nothing   bypass   plain;
            DeleteBucketInventoryConfiguration          admin  settings nothing   bypass   plain;
            DeleteBucketLifecycle                       admin  settings nothing   bypass   plain;
            DeleteBucketMetadataTableConfiguration      admin  settings nothing   bypass   plain;
            DeleteBucketMetricsConfiguration            admin  settings nothing   bypass   plain;
            DeleteBucketOwnershipControls               admin  settings nothing   bypass   plain;
            DeleteBucketPolicy                          admin  settings nothing   bypass   plain;
            DeleteBucketReplication                     admin  settings nothing   bypass   plain;
            DeleteBucketTagging                         admin  settings nothing   bypass   plain;
            DeleteBucketWebsite                         admin  settings nothing   bypass   plain;
            DeleteObject                                delete object   key       bypass   plain;
            DeleteObjectTagging                         write  object   key       bypass   plain;
            DeleteObjects                               delete bucket   keys      batch    own;
            DeletePublicAccessBlock                     admin  settings nothing   bypass   plain;
            GetBucketAccelerateConfiguration            admin  settings nothing   bypass   plain;
            GetBucketAcl                                admin  settings nothing   bypass   plain;
            GetBucketAnalyticsConfiguration             admin  settings nothing   bypass   plain;
            GetBucketCors                               admin  settings nothing   bypass   plain;
            GetBucketEncryption                         admin  settings nothing   bypass   plain;
            GetBucketIntelligentTieringConfiguration    admin  settings nothing   bypass   plain;
            GetBucketInventoryConfiguration             admin  settings nothing   bypass   plain;
            GetBucketLifecycleConfiguration             admin  settings nothing   bypass   plain;
            GetBucketLocation                           seen   bucket   nothing   bypass   plain;
            GetBucketLogging                            admin  settings nothing   bypass   plain;
            GetBucketMetadataTableConfiguration         admin  settings nothing   bypass   plain;
            GetBucketMetricsConfiguration               admin  settings nothing   bypass   plain;
            GetBucketNotificationConfiguration          admin  settings nothing   bypass   plain;
            GetBucketOwnershipControls                  admin  settings nothing   bypass   plain;
            GetBucketPolicy                             admin  settings nothing   bypass   plain;
            GetBucketPolicyStatus                       admin  settings nothing   bypass   plain;
            GetBucketReplication                        admin  settings nothing   bypass   plain;
            GetBucketRequestPayment                     admin  settings nothing   bypass   plain;
            GetBucketTagging                            admin  settings nothing   bypass   plain;
            GetBucketVersioning                         seen   bucket   nothing   bypass   plain;
            GetBucketWebsite                            admin  settings nothing   bypass   plain;
            GetObject                                   read   object   nothing   cached   plain;
            GetObjectAcl                                read   object   nothing   bypass   plain;
            GetObjectAttributes                         read   object   nothing   bypass   own;
            GetObjectLegalHold                          read   object   nothing   bypass   plain;
            GetObjectLockConfiguration                  seen   bucket   nothing   bypass   plain;
            GetObjectRetention                          read   object   nothing   bypass   plain;
            GetObjectTagging                            read   object   nothing   bypass   plain;
            GetObjectTorrent                            read   object   nothing   bypass   plain;
            GetPublicAccessBlock                        admin  settings nothing   bypass   plain;
            HeadBucket                                  seen   bucket   nothing   bypass   plain;
            HeadObject                                  read   object   nothing   cached   plain;
            ListBucketAnalyticsConfigurations           admin  settings nothing   bypass   plain;
            ListBucketIntelligentTieringConfigurations  admin  settings nothing   bypass   plain;
            ListBucketInventoryConfigurations           admin  settings nothing   bypass   plain;
            ListBucketMetricsConfigurations             admin  settings nothing   bypass   plain;
            ListBuckets                                 seen   service  nothing   mounts   plain;
            ListDirectoryBuckets                        admin  service  nothing   refused  plain;
            ListMultipartUploads                        list   listing  nothing   bypass   own;
            ListObjectVersions                          list   listing  nothing   listed   own;
            ListObjects                                 list   listing  nothing   listed   own;
            ListObjectsV2                               list   listing  nothing   listed   own;
            ListParts                                   write  object   nothing   bypass   own;
            PostObject                                  write  object   key       refused  plain;
            PutBucketAccelerateConfiguration            admin  settings nothing   bypass   plain;
            PutBucketAcl                                admin  settings nothing   bypass   plain;
            PutBucketAnalyticsConfiguration             admin  settings nothing   bypass   own;
            PutBucketCors                               admin  settings nothing   bypass   plain;
            PutBucketEncryption                         admin  settings nothing   bypass   plain;
            PutBucketIntelligentTieringConfiguration    admin  settings nothing   bypass   plain;
            PutBucketInventoryConfiguration             admin  settings nothing   bypass   own;
            PutBucketLifecycleConfiguration             admin  settings nothing   bypass   plain;
            PutBucketLogging                            admin  settings nothing   bypass   own;
            PutBucketMetricsConfiguration               admin  settings nothing   bypass   plain;
            PutBucketNotificationConfiguration          admin  settings nothing   bypass   plain;
            PutBucketOwnershipControls                  admin  settings nothing   bypass   plain;
            PutBucketPolicy                             admin  settings nothing   bypass   plain;
            PutBucketReplication                        admin  settings nothing   bypass   own;
            PutBucketRequestPayment                     admin  settings nothing   bypass   plain;
            PutBucketTagging                            admin  settings nothing   bypass   plain;
            PutBucketVersioning                         admin  settings nothing   bypass   plain;
            PutBucketWebsite                            admin  settings nothing   bypass   plain;
            PutObject                                   write  object   key       verified plain;
            PutObjectAcl                                acl    object   key       bypass   plain;
            PutObjectLegalHold                          lock   object   key       bypass   plain;
            PutObjectLockConfiguration                  admin  settings nothing   bypass   plain;
            PutObjectRetention                          lock   object   key       bypass   plain;
            PutObjectTagging                            write  object   key       bypass   plain;
            PutPublicAccessBlock                        admin  settings nothing   bypass   plain;
            RestoreObject                               write  object   key       bypass   own;
            SelectObjectContent                         read   object   nothing   bypass   plain;
            UploadPart                                  write  object   nothing   verified plain;
            UploadPartCopy                              write  object   nothing   copied   plain;
            WriteGetObjectResponse                      admin  service  nothing   refused  plain;
        }
    };
}
pub(crate) use every_operation;

macro_rules! write_rows {
    ($($name:ident $method:ident($input:ident) -> $output:ident:
        $right:ident $scope:ident $announces:ident $way:ident $names:ident;)*) => {
        /// All operations, in the order of s3s's trait.
        pub(crate) static TABLE: &[OperationRow] = &[$(OperationRow {
            method: stringify!($method),
            name: stringify!($name),
            right: AccessRight::$right,
            scope: AccessScope::$scope,
            announces: HomeNoticeScope::$announces,
            way: OperationRoute::$way,
        }),*];
    };
}

every_operation!(write_rows);

#[cfg(test)]
mod tests;
