//! A worker's talk with the coordinators: it registers, keeps its lease, follows the map, and
//! leaves in order.
//!
//! [`WorkerLease`] decides what to say and do; here it is said. The [`LeasedWorker`] does it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use verbs3_pacing::GrowingPause;
use verbs3_protocol::{Epoch, MemberRoster, PlacementMap};

use crate::api::{
    CoordinatorRefusalKind, HeardWord, MembershipActivation, OPEN_WRITES_MAX, PREFIX, RelayedWord,
    WorkerLeaseGrant, WorkerLeaseRenewal, WorkerRegistration, escape_path_segment,
};
use crate::client::{AskError, CoordinatorClient};
use crate::hot_blocks::{HotBlockRate, HotWish};
use crate::lease_clock::{BootLeaseClock, LeaseClock};
use crate::leased_worker::{LeasedWorker, PlacementActivation, WorkerLeaseTerm};
use crate::worker_lease::{WorkerLease, WorkerLeaseDuty};

/// Pauses while no coordinator answers.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Pause after the coordinators refused: what a person has to see to, unless it passes sooner.
const REFUSED_PAUSE: Duration = Duration::from_secs(5);

/// Longest time without an answer that is no warning yet: a map that comes into force refuses all
/// for a moment. A lease may be shorter: a warning comes when half of it is over.
const QUIET_MAX: Duration = Duration::from_secs(5);

/// Bytes of the names of the hot blocks that are told of: in JSON they may be six times as long,
/// and a renewal that is too long would cost the lease.
const HOT_NAMES_BYTES_MAX: usize = 64 << 10;

/// How long a renewal waits for gateways to drop their leases: much shorter than the worker's own
/// lease.
const LEASES_WAIT: Duration = Duration::from_millis(100);

/// How long a map waits for the addresses of its members before it comes into force here.
const FIND_WAIT: Duration = Duration::from_millis(300);

/// Keeps the lease of a worker that belongs to a coordinated cluster.
pub struct WorkerLeaseKeeper<W> {
    client: Arc<CoordinatorClient>,
    worker: Arc<W>,
    /// Its rails are those that the coordinators were told of last.
    registration: WorkerRegistration,
    tenure: WorkerLease,
    registered: bool,
    /// When the coordinators granted something last, or were asked first.
    granted_last: Instant,
    /// Of the last activation: the next one comes after it.
    map: Option<Arc<PlacementMap>>,
    /// Finds the addresses of the last map's members. May be cancelled at any time.
    finding: Option<JoinHandle<()>>,
    /// What the leader wants to hear of hot blocks, and when it was told last.
    hot_wish: Option<HotWish>,
    hot_told: Instant,
}

