//! Owns the file that lists what a job could not load: one JSON object a line. A page bounds its
//! memory, and a setting bounds the file.
//!
//! Lines are written before their page is persisted as done. Lines beyond the persisted length
//! belong to a page that will be repeated, and are cut off.

use std::path::{Path, PathBuf};

use tokio::fs::{self, OpenOptions};
use tokio::io::{AsyncSeekExt, AsyncWriteExt};

use crate::api::{PreloadFailure, PreloadFailureSummary};

/// Failures that a job's view shows.
const FIRST_MAX: usize = 20;
/// Most characters of one failure's text. Texts of stores and manifests may be long, and a job's
/// progress must fit into the coordinators' store.
const TEXT_MAX: usize = 1000;

pub(crate) fn truncate_text(text: &str) -> String {
    text.chars().take(TEXT_MAX).collect()
}

pub(crate) fn file_of(folder: &Path, id: &str) -> PathBuf {
    folder.join(format!("{id}.jsonl"))
}

/// Appends a page's failures to the file and to the job's summary. `bytes` is the file's persisted
/// length. A file that can't be written does not stop the job: its summary says how many failures
/// the file lacks.
pub(crate) async fn append_failures(
    file: &Path,
    bytes_max: u64,
    page: &[PreloadFailure],
    failures: &mut PreloadFailureSummary,
    bytes: &mut u64,
) {
    failures.count += page.len() as u64;
    let room = FIRST_MAX.saturating_sub(failures.first.len());
    let short = |failure: &PreloadFailure| PreloadFailure {
        path: truncate_text(&failure.path),
        reason: truncate_text(&failure.reason),
    };
    failures.first.extend(page.iter().take(room).map(short));
    if page.is_empty() {
        return;
    }
    if fs::metadata(file).await.map_or(0, |known| known.len()) < *bytes {
        // The file is on the host of the previous leader.
        *bytes = 0;
        failures.left_out = failures.count - page.len() as u64;
    }
    let mut text = Vec::new();
    let mut written = 0;
    for failure in page {
        let line = serde_json::to_vec(failure).unwrap_or_default();
        if *bytes + (text.len() + line.len()) as u64 >= bytes_max {
            break;
        }
        text.extend_from_slice(&line);
        text.push(b'\n');
        written += 1;
    }
    match write(file, *bytes, &text).await {
        Ok(()) => {
            *bytes += text.len() as u64;
            failures.file = Some(file.display().to_string());
            failures.left_out += (page.len() - written) as u64;
        }
        Err(error) => {
            tracing::warn!(file = %file.display(), %error, "can't list a job's failures");
            failures.left_out += page.len() as u64;
        }
    }
}

async fn write(file: &Path, at: u64, text: &[u8]) -> std::io::Result<()> {
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder).await?;
    }
    let mut file = OpenOptions::new().create(true).truncate(false).write(true).open(file).await?;
    file.set_len(at).await?;
    file.seek(std::io::SeekFrom::Start(at)).await?;
    file.write_all(text).await?;
    file.sync_data().await
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn failure(number: usize) -> PreloadFailure {
        PreloadFailure { path: format!("s3://train/{number}"), reason: "why".into() }
    }

    #[tokio::test]
    async fn a_page_that_is_gone_through_again_is_listed_once() {
        let folder = tempfile::tempdir().unwrap();
        let file = file_of(folder.path(), "job");
        let (mut failures, mut bytes) = (PreloadFailureSummary::default(), 0);
        append_failures(&file, 1 << 20, &[failure(1)], &mut failures, &mut bytes).await;
        let persisted = (failures.clone(), bytes);
        append_failures(&file, 1 << 20, &[failure(2), failure(3)], &mut failures, &mut bytes).await;
        // Killed before the page was persisted.
        let (mut failures, mut bytes) = persisted;
        append_failures(&file, 1 << 20, &[failure(2)], &mut failures, &mut bytes).await;
        let text = std::fs::read_to_string(&file).unwrap();
        let listed: Vec<PreloadFailure> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(listed, [failure(1), failure(2)]);
        assert_eq!((failures.count, failures.left_out, text.len() as u64), (2, 0, bytes));
    }

    #[tokio::test]
    async fn a_file_that_is_on_another_host_is_begun_anew() {
        let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (mut failures, mut bytes) = (PreloadFailureSummary::default(), 0);
        let page = [failure(1), failure(2)];
        append_failures(&file_of(here.path(), "job"), 1 << 20, &page, &mut failures, &mut bytes)
            .await;
        let file = file_of(there.path(), "job");
        append_failures(&file, 1 << 20, &[failure(3)], &mut failures, &mut bytes).await;
        let text = std::fs::read_to_string(&file).unwrap();
        let listed: Vec<PreloadFailure> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(listed, [failure(3)]);
        assert_eq!((failures.count, failures.left_out, text.len() as u64), (3, 2, bytes));
        assert_eq!(failures.file, Some(file.display().to_string()));
    }

    #[tokio::test]
    async fn neither_the_file_nor_the_view_grows_without_bound() {
        let folder = tempfile::tempdir().unwrap();
        let file = file_of(folder.path(), "job");
        let (mut failures, mut bytes) = (PreloadFailureSummary::default(), 0);
        let page: Vec<PreloadFailure> = (0..100).map(failure).collect();
        for _ in 0..10 {
            append_failures(&file, 2000, &page, &mut failures, &mut bytes).await;
        }
        let lines = std::fs::read_to_string(&file).unwrap().lines().count() as u64;
        assert!(bytes <= 2000 && lines > 20, "{bytes} {lines}");
        assert_eq!((failures.count, failures.first.len()), (1000, FIRST_MAX));
        assert_eq!(failures.left_out + lines, 1000);
    }
}
