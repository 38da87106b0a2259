//! Tells a home that the UFS no longer has a version of its object, so that the next read asks
//! again.

use std::sync::Arc;

use tokio::time::Instant;
use verbs3_protocol::{ContentVersion, GoneVersion, ObjectKey};

use crate::asking::worker_asker::WorkerAsker;
use crate::reading::lease_table::TierLeaseTable;

/// Tells homes of versions that the UFS no longer has.
pub(crate) struct GoneVersionReporter {
    pub(crate) asker: Arc<WorkerAsker>,
    pub(crate) leases: Arc<TierLeaseTable>,
}

impl GoneVersionReporter {
    /// Has the home drop what it knows of this version. Also drops this process's leases on the
    /// object.
    ///
    /// The message is sent once. The call ends with the answer, or after `first_progress`. A home
    /// that can't be told, or rests, is left out: its readers see the change when their attributes
    /// expire.
    pub(crate) async fn tell_version_gone(&self, object: &ObjectKey, version: &ContentVersion) {
        self.leases.drop_keys([object.hash()]);
        let map = self.asker.placement.current_map();
        let Some(home) = map.home_worker(object).filter(|home| home.health.is_up()) else { return };
        let gone = GoneVersion { object: object.clone(), version: version.clone() };
        let until = Instant::now() + self.asker.options.settings.first_progress.0;
        self.asker.tell_once(home, gone, until).await;
    }
}
