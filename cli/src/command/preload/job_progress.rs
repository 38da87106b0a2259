//! Jobs as people and programs read them.

use std::time::Duration;

use indicatif::{BinaryBytes, MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use verbs3_preload::api::{JobState, JobView, PreloadJobAction, PreloadPhase};

const SPIN: Duration = Duration::from_millis(120);

/// Progress on the terminal; nothing where standard error is none.
pub struct ProgressBars {
    all: MultiProgress,
    files: ProgressBar,
    bytes: ProgressBar,
}

impl ProgressBars {
    /// Draws on standard error. `hidden`: draws nothing.
    pub fn new(hidden: bool) -> Self {
        let target =
            if hidden { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let all = MultiProgress::with_draw_target(target);
        let bar = |template: &str| {
            let style = ProgressStyle::with_template(template)
                .unwrap_or_else(|_| ProgressStyle::default_bar());
            let bar = all.add(ProgressBar::new(0).with_style(style));
            bar.enable_steady_tick(SPIN);
            bar
        };
        let files = bar("{spinner} {prefix:8} {wide_bar} {human_pos} of {human_len} files  {msg}");
        let bytes = bar("  {prefix:8} {wide_bar} {binary_bytes} of {binary_total_bytes}  \
            {binary_bytes_per_sec}  {eta} left");
        Self { all, files, bytes }
    }

    /// Moves both bars to the state of the job.
    pub fn show_job(&self, view: &JobView) {
        let counters = &view.counters;
        let (name, files, bytes) = match (view.state, view.phase) {
            (JobState::Queued, _) => ("waiting", 0, 0),
            (_, PreloadPhase::Count) => ("listing", counters.objects, 0),
            (_, PreloadPhase::Load) => {
                ("loading", counters.objects_loaded, counters.bytes_loaded + counters.bytes_held)
            }
            (_, PreloadPhase::Check) => {
                ("checking", counters.objects_checked, counters.bytes_checked)
            }
        };
        if self.files.prefix() != name {
            // Another phase has another speed.
            self.bytes.reset();
            self.files.set_prefix(name.to_owned());
        }
        self.files.set_length(counters.objects);
        self.files.set_position(files);
        self.bytes.set_length(counters.bytes.max(bytes));
        self.bytes.set_position(bytes);
        let failed = counters.objects_failed + counters.objects_missing;
        if failed > 0 {
            self.files.set_message(format!("{failed} failed"));
        }
    }

    /// Prints a line above the bars.
    pub fn print_line(&self, text: &str) {
        let _ = self.all.println(text);
    }

    /// Moves the bars for the last time and removes them.
    pub fn finish_job(&self, view: &JobView) {
        self.show_job(view);
        self.files.finish_and_clear();
        self.bytes.finish_and_clear();
    }
}

/// A job, for people or as a line of JSON.
pub fn print_job(view: &JobView, json: bool) {
    if json {
        println!("{}", serde_json::to_string(view).unwrap_or_default());
        return;
    }
    print!("{}", render_job(view));
}

fn render_job(view: &JobView) -> String {
    let counters = &view.counters;
    let size = |bytes: u64| BinaryBytes(bytes).to_string();
    let mut text = format!("job {}: {}\n", view.id, state_word(view));
    if let Some(reason) = &view.reason {
        text.push_str(&format!("  {reason}\n"));
    }
    text.push_str(&format!(
        "  {} objects, {} by the listing\n",
        counters.objects,
        size(counters.bytes)
    ));
    if !view.spec.dry_run && view.spec.action != PreloadJobAction::Load {
        let what = match view.spec.action {
            PreloadJobAction::Evict => format!("{} given up", size(counters.bytes_evicted)),
            PreloadJobAction::Load | PreloadJobAction::Unpin => "pins taken off".to_owned(),
        };
        text.push_str(&format!("  {} gone through: {what}\n", counters.objects_loaded));
    } else if !view.spec.dry_run {
        let (loaded, held) = (size(counters.bytes_loaded), size(counters.bytes_held));
        text.push_str(&format!(
            "  {} gone through: {loaded} loaded, {held} were there already\n",
            counters.objects_loaded
        ));
        if counters.objects_vanished > 0 {
            text.push_str(&format!("  {} were deleted meanwhile\n", counters.objects_vanished));
        }
        let (checked, found) = (counters.objects_checked, size(counters.bytes_checked));
        text.push_str(&format!("  {checked} checked: {found} are in the tier"));
        match view.spec.verify {
            true => text.push_str(&format!(
                "; {} compared with the store's checksums\n",
                counters.objects_compared
            )),
            false => text.push('\n'),
        }
    }
    if view.rounds > 0 {
        let rounds = view.rounds;
        text.push_str(&format!(
            "  gone through {rounds} times again: workers were started anew, or the map has \
            changed\n"
        ));
    }
    for failure in &view.failures.first {
        text.push_str(&format!("  {}: {}\n", failure.path, failure.reason));
    }
    let more = view.failures.count.saturating_sub(view.failures.first.len() as u64);
    if more > 0 {
        text.push_str(&format!("  and {more} more\n"));
    }
    if let Some(file) = &view.failures.file {
        text.push_str(&format!("  all are in {file}, on the coordinator's host\n"));
    }
    text
}

fn state_word(view: &JobView) -> &'static str {
    match (view.state, view.phase) {
        (JobState::Queued, _) => "waits",
        (JobState::Running, PreloadPhase::Count) => "lists",
        (JobState::Running, PreloadPhase::Load) if view.spec.action != PreloadJobAction::Load => {
            "runs"
        }
        (JobState::Running, PreloadPhase::Load) => "loads",
        (JobState::Running, PreloadPhase::Check) => "checks",
        (JobState::Done, _) => "done",
        (JobState::Incomplete, _) => "incomplete",
        (JobState::Failed, _) => "failed",
        (JobState::Stopped, _) => "stopped",
    }
}

/// Prints a table of jobs for people, or one JSON line for each job.
pub fn print_jobs(jobs: &[JobView], json: bool) {
    if json {
        jobs.iter().for_each(|view| print_job(view, true));
        return;
    }
    if jobs.is_empty() {
        println!("there are no jobs");
        return;
    }
    println!(
        "{:<24} {:<11} {:>12} {:>12} {:>12} {:>8}",
        "ID", "STATE", "OBJECTS", "LOADED", "HELD", "FAILED"
    );
    for view in jobs {
        let counters = &view.counters;
        let size = |bytes: u64| BinaryBytes(bytes).to_string();
        println!(
            "{:<24} {:<11} {:>12} {:>12} {:>12} {:>8}",
            view.id,
            state_word(view),
            counters.objects,
            size(counters.bytes_loaded),
            size(counters.bytes_held),
            counters.objects_failed + counters.objects_missing,
        );
    }
}
