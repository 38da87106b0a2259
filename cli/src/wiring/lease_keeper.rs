//! A worker's talk with the coordinators: it registers, keeps its lease, follows the map, and
//! leaves in order.
//!
//! What to say and do is decided by [`WorkerLease`]; here it is said and done.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use verbs3_cache_worker::{BlockRate, CacheWorker, MapActivation, NotedWrite, WorkerDrainProgress};
use verbs3_coordinator_client::api::{
    self, CoordinatorRefusalKind, HeardWord, OPEN_WRITES_MAX, OpenWriteReport, PREFIX, RelayedWord,
    WorkerLeaseGrant, WorkerLeaseRenewal, WorkerRegistration,
};
use verbs3_coordinator_client::hot_blocks::{HotBlockRate, HotWish};
use verbs3_coordinator_client::lease_clock::{BootLeaseClock, LeaseClock};
use verbs3_coordinator_client::worker_lease::{WorkerLease, WorkerLeaseDuty};
use verbs3_coordinator_client::{AskError, CoordinatorClient};
use verbs3_protocol::{Epoch, MemberRoster, PlacementMap};

use super::neighbourhood::WorkerNeighbourhood;
use super::transports::WorkerRailAddresses;

/// Pauses while no coordinator answers.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Pause after the coordinators refused: what a person has to see to, unless it passes sooner.
const REFUSED_PAUSE: Duration = Duration::from_secs(5);

/// Bytes of the names of the hot blocks that are told of: in JSON they may be six times as long,
/// and a renewal that is too long would cost the lease.
const HOT_NAMES_BYTES_MAX: usize = 64 << 10;

/// How long a renewal waits for gateways to drop their leases: much shorter than the worker's own
/// lease.
const LEASES_WAIT: Duration = Duration::from_millis(100);

/// How long a map waits for the addresses of its members before it comes into force here.
const FIND_WAIT: Duration = Duration::from_millis(300);

/// A worker that is to belong to a coordinated cluster.
pub struct WorkerLeaseKeeper {
    client: Arc<CoordinatorClient>,
    worker: Arc<CacheWorker>,
    /// Its rails are those that the coordinators were told of last.
    registration: WorkerRegistration,
    rails: WorkerRailAddresses,
    tenure: WorkerLease,
    registered: bool,
    /// Of the last activation: the next one comes after it.
    map: Option<Arc<PlacementMap>>,
    neighbourhood: Option<Arc<WorkerNeighbourhood>>,
    /// Finds the addresses of the last map's members. May be cancelled at any time.
    finding: Option<JoinHandle<()>>,
    /// What the leader wants to hear of hot blocks, and when it was told last.
    hot_wish: Option<HotWish>,
    hot_told: Instant,
}

impl WorkerLeaseKeeper {
    /// Makes the worker follow the map of the coordinators. Says nothing to them before `run`.
    pub fn new(
        client: Arc<CoordinatorClient>,
        worker: Arc<CacheWorker>,
        registration: WorkerRegistration,
        rails: WorkerRailAddresses,
        neighbourhood: Option<Arc<WorkerNeighbourhood>>,
    ) -> Self {
        // From here on no other process of this name is at its address.
        worker.follows_another();
        let tenure = WorkerLease::new(registration.incarnation.clone());
        Self {
            client,
            worker,
            registration,
            rails,
            tenure,
            registered: false,
            map: None,
            neighbourhood,
            finding: None,
            hot_wish: None,
            hot_told: Instant::now(),
        }
    }

