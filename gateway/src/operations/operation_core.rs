//! Takes an operation through the gateway: authorise → rewrite → announce → ask the UFS → report →
//! rewrite back. Owns this order and the parts that all operations share. The table says what each
//! operation needs.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use http::HeaderMap;
use s3s::dto::{BucketName, PutObjectInput};
use s3s::{S3Error, S3ErrorCode, S3Request, S3Response, S3Result};
use tokio_util::task::TaskTracker;
use tracing::Instrument;
use verbs3_protocol::WriteOutcome;
use verbs3_ufs::RawAnswer;
use verbs3_ufs::raw_answer::{self, RemoteFailure};

use super::bucket_lists::BucketLists;
use super::client_presence::ClientPresence;
use super::get_object_attributes;
use super::operation_input::TableOperation;
use super::rights::RightsJudge;
use crate::auth::AuthIdentity;
use crate::cors::CorsResponder;
use crate::http_exchange::HttpExchange;
use crate::metrics::{DenialReason, GatewayHttpMetrics};
use crate::mount::{KEY_BYTES_MAX, MountNamePair, MountTable, MountedBucket};
use crate::operation_table::{AccessRight, AccessScope, HomeNoticeScope, OperationRow};
use crate::read::ObjectReader;
use crate::s3_errors::{access_denied, no_such_bucket, slow_down};
use crate::tenant_places::TenantPlace;
use crate::ufs_answer;
use crate::write::HomeNotifier;
use crate::write::body_fault::FaultSlot;
use crate::write::home_notifier::{GatewayWrite, NoticeRoute, WriteEnd};
use crate::write::populate::WritePopulator;

/// The state that all requests of a gateway share.
pub(crate) struct OperationCore {
    pub mounts: MountTable,
    pub rights: RightsJudge,
    pub homes: Arc<dyn HomeNotifier>,
    /// `None`: there is no tier, and reads go to the UFS.
    pub reader: Option<ObjectReader>,
    /// Copies writes to workers; `None`: there is no tier.
    pub populator: Option<WritePopulator>,
    pub metrics: Arc<GatewayHttpMetrics>,
    pub cors: Arc<CorsResponder>,
    pub bucket_lists: BucketLists,
    /// Writes that are finished although their clients have gone.
    pub tasks: TaskTracker,
}

/// An authorised request: its identity, and its mount.
#[derive(Clone)]
pub(crate) struct AuthorizedRequest {
    pub exchange: Arc<HttpExchange>,
    pub identity: Arc<AuthIdentity>,
    pub mount: Arc<MountedBucket>,
}

impl AuthorizedRequest {
    /// Returns the names on both sides of the request's mount.
    pub fn mount_names(&self) -> MountNamePair<'_> {
        MountNamePair::for_mount(&self.mount)
    }

    /// Returns the slot in which the inbound body leaves its faults.
    pub fn fault_slot(&self) -> FaultSlot {
        self.exchange.fault.clone()
    }
}

impl OperationCore {
    /// Authorises a request and sends it straight to the UFS.
    pub async fn pass_to_ufs<R: TableOperation>(
        &self,
        mut request: S3Request<R>,
    ) -> S3Result<S3Response<R::Output>> {
        let entry = self.authorize_request(&mut request)?;
        self.forward_authorized(&entry, request).await
    }

    /// Sends an authorised request straight to the UFS.
    pub async fn forward_authorized<R: TableOperation>(
        &self,
        entry: &AuthorizedRequest,
        mut request: S3Request<R>,
    ) -> S3Result<S3Response<R::Output>> {
        self.rewrite_names(entry, &mut request)?;
        let keys = match R::table_row().announces {
            HomeNoticeScope::key => request.input.key_field().cloned().into_iter().collect(),
            HomeNoticeScope::nothing | HomeNoticeScope::keys => Vec::new(),
        };
        self.send_announced(entry, request, keys, |_| WriteEnd::Whole(WriteOutcome::Done)).await
    }

