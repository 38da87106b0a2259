//! Tells the homes of one write's keys: announces it before it can be seen, and reports when it is
//! over, even if its client goes away. Owns that sequence. The tier's client finds the homes and
//! renews.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use async_trait::async_trait;
use http::{HeaderMap, HeaderValue, header};
use parking_lot::Mutex;
use s3s::{S3Error, S3ErrorCode, S3Result};
use tracing::warn;
use verbs3_client::{CacheTierClient, CoherenceError, TierWriteGuard};
use verbs3_protocol::{ListedEntry, ObjectVolume, TenantTag, WriteOutcome};

use crate::mount::{MountedBucket, WriteCoherence};

/// The write path's interface to the homes of all keys. The tier's client implements it; tests have
/// others.
#[async_trait]
pub trait HomeNotifier: Send + Sync + 'static {
    /// Tells the homes that a write of these keys is about to become visible. They count it for the
    /// tenant. Bounded in time.
    async fn announce_write(
        &self,
        volume: &ObjectVolume,
        keys: &[String],
        tenant: Option<TenantTag>,
    ) -> Result<Box<dyn WriteAnnouncement>, HomeUnreachable>;

    /// Has the reachable homes drop what they hold of these keys, after a write that none was told
    /// of. Best effort, in the background.
    fn forget_keys(&self, volume: &ObjectVolume, keys: &[String]);

    /// Has the homes drop what they hold of keys that a listing contradicts. Best effort, bounded
    /// in time. Later reads are not older than the listing, as far as the homes could be reached.
    async fn report_listing(&self, volume: &ObjectVolume, entries: Vec<ListedEntry>);
}

/// A write that the homes know of. The implementation renews it. Dropping it without a report
/// reports an unknown outcome.
#[async_trait]
pub trait WriteAnnouncement: Send + Sync + 'static {
    /// Reports how the write ended; `Ok` once the homes have acknowledged. Bounded in time, and
    /// goes on if its caller goes away.
    async fn report_outcome(
        self: Box<Self>,
        outcome: WriteOutcome,
    ) -> Result<NoticeRoute, HomeUnreachable>;

    /// Reports how a batch ended: the outcome of the `unknown` keys is unknown, the others are
    /// done.
    async fn report_batch(
        self: Box<Self>,
        unknown: Vec<String>,
    ) -> Result<NoticeRoute, HomeUnreachable>;
}

/// Outcome of a write or a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum WriteEnd {
    Whole(WriteOutcome),
    /// The outcome of these keys of a batch is unknown; the others are done.
    AllBut(Vec<String>),
}

/// The way by which the homes of a write were told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoticeRoute {
    Direct,
    /// At least one home was told through the coordinators: the answer says `x-verbs3-home:
    /// relayed`.
    Relayed,
}

/// A home did not acknowledge.
#[derive(Debug, Clone, thiserror::Error)]
#[error(
    "the home of the key did not acknowledge: {source}; check the workers, or set coherence = \
    \"ttl\" on the mount"
)]
pub struct HomeUnreachable {
    source: Arc<dyn Error + Send + Sync>,
}

impl HomeUnreachable {
    /// Makes the error from what kept the home from acknowledging.
    pub fn new(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { source: cause.into().into() }
    }

    /// Makes the client's error. The cause names workers and settings: it is for the log.
    fn into_error(self, volume: &ObjectVolume) -> S3Error {
        warn!(%volume, error = %self, "a write's homes were not told; its client gets 503");
        let message = "the cache in front of this store can't take part in a write now; try again";
        let mut error = S3Error::with_message(S3ErrorCode::ServiceUnavailable, message);
        let retry = (header::RETRY_AFTER, HeaderValue::from_static("1"));
        let xml = (header::CONTENT_TYPE, HeaderValue::from_static("application/xml"));
        error.set_headers(HeaderMap::from_iter([retry, xml]));
        error
    }
}

enum AnnouncementState {
    Idle,
    Announced(Box<dyn WriteAnnouncement>),
    /// The homes could not be told, and the write goes on without.
    Untold,
    /// The write is over: nothing may be announced or sent any more.
    Closed,
}

/// One write. If it is dropped without [`GatewayWrite::finish_write`] (its client went away), its
/// outcome is reported as unknown.
pub(crate) struct GatewayWrite {
    shared: Arc<GatewayWriteInner>,
}

struct GatewayWriteInner {
    homes: Arc<dyn HomeNotifier>,
    volume: ObjectVolume,
    keys: Vec<String>,
    tenant: Option<TenantTag>,
    coherence: WriteCoherence,
    state: Mutex<AnnouncementState>,
}

/// A body's part in a write.
#[derive(Clone)]
pub(crate) struct BodyWriteHandle(Arc<GatewayWriteInner>);

