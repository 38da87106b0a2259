//! What fails next at the proxy, and what it has been asked so far.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::Method;
use http::request::Parts;
use rand::RngExt;
use rand::rngs::SmallRng;
use tokio::sync::watch;

/// What a rule is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    Any,
    Get,
    Head,
    /// PUT of an object or a part; also a copy.
    Put,
    Delete,
    /// CompleteMultipartUpload, CreateMultipartUpload, DeleteObjects.
    Post,
}

impl Op {
    fn is(self, method: &Method) -> bool {
        match self {
            Self::Any => true,
            Self::Get => method == Method::GET,
            Self::Head => method == Method::HEAD,
            Self::Put => method == Method::PUT,
            Self::Delete => method == Method::DELETE,
            Self::Post => method == Method::POST,
        }
    }
}

/// How it fails.
#[derive(Debug, Clone, PartialEq)]
pub enum Fault {
    /// The store is not asked; this is the answer.
    Refused { status: u16, code: &'static str },
    /// The store is not asked; the connection is closed.
    Dropped,
    /// The store does what it is asked, and the connection is closed instead of an answer.
    AnswerLost,
    /// The answer's body breaks off after so many bytes; of a PUT, the request's body, before the
    /// store has all of it.
    BodyCut { after: usize },
    /// The answer is longer or shorter than it should be, and says so in Content-Length.
    OtherLength { by: i64 },
    /// The answer names another ETag.
    OtherEtag,
    /// The store is asked after `wait`, and the answer's pieces have `pause` between them.
    Slow { wait: Duration, pause: Duration },
    /// The store is asked after [`Faults::heal`].
    RequestHeld,
    /// The store does what it is asked, and the answer comes after [`Faults::heal`].
    AnswerHeld,
    /// The answer's body stops after so many bytes, until [`Faults::heal`].
    Held { after: usize },
}

/// Clones share it.
#[derive(Clone)]
pub struct Faults {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    /// Rises with every [`Faults::heal`]; what is held waits for that.
    healed: watch::Sender<u64>,
    holding: watch::Sender<usize>,
}

#[derive(Default)]
struct State {
    rules: VecDeque<Rule>,
    random: Option<Random>,
    seen: Vec<Seen>,
    /// Requests that a fault was applied to.
    failed: u64,
}

struct Seen {
    method: Method,
    path: String,
    traceparent: Option<String>,
}

struct Rule {
    op: Op,
    key: String,
    left: u64,
    fault: Fault,
}

struct Random {
    rng: SmallRng,
    percent: u32,
    kinds: Vec<(Op, Fault)>,
}

impl Default for Faults {
    fn default() -> Self {
        let (healed, holding) = (watch::Sender::new(0), watch::Sender::new(0));
        Self { shared: Arc::new(Shared { state: Mutex::default(), healed, holding }) }
    }
}

impl Faults {
    /// The next `times` requests of this kind whose path contains `key` fail so. Rules are looked
    /// at in order.
    pub fn next(&self, times: u64, op: Op, key: &str, fault: Fault) {
        self.state().rules.push_back(Rule { op, key: key.to_owned(), left: times, fault });
    }

    /// Every request of this kind, until [`Self::heal`].
    pub fn always(&self, op: Op, fault: Fault) {
        self.next(u64::MAX, op, "", fault);
    }

    /// Requests of the kinds that `kinds` has fail with a chance of `percent`, in one of its ways.
    pub fn random(&self, rng: SmallRng, percent: u32, kinds: Vec<(Op, Fault)>) {
        self.state().random = Some(Random { rng, percent, kinds });
    }

    /// Nothing fails any more, and what is held goes on.
    pub fn heal(&self) {
        let mut state = self.state();
        state.rules.clear();
        state.random = None;
        self.shared.healed.send_modify(|times| *times += 1);
    }

    /// Waits until so many requests, answers and bodies are held.
    pub async fn held(&self, count: usize) {
        let mut holding = self.shared.holding.subscribe();
        // The sender lives as long as `self`.
        let _ = holding.wait_for(|now| *now >= count).await;
    }

    /// Requests so far of this kind whose path contains `key`.
    pub fn seen(&self, op: Op, key: &str) -> usize {
        self.state()
            .seen
            .iter()
            .filter(|seen| op.is(&seen.method) && seen.path.contains(key))
            .count()
    }

    /// The `traceparent` of those that had one.
    pub fn traceparents(&self, op: Op, key: &str) -> Vec<String> {
        let state = self.state();
        let seen = state.seen.iter().filter(|seen| op.is(&seen.method) && seen.path.contains(key));
        seen.filter_map(|seen| seen.traceparent.clone()).collect()
    }

    /// How many requests a fault was applied to: a test whose faults never struck has proved
    /// nothing.
    pub fn struck(&self) -> u64 {
        self.state().failed
    }

    pub(super) fn take(&self, request: &Parts, path: &str) -> Option<Fault> {
        let mut state = self.state();
        let (method, traceparent) = (request.method.clone(), request.headers.get("traceparent"));
        let traceparent = traceparent.and_then(|value| value.to_str().ok().map(str::to_owned));
        let fault = state.choose(&method, path);
        state.seen.push(Seen { method, path: path.to_owned(), traceparent });
        state.failed += u64::from(fault.is_some());
        fault
    }

    pub(super) async fn hold(&self) {
        let mut healed = self.shared.healed.subscribe();
        let now = *healed.borrow_and_update();
        let _held = Held::begin(&self.shared.holding);
        let _ = healed.wait_for(|times| *times > now).await;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Something that is held: where its reader goes away, it is held no longer.
struct Held<'a>(&'a watch::Sender<usize>);

impl<'a> Held<'a> {
    fn begin(holding: &'a watch::Sender<usize>) -> Self {
        holding.send_modify(|count| *count += 1);
        Self(holding)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

impl State {
    fn choose(&mut self, method: &Method, path: &str) -> Option<Fault> {
        if let Some(at) =
            self.rules.iter().position(|rule| rule.op.is(method) && path.contains(&rule.key))
        {
            let rule = &mut self.rules[at];
            rule.left -= 1;
            let fault = rule.fault.clone();
            if rule.left == 0 {
                self.rules.remove(at);
            }
            return Some(fault);
        }
        let random = self.random.as_mut()?;
        let kinds: Vec<&Fault> =
            random.kinds.iter().filter(|(op, _)| op.is(method)).map(|(_, fault)| fault).collect();
        if kinds.is_empty() || random.rng.random_range(0..100) >= random.percent {
            return None;
        }
        Some(kinds[random.rng.random_range(0..kinds.len())].clone())
    }
}
