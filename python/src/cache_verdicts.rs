//! Counts what the cache did for the reads of this process, as the answers tell it
//! (`x-verbs3-cache`). A forked child counts from zero.

use std::process;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use verbs3_lending_client::AnswerHead;

const VERDICT_HEADER: &str = "x-verbs3-cache";
/// The header's values, in the order of the counts.
const VERDICTS: [&[u8]; 4] = [b"hit", b"partial", b"miss", b"bypass"];

/// All reads of this process by lent memory.
pub(crate) static PROCESS_VERDICTS: CacheVerdicts = CacheVerdicts::new();

/// Reads by what the cache did for them.
#[derive(Debug)]
pub(crate) struct CacheVerdicts {
    /// The process whose reads these are. 0: none yet.
    process: AtomicU32,
    counts: [AtomicU64; VERDICTS.len()],
}

impl CacheVerdicts {
    pub(crate) const fn new() -> Self {
        Self { process: AtomicU32::new(0), counts: [const { AtomicU64::new(0) }; VERDICTS.len()] }
    }

    /// Counts an answer, if it tells a verdict. Gateways may be told not to (`cache_headers`).
    pub(crate) fn count_answer(&self, head: &AnswerHead) {
        let told = head.headers.iter().find(|(name, _)| name == VERDICT_HEADER);
        let Some((_, verdict)) = told else { return };
        self.forget_parent();
        if let Some(at) = VERDICTS.iter().position(|known| *known == verdict.as_slice()) {
            self.counts[at].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns hits, partial hits, misses and bypasses.
    pub(crate) fn count_verdicts(&self) -> [u64; VERDICTS.len()] {
        self.forget_parent();
        self.counts.each_ref().map(|count| count.load(Ordering::Relaxed))
    }

    /// Begins at zero in a process that was forked.
    fn forget_parent(&self) {
        let own = process::id();
        if self.process.swap(own, Ordering::Relaxed) != own {
            self.counts.iter().for_each(|count| count.store(0, Ordering::Relaxed));
        }
    }
}
