//! Lists jobs: in pages that fit into an answer, and as an overview for people.

use std::cmp::Reverse;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::api::{JobState, JobView, JobsPage};
use crate::engine::PreloadEngine;
use crate::job::{PreloadJob, now_ms};
use crate::job_record::{JobOwner, PreloadJobRecord};
use crate::plan::is_id;

/// Most jobs of one page; by default as many as are remembered.
pub const PAGE_JOBS_MAX: usize = 100;
/// Most bytes of one page as JSON. A description alone may have 64 KiB, and clients accept 16 MiB.
const PAGE_BYTES_MAX: usize = 4 << 20;
/// The same for an owner, whose gateway holds it until the client has read it.
const OWNED_PAGE_BYTES_MAX: usize = 256 << 10;
/// How long an unfinished job stays in the overview, and how many of them it lists.
const RECENT_MS: u64 = 24 * 3600 * 1000;
const RECENT_MAX: usize = 5;

/// Names the last job of a page; the next page begins after it. The newest jobs come first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobsPageToken {
    created_ms: u64,
    id: String,
}

/// Error: no page has ended with this text.
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

/// Sorts the newest first. Two leaders may have created two jobs at one moment; these sort by name.
fn job_sort_key(created_ms: u64, id: &str) -> (Reverse<u64>, &str) {
    (Reverse(created_ms), id)
}

fn record_sort_key(record: &PreloadJobRecord) -> (Reverse<u64>, &str) {
    job_sort_key(record.created_ms, &record.id)
}

/// Overview of the jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobsOverview {
    pub running: usize,
    pub waiting: usize,
    /// Unfinished jobs of the last day, the latest first; not all if there are many.
    pub unfinished: Vec<JobView>,
}

impl PreloadEngine {
    /// Returns the newest jobs, or those after the last one of the previous page. There are
    /// `jobs_max` at most, or fewer if they are long. `owner`: only this owner's.
    pub fn jobs_page(
        &self,
        owner: Option<&JobOwner>,
        after: Option<&JobsPageToken>,
        jobs_max: usize,
    ) -> JobsPage {
        let jobs = self.sorted_jobs(|job| {
            if owner.is_some() && job.record.owner.as_ref() != owner {
                return false;
            }
            let after = after.map(|after| job_sort_key(after.created_ms, &after.id));
            after.is_none_or(|after| record_sort_key(&job.record) > after)
        });
        let bytes_max = if owner.is_some() { OWNED_PAGE_BYTES_MAX } else { PAGE_BYTES_MAX };
        let (mut page, mut bytes) = (JobsPage::default(), 0);
        let mut last: Option<&PreloadJobRecord> = None;
        for job in &jobs {
            let view = job.job_view();
            bytes += serde_json::to_vec(&view).map_or(0, |json| json.len());
            if page.jobs.len() >= jobs_max || (bytes > bytes_max && last.is_some()) {
                page.next = last
                    .map(|PreloadJobRecord { created_ms, id, .. }| format!("{created_ms}.{id}"));
                break;
            }
            page.jobs.push(view);
            last = Some(&job.record);
        }
        page
    }

    /// Returns the overview.
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
