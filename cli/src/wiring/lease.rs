//! A worker's talk with the coordinators: it registers, keeps its lease, follows the map, and
//! leaves in order.
//!
//! What to say and do is decided by [`Tenure`]; here it is said and done.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use verbs3_cache_worker::{Activation, BlockRate, HandingOver, NotedWrite, Worker};
use verbs3_coordinator_client::api::{
    self, Granted, HeardWord, OPEN_WRITES_MAX, OpenWrite, PREFIX, RefusedKind, Registration,
    RelayedWord, Renewal,
};
use verbs3_coordinator_client::clock::{BootClock, Clock};
use verbs3_coordinator_client::hot::{HotBlock, HotWish};
use verbs3_coordinator_client::tenure::{Duty, Tenure};
use verbs3_coordinator_client::{AskError, Client};
use verbs3_protocol::{Epoch, Membership, Placement};

use super::neighbours::Neighbourhood;
use super::transports::Rails;

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
pub struct Tenant {
    client: Arc<Client>,
    worker: Arc<Worker>,
    /// Its rails are those that the coordinators were told of last.
    registration: Registration,
    rails: Rails,
    tenure: Tenure,
    registered: bool,
    /// Of the last activation: the next one comes after it.
    map: Option<Arc<Placement>>,
    neighbourhood: Option<Arc<Neighbourhood>>,
    /// Finds the addresses of the last map's members. May be cancelled at any time.
    finding: Option<JoinHandle<()>>,
    /// What the leader wants to hear of hot blocks, and when it was told last.
    hot_wish: Option<HotWish>,
    hot_told: Instant,
}

