//! Answers s3s's two questions: the secret of an access key, and whether a request may go on.
//!
//! Owns the first gate: without an identity there is no request. What the identity may do with
//! which key is checked where the input is known (`operations::operation_core`).

use std::sync::Arc;

use async_trait::async_trait;
use s3s::access::{S3Access, S3AccessContext};
use s3s::auth::{S3Auth, SecretKey};
use s3s::path::S3Path;
use s3s::{S3Error, S3ErrorCode, S3Result};

use super::IdentityStore;
use crate::http_exchange::HttpExchange;
use crate::metrics::{DenialReason, GatewayHttpMetrics};
use crate::operations::query;
use crate::preload;
use crate::s3_errors::{access_denied, slow_down};

/// Gives s3s the secrets.
pub(crate) struct AuthKeyProvider {
    pub identities: Arc<IdentityStore>,
}

#[async_trait]
impl S3Auth for AuthKeyProvider {
    async fn get_secret_key(&self, access_key: &str) -> S3Result<SecretKey> {
        self.identities.get(access_key).map(|identity| identity.secret.clone()).ok_or_else(|| {
            let message = "The AWS Access Key Id you provided does not exist in our records.";
            S3Error::with_message(S3ErrorCode::InvalidAccessKeyId, message)
        })
    }
}

/// The gate for requests: refuses unsigned ones, and notes who asks for what.
pub(crate) struct AuthAccessGate {
    pub identities: Arc<IdentityStore>,
    pub metrics: Arc<GatewayHttpMetrics>,
}

#[async_trait]
impl S3Access for AuthAccessGate {
    async fn check(&self, cx: &mut S3AccessContext<'_>) -> S3Result<()> {
        let exchange =
            cx.extensions_mut().get::<Arc<HttpExchange>>().cloned().ok_or_else(access_denied)?;
        let name = cx.s3_op().name();
        exchange.note_operation(name);
        let target = match cx.s3_path() {
            S3Path::Root => (Box::default(), Box::default()),
            S3Path::Bucket { bucket } => (bucket.clone(), Box::default()),
            S3Path::Object { bucket, key } => (bucket.clone(), key.clone()),
        };
        preload::check_bucket(&target.0)?;
        let _ = exchange.target.set(target);
        // These carry no signature, and their sender is noted already: the PUT made from a form
        // (`http::form`), a mended request (`http::lenient_headers`), a plain read that the tier
        // has declined (`plain_read`), and a read of a process of this host (`http::lent_request`).
        if exchange.proven_identity().is_none() {
            // The key may have been withdrawn since the signature was checked.
            let identity = cx
                .credentials()
                .and_then(|credentials| self.identities.get(&credentials.access_key));
            let Some(identity) = identity else {
                self.metrics.count_denial(DenialReason::Anonymous);
                return Err(access_denied());
            };
            exchange.admit_identity(identity).await?;
        }
        query::check_parameters(name, cx.uri().query().unwrap_or_default())
            .inspect_err(|_| self.metrics.count_denial(DenialReason::Unsupported))?;
        // s3s reads documents whole. They wait for their turn among the uploads, and here, since
        // nothing can wait once a body is read.
        if !exchange.reserve_body().await {
            return Err(slow_down());
        }
        Ok(())
    }
}