    /// Sends a rewritten request that changes `keys` (the UFS's names). `judge` reads from a
    /// success's document how the writes ended.
    pub async fn send_announced<R: TableOperation>(
        &self,
        entry: &AuthorizedRequest,
        request: S3Request<R>,
        keys: Vec<String>,
        judge: impl FnOnce(&R::Output) -> WriteEnd + Send + 'static,
    ) -> S3Result<S3Response<R::Output>> {
        let place = match R::table_row().name {
            // Without a tier, reads come this way, too.
            "GetObject" | "HeadObject" => None,
            _ => Some(entry.exchange.take_store_place(&entry.mount.ufs).await?),
        };
        let (result, raw) = match self.prepare_announcement(entry, keys) {
            None => send_to_ufs(entry, request).await,
            Some(write) => {
                write.body_handle().announce_write().await?;
                let left_writes = self.metrics.left_writes.clone();
                let (_present, places) =
                    ClientPresence::of_write(entry.exchange.clone(), left_writes);
                let asked = entry.clone();
                let finishing = async move {
                    let end = finish_announced(asked, request, write, judge, place).await;
                    drop(places);
                    end
                };
                // Whose client goes away: the store's answer is awaited all the same. Otherwise
                // each key would be one of which nobody knows whether it has changed.
                let finished = self.tasks.spawn(finishing.in_current_span()).await;
                let AnnouncedEnd { result, raw, reported } =
                    finished.unwrap_or_else(|ended| match ended.try_into_panic() {
                        Ok(panic) => std::panic::resume_unwind(panic),
                        Err(_) => AnnouncedEnd::cut(),
                    });
                if result.is_ok() {
                    entry.exchange.cx.note_way(reported?);
                }
                (result, raw)
            }
        };
        if matches!(
            R::table_row().name,
            "PutBucketCors" | "DeleteBucketCors" | "CreateBucket" | "DeleteBucket"
        ) {
            self.cors.forget_bucket(&entry.mount).await;
        }
        self.conclude_response::<R>(entry, result, raw)
    }

    /// Finds the mount and checks the identity's rules. Default: denied.
    pub fn authorize_request<R: TableOperation>(
        &self,
        request: &mut S3Request<R>,
    ) -> S3Result<AuthorizedRequest> {
        let (exchange, identity) = self.identify_caller(request)?;
        let row = R::table_row();
        let mount = request
            .input
            .bucket_field()
            .and_then(|bucket| self.mounts.resolve_bucket(bucket))
            .ok_or_else(no_such_bucket)?;
        let subject = match row.scope {
            AccessScope::object => {
                request.input.key_field().map(|key| key.as_str()).unwrap_or_default()
            }
            AccessScope::listing => request.input.listing_prefix(),
            AccessScope::bucket | AccessScope::settings | AccessScope::service => "",
        };
        self.authorize_row(row, &identity, &mount, subject, &request.headers)?;
        self.rights.allow_destinations(&identity, &mount, &mut request.input)?;
        Ok(AuthorizedRequest { exchange, identity, mount })
    }

    /// Checks the rules of an identity for an operation on `subject`: a key, or a listed prefix.
    fn authorize_row(
        &self,
        row: &OperationRow,
        identity: &AuthIdentity,
        mount: &MountedBucket,
        subject: &str,
        headers: &HeaderMap,
    ) -> S3Result<()> {
        // A batch delete checks each of its keys (`delete_objects`), and needs to see the mount.
        let right =
            if row.announces == HomeNoticeScope::keys { AccessRight::seen } else { row.right };
        self.rights.require_right(identity, mount, subject, right)?;
        if is_mutation(row) {
            self.rights.allow_headers(identity, mount, subject, headers)?;
        }
        if row.scope == AccessScope::settings && mount.is_prefix() {
            self.metrics.count_denial(DenialReason::PrefixMount);
            let message = format!(
                "{} concerns the whole bucket, and {} is a mount of a part of one",
                row.name, mount.name
            );
            return Err(S3Error::with_message(S3ErrorCode::AccessDenied, message));
        }
        if mount.read_only && is_mutation(row) {
            self.metrics.count_denial(DenialReason::ReadOnly);
            let message = format!("the mount {} is read-only", mount.name);
            return Err(S3Error::with_message(S3ErrorCode::AccessDenied, message));
        }
        Ok(())
    }

