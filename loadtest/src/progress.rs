//! Shows a run's progress on standard error if that is a terminal. Owns the bar and nothing of the
//! run.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// Bar of one task that takes time.
pub struct BenchProgressBar(ProgressBar);

impl BenchProgressBar {
    /// Creates a bar for a number of objects.
    pub fn for_objects(what: &str, count: u64) -> Self {
        // The template is a constant; if it were wrong, the default one would do.
        let style =
            ProgressStyle::with_template("{msg:40} {bar:30} {pos}/{len} objects, {eta} left")
                .unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = ProgressBar::new(count).with_style(style);
        bar.set_message(what.to_owned());
        Self(bar)
    }

    /// Advances the bar by `count` objects.
    pub fn add_count(&self, count: u64) {
        self.0.inc(count);
    }

    /// Runs `job`, which takes about `time`, and advances the bar meanwhile.
    pub fn run_with_bar<T>(what: &str, time: Duration, job: impl FnOnce() -> T) -> T {
        let style = ProgressStyle::with_template("{msg:40} {bar:30} {elapsed}")
            .unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = ProgressBar::new(time.as_millis() as u64).with_style(style);
        if bar.is_hidden() {
            return job();
        }
        bar.set_message(what.to_owned());
        let began = Instant::now();
        let (sender, receiver) = std::sync::mpsc::channel::<()>();
        let bar = &bar;
        std::thread::scope(|scope| {
            scope.spawn(move || {
                // The loop ends when the sender is dropped.
                while receiver.recv_timeout(Duration::from_millis(200))
                    == Err(std::sync::mpsc::RecvTimeoutError::Timeout)
                {
                    bar.set_position(began.elapsed().as_millis() as u64);
                }
                bar.finish_and_clear();
            });
            let made = job();
            drop(sender);
            made
        })
    }
}

impl Drop for BenchProgressBar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
