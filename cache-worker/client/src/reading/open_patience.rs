//! How long an open waits for its home. A home that is silent is told of, and one that loses against
//! the store is noted as one that failed. Asks nobody.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use verbs3_protocol::ObjectKey;

use crate::asking::worker::TierWorker;
use crate::asking::worker_asker::WorkerAsker;
use crate::reading::open_request::OpenRequest;
use crate::settings::TierSettings;

/// How long an open waits for its home's next sign of life.
pub(crate) struct OpenPatience<'a> {
    asker: &'a Arc<WorkerAsker>,
    home: &'a Arc<TierWorker>,
    request: &'a OpenRequest,
    stage: PatienceStage,
}

enum PatienceStage {
    Asked,
    Silent(SilentHome),
    Live,
}

impl<'a> OpenPatience<'a> {
    pub(crate) fn new(
        asker: &'a Arc<WorkerAsker>,
        home: &'a Arc<TierWorker>,
        request: &'a OpenRequest,
    ) -> Self {
        Self { asker, home, request, stage: PatienceStage::Asked }
    }

    /// Returns the longest wait from now on. Without a listener for silence, the first wait is the
    /// full `first_progress`.
    pub(crate) fn next_wait(&self) -> Duration {
        let TierSettings { hedge_after, first_progress, idle, .. } = &self.asker.options.settings;
        match self.stage {
            PatienceStage::Asked if self.request.silence.is_some() => hedge_after.0,
            PatienceStage::Asked => first_progress.0,
            PatienceStage::Silent(_) => first_progress.0.saturating_sub(hedge_after.0),
            PatienceStage::Live => idle.0,
        }
    }

    /// Notes that the wait is over. `false`: it was the last.
    pub(crate) fn note_silence(&mut self) -> bool {
        match (mem::replace(&mut self.stage, PatienceStage::Live), &self.request.silence) {
            (PatienceStage::Asked, Some(silence)) => {
                let silent = SilentHome::new(self.asker, self.home, &self.request.object);
                self.stage = PatienceStage::Silent(silent);
                silence.note_silence();
                true
            }
            (PatienceStage::Silent(silent), _) => {
                silent.forgive();
                false
            }
            (PatienceStage::Asked | PatienceStage::Live, _) => false,
        }
    }

    /// Notes a sign of life, or an error that its caller counts.
    pub(crate) fn note_life(&mut self) {
        if let PatienceStage::Silent(silent) = mem::replace(&mut self.stage, PatienceStage::Live) {
            silent.forgive();
        }
    }
}

/// A home that is silent. Dropped before it is forgiven, it counts as one that has failed: its
/// asker has the answer from elsewhere.
struct SilentHome {
    asker: Arc<WorkerAsker>,
    home: Arc<TierWorker>,
    object: Arc<ObjectKey>,
    is_forgiven: bool,
}

impl SilentHome {
    fn new(asker: &Arc<WorkerAsker>, home: &Arc<TierWorker>, object: &Arc<ObjectKey>) -> Self {
        let (asker, home, object) = (asker.clone(), home.clone(), object.clone());
        Self { asker, home, object, is_forgiven: false }
    }

    /// Notes that the home has shown life, or that its failure is counted by the caller.
    fn forgive(mut self) {
        self.is_forgiven = true;
    }
}

impl Drop for SilentHome {
    fn drop(&mut self) {
        if self.is_forgiven {
            return;
        }
        if let Some(rest) = self.asker.note_failure(&self.home) {
            let rest_ms = rest.as_millis() as u64;
            tracing::warn!(
                worker = %self.home.id, object = %self.object, rest_ms,
                "the store has answered before a worker showed any sign of life, several times in \
                a row"
            );
        }
    }
}