impl Tenant {
    pub fn new(
        client: Arc<Client>,
        worker: Arc<Worker>,
        (registration, rails): (Registration, Rails),
        neighbourhood: Option<Arc<Neighbourhood>>,
    ) -> Self {
        // From here on no other process of this name is at its address.
        worker.follows_another();
        let tenure = Tenure::new(registration.incarnation.clone());
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
            let sent = BootClock.latest();
            let Some(asked) = stop.run_until_cancelled(self.ask()).await else { break };
            let rest = match asked {
                Ok(granted) => {
                    self.registered = true;
                    self.hot_wish = granted.hot;
                    pause = PAUSE_MIN;
                    let news = granted.prepare.is_some()
                        || granted.activation.is_some()
                        || !granted.words.is_empty();
                    for duty in self.tenure.granted(sent, granted) {
                        self.perform(duty).await;
                    }
                    // Where the coordinator has waited for news, there is no need to.
                    if news { Duration::ZERO } else { self.tenure.pause() }
                }
                Err(error) => self.refused(&error, &mut pause),
            };
            if stop.run_until_cancelled(tokio::time::sleep(rest)).await.is_none() {
                break;
            }
        }
        if let Some(finding) = self.finding.take() {
            finding.abort();
        }
        self.leave().await;
    }

    async fn ask(&mut self) -> Result<Granted, AskError> {
        let rails: Vec<String> = self.rails.now().into_iter().map(shown).collect();
        let granted = if self.registered {
            let handing_over = self.worker.handing_over().map(progress);
            let changed = (rails != self.registration.rails).then(|| rails.clone());
            let renewal =
                Renewal { handing_over, hot: self.hot(), rails: changed, ..self.tenure.renewal() };
            let path = format!("{PREFIX}/workers/{}/renew", escaped(&self.registration.id.0));
            self.client.post(&path, &renewal, Duration::from_millis(renewal.wait_ms)).await?
        } else {
            let rails = rails.clone();
            let asked =
                Registration { knows: self.tenure.knows(), rails, ..self.registration.clone() };
            self.client.post(&format!("{PREFIX}/workers"), &asked, Duration::ZERO).await?
        };
        let granted = granted.ok_or_else(|| AskError::Away("an empty answer".to_owned()))?;
        self.registration.rails = rails;
        Ok(granted)
    }

    /// What this worker serves most, if the leader wants to hear it now. A worker that reaches no
    /// others can't take a hot block from its owner, and in a cluster of such nobody has use for
    /// replicas.
    fn hot(&mut self) -> Option<Vec<HotBlock>> {
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
        let told = |BlockRate { object, block, bytes_per_second }| HotBlock {
            object,
            block,
            bytes_per_second,
        };
        Some(hottest.into_iter().take_while(fits).map(told).collect())
    }

    /// Logs, and says how long to wait.
    fn refused(&mut self, error: &AskError, pause: &mut Duration) -> Duration {
        match error.kind() {
            Some(RefusedKind::Unknown) => {
                tracing::info!("the coordinator does not know this worker; registering");
                self.registered = false;
                Duration::ZERO
            }
            Some(kind) => {
                tracing::error!(%error, "the coordinators refuse this worker");
                if matches!(kind, RefusedKind::Taken | RefusedKind::Superseded) {
                    // The other one may be the home of the same keys under the same epoch.
                    self.worker.give_up_epoch(0);
                    self.tenure.replaced();
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

    async fn perform(&mut self, duty: Duty) {
        match duty {
            Duty::GiveUp => {
                self.worker.give_up_epoch(0);
            }
            Duty::Prepare(epoch) => {
                let writes = self.worker.give_up_epoch(OPEN_WRITES_MAX);
                // The epoch is not given up while a gateway may answer by a lease of it. Renewals
                // go on meanwhile, and ask again.
                let over =
                    tokio::time::timeout(LEASES_WAIT, self.worker.leases_over()).await.is_ok();
                let given_up = if over { epoch } else { Epoch::default() };
                self.tenure.prepared(given_up, writes.map(told), self.worker.uncertain_for());
            }
            Duty::Activate(activation) => self.activate(*activation).await,
            Duty::Lease { until, outage_until } => self.worker.hold_lease(|| {
                let now = BootClock.latest();
                (until.since(now), outage_until.since(now))
            }),
            Duty::Hear(words) => {
                let hear =
                    |RelayedWord { id, word }| HeardWord { id, heard: self.worker.hear(&word) };
                let heard = words.into_iter().map(hear).collect();
                self.tenure.heard(heard);
            }
        }
    }

    async fn activate(&mut self, activation: api::Activation) {
        let api::Activation {
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
        let of = move |membership: &Membership| {
            // A worker that joins knows neither; one that stays computes one map.
            let known = known.clone().filter(|known| known.epoch() == membership.epoch);
            known.or_else(|| membership.placement().ok().map(Arc::new))
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
        self.worker.activate(Activation {
            map: &map,
            me: &self.registration.id,
            former: former.as_deref(),
            handed_over: handed_over.into_iter().collect::<HashSet<_>>(),
            open_writes: noted(open_writes),
            resumes: resumes.map(noted),
            uncertain: Duration::from_millis(uncertain_ms),
            restarted,
        });
        self.tenure.activated(epoch);
        tracing::info!(epoch = epoch.0, members, "answering under a new placement map");
    }

    /// Whom the map names can be asked from now on; names that take long to be found, later.
    async fn find_neighbours(&mut self, membership: &Membership) {
        if let Some(finding) = self.finding.take() {
            finding.abort();
        }
        let Some(neighbourhood) = self.neighbourhood.clone() else { return };
        let members = membership.members.clone();
        let mut finding = tokio::spawn(async move { neighbourhood.adopt(&members).await });
        if tokio::time::timeout(FIND_WAIT, &mut finding).await.is_err() {
            self.finding = Some(finding);
        }
    }

    async fn leave(&self) {
        let writes = self.worker.give_up_epoch(OPEN_WRITES_MAX).map(told);
        // Gateways drop their leases, or these end.
        self.worker.leases_over().await;
        self.worker.end_leases();
        if !self.registered {
            return;
        }
        let path = format!("{PREFIX}/workers/{}/leave", escaped(&self.registration.id.0));
        let leave = self.tenure.leave(writes, self.worker.uncertain_for());
        let left = self.client.post::<_, serde_json::Value>(&path, &leave, Duration::ZERO).await;
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

fn progress(progress: HandingOver) -> api::HandingOver {
    let HandingOver { blocks, blocks_left, bytes } = progress;
    api::HandingOver { blocks, blocks_left, bytes }
}

/// A rail's address as it is told; nothing while the rail is down.
fn shown(rail: Option<SocketAddr>) -> String {
    rail.map(|address| address.to_string()).unwrap_or_default()
}

fn told(writes: Vec<NotedWrite>) -> Vec<OpenWrite> {
    writes
        .into_iter()
        .map(|noted| OpenWrite::new(noted.hash, noted.write, noted.remaining))
        .collect()
}

fn noted(writes: Vec<OpenWrite>) -> Vec<NotedWrite> {
    let parts = writes.into_iter().map(OpenWrite::parts);
    parts.map(|(hash, write, remaining)| NotedWrite { hash, write, remaining }).collect()
}

/// An id as a part of a path.
pub fn escaped(id: &str) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(byte);
    id.bytes()
        .map(
            |byte| if plain(&byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") },
        )
        .collect()
}

#[cfg(test)]
mod tests {
    use verbs3_coordinator_client::api::Refused;

    use super::*;

    #[test]
    fn who_is_refused_waits_for_the_end_of_the_older_lease() {
        let pause = |left_ms| {
            let (kind, reason) = (RefusedKind::Taken, String::new());
            let (leader, now_ms, recipient) = (None, None, None);
            let refused = Refused { kind, reason, leader, now_ms, recipient, left_ms };
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
