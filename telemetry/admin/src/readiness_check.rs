//! One condition of readiness.

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

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// Says whether it holds: what is to be noticed all the same, or why it doesn't.
    pub(crate) fn judge(&self) -> Result<Option<String>, String> {
        (self.check)()
    }
}
