//! Tells homes what a listing showed, so that nobody keeps reading from attributes that it
//! contradicts.

use std::sync::Arc;

use futures::future::join_all;
use tokio::time::Instant;
use verbs3_protocol::{ListedEntry, ListingMessage, ObjectVolume};

use crate::asking::worker_asker::WorkerAsker;

/// Tells homes of listings.
pub(crate) struct ListingReporter {
    pub(crate) asker: Arc<WorkerAsker>,
}

impl ListingReporter {
    /// Has each home check what it knows of these keys against what a listing showed of them.
    ///
    /// All messages go out at once, each is sent once. The call ends when all homes have answered,
    /// or after `first_progress`. A home that can't be told, or rests, is left out: its readers see
    /// the change when their attributes expire.
    pub(crate) async fn report_listing(&self, volume: &ObjectVolume, entries: Vec<ListedEntry>) {
        let until = Instant::now() + self.asker.options.settings.first_progress.0;
        let map = self.asker.placement.current_map();
        let groups =
            map.by_home(volume, entries).into_iter().filter(|(worker, _)| worker.health.is_up());
        let told = groups.map(|(worker, entries)| {
            let listing = ListingMessage { volume: volume.clone(), entries };
            async move { self.asker.tell_once(&worker, listing, until).await }
        });
        join_all(told).await;
    }
}
