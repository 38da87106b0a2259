//! Tells a home that the UFS no longer has a version of its object, so that the next read asks
//! again.

use std::sync::Arc;

use tokio::time::Instant;
use verbs3_protocol::{ContentVersion, GoneVersion, ObjectKey, WorkerRequest};

use crate::metrics::CallKind;
use crate::tier::CacheTierClient;

impl CacheTierClient {
    /// Has the home drop what it knows of this version. Also drops this process's leases on the
    /// object.
    ///
    /// The message is sent once. The call ends with the answer, or after `first_progress`. A home
    /// that can't be told, or rests, is left out: its readers see the change when their attributes
    /// expire.
    pub async fn tell_version_gone(self: &Arc<Self>, object: &ObjectKey, version: &ContentVersion) {
        self.leases.drop_keys([object.hash()]);
        let map = self.map.load_full();
        let Some(home) = map.home_worker(object).filter(|home| home.health.is_up()) else { return };
        let message = WorkerRequest::GoneVersion(GoneVersion {
            object: object.clone(),
            version: version.clone(),
        })
        .encode();
        let until = Instant::now() + self.options.first_progress;
        self.tell_once(CallKind::GoneVersion, home, message, until).await;
    }
}