    /// Holds the lease until told to stop, then leaves: the worker answers for attributes no more,
    /// though it serves blocks.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut pause = PAUSE_MIN;
        loop {
            let sent = BootLeaseClock.latest_now();
            let Some(asked) = stop.run_until_cancelled(self.request_lease()).await else { break };
            let rest = match asked {
                Ok(granted) => {
                    self.registered = true;
                    self.hot_wish = granted.hot;
                    pause = PAUSE_MIN;
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
        let rails: Vec<String> =
            self.rails.current_addresses().into_iter().map(format_rail).collect();
        let granted = if self.registered {
            let handing_over = self.worker.handing_over().map(handover_progress);
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

    /// What this worker serves most, if the leader wants to hear it now. A worker that reaches no
    /// others can't take a hot block from its owner, and in a cluster of such nobody has use for
    /// replicas.
    fn collect_hot_blocks(&mut self) -> Option<Vec<HotBlockRate>> {
        let HotWish { every_ms, rate_min, blocks_max } =
            self.hot_wish.filter(|_| self.neighbourhood.is_some())?;
        let since = self.hot_told.elapsed();
        if since < Duration::from_millis(every_ms) {
            return None;
        }
        self.hot_told = Instant::now();
        let hottest = self.worker.block_rates(
            since,
            rate_min,
            usize::try_from(blocks_max).unwrap_or(usize::MAX),
        );
        let mut names = 0;
        let fits = |hot: &BlockRate| {
            names += hot.object.key.len() + hot.object.volume.0.len();
            names <= HOT_NAMES_BYTES_MAX
        };
        let told = |BlockRate { object, block, bytes_per_second }| HotBlockRate {
            object,
            block,
            bytes_per_second,
        };
        Some(hottest.into_iter().take_while(fits).map(told).collect())
    }

    /// Logs, and says how long to wait.
    fn handle_refusal(&mut self, error: &AskError, pause: &mut Duration) -> Duration {
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
                tracing::warn!(%error, "no lease can be had; the worker goes on with its last map");
                // Not all of a cluster at once.
                let rest = pause.mul_f64(rand::random_range(0.5..1.0));
                *pause = (*pause * 2).min(PAUSE_MAX);
                rest
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
                    tokio::time::timeout(LEASES_WAIT, self.worker.leases_over()).await.is_ok();
                let given_up = if over { epoch } else { Epoch::default() };
                self.tenure.confirm_prepare(
                    given_up,
                    writes.map(to_open_writes),
                    self.worker.uncertain_for(),
                );
            }
            WorkerLeaseDuty::Activate(activation) => self.activate_map(*activation).await,
            WorkerLeaseDuty::Lease { until, outage_until } => self.worker.hold_lease(|| {
                let now = BootLeaseClock.latest_now();
                (until.saturating_duration_since(now), outage_until.saturating_duration_since(now))
            }),
            WorkerLeaseDuty::Hear(words) => {
                let hear = |RelayedWord { id, word }| HeardWord {
                    id,
                    heard: self.worker.apply_relayed_word(&word),
                };
                let heard = words.into_iter().map(hear).collect();
                self.tenure.record_heard_words(heard);
            }
        }
    }

    async fn activate_map(&mut self, activation: api::MembershipActivation) {
        let api::MembershipActivation {
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
        self.worker.activate_map(MapActivation {
            map: &map,
            me: &self.registration.id,
            former: former.as_deref(),
            handed_over: handed_over.into_iter().collect::<HashSet<_>>(),
            open_writes: to_noted_writes(open_writes),
            resumes: resumes.map(to_noted_writes),
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
        let Some(neighbourhood) = self.neighbourhood.clone() else { return };
        let members = membership.members.clone();
        let mut finding = tokio::spawn(async move { neighbourhood.adopt_members(&members).await });
        if tokio::time::timeout(FIND_WAIT, &mut finding).await.is_err() {
            self.finding = Some(finding);
        }
    }

    async fn leave_cluster(&self) {
        let writes = self.worker.give_up_epoch(OPEN_WRITES_MAX).map(to_open_writes);
        // Gateways drop their leases, or these end.
        self.worker.leases_over().await;
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
            tracing::warn!(%error, "could not leave in order; the coordinators wait until the lease is over");
        }
    }
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

fn handover_progress(progress: WorkerDrainProgress) -> api::DrainProgress {
    let WorkerDrainProgress { blocks, blocks_left, bytes } = progress;
    api::DrainProgress { blocks, blocks_left, bytes }
}

/// A rail's address as it is told; nothing while the rail is down.
fn format_rail(rail: Option<SocketAddr>) -> String {
    rail.map(|address| address.to_string()).unwrap_or_default()
}

fn to_open_writes(writes: Vec<NotedWrite>) -> Vec<OpenWriteReport> {
    writes
        .into_iter()
        .map(|noted| OpenWriteReport::new(noted.hash, noted.write, noted.remaining))
        .collect()
}

fn to_noted_writes(writes: Vec<OpenWriteReport>) -> Vec<NotedWrite> {
    let parts = writes.into_iter().map(OpenWriteReport::into_parts);
    parts.map(|(hash, write, remaining)| NotedWrite { hash, write, remaining }).collect()
}

/// An id as a part of a path.
pub fn escape_path_segment(id: &str) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(byte);
    id.bytes()
        .map(
            |byte| if plain(&byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") },
        )
        .collect()
}

#[cfg(test)]
mod tests {
    use verbs3_coordinator_client::api::CoordinatorRefusal;

    use super::*;

    #[test]
    fn who_is_refused_waits_for_the_end_of_the_older_lease() {
        let pause = |left_ms| {
            let (kind, reason) = (CoordinatorRefusalKind::Taken, String::new());
            let (leader, now_ms, recipient) = (None, None, None);
            let refused = CoordinatorRefusal { kind, reason, leader, now_ms, recipient, left_ms };
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