    /// Checks that an identity may put an object with these headers, before its body is to be had.
    /// The put itself is checked again.
    pub fn authorize_put(
        &self,
        identity: &AuthIdentity,
        bucket: &str,
        key: &str,
        headers: &HeaderMap,
    ) -> S3Result<()> {
        let mount = self.mounts.resolve_bucket(bucket).ok_or_else(no_such_bucket)?;
        self.authorize_row(PutObjectInput::table_row(), identity, &mount, key, headers)
    }

    /// Checks that an identity may read a key of a mount.
    pub fn authorize_read(
        &self,
        identity: &AuthIdentity,
        mount: &MountedBucket,
        key: &str,
    ) -> S3Result<()> {
        self.rights.require_right(identity, mount, key, AccessRight::read)
    }

    /// Returns the exchange and the identity that `http` and `auth` put into the request's
    /// extensions.
    pub fn identify_caller<T>(
        &self,
        request: &S3Request<T>,
    ) -> S3Result<(Arc<HttpExchange>, Arc<AuthIdentity>)> {
        let exchange =
            request.extensions.get::<Arc<HttpExchange>>().cloned().ok_or_else(access_denied)?;
        exchange.entered.store(true, Ordering::Relaxed);
        let identity = exchange.proven_identity().cloned().ok_or_else(access_denied)?;
        Ok((exchange, identity))
    }

    /// Rewrites the client's names to the UFS's.
    pub fn rewrite_names<R: TableOperation>(
        &self,
        entry: &AuthorizedRequest,
        request: &mut S3Request<R>,
    ) -> S3Result<()> {
        let names = entry.mount_names();
        if let Some(bucket) = request.input.bucket_field() {
            BucketName::clone_from(bucket, &entry.mount.bucket);
        }
        if let Some(key) = request.input.key_field() {
            if names.prefix.len() + key.len() > KEY_BYTES_MAX {
                return Err(S3ErrorCode::KeyTooLongError.into());
            }
            names.key_inward(key);
        }
        request.input.rewrite_inward(&names);
        Ok(())
    }

    /// Prepares what the homes are told of a write; `None` if there are no keys. Tells nobody yet.
    pub fn prepare_announcement(
        &self,
        entry: &AuthorizedRequest,
        keys: Vec<String>,
    ) -> Option<GatewayWrite> {
        let coherence = self.mounts.promised_coherence(&entry.mount);
        let tenant = entry.exchange.cx.tenant().worker_tag();
        (!keys.is_empty())
            .then(|| GatewayWrite::new(self.homes.clone(), &entry.mount, coherence, keys, tenant))
    }

    /// Turns the UFS's answer into the client's.
    pub fn conclude_response<R: TableOperation>(
        &self,
        entry: &AuthorizedRequest,
        result: S3Result<S3Response<R::Output>>,
        raw: Option<RawAnswer>,
    ) -> S3Result<S3Response<R::Output>> {
        match result {
            Ok(mut response) => {
                R::rewrite_outward(&mut response.output, &entry.mount_names());
                ufs_answer::keep_headers(&mut response.headers, raw.as_ref());
                if let Some(whole) = get_object_attributes::whole_answer(&response, raw) {
                    entry.exchange.cx.put_answer(whole);
                }
                Ok(response)
            }
            Err(error) => {
                Err(ufs_answer::of_ufs(&entry.exchange.cx, &entry.mount_names(), error, raw))
            }
        }
    }