impl GatewayWrite {
    /// Makes a write. Nothing is sent before [`BodyWriteHandle::announce_write`].
    pub fn new(
        homes: Arc<dyn HomeNotifier>,
        mount: &MountedBucket,
        coherence: WriteCoherence,
        keys: Vec<String>,
        tenant: Option<TenantTag>,
    ) -> Self {
        let volume = mount.volume.clone();
        Self {
            shared: Arc::new(GatewayWriteInner {
                homes,
                volume,
                keys,
                tenant,
                coherence,
                state: Mutex::new(AnnouncementState::Idle),
            }),
        }
    }

    /// Returns the handle by which a body announces the write before its last frame goes.
    pub fn body_handle(&self) -> BodyWriteHandle {
        BodyWriteHandle(self.shared.clone())
    }

    /// Reports the outcome, if the write was announced. `Ok` once the homes have acknowledged.
    pub async fn finish_write(self, outcome: WriteOutcome) -> S3Result<NoticeRoute> {
        self.report_end(WriteEnd::Whole(outcome)).await
    }

    /// Reports the end of a write whose keys may have different outcomes.
    pub async fn report_end(self, end: WriteEnd) -> S3Result<NoticeRoute> {
        let announced = match self.close_state() {
            AnnouncementState::Announced(announced) => announced,
            AnnouncementState::Untold => {
                self.shared.homes.forget_keys(&self.shared.volume, &self.shared.keys);
                return Ok(NoticeRoute::Direct);
            }
            AnnouncementState::Idle | AnnouncementState::Closed => return Ok(NoticeRoute::Direct),
        };
        let reported = match end {
            WriteEnd::Whole(outcome) => announced.report_outcome(outcome).await,
            WriteEnd::AllBut(unknown) => announced.report_batch(unknown).await,
        };
        match reported {
            Ok(way) => Ok(way),
            Err(error) if self.shared.coherence == WriteCoherence::Ttl => {
                warn!(
                    volume = %self.shared.volume, %error,
                    "a write was not reported; readers see it after the mount's ttl"
                );
                Ok(NoticeRoute::Direct)
            }
            Err(error) => Err(error.into_error(&self.shared.volume)),
        }
    }

    fn close_state(&self) -> AnnouncementState {
        std::mem::replace(&mut *self.shared.state.lock(), AnnouncementState::Closed)
    }
}

impl Drop for GatewayWrite {
    fn drop(&mut self) {
        // The body may live on in a connection to the UFS; the announcement must not.
        match self.close_state() {
            AnnouncementState::Untold => {
                self.shared.homes.forget_keys(&self.shared.volume, &self.shared.keys)
            }
            AnnouncementState::Announced(_)
            | AnnouncementState::Idle
            | AnnouncementState::Closed => {}
        }
    }
}

impl BodyWriteHandle {
    /// Tells the homes. After `Ok` the write may become visible.
    pub async fn announce_write(&self) -> S3Result<()> {
        let shared = &self.0;
        let told =
            match shared.homes.announce_write(&shared.volume, &shared.keys, shared.tenant).await {
                Ok(announced) => AnnouncementState::Announced(announced),
                Err(error) if shared.coherence == WriteCoherence::Ttl => {
                    warn!(
                        volume = %shared.volume, %error,
                        "a write goes on unannounced; readers see it after the mount's ttl"
                    );
                    AnnouncementState::Untold
                }
                Err(error) => return Err(error.into_error(&shared.volume)),
            };
        let mut state = shared.state.lock();
        if matches!(*state, AnnouncementState::Closed) {
            // The client has gone meanwhile: nothing was sent, and nothing may be.
            return Err(S3Error::with_message(S3ErrorCode::IncompleteBody, "the client went away"));
        }
        *state = told;
        Ok(())
    }
}

impl fmt::Debug for GatewayWrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Write").field("volume", &self.shared.volume).finish_non_exhaustive()
    }
}

#[async_trait]
impl HomeNotifier for Arc<CacheTierClient> {
    async fn announce_write(
        &self,
        volume: &ObjectVolume,
        keys: &[String],
        tenant: Option<TenantTag>,
    ) -> Result<Box<dyn WriteAnnouncement>, HomeUnreachable> {
        let announced = CacheTierClient::announce_write_for(self, volume, keys, tenant).await?;
        Ok(Box::new(TierAnnouncement { tier: self.clone(), announced }))
    }

    fn forget_keys(&self, volume: &ObjectVolume, keys: &[String]) {
        CacheTierClient::forget_keys(self, volume, keys.to_vec());
    }

    async fn report_listing(&self, volume: &ObjectVolume, entries: Vec<ListedEntry>) {
        CacheTierClient::report_listing(self, volume, entries).await;
    }
}

/// A write that the tier's homes know of.
struct TierAnnouncement {
    tier: Arc<CacheTierClient>,
    announced: TierWriteGuard,
}

#[async_trait]
impl WriteAnnouncement for TierAnnouncement {
    async fn report_outcome(
        self: Box<Self>,
        outcome: WriteOutcome,
    ) -> Result<NoticeRoute, HomeUnreachable> {
        let relayed = self.announced.relay_flag();
        self.tier.report_write(self.announced, outcome).await?;
        Ok(if relayed.load(Ordering::Relaxed) { NoticeRoute::Relayed } else { NoticeRoute::Direct })
    }

