//! The way of an operation through the gateway: authorise → rewrite → announce → ask the UFS →
//! report → rewrite back. Owns the order and the parts that all operations share. What each
//! operation needs stands in the table.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use s3s::dto::BucketName;
use s3s::{S3Error, S3ErrorCode, S3Request, S3Response, S3Result};
use verbs3_protocol::WriteOutcome;
use verbs3_ufs::RawAnswer;
use verbs3_ufs::capture::{self, RemoteFailure};

use super::attributes;
use super::{Announces, Names, Operation, Right, Row, Scope};
use crate::answer;
use crate::auth::Identity;
use crate::cors::Cors;
use crate::exchange::Exchange;
use crate::metrics::Metrics;
use crate::mount::{KEY_BYTES_MAX, Mount, Mounts};
use crate::read::Reader;
use crate::write::Homes;
use crate::write::announce::{Write, WriteEnd};
use crate::write::verified::FaultSlot;

/// What all requests of a gateway share.
pub(crate) struct Core {
    pub mounts: Mounts,
    pub homes: Arc<dyn Homes>,
    /// `None`: there is no tier, and reads go to the UFS.
    pub reader: Option<Reader>,
    pub metrics: Arc<Metrics>,
    pub cors: Arc<Cors>,
}

/// An authorised request: who asks, and through which mount.
pub(crate) struct Entry {
    pub exchange: Arc<Exchange>,
    pub identity: Arc<Identity>,
    pub mount: Arc<Mount>,
}

impl Entry {
    pub fn names(&self) -> Names<'_> {
        Names::of(&self.mount)
    }

    /// Where the inbound body leaves its faults.
    pub fn below(&self) -> FaultSlot {
        self.exchange.fault.clone()
    }
}

impl Core {
    /// Straight to the UFS and back.
    pub async fn pass<R: Operation>(
        &self,
        mut request: S3Request<R>,
    ) -> S3Result<S3Response<R::Output>> {
        let entry = self.enter(&mut request)?;
        self.forward(&entry, request).await
    }

    /// The same, for a request that has been authorised.
    pub async fn forward<R: Operation>(
        &self,
        entry: &Entry,
        mut request: S3Request<R>,
    ) -> S3Result<S3Response<R::Output>> {
        self.rewrite(entry, &mut request)?;
        let keys = match R::row().announces {
            Announces::key => request.input.key().cloned().into_iter().collect(),
            Announces::nothing | Announces::keys => Vec::new(),
        };
        self.announced(entry, request, keys, |_| WriteEnd::Whole(WriteOutcome::Done)).await
    }

    /// A rewritten request that changes `keys` (as the UFS names them). `judge`: what a success's
    /// document says of them.
    pub async fn announced<R: Operation>(
        &self,
        entry: &Entry,
        request: S3Request<R>,
        keys: Vec<String>,
        judge: impl FnOnce(&R::Output) -> WriteEnd,
    ) -> S3Result<S3Response<R::Output>> {
        let write = self.write(entry, keys);
        if let Some(write) = &write {
            write.announcer().announce().await?;
        }
        let (result, raw) = self.send_to_ufs(entry, request).await;
        if matches!(
            R::row().name,
            "PutBucketCors" | "DeleteBucketCors" | "CreateBucket" | "DeleteBucket"
        ) {
            self.cors.forget(&entry.mount).await;
        }
        if let Some(write) = write {
            let end = match &result {
                Ok(response) => judge(&response.output),
                // A batch is slowed down as a whole before its first key; what happened to each is
                // in a success's document.
                Err(error) if R::row().announces == Announces::keys && is_slowed_down(error) => {
                    WriteEnd::Whole(WriteOutcome::Done)
                }
                Err(_) => WriteEnd::Whole(self.outcome(&result)),
            };
            let reported = write.end(end).await;
            if result.is_ok() {
                entry.exchange.cx.note_way(reported?);
            }
        }
        self.conclude::<R>(entry, result, raw)
    }

    /// Finds the mount and asks the identity's rules. Default: denied.
    pub fn enter<R: Operation>(&self, request: &mut S3Request<R>) -> S3Result<Entry> {
        let (exchange, identity) = self.who(request)?;
        let row = R::row();
        let mount = request
            .input
            .bucket()
            .and_then(|bucket| self.mounts.resolve(bucket))
            .ok_or_else(no_such_bucket)?;
        let subject = match row.scope {
            Scope::object => request.input.key().map(|key| key.as_str()).unwrap_or_default(),
            Scope::listing => request.input.prefix(),
            Scope::bucket | Scope::settings | Scope::service => "",
        };
        // A batch delete asks for each of its keys (`batch`), and needs to see the mount.
        let right = if row.announces == Announces::keys { Right::seen } else { row.right };
        self.allow(&identity, &mount, subject, right)?;
        if changes(row) {
            self.allow_headers(&identity, &mount, subject, &request.headers)?;
        }
        if row.scope == Scope::settings && mount.is_prefix() {
            self.metrics.denied("prefix_mount");
            let message = format!(
                "{} concerns the whole bucket, and {} is a mount of a part of one",
                row.name, mount.name
            );
            return Err(S3Error::with_message(S3ErrorCode::AccessDenied, message));
        }
        if mount.read_only && changes(row) {
            self.metrics.denied("read_only");
            let message = format!("the mount {} is read-only", mount.name);
            return Err(S3Error::with_message(S3ErrorCode::AccessDenied, message));
        }
        self.allow_destinations(&identity, &mount, &mut request.input)?;
        Ok(Entry { exchange, identity, mount })
    }

