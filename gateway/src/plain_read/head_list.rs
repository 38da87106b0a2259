//! Answers lists of HEADs of plain names, whose sender is known, in one question to each home.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use s3s::{HttpResponse, S3Result};
use verbs3_client::OpenOutcome;

use super::plain_request::are_plain_names;
use super::{PlainReadRoute, build_response};
use crate::auth::AuthIdentity;
use crate::http_exchange::HttpExchange;
use crate::mount::{KEY_BYTES_MAX, MountedBucket};

impl PlainReadRoute {
    /// Asks the tier about objects of the mount that `identity` may read. Returns outcomes in the
    /// order of the keys. `None`: the object has to be asked for by itself.
    pub async fn open_heads(
        &self,
        mount: &MountedBucket,
        identity: &AuthIdentity,
        bucket: &str,
        keys: &[String],
    ) -> Vec<Option<OpenOutcome>> {
        let may_ask = |key: &str| {
            are_plain_names(bucket, key)
                && mount.prefix.len() + key.len() <= KEY_BYTES_MAX
                && self.core.authorize_read(identity, mount, key).is_ok()
        };
        let (mut places, mut asked) = (Vec::with_capacity(keys.len()), Vec::new());
        for (at, key) in keys.iter().enumerate() {
            if may_ask(key) {
                places.push(at);
                asked.push(key.as_str());
            }
        }
        let mut outcomes: Vec<Option<OpenOutcome>> = keys.iter().map(|_| None).collect();
        let tenant = identity.tenant().worker_tag();
        let opened = self.reader.open_heads(mount, &asked, tenant).await;
        for (at, outcome) in places.into_iter().zip(opened) {
            outcomes[at] = outcome;
        }
        outcomes
    }

    /// Answers one HEAD of a list, whose target is noted, by what the tier has said of its object.
    pub async fn answer_head(
        &self,
        exchange: &HttpExchange,
        mount: &Arc<MountedBucket>,
        key: &str,
        outcome: OpenOutcome,
    ) -> S3Result<HttpResponse> {
        exchange.entered.store(true, Ordering::Relaxed);
        let answer = self.reader.judge_head(&exchange.cx, mount, key, outcome).await?;
        Ok(build_response(answer, true))
    }
}