impl<W: LeasedWorker + 'static> WorkerLeaseKeeper<W> {
    /// Makes the worker follow the map of the coordinators. Says nothing to them before `run`.
    pub fn new(
        client: Arc<CoordinatorClient>,
        worker: Arc<W>,
        registration: WorkerRegistration,
    ) -> Self {
        // From here on no other process of this name is at its address.
        worker.expect_predecessor();
        let tenure = WorkerLease::new(registration.incarnation.clone());
        Self {
            client,
            worker,
            registration,
            tenure,
            registered: false,
            granted_last: Instant::now(),
            map: None,
            finding: None,
            hot_wish: None,
            hot_told: Instant::now(),
        }
    }

    /// Holds the lease until told to stop, then leaves: the worker answers for attributes no more,
    /// though it serves blocks.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut pause = GrowingPause::new(PAUSE_MIN, PAUSE_MAX);
        self.granted_last = Instant::now();
        loop {
            let sent = BootLeaseClock.latest_now();
            let Some(asked) = stop.run_until_cancelled(self.request_lease()).await else { break };
            let rest = match asked {
                Ok(granted) => {
                    self.registered = true;
                    self.granted_last = Instant::now();
                    self.hot_wish = granted.hot;
                    pause.reset_pause();
                    let news = granted.prepare.is_some()
                        || granted.activation.is_some()
                        || !granted.words.is_empty();
                    for duty in self.tenure.apply_grant(sent, granted) {
                        self.perform_duty(duty).await;
                    }
                    // Where the coordinator has waited for news, there is no need to.
                    if news { Duration::ZERO } else { self.tenure.renewal_pause() }
                }
                Err(error) => self.handle_refusal(&error, &mut pause),
            };
            if stop.run_until_cancelled(tokio::time::sleep(rest)).await.is_none() {
                break;
            }
        }
        if let Some(finding) = self.finding.take() {
            finding.abort();
        }
        self.leave_cluster().await;
    }

    async fn request_lease(&mut self) -> Result<WorkerLeaseGrant, AskError> {
        let rails = self.worker.rail_addresses();
        let granted = if self.registered {
            let handing_over = self.worker.drain_progress();
            let changed = (rails != self.registration.rails).then(|| rails.clone());
            let renewal = WorkerLeaseRenewal {
                handing_over,
                hot: self.collect_hot_blocks(),
                rails: changed,
                ..self.tenure.next_renewal()
            };
            let path =
                format!("{PREFIX}/workers/{}/renew", escape_path_segment(&self.registration.id.0));
            self.client.post_json(&path, &renewal, Duration::from_millis(renewal.wait_ms)).await?
        } else {
            let rails = rails.clone();
            let asked = WorkerRegistration {
                knows: self.tenure.known_epoch(),
                rails,
                ..self.registration.clone()
            };
            self.client.post_json(&format!("{PREFIX}/workers"), &asked, Duration::ZERO).await?
        };
        let granted = granted.ok_or_else(|| AskError::Away("an empty answer".to_owned()))?;
        self.registration.rails = rails;
        Ok(granted)
    }

    /// What this worker serves most, if the leader wants to hear it now.
    fn collect_hot_blocks(&mut self) -> Option<Vec<HotBlockRate>> {
        let wish = self.hot_wish?;
        let since = self.hot_told.elapsed();
        if since < Duration::from_millis(wish.every_ms) {
            return None;
        }
        let hottest = self.worker.collect_hot_blocks(wish, since)?;
        self.hot_told = Instant::now();
        let mut names = 0;
        let fits = |hot: &HotBlockRate| {
            names += hot.object.key.len() + hot.object.volume.0.len();
            names <= HOT_NAMES_BYTES_MAX
        };
        Some(hottest.into_iter().take_while(fits).collect())
    }

    /// Logs, and says how long to wait.
    fn handle_refusal(&mut self, error: &AskError, pause: &mut GrowingPause) -> Duration {
        match error.refusal_kind() {
            Some(CoordinatorRefusalKind::Unknown) => {
                tracing::info!("the coordinator does not know this worker; registering");
                self.registered = false;
                Duration::ZERO
            }
            Some(kind) => {
                tracing::error!(%error, "the coordinators refuse this worker");
                if matches!(
                    kind,
                    CoordinatorRefusalKind::Taken | CoordinatorRefusalKind::Superseded
                ) {
                    // The other one may be the home of the same keys under the same epoch.
                    self.worker.give_up_epoch(0);
                    self.tenure.mark_replaced();
                }
                self.registered = false;
                refused_pause(error)
            }
            None => {
                if self.granted_last.elapsed() < quiet_time(self.tenure.lease_length()) {
                    tracing::info!(%error, "no lease at this try");
                } else {
                    tracing::warn!(
                        %error,
                        "no lease can be had; the worker goes on with its last map"
                    );
                }
                // Not all of a cluster at once.
                pause.next_jittered(rand::random())
            }
        }
    }

    async fn perform_duty(&mut self, duty: WorkerLeaseDuty) {
        match duty {
            WorkerLeaseDuty::GiveUp => {
                self.worker.give_up_epoch(0);
            }
            WorkerLeaseDuty::Prepare(epoch) => {
                let writes = self.worker.give_up_epoch(OPEN_WRITES_MAX);
                // The epoch is not given up while a gateway may answer by a lease of it. Renewals
                // go on meanwhile, and ask again.
                let over =
                    tokio::time::timeout(LEASES_WAIT, self.worker.wait_for_recalls()).await.is_ok();
                let given_up = if over { epoch } else { Epoch::default() };
                self.tenure.confirm_prepare(given_up, writes, self.worker.uncertain_for());
            }
            WorkerLeaseDuty::Activate(activation) => self.activate_map(*activation).await,
            WorkerLeaseDuty::Lease { until, outage_until } => {
                self.worker.hold_lease(WorkerLeaseTerm { until, outage_until });
            }
            WorkerLeaseDuty::Hear(words) => {
                let hear = |RelayedWord { id, notice }| HeardWord {
                    id,
                    heard: self.worker.apply_relayed_word(&notice),
                };
                let heard = words.into_iter().map(hear).collect();
                self.tenure.record_heard_words(heard);
            }
        }
    }

    async fn activate_map(&mut self, activation: MembershipActivation) {
        let MembershipActivation {
            membership,
            former,
            handed_over,
            open_writes,
            resumes,
            uncertain_ms,
            restarted,
        } = activation;
        let (epoch, members) = (membership.epoch, membership.members.len());
        self.find_neighbours(&membership).await;
        let known = self.map.clone();
        let of = move |membership: &MemberRoster| {
            // A worker that joins knows neither; one that stays computes one map.
            let known = known.clone().filter(|known| known.map_epoch() == membership.epoch);
            known.or_else(|| membership.build_placement().ok().map(Arc::new))
        };
        let made = tokio::task::spawn_blocking(move || (of(&membership), of(&former))).await;
        // Without a former map nobody owned anything.
        let (Some(map), former) = made.unwrap_or((None, None)) else {
            tracing::error!(
                epoch = epoch.0,
                "a placement map makes no sense; no attributes are answered"
            );
            return;
        };
        self.map = Some(map.clone());
        self.worker.activate_map(PlacementActivation {
            map: &map,
            worker: &self.registration.id,
            former: former.as_deref(),
            handed_over: handed_over.into_iter().collect(),
            open_writes,
            resumes,
            uncertain: Duration::from_millis(uncertain_ms),
            restarted,
        });
        self.tenure.confirm_activation(epoch);
        tracing::info!(epoch = epoch.0, members, "answering under a new placement map");
    }

    /// Whom the map names can be asked from now on; names that take long to be found, later.
    async fn find_neighbours(&mut self, membership: &MemberRoster) {
        if let Some(finding) = self.finding.take() {
            finding.abort();
        }
        let (worker, members) = (self.worker.clone(), membership.members.clone());
        let mut finding = tokio::spawn(async move { worker.find_neighbours(members).await });
        if tokio::time::timeout(FIND_WAIT, &mut finding).await.is_err() {
            self.finding = Some(finding);
        }
    }

    async fn leave_cluster(&self) {
        let writes = self.worker.give_up_epoch(OPEN_WRITES_MAX);
        // Gateways drop their leases, or these end.
        self.worker.wait_for_recalls().await;
        self.worker.end_leases();
        if !self.registered {
            return;
        }
        let path =
            format!("{PREFIX}/workers/{}/leave", escape_path_segment(&self.registration.id.0));
        let leave = self.tenure.make_departure(writes, self.worker.uncertain_for());
        let left =
            self.client.post_json::<_, serde_json::Value>(&path, &leave, Duration::ZERO).await;
        if let Err(error) = left {
            tracing::warn!(
                %error,
                "could not leave in order; the coordinators wait until the lease is over"
            );
        }
    }
}

