//! Owns bucket configurations that this store does not have. Reads get the code with which S3 says
//! that none is set. Deleting succeeds. Setting one is not implemented.

use http::StatusCode;
use s3s::{S3Error, S3Result, s3_error};

use super::custom_error;
use crate::store::{LocalStore, find_bucket};

/// A configuration that a bucket can lack.
#[derive(Debug, Clone, Copy)]
pub enum AbsentConfiguration {
    Cors,
    Encryption,
    Lifecycle,
    ObjectLock,
    OwnershipControls,
    Policy,
    PublicAccessBlock,
    Replication,
    Website,
}

impl AbsentConfiguration {
    fn absence_error(self) -> S3Error {
        match self {
            AbsentConfiguration::Cors => {
                s3_error!(NoSuchCORSConfiguration, "The CORS configuration does not exist")
            }
            AbsentConfiguration::Encryption => {
                let mut error = s3_error!(
                    ServerSideEncryptionConfigurationNotFoundError,
                    "The server side encryption configuration was not found"
                );
                // s3s says 400; AWS says 404.
                error.set_status_code(StatusCode::NOT_FOUND);
                error
            }
            AbsentConfiguration::Lifecycle => {
                s3_error!(
                    NoSuchLifecycleConfiguration,
                    "The lifecycle configuration does not exist"
                )
            }
            AbsentConfiguration::ObjectLock => s3_error!(
                ObjectLockConfigurationNotFoundError,
                "Object Lock configuration does not exist for this bucket"
            ),
            AbsentConfiguration::OwnershipControls => {
                s3_error!(
                    OwnershipControlsNotFoundError,
                    "The bucket ownership controls were not found"
                )
            }
            AbsentConfiguration::Policy => {
                s3_error!(NoSuchBucketPolicy, "The bucket policy does not exist")
            }
            AbsentConfiguration::PublicAccessBlock => custom_error(
                "NoSuchPublicAccessBlockConfiguration",
                StatusCode::NOT_FOUND,
                "The public access block configuration was not found",
            ),
            AbsentConfiguration::Replication => {
                s3_error!(
                    ReplicationConfigurationNotFoundError,
                    "The replication configuration was not found"
                )
            }
            AbsentConfiguration::Website => {
                s3_error!(
                    NoSuchWebsiteConfiguration,
                    "The specified bucket does not have a website configuration"
                )
            }
        }
    }
}

/// Answers that a bucket lacks a configuration, or that there is no such bucket.
pub async fn refuse_read<T>(
    store: &LocalStore,
    bucket: String,
    configuration: AbsentConfiguration,
) -> S3Result<T> {
    require_bucket(store, bucket).await?;
    Err(configuration.absence_error())
}

/// Fails with NoSuchBucket where there is no such bucket.
pub async fn require_bucket(store: &LocalStore, bucket: String) -> S3Result<()> {
    store.run_blocking(move |s| find_bucket(&s.open_view()?, &bucket)).await.map(drop)
}