    /// Who asks: put into the request's extensions by `http` and `auth`.
    pub fn who<T>(&self, request: &S3Request<T>) -> S3Result<(Arc<Exchange>, Arc<Identity>)> {
        let exchange =
            request.extensions.get::<Arc<Exchange>>().cloned().ok_or_else(access_denied)?;
        exchange.entered.store(true, Ordering::Relaxed);
        let identity = exchange.identity().cloned().ok_or_else(access_denied)?;
        Ok((exchange, identity))
    }

    pub fn allow(
        &self,
        identity: &Identity,
        mount: &Mount,
        subject: &str,
        right: Right,
    ) -> S3Result<()> {
        if identity.allows(&mount.name, subject, right) {
            return Ok(());
        }
        self.metrics.denied("policy");
        Err(super::rights::refusal(identity, mount, subject, right))
    }

    /// From the client's names to the UFS's.
    pub fn rewrite<R: Operation>(&self, entry: &Entry, request: &mut S3Request<R>) -> S3Result<()> {
        let names = entry.names();
        if let Some(bucket) = request.input.bucket() {
            BucketName::clone_from(bucket, &entry.mount.bucket);
        }
        if let Some(key) = request.input.key() {
            if names.prefix.len() + key.len() > KEY_BYTES_MAX {
                return Err(S3ErrorCode::KeyTooLongError.into());
            }
            names.key_inward(key);
        }
        request.input.inward(&names);
        Ok(())
    }

    /// A write to be announced; `None` of no keys.
    pub fn write(&self, entry: &Entry, keys: Vec<String>) -> Option<Write> {
        let coherence = self.mounts.promised(&entry.mount);
        (!keys.is_empty()).then(|| Write::new(self.homes.clone(), &entry.mount, coherence, keys))
    }

    /// Sends a request once, and keeps the UFS's own answer beside the typed one.
    pub async fn send_to_ufs<R: Operation>(
        &self,
        entry: &Entry,
        request: S3Request<R>,
    ) -> (S3Result<S3Response<R::Output>>, Option<RawAnswer>) {
        let call = capture::observe(R::send(&**entry.mount.ufs.s3(), request));
        let asked = (entry.mount.ufs.name(), R::row().name);
        entry.exchange.cx.ask_ufs(asked, call, |(result, _)| failed(result)).await
    }

    /// What the homes are told. An answered write is `Done` also when the answer is a refusal:
    /// forgetting attributes that did not change costs one check, and keeping ones that did,
    /// because an attempt before the refused one went through, is stale.
    pub fn outcome<T>(&self, result: &S3Result<T>) -> WriteOutcome {
        let Err(error) = result else { return WriteOutcome::Done };
        let status = match capture::remote_failure(error) {
            Some(RemoteFailure::Answer(answer)) => Some(answer.status),
            Some(RemoteFailure::NoAnswer(_) | RemoteFailure::Unintelligible(_)) => None,
            None => error.status_code(),
        };
        match status {
            Some(status) if status.as_u16() != 408 && (300..500).contains(&status.as_u16()) => {
                WriteOutcome::Done
            }
            _ => WriteOutcome::Unknown,
        }
    }

    /// From the UFS's answer to the client's.
    pub fn conclude<R: Operation>(
        &self,
        entry: &Entry,
        result: S3Result<S3Response<R::Output>>,
        raw: Option<RawAnswer>,
    ) -> S3Result<S3Response<R::Output>> {
        match result {
            Ok(mut response) => {
                R::outward(&mut response.output, &entry.names());
                answer::keep_headers(&mut response.headers, raw.as_ref());
                if let Some(whole) = attributes::whole_answer(&response, raw) {
                    entry.exchange.cx.put_answer(whole);
                }
                Ok(response)
            }
            Err(error) => Err(answer::of_ufs(&entry.exchange.cx, &entry.names(), error, raw)),
        }
    }

    /// For operations that no gateway can do.
    pub fn refuse<R: Operation>(&self, _: S3Request<R>) -> S3Error {
        self.metrics.denied("unsupported");
        let message = format!("{} is not about a bucket of this endpoint", R::row().name);
        S3Error::with_message(S3ErrorCode::NotImplemented, message)
    }
}

/// For the trace.
fn failed<T>(result: &S3Result<T>) -> Option<String> {
    result.as_ref().err().map(|error| error.code().as_str().to_owned())
}

/// Whether the store itself has said that it does nothing of a request, because there are too many.
fn is_slowed_down(error: &S3Error) -> bool {
    let answered = matches!(capture::remote_failure(error), Some(RemoteFailure::Answer(answer)) if answer.status.as_u16() == 503);
    answered && *error.code() == S3ErrorCode::SlowDown
}

fn changes(row: &Row) -> bool {
    match row.right {
        Right::write | Right::delete | Right::acl | Right::lock => true,
        Right::admin => !row.method.starts_with("get_") && !row.method.starts_with("list_"),
        Right::read | Right::list | Right::seen => false,
    }
}

pub(crate) fn no_such_bucket() -> S3Error {
    S3Error::with_message(S3ErrorCode::NoSuchBucket, "The specified bucket does not exist")
}

pub(crate) fn access_denied() -> S3Error {
    S3Error::with_message(S3ErrorCode::AccessDenied, "Access Denied")
}
