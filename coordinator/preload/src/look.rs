//! Looks for a page's objects in few messages: what is there as it should be needs no question of
//! its own. Of attributes, nothing but their home's word is wanted, so that here it is settled
//! whether they are there.

use std::collections::BTreeMap;

use tokio::time::{Instant, sleep};
use verbs3_client::Seen;
use verbs3_protocol::{LookedFor, Volume};

use crate::api::Failure;
use crate::list::Item;
use crate::load::spread;
use crate::run::Run;

impl Run<'_> {
    /// Counts the objects that are there, and returns those that are to be asked about one by one.
    pub(crate) async fn look_over<'p>(
        &self,
        items: &'p [Item],
        failed: &mut Vec<Failure>,
    ) -> Vec<&'p Item> {
        let items: Vec<&Item> = items.iter().collect();
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

    /// Whether the pages that were looked for are all that is wanted of the object, and are there.
    /// Counts it.
    fn is_all_there(&self, item: &Item, seen: &Seen) -> bool {
        let Seen::Known { here: Some(here), .. } = seen else { return false };
        let geometry = self.engine.tier.options().geometry;
        let first = self.plan.first_pages(geometry, item.listed_bytes());
        let is_more = self
            .plan
            .other_pieces(geometry, here.version.bytes, first, self.plan.replicas)
            .next()
            .is_some();
        if item.shows_another(&here.version) || here.missing_bytes > 0 || is_more {
            return false;
        }
        self.job.count(|page| {
            page.objects_checked += 1;
            page.bytes_checked += u64::from(here.held_bytes);
        });
        true
    }

    /// With patience for homes that can't be asked.
    async fn check_attributes(&self, mut items: Vec<&Item>, failed: &mut Vec<Failure>) {
        let options = &self.engine.options;
        let (began, mut pause) = (Instant::now(), options.pause_min);
        while !items.is_empty() {
            let is_last = began.elapsed() >= options.patience;
            let seen = self.look_at(&items).await;
            let mut again = Vec::new();
            for (item, seen) in items.into_iter().zip(seen) {
                let reason = match seen {
                    Seen::Known { here: Some(here), .. } if !item.shows_another(&here.version) => {
                        None
                    }
                    Seen::Known { .. } => {
                        Some("its attributes are not in the tier any more".to_owned())
                    }
                    Seen::Away(_) if !is_last => {
                        again.push(item);
                        continue;
                    }
                    Seen::Away(reason) => Some(reason),
                };
                self.job.count(|page| {
                    page.objects_checked += 1;
                    page.objects_missing += u64::from(reason.is_some());
                });
                failed.extend(reason.map(|reason| Failure { path: item.path(), reason }));
            }
            items = again;
            if !items.is_empty() {
                self.job.count(|page| page.retries += items.len() as u64);
                self.engine.metrics.retries.inc_by(items.len() as u64);
                sleep(spread(pause)).await;
                pause = (pause * 2).min(options.pause_max);
            }
        }
    }

    /// What homes say of these, in their order.
    async fn look_at(&self, items: &[&Item]) -> Vec<Seen> {
        let geometry = self.engine.tier.options().geometry;
        let mut groups: BTreeMap<(Volume, u64), Vec<usize>> = BTreeMap::new();
        for (at, item) in items.iter().enumerate() {
            // Of attributes alone, it matters that they are there: readers have them renewed.
            let believed_ms = if self.plan.metadata_only { u64::MAX } else { item.believed_ms() };
            groups.entry((item.mount.volume(), believed_ms)).or_default().push(at);
        }
        let mut seen: Vec<Seen> = items.iter().map(|_| Seen::Away(String::new())).collect();
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
            let found =
                self.engine.tier.look(&volume, (believed_ms, self.plan.tier), objects).await;
            for (at, found) in places.into_iter().zip(found) {
                if let Seen::Known { worker, life, epoch, .. } = &found {
                    self.job.heard_of(worker, *life, *epoch);
                }
                seen[at] = found;
            }
        }
        seen
    }
}