    async fn report_batch(
        self: Box<Self>,
        unknown: Vec<String>,
    ) -> Result<NoticeRoute, HomeUnreachable> {
        let relayed = self.announced.relay_flag();
        self.tier.report_batch(self.announced, &unknown).await?;
        Ok(if relayed.load(Ordering::Relaxed) { NoticeRoute::Relayed } else { NoticeRoute::Direct })
    }
}

impl From<CoherenceError> for HomeUnreachable {
    fn from(error: CoherenceError) -> Self {
        Self::new(error)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::atomic::AtomicUsize;

    use super::*;

    /// Counts announcements that were dropped without a report, and keys to be forgotten.
    #[derive(Default)]
    struct Counting {
        abandoned: Arc<AtomicUsize>,
        forgotten: AtomicUsize,
        away: bool,
    }

    struct Open(Arc<AtomicUsize>);

    #[async_trait]
    impl HomeNotifier for Counting {
        async fn announce_write(
            &self,
            _: &ObjectVolume,
            _: &[String],
            _: Option<TenantTag>,
        ) -> Result<Box<dyn WriteAnnouncement>, HomeUnreachable> {
            match self.away {
                true => Err(HomeUnreachable::new("it is away")),
                false => Ok(Box::new(Open(self.abandoned.clone()))),
            }
        }

        fn forget_keys(&self, _: &ObjectVolume, keys: &[String]) {
            self.forgotten.fetch_add(keys.len(), Ordering::SeqCst);
        }

        async fn report_listing(&self, _: &ObjectVolume, _: Vec<ListedEntry>) {}
    }

    #[async_trait]
    impl WriteAnnouncement for Open {
        async fn report_outcome(
            self: Box<Self>,
            _: WriteOutcome,
        ) -> Result<NoticeRoute, HomeUnreachable> {
            self.0.fetch_sub(1, Ordering::SeqCst);
            Ok(NoticeRoute::Direct)
        }

        async fn report_batch(
            self: Box<Self>,
            _: Vec<String>,
        ) -> Result<NoticeRoute, HomeUnreachable> {
            self.report_outcome(WriteOutcome::Unknown).await
        }
    }

    impl Drop for Open {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn write(homes: Arc<Counting>) -> GatewayWrite {
        let coherence = if homes.away { WriteCoherence::Ttl } else { WriteCoherence::Strict };
        let (volume, state) = (ObjectVolume::new("u", "b"), Mutex::new(AnnouncementState::Idle));
        let keys = vec!["k".to_owned()];
        let shared = GatewayWriteInner { homes, volume, keys, tenant: None, coherence, state };
        GatewayWrite { shared: Arc::new(shared) }
    }

    #[tokio::test]
    async fn a_dropped_write_abandons_its_announcement_despite_its_body() {
        let homes = Arc::new(Counting::default());
        let write = write(homes.clone());
        let body = write.body_handle();
        body.announce_write().await.unwrap();
        drop(write);
        assert_eq!(homes.abandoned.load(Ordering::SeqCst), 1);
        drop(body);
        assert_eq!(homes.abandoned.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn nothing_may_be_sent_once_the_client_has_gone() {
        let homes = Arc::new(Counting::default());
        let write = write(homes.clone());
        let body = write.body_handle();
        drop(write);
        assert!(body.announce_write().await.is_err());
        assert_eq!(homes.abandoned.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn a_finished_write_is_not_abandoned() {
        let homes = Arc::new(Counting::default());
        let write = write(homes.clone());
        write.body_handle().announce_write().await.unwrap();
        write.finish_write(WriteOutcome::Done).await.unwrap();
        assert_eq!(homes.abandoned.load(Ordering::SeqCst), 0);
    }

    #[tokio::test]
    async fn what_the_homes_were_not_told_of_is_forgotten_when_it_is_over() {
        let homes = Arc::new(Counting { away: true, ..Counting::default() });
        let finished = write(homes.clone());
        finished.body_handle().announce_write().await.unwrap();
        assert_eq!(
            homes.forgotten.load(Ordering::SeqCst),
            0,
            "it may be cached anew until it is over"
        );
        finished.finish_write(WriteOutcome::Done).await.unwrap();
        assert_eq!(homes.forgotten.load(Ordering::SeqCst), 1);
        let given_up = write(homes.clone());
        given_up.body_handle().announce_write().await.unwrap();
        drop(given_up);
        assert_eq!(homes.forgotten.load(Ordering::SeqCst), 2);
        let never_begun = write(homes.clone());
        let body = never_begun.body_handle();
        drop(never_begun);
        assert!(
            body.announce_write().await.is_err(),
            "the client has gone, whether or not the homes can be told"
        );
        assert_eq!(homes.forgotten.load(Ordering::SeqCst), 2);
    }
}
