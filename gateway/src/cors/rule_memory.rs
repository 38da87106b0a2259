//! Remembers the CORS configurations of buckets, and has each asked for once at a time.
//!
//! Owns how long a configuration is believed, and that a known change ends it, also for an answer
//! that is on its way. Knows neither stores nor places: whoever asks brings the question.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared, WeakShared};
use moka::sync::Cache;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{CorsConfiguration, CorsLookupError};

/// Most configurations that are remembered; a browser's application uses a handful of buckets.
const REMEMBERED_MAX: u64 = 1024;

/// How the store answers a question.
pub(super) type StoreAnswer = Result<CorsConfiguration, CorsLookupError>;
type SharedAnswer = Shared<BoxFuture<'static, StoreAnswer>>;

/// How old a configuration may be.
#[derive(Debug, Clone, Copy)]
pub(super) struct RuleAges {
    /// Up to here it is believed, and nobody asks.
    pub ttl: Duration,
    /// How much longer it is kept, for when nobody can ask.
    pub stale_max: Duration,
}

/// What is known of buckets, and the questions under way. Keys name a bucket of a store.
pub(super) struct CorsRuleMemory {
    ages: RuleAges,
    known: Cache<String, KnownRules>,
    questions: Mutex<HashMap<String, OpenQuestion>>,
    questions_count: AtomicU64,
}

#[derive(Debug, Clone)]
struct KnownRules {
    configuration: CorsConfiguration,
    believed_until: Instant,
    kept_until: Instant,
}

/// A question that lives as long as somebody waits for its answer.
struct OpenQuestion {
    number: u64,
    answer: WeakShared<BoxFuture<'static, StoreAnswer>>,
}

/// Closes a question: when its answer is there, or when nobody waits for it any more.
struct QuestionEnd {
    memory: Arc<CorsRuleMemory>,
    key: String,
    number: u64,
}

impl CorsRuleMemory {
    /// Makes a memory of nothing.
    pub fn new(ages: RuleAges) -> Arc<Self> {
        // The entries' own times decide; this frees what nobody looks at any more.
        let known = Cache::builder()
            .max_capacity(REMEMBERED_MAX)
            .time_to_live(ages.ttl.saturating_add(ages.stale_max))
            .build();
        let (questions, questions_count) = (Mutex::default(), AtomicU64::new(0));
        Arc::new(Self { ages, known, questions, questions_count })
    }

    /// Returns a configuration that is believed without a question.
    pub fn find_believed(&self, key: &str) -> Option<CorsConfiguration> {
        let known = self.known.get(key)?;
        (Instant::now() < known.believed_until).then_some(known.configuration)
    }

    /// Returns a configuration that may be out of date, for when the store can't be asked.
    pub fn find_kept(&self, key: &str) -> Option<CorsConfiguration> {
        let known = self.known.get(key)?;
        (Instant::now() < known.kept_until).then_some(known.configuration)
    }

    /// Returns the answer to a question under way.
    pub fn join_question(&self, key: &str) -> Option<SharedAnswer> {
        self.questions.lock().get(key)?.answer.upgrade()
    }

    /// Begins a question, or joins the one under way. It goes on while somebody waits for it.
    pub fn begin_question(
        self: &Arc<Self>,
        key: &str,
        question: BoxFuture<'static, StoreAnswer>,
    ) -> SharedAnswer {
        let mut questions = self.questions.lock();
        if let Some(answer) = questions.get(key).and_then(|open| open.answer.upgrade()) {
            return answer;
        }
        let number = self.questions_count.fetch_add(1, Ordering::Relaxed);
        let end = QuestionEnd { memory: self.clone(), key: key.to_owned(), number };
        let answer = async move {
            let answer = question.await;
            end.note_answer(&answer);
            answer
        };
        let answer = answer.boxed().shared();
        let waiting = answer.downgrade().expect("its answer has not been taken");
        questions.insert(key.to_owned(), OpenQuestion { number, answer: waiting });
        answer
    }

    /// Forgets a bucket, because its configuration or itself changes. An answer on its way may be
    /// older than that, and is not remembered.
    pub fn forget_rules(&self, key: &str) {
        let mut questions = self.questions.lock();
        questions.remove(key);
        self.known.invalidate(key);
    }

    /// Remembers an answer. Where the store gave none, what is kept is believed for another while,
    /// so that not every request waits for a store that is silent.
    fn remember_answer(&self, key: &str, answer: &StoreAnswer) {
        let now = Instant::now();
        let believed_until = now + self.ages.ttl;
        let known = match answer {
            Ok(configuration) => KnownRules {
                configuration: configuration.clone(),
                believed_until,
                kept_until: believed_until + self.ages.stale_max,
            },
            Err(error) if error.leaves_rules() => {
                let kept = self.known.get(key).filter(|known| now < known.kept_until);
                let Some(mut known) = kept else { return };
                known.believed_until = believed_until.min(known.kept_until);
                known
            }
            // The store has answered: what it said before is no longer so.
            Err(_) => return self.known.invalidate(key),
        };
        self.known.insert(key.to_owned(), known);
    }
}

impl QuestionEnd {
    fn note_answer(&self, answer: &StoreAnswer) {
        let mut questions = self.memory.questions.lock();
        if self.close_question(&mut questions) {
            self.memory.remember_answer(&self.key, answer);
        }
    }

    /// Returns whether it still is the question about its bucket.
    fn close_question(&self, questions: &mut HashMap<String, OpenQuestion>) -> bool {
        let is_open = questions.get(&self.key).is_some_and(|open| open.number == self.number);
        if is_open {
            questions.remove(&self.key);
        }
        is_open
    }
}

impl Drop for QuestionEnd {
    fn drop(&mut self) {
        self.close_question(&mut self.memory.questions.lock());
    }
}
