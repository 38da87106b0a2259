//! Tells the coordinators' console what this process does, as often as the leader wants, and nothing
//! at all where there is no console. Nobody waits for it: what does not arrive is left out.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus::Registry;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use verbs3_coordinator_client::api::{ActivityRole, ActivityWish, NodeActivity};
use verbs3_coordinator_client::{AskError, CoordinatorClient};

use super::activity_report::fill_activity;

const PATH: &str = "/v1/activity";
/// Pause until it is asked again whether reports are wanted. Another coordinator may want them.
const ASK_AGAIN: Duration = Duration::from_secs(60);
/// The same where no coordinator answered: they may be about to elect a leader.
const ANSWER_PAUSE: Duration = Duration::from_secs(3);
/// Bounds on what a coordinator may wish.
const EVERY_MIN: Duration = Duration::from_millis(500);
const EVERY_MAX: Duration = Duration::from_secs(60);
/// For the last report. The process does not end later for it than that.
const GOODBYE_MAX: Duration = Duration::from_secs(5);

/// What reports, and to whom.
pub struct ActivityReporter {
    client: Arc<CoordinatorClient>,
    registry: Registry,
    role: ActivityRole,
    name: String,
    /// Another one after each start.
    life: u64,
    /// Reports that were begun.
    begun: AtomicU64,
}

impl ActivityReporter {
    pub fn new(
        client: Arc<CoordinatorClient>,
        registry: Registry,
        role: ActivityRole,
        name: String,
    ) -> Self {
        Self { client, registry, role, name, life: rand::random(), begun: AtomicU64::new(0) }
    }

    /// Reports until told to stop, and says goodbye then.
    pub fn start(self, stop: CancellationToken) -> JoinHandle<()> {
        tokio::spawn(async move {
            let mut next = NextReport::Ask { after: Duration::ZERO };
            stop.run_until_cancelled(self.report_forever(&mut next)).await;
            if matches!(next, NextReport::Send { .. }) {
                let _ = timeout(GOODBYE_MAX, self.send_report(true)).await;
            }
        })
    }

    async fn report_forever(&self, next: &mut NextReport) {
        loop {
            let (asked, pause) = match *next {
                NextReport::Ask { after } => {
                    pause_for(after).await;
                    (self.client.get(PATH, Duration::ZERO).await, Duration::ZERO)
                }
                NextReport::Send { every } => (self.send_report(false).await, every),
            };
            *next = next.after_answer(asked);
            if matches!(next, NextReport::Send { .. }) {
                pause_for(pause).await;
            }
        }
    }

    fn begin_report(&self, is_leaving: bool) -> NodeActivity {
        NodeActivity {
            role: self.role,
            name: self.name.clone(),
            life: self.life,
            number: self.begun.fetch_add(1, Ordering::Relaxed) + 1,
            is_leaving,
            ..NodeActivity::default()
        }
    }

    async fn send_report(&self, is_leaving: bool) -> Result<Option<ActivityWish>, AskError> {
        let mut report = self.begin_report(is_leaving);
        let registry = self.registry.clone();
        // Some figures are read from files of the kernel.
        let gathered = tokio::task::spawn_blocking(move || registry.gather()).await;
        fill_activity(&gathered.unwrap_or_default(), &mut report);
        self.client.post_json(PATH, &report, Duration::ZERO).await
    }
}

/// Not all processes of a cluster at once.
async fn pause_for(pause: Duration) {
    sleep(pause.mul_f64(rand::random_range(0.9..1.0))).await;
}

/// What is done next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NextReport {
    /// Ask whether reports are wanted. Nothing is told meanwhile.
    Ask {
        after: Duration,
    },
    Send {
        every: Duration,
    },
}

impl NextReport {
    fn after_answer(self, asked: Result<Option<ActivityWish>, AskError>) -> Self {
        match asked {
            Ok(Some(ActivityWish { every_ms })) if every_ms > 0 => {
                let every = Duration::from_millis(every_ms).clamp(EVERY_MIN, EVERY_MAX);
                Self::Send { every }
            }
            Ok(_) => Self::Ask { after: ASK_AGAIN },
            // An election, perhaps: it goes on after it.
            Err(error @ AskError::Away(_)) => {
                tracing::debug!(%error, "no coordinator takes this process's figures");
                match self {
                    Self::Ask { .. } => Self::Ask { after: ANSWER_PAUSE },
                    Self::Send { every } => Self::Send { every },
                }
            }
            // One of an older release, or one that takes no more.
            Err(error) => {
                tracing::debug!(%error, "the coordinators do not take this process's figures");
                Self::Ask { after: ASK_AGAIN }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use verbs3_coordinator_client::CoordinatorClientOptions;
    use verbs3_coordinator_client::proof::ClusterSecret;

    use super::*;

    #[test]
    fn each_report_of_a_life_has_a_higher_number() {
        let client = CoordinatorClient::new(CoordinatorClientOptions {
            coordinators: Vec::new(),
            secrets: ClusterSecret::new("tests", "a secret of at least sixteen characters").into(),
            tls: None,
            connect_deadline: ANSWER_PAUSE,
            deadline: ANSWER_PAUSE,
        });
        let (registry, role) = (Registry::new(), ActivityRole::Gateway);
        let reporter = ActivityReporter::new(Arc::new(client), registry, role, "g".to_owned());
        let reports = [false, false, true].map(|is_leaving| reporter.begin_report(is_leaving));
        assert_eq!(reports.each_ref().map(|report| report.number), [1, 2, 3]);
        assert!(reports.iter().all(|report| report.life == reporter.life));
    }

    #[test]
    fn reports_come_as_they_are_wished_and_go_on_after_an_election() {
        let wish = |every_ms| Ok(Some(ActivityWish { every_ms }));
        let send = |every| NextReport::Send { every };
        let ask = |after| NextReport::Ask { after };
        let away = || Err(AskError::Away("nobody".to_owned()));
        let (first, ten) = (ask(Duration::ZERO), Duration::from_secs(10));
        assert_eq!(first.after_answer(wish(10_000)), send(ten));
        assert_eq!(first.after_answer(wish(1)), send(EVERY_MIN));
        assert_eq!(first.after_answer(wish(u64::MAX)), send(EVERY_MAX));
        assert_eq!(first.after_answer(away()), ask(ANSWER_PAUSE));
        assert_eq!(send(ten).after_answer(away()), send(ten));
        assert_eq!(send(ten).after_answer(wish(0)), ask(ASK_AGAIN));
        let refused = Err(AskError::TooLong { bytes: 1 });
        assert_eq!(send(ten).after_answer(refused), ask(ASK_AGAIN));
    }
}
