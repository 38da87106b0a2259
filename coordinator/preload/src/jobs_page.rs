//! Jobs as lists of them are told: in pages that fit into an answer, and those that a person should
//! know of.

use std::cmp::Reverse;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::api::{JobState, JobView, JobsPage};
use crate::engine::PreloadEngine;
use crate::job::{PreloadJob, now_ms};
use crate::job_record::PreloadJobRecord;
use crate::plan::is_id;

/// Jobs of one page. Everything that is remembered by default.
pub const PAGE_JOBS_MAX: usize = 100;
/// Bytes of one page as JSON: a description alone may have 64 KiB, and askers take 16 MiB.
const PAGE_BYTES_MAX: usize = 4 << 20;
/// How long ago a job may have ended that a person should know of, and how many of these are told.
const RECENT_MS: u64 = 24 * 3600 * 1000;
const RECENT_MAX: usize = 5;

/// The last job of a page: the next one begins after it. Jobs are told the newest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobsPageToken {
    created_ms: u64,
    id: String,
}

/// A text that no page has ended with.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not what `next` of a page said")]
pub struct JobsPageTokenError(String);

impl FromStr for JobsPageToken {
    type Err = JobsPageTokenError;

    fn from_str(text: &str) -> Result<Self, JobsPageTokenError> {
        let wrong = || JobsPageTokenError(text.to_owned());
        let (created_ms, id) = text.split_once('.').ok_or_else(wrong)?;
        if created_ms.len() > 16
            || !created_ms.bytes().all(|byte| byte.is_ascii_digit())
            || !is_id(id)
        {
            return Err(wrong());
        }
        Ok(Self { created_ms: created_ms.parse().map_err(|_| wrong())?, id: id.to_owned() })
    }
}

impl fmt::Display for JobsPageToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.created_ms, self.id)
    }
}

/// The newest first; two of one moment, which two leaders may have taken in, by name.
fn job_sort_key(created_ms: u64, id: &str) -> (Reverse<u64>, &str) {
    (Reverse(created_ms), id)
}

fn record_sort_key(record: &PreloadJobRecord) -> (Reverse<u64>, &str) {
    job_sort_key(record.created_ms, &record.id)
}

/// Jobs at a glance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobsOverview {
    pub running: usize,
    pub waiting: usize,
    /// Of the last day, with something missing, the last one first; not all where there are many.
    pub unfinished: Vec<JobView>,
}

impl PreloadEngine {
    /// The newest jobs, or those after the last one of a page before: `jobs_max` at most, or fewer
    /// where they are long.
    pub fn jobs_page(&self, after: Option<&JobsPageToken>, jobs_max: usize) -> JobsPage {
        let jobs = self.sorted_jobs(|job| {
            let after = after.map(|after| job_sort_key(after.created_ms, &after.id));
            after.is_none_or(|after| record_sort_key(&job.record) > after)
        });
        let (mut page, mut bytes) = (JobsPage::default(), 0);
        let mut last: Option<&PreloadJobRecord> = None;
        for job in &jobs {
            let view = job.job_view();
            bytes += serde_json::to_vec(&view).map_or(0, |json| json.len());
            if page.jobs.len() >= jobs_max || (bytes > PAGE_BYTES_MAX && last.is_some()) {
                page.next = last
                    .map(|PreloadJobRecord { created_ms, id, .. }| format!("{created_ms}.{id}"));
                break;
            }
            page.jobs.push(view);
            last = Some(&job.record);
        }
        page
    }

    /// What a person should know of the jobs.
    pub fn jobs_overview(&self) -> JobsOverview {
        let recent = now_ms().saturating_sub(RECENT_MS);
        let mut unfinished: Vec<JobView> = Vec::new();
        for job in self
            .sorted_jobs(|job| matches!(job.job_state(), JobState::Incomplete | JobState::Failed))
        {
            let view = job.job_view();
            if view.ended_ms.is_some_and(|ended| ended >= recent) {
                unfinished.push(view);
            }
        }
        unfinished.sort_by_key(|view| Reverse(view.ended_ms));
        unfinished.truncate(RECENT_MAX);
        let count =
            |is: fn(&PreloadJob) -> bool| self.jobs.lock().values().filter(|job| is(job)).count();
        JobsOverview {
            running: count(PreloadJob::is_running),
            waiting: count(PreloadJob::is_waiting),
            unfinished,
        }
    }

    fn sorted_jobs(&self, is_wanted: impl Fn(&PreloadJob) -> bool) -> Vec<Arc<PreloadJob>> {
        let mut jobs: Vec<Arc<PreloadJob>> =
            self.jobs.lock().values().filter(|job| is_wanted(job)).cloned().collect();
        jobs.sort_by(|a, b| record_sort_key(&a.record).cmp(&record_sort_key(&b.record)));
        jobs
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_end_of_a_page_is_read_back_and_nothing_else_is() {
        for text in ["17.a", "1763780000000.night-22.again"] {
            assert_eq!(text.parse::<JobsPageToken>().unwrap().to_string(), text);
        }
        for text in
            ["", "17", "17.", ".a", "x.a", "+1.a", "-1.a", "17.a/b", "17..a", "99999999999999999.a"]
        {
            assert_eq!(text.parse::<JobsPageToken>(), Err(JobsPageTokenError(text.to_owned())));
        }
    }
}