/// Returns how long a worker may go without an answer before that is a warning.
fn quiet_time(lease: Duration) -> Duration {
    // A newcomer has no lease to lose.
    if lease.is_zero() { QUIET_MAX } else { QUIET_MAX.min(lease / 2) }
}

/// Who is refused because of an older process' lease asks again once that is over.
fn refused_pause(error: &AskError) -> Duration {
    let left_ms = match error {
        AskError::Refused { refused, .. } => refused.left_ms,
        _ => None,
    };
    // Milliseconds were rounded down.
    let left = left_ms.map(|left| Duration::from_millis(left.saturating_add(1)));
    left.map_or(REFUSED_PAUSE, |left| left.clamp(PAUSE_MIN, REFUSED_PAUSE))
}

#[cfg(test)]
mod tests {
    use crate::api::CoordinatorRefusal;

    use super::*;

    #[test]
    fn a_warning_comes_well_before_the_end_of_a_lease() {
        let quiet = |seconds| quiet_time(Duration::from_secs(seconds));
        assert_eq!((quiet(0), quiet(300)), (QUIET_MAX, QUIET_MAX));
        assert_eq!((quiet(6), quiet(1)), (Duration::from_secs(3), Duration::from_millis(500)));
    }

    #[test]
    fn who_is_refused_waits_for_the_end_of_the_older_lease() {
        let pause = |left_ms| {
            let refused = CoordinatorRefusal {
                left_ms,
                ..CoordinatorRefusal::new(CoordinatorRefusalKind::Taken, "")
            };
            refused_pause(&AskError::Refused { url: String::new(), refused: refused.into() })
        };
        assert_eq!(pause(Some(1200)), Duration::from_millis(1201));
        assert_eq!(pause(Some(0)), PAUSE_MIN);
        // The other may leave sooner than it would have to.
        assert_eq!(pause(Some(60_000)), REFUSED_PAUSE);
        assert_eq!(pause(Some(u64::MAX)), REFUSED_PAUSE);
        assert_eq!(pause(None), REFUSED_PAUSE, "another reason, or another release");
    }
}
