//! The conditions of readiness.

use std::sync::{Arc, PoisonError, RwLock};

use tokio_util::sync::CancellationToken;

/// One condition of readiness: a name, and a check that says why it does not hold.
pub struct ReadinessCheck {
    name: &'static str,
    check: Box<dyn Fn() -> Result<Option<String>, String> + Send + Sync>,
}

impl ReadinessCheck {
    /// Makes a condition. `check` runs for each `/readyz` and must not block. Its error is shown
    /// after the name.
    pub fn new(
        name: &'static str,
        check: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        Self::with_notice(name, move || check().map(|()| None))
    }

    /// Makes a condition like [`ReadinessCheck::new`]. Where it holds, it may have a notice all the
    /// same, which is shown after the name.
    pub fn with_notice(
        name: &'static str,
        check: impl Fn() -> Result<Option<String>, String> + Send + Sync + 'static,
    ) -> Self {
        Self { name, check: Box::new(check) }
    }

    /// Makes a condition that fails once the process has been told to end.
    pub fn until_shutdown(stop: CancellationToken) -> Self {
        Self::new("shutdown", move || {
            if stop.is_cancelled() { Err("is under way".to_owned()) } else { Ok(()) }
        })
    }

    /// Makes a condition that fails for `reason` until `event` was cancelled.
    pub fn from_event(name: &'static str, event: CancellationToken, reason: &'static str) -> Self {
        Self::new(name, move || if event.is_cancelled() { Ok(()) } else { Err(reason.to_owned()) })
    }

    /// Says whether it holds: what is to be noticed all the same, or why it doesn't.
    fn judge(&self) -> Result<Option<String>, String> {
        (self.check)()
    }
}

/// Conditions that must all hold. Clones share them. Probes are answered from a process's first
/// moments on, so conditions of its parts come as these are made.
#[derive(Clone, Default)]
pub struct ReadinessList(Arc<RwLock<Vec<ReadinessCheck>>>);

impl ReadinessList {
    /// Makes a list of conditions.
    pub fn with_checks(checks: Vec<ReadinessCheck>) -> Self {
        Self(Arc::new(RwLock::new(checks)))
    }

    /// Adds conditions behind those that are there.
    pub fn add_checks(&self, checks: Vec<ReadinessCheck>) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).extend(checks);
    }

    /// Returns whether all hold, and what to say: which fail, and which have a notice.
    pub(crate) fn judge_all(&self) -> (bool, String) {
        let (mut failed, mut notices) = (String::new(), String::new());
        for condition in &*self.0.read().unwrap_or_else(PoisonError::into_inner) {
            let name = condition.name;
            match condition.judge() {
                Ok(None) => {}
                Ok(Some(notice)) => notices.push_str(&format!("{name}: {notice}\n")),
                Err(why) => failed.push_str(&format!("{name}: {why}\n")),
            }
        }
        (failed.is_empty(), failed + &notices)
    }
}
