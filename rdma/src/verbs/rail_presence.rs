//! Owns the presence of a rail: where to find it, and whether it is there. Its device may be absent
//! at the start, be removed, and return, perhaps under another address.
//!
//! Also owns the damping of attempts to open a rail, their log lines, and the metric. Opens
//! nothing.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use prometheus::IntGauge;
use tokio::time::Instant;

use super::rail::RailIdentity;
use crate::metrics::transport_metrics;
use crate::peer::{BackoffOptions, ReconnectBackoff};

/// Pause after the first failed attempt. It doubles up to
/// [`VerbsSettings::reopen_max`](crate::settings::VerbsSettings). A replugged device is there again after a
/// second or two.
const REOPEN_MIN: Duration = Duration::from_secs(1);

/// One rail of this host: its number and name, and how to find its address.
#[derive(Clone)]
pub struct RailPlace {
    index: usize,
    name: Arc<str>,
    find: Arc<dyn Fn() -> io::Result<IpAddr> + Send + Sync>,
}

impl RailPlace {
    /// Makes the place of rail `index`, which the configuration calls `name`. `find` is called
    /// before every attempt to open the rail. It may block.
    pub fn new(
        index: usize,
        name: impl Into<Arc<str>>,
        find: impl Fn() -> io::Result<IpAddr> + Send + Sync + 'static,
    ) -> Self {
        Self { index, name: name.into(), find: Arc::new(find) }
    }

    /// Returns the rail's name in the configuration, logs and metrics.
    pub fn rail_name(&self) -> &str {
        &self.name
    }

    pub(super) fn find_address(&self) -> io::Result<IpAddr> {
        (self.find)()
    }
}

/// Makes the place of the first rail, at a known address.
impl From<IpAddr> for RailPlace {
    fn from(address: IpAddr) -> Self {
        Self::new(0, address.to_string(), move || Ok(address))
    }
}

impl fmt::Debug for RailPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RailPlace")
            .field("index", &self.index)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// The presence of one rail: when it may be tried again, and what was logged of it.
pub(super) struct RailPresence {
    place: RailPlace,
    backoff: ReconnectBackoff,
    up: IntGauge,
    /// Set while the rail is up.
    since: Option<Instant>,
    /// True once the log says that the rail is down.
    told: bool,
}

impl RailPresence {
    pub(super) fn new(place: RailPlace, reopen_max: Duration) -> Self {
        let up = transport_metrics()
            .rail_up
            .with_label_values(&[place.index.to_string().as_str(), &place.name]);
        up.set(0);
        let options = BackoffOptions {
            pause_min: REOPEN_MIN.min(reopen_max),
            pause_max: reopen_max,
            stable_after: reopen_max,
        };
        Self { place, backoff: ReconnectBackoff::new(options), up, since: None, told: false }
    }

    /// Records that the rail is open.
    pub(super) fn record_open(&mut self, rail: &RailIdentity) {
        self.up.set(1);
        self.since = Some(Instant::now());
        if std::mem::take(&mut self.told) {
            tracing::info!(
                index = self.place.index, name = %self.place.name, rail = rail.metric_label(),
                "a rail is there again"
            );
        }
    }

    /// Records a failed attempt to open the rail.
    pub(super) fn record_failure(&mut self, error: &io::Error) {
        self.up.set(0);
        self.backoff.record_failure(Instant::now(), rand::random());
        let (index, name) = (self.place.index, &self.place.name);
        if std::mem::replace(&mut self.told, true) {
            tracing::debug!(index, %name, %error, "a rail is still down");
        } else {
            tracing::warn!(
                index, %name, %error,
                "a rail can't be used and is tried again; other ways are used until then. `verbs3 \
                doctor` says more"
            );
        }
    }

    /// Records that the rail's device went away.
    pub(super) fn record_removal(&mut self) {
        self.up.set(0);
        let now = Instant::now();
        self.backoff.record_loss(self.since.take().unwrap_or(now), now, rand::random());
        self.told = true;
        tracing::warn!(
            index = self.place.index, name = %self.place.name,
            "a rail's device was removed or has failed; other ways are used until it is back"
        );
    }

    /// Records that the rail can't be used for now, though its device is there.
    pub(super) fn record_outage(&mut self, reason: &str) {
        self.up.set(0);
        self.told = true;
        tracing::warn!(
            index = self.place.index, name = %self.place.name, reason,
            "a rail can't be used now; other ways are used until it can"
        );
    }

    /// Waits until the rail may be tried again.
    pub(super) async fn wait_for_retry(&self) {
        // A removed device needs a moment to go, even after its rail was up for long.
        let soonest = Instant::now() + REOPEN_MIN;
        tokio::time::sleep_until(
            self.backoff.retry_at().map_or(soonest, |until| until.max(soonest)),
        )
        .await;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn presence(index: usize, reopen_max: Duration) -> (RailPresence, IntGauge) {
        let place = RailPlace::new(index, "mlx5_7", || Err(io::Error::other("absent")));
        let up = transport_metrics().rail_up.with_label_values(&[&index.to_string(), "mlx5_7"]);
        (RailPresence::new(place, reopen_max), up)
    }

    fn rail() -> RailIdentity {
        RailIdentity { device: "mlx5_7".into(), port: 1, address: [10, 0, 0, 7].into() }
    }

    async fn paused(presence: &RailPresence) -> Duration {
        let before = Instant::now();
        presence.wait_for_retry().await;
        before.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn an_absent_rail_is_tried_ever_more_seldom_up_to_the_bound() {
        let (mut presence, up) = presence(70, Duration::from_secs(60));
        let mut pauses = Vec::new();
        for _ in 0..10 {
            presence.record_failure(&io::Error::other("absent"));
            pauses.push(paused(&presence).await);
        }
        assert!(
            pauses[0] >= Duration::from_secs(1) && pauses[0] < Duration::from_secs(2),
            "{pauses:?}"
        );
        let last = pauses[9];
        assert!(last >= Duration::from_secs(30) && last <= Duration::from_secs(61), "{pauses:?}");
        assert_eq!(up.get(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_flapping_device_is_damped_and_a_long_healthy_one_is_not() {
        let (mut presence, up) = presence(71, Duration::from_secs(60));
        presence.record_open(&rail());
        assert_eq!(up.get(), 1);
        tokio::time::advance(Duration::from_secs(61)).await;
        presence.record_removal();
        assert_eq!(up.get(), 0);
        assert!(paused(&presence).await < Duration::from_secs(2));
        for _ in 0..6 {
            presence.record_open(&rail());
            presence.record_removal();
        }
        assert!(paused(&presence).await > Duration::from_secs(10));
    }
}