    /// Refuses an operation that no gateway can do.
    pub fn refuse_operation<R: TableOperation>(&self, _: S3Request<R>) -> S3Error {
        self.metrics.count_denial(DenialReason::Unsupported);
        let message = format!("{} is not about a bucket of this endpoint", R::table_row().name);
        S3Error::with_message(S3ErrorCode::NotImplemented, message)
    }
}

/// What came of a write that the homes were told of.
struct AnnouncedEnd<T> {
    result: S3Result<S3Response<T>>,
    raw: Option<RawAnswer>,
    reported: S3Result<NoticeRoute>,
}

impl<T> AnnouncedEnd<T> {
    /// The process ends, and the task with it.
    fn cut() -> Self {
        Self { result: Err(slow_down()), raw: None, reported: Ok(NoticeRoute::Direct) }
    }
}

/// Sends an announced write to the UFS, and reports its end to the homes. Holds `place` meanwhile.
async fn finish_announced<R: TableOperation>(
    entry: AuthorizedRequest,
    request: S3Request<R>,
    write: GatewayWrite,
    judge: impl FnOnce(&R::Output) -> WriteEnd,
    place: Option<TenantPlace>,
) -> AnnouncedEnd<R::Output> {
    let (result, raw) = send_to_ufs(&entry, request).await;
    let end = match &result {
        Ok(response) => judge(&response.output),
        // A store slows a batch down as a whole, before its first key. Outcomes of single keys stand
        // in a success's document.
        Err(error)
            if R::table_row().announces == HomeNoticeScope::keys && is_slowed_down(error) =>
        {
            WriteEnd::Whole(WriteOutcome::Done)
        }
        Err(_) => WriteEnd::Whole(write_outcome(&result)),
    };
    let reported = write.report_end(end).await;
    drop(place);
    AnnouncedEnd { result, raw, reported }
}

/// Sends a request once, and keeps the UFS's raw answer besides the typed one.
pub(super) async fn send_to_ufs<R: TableOperation>(
    entry: &AuthorizedRequest,
    request: S3Request<R>,
) -> (S3Result<S3Response<R::Output>>, Option<RawAnswer>) {
    let call = raw_answer::observe_answer(R::send_request(&**entry.mount.ufs.s3_store(), request));
    let (ufs, operation) = (entry.mount.ufs.ufs_name(), R::table_row().name);
    entry.exchange.cx.ask_ufs(ufs, operation, call, |(result, _)| failure_code(result)).await
}

/// Returns the outcome for the homes. An answered write is `Done`, even if the answer is a refusal:
/// an earlier attempt may have succeeded. Dropping unchanged attributes costs one check; keeping
/// changed ones would be stale.
pub(super) fn write_outcome<T>(result: &S3Result<T>) -> WriteOutcome {
    let Err(error) = result else { return WriteOutcome::Done };
    let status = match raw_answer::remote_failure(error) {
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

/// Returns an error's code for the trace.
fn failure_code<T>(result: &S3Result<T>) -> Option<String> {
    result.as_ref().err().map(|error| error.code().as_str().to_owned())
}

/// Returns whether the store itself answered that it did nothing because there are too many
/// requests.
fn is_slowed_down(error: &S3Error) -> bool {
    let answered = matches!(raw_answer::remote_failure(error), Some(RemoteFailure::Answer(answer)) if answer.status.as_u16() == 503);
    answered && *error.code() == S3ErrorCode::SlowDown
}

fn is_mutation(row: &OperationRow) -> bool {
    match row.right {
        AccessRight::write | AccessRight::delete | AccessRight::acl | AccessRight::lock => true,
        AccessRight::admin => !row.method.starts_with("get_") && !row.method.starts_with("list_"),
        AccessRight::read | AccessRight::list | AccessRight::warm | AccessRight::seen => false,
    }
}
