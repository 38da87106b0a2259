//! Looks for a page's objects in few messages. An object that is present as it should be needs no
//! question of its own. If only attributes are wanted, the home's answer here is final.

use std::collections::BTreeMap;

use tokio::time::{Instant, sleep};
use verbs3_client::{ObjectLookError, ObjectLookOutcome};
use verbs3_protocol::{LookedFor, ObjectVolume};

use crate::api::PreloadFailure;
use crate::object_list::PreloadListItem;
use crate::preload_run::PreloadRun;

impl PreloadRun<'_> {
    /// Counts the objects that are there. Returns those that must be asked about one by one.
    pub(crate) async fn look_over<'p>(
        &self,
        items: &'p [PreloadListItem],
        failed: &mut Vec<PreloadFailure>,
    ) -> Vec<&'p PreloadListItem> {
        let items: Vec<&PreloadListItem> = items.iter().collect();
        if self.plan.metadata_only {
            self.check_attributes(items, failed).await;
            return Vec::new();
        }
        if self.plan.verify {
            return items;
        }
        let seen = self.look_at(&items).await;
        items
            .into_iter()
            .zip(seen)
            .filter(|(item, seen)| !self.is_all_there(item, seen))
            .map(|(item, _)| item)
            .collect()
    }

    /// Returns whether the pages that were looked for are all that is wanted of the object, and are
    /// there. Counts the object then.
    fn is_all_there(&self, item: &PreloadListItem, seen: &ObjectLookOutcome) -> bool {
        let ObjectLookOutcome::Known { here: Some(here), .. } = seen else { return false };
        let geometry = self.environment.tier.tier_options().geometry;
        let first = self.plan.first_pages(geometry, item.listed_bytes());
        let is_more = self
            .plan
            .other_pieces(geometry, here.version.bytes, first, self.plan.replicas)
            .next()
            .is_some();
        if item.shows_another(&here.version) || here.missing_bytes > 0 || is_more {
            return false;
        }
        self.job.update_counters(|page| {
            page.objects_checked += 1;
            page.bytes_checked += u64::from(here.held_bytes);
        });
        true
    }

    /// Checks attributes, and retries homes that can't be asked.
    async fn check_attributes(
        &self,
        mut items: Vec<&PreloadListItem>,
        failed: &mut Vec<PreloadFailure>,
    ) {
        let options = &self.environment.options;
        let (began, mut pause) = (Instant::now(), options.pauses);
        while !items.is_empty() {
            let is_last = began.elapsed() >= options.settings.patience.0;
            let seen = self.look_at(&items).await;
            let mut again = Vec::new();
            for (item, seen) in items.into_iter().zip(seen) {
                let reason = match seen {
                    ObjectLookOutcome::Known { here: Some(here), .. }
                        if !item.shows_another(&here.version) =>
                    {
                        None
                    }
                    ObjectLookOutcome::Known { .. } => {
                        Some("its attributes are not in the tier any more".to_owned())
                    }
                    ObjectLookOutcome::Away(_) if !is_last => {
                        again.push(item);
                        continue;
                    }
                    ObjectLookOutcome::Away(error) => Some(error.to_string()),
                };
                self.job.update_counters(|page| {
                    page.objects_checked += 1;
                    page.objects_missing += u64::from(reason.is_some());
                });
                failed.extend(
                    reason.map(|reason| PreloadFailure { path: item.client_path(), reason }),
                );
            }
            items = again;
            if !items.is_empty() {
                self.job.update_counters(|page| page.retries += items.len() as u64);
                self.environment.metrics.retries.inc_by(items.len() as u64);
                sleep(pause.next_jittered(rand::random())).await;
            }
        }
    }

    /// Asks homes about these items. Returns their answers in the items' order.
    async fn look_at(&self, items: &[&PreloadListItem]) -> Vec<ObjectLookOutcome> {
        let geometry = self.environment.tier.tier_options().geometry;
        let mut groups: BTreeMap<(ObjectVolume, u64), Vec<usize>> = BTreeMap::new();
        for (at, item) in items.iter().enumerate() {
            // Attributes of any age count as there: readers have them renewed.
            let believed_ms = if self.plan.metadata_only { u64::MAX } else { item.believed_ms() };
            groups.entry((item.mount.object_volume(), believed_ms)).or_default().push(at);
        }
        let mut seen: Vec<ObjectLookOutcome> =
            items.iter().map(|_| ObjectLookOutcome::Away(ObjectLookError::NoMap)).collect();
        for ((volume, believed_ms), places) in groups {
            let looked_for = |&at: &usize| {
                let pages = self.plan.first_pages(geometry, items[at].listed_bytes());
                LookedFor {
                    key: items[at].key.clone(),
                    first_page: pages.start,
                    pages: pages.end - pages.start,
                }
            };
            let objects = places.iter().map(looked_for).collect();
            let found = self
                .environment
                .tier
                .look_up_objects(&volume, believed_ms, self.plan.tier, objects)
                .await;
            for (at, found) in places.into_iter().zip(found) {
                if let ObjectLookOutcome::Known { worker, life, epoch, .. } = &found {
                    self.job.record_worker_life(worker, *life, *epoch);
                }
                seen[at] = found;
            }
        }
        seen
    }
}
