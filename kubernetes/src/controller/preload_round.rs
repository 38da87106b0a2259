//! Whose turn it is in a round. Pure. Holds a bounded number of names, so that no number of
//! resources takes more memory; whoever finds no room is first in a later round.

use serde::Deserialize;
use serde_json::Value;

use super::preload_status::is_over_state;
use crate::preload_resource::ResourceMetadata;

/// Takes the job away before its resource goes.
pub(super) const FINALIZER: &str = "verbs3.io/stop-job";

/// A resource as a list has it. Its author's part is not read: it may be long.
#[derive(Debug, Deserialize)]
pub(super) struct ListedPreload {
    pub metadata: ResourceMetadata,
    #[serde(default)]
    status: Value,
}

/// Who a resource is. Ordered as API servers list them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PreloadName {
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

impl ListedPreload {
    /// Whether something is to be done: nothing is where a job is over, or a resource goes, and
    /// the finalizer is away.
    pub fn has_work(&self) -> bool {
        let is_finished = is_over_state(self.status["state"].as_str().unwrap_or_default());
        !(is_finished || self.is_deleted()) || self.metadata.has_finalizer(FINALIZER)
    }

    pub fn is_deleted(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    pub fn into_name(self) -> PreloadName {
        let ResourceMetadata { namespace, name, uid, .. } = self.metadata;
        PreloadName { namespace, name, uid }
    }
}

/// Goes on behind whoever had the last turn, round after round.
#[derive(Debug)]
pub(super) struct PreloadTurns {
    /// Names that are held of those before the last turn, and of those behind it.
    names_max: usize,
    last_turn: Option<PreloadName>,
    before: Vec<PreloadName>,
    behind: Vec<PreloadName>,
}

impl PreloadTurns {
    pub fn new(names_max: usize) -> Self {
        Self { names_max, last_turn: None, before: Vec::new(), behind: Vec::new() }
    }

    /// Forgets whom the last list named, and keeps whose turn was the last.
    pub fn clear_names(&mut self) {
        self.before.clear();
        self.behind.clear();
    }

    /// Takes a name, if there is room. Names come in their order.
    pub fn add_name(&mut self, name: PreloadName) {
        let is_behind = self.last_turn.as_ref().is_none_or(|last| name > *last);
        let names = if is_behind { &mut self.behind } else { &mut self.before };
        if names.len() < self.names_max {
            names.push(name);
        }
    }

    /// Takes whose turn it is in this round, in order.
    pub fn take_names(&mut self) -> Vec<PreloadName> {
        let mut names = std::mem::take(&mut self.behind);
        names.append(&mut self.before);
        names.truncate(self.names_max);
        names
    }

    /// Notes that one has its turn now.
    pub fn note_turn(&mut self, name: &PreloadName) {
        self.last_turn = Some(name.clone());
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    fn name(index: usize) -> PreloadName {
        let (namespace, name) = ("train".to_owned(), format!("{index:03}"));
        PreloadName { namespace, uid: name.clone(), name }
    }

    /// The indexes of one round that is cut after `begun_max`.
    fn round(turns: &mut PreloadTurns, count: usize, begun_max: usize) -> Vec<String> {
        turns.clear_names();
        (0..count).for_each(|index| turns.add_name(name(index)));
        let begun: Vec<PreloadName> = turns.take_names().into_iter().take(begun_max).collect();
        begun.iter().for_each(|name| turns.note_turn(name));
        begun.into_iter().map(|name| name.name).collect()
    }

    #[test]
    fn each_has_its_turn_however_many_there_are() {
        let mut turns = PreloadTurns::new(4);
        assert_eq!(round(&mut turns, 10, 9), ["000", "001", "002", "003"]);
        assert_eq!(round(&mut turns, 10, 9), ["004", "005", "006", "007"]);
        assert_eq!(round(&mut turns, 10, 9), ["008", "009", "000", "001"]);
        assert!(turns.before.capacity() <= 8 && turns.behind.capacity() <= 8);
    }

    #[test]
    fn a_round_that_is_cut_goes_on_behind_the_last_turn() {
        let mut turns = PreloadTurns::new(100);
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..4 {
            seen.extend(round(&mut turns, 8, 2));
        }
        assert_eq!(seen.len(), 8);
    }

    #[test]
    fn what_is_over_needs_nothing_once_its_finalizer_is_away() {
        let listed = |state: &str, deleted: Option<&str>, finalizers: &[&str]| -> ListedPreload {
            serde_json::from_value(json!({
                "metadata": {
                    "name": "a", "namespace": "b", "uid": "c", "resourceVersion": "1",
                    "deletionTimestamp": deleted, "finalizers": finalizers,
                },
                "spec": { "of another": "version" }, "status": { "state": state },
            }))
            .unwrap()
        };
        let now = Some("2026-11-23T00:00:00Z");
        for (state, deleted, finalizers, has_work) in [
            ("", None, &[][..], true),
            ("Running", None, &[FINALIZER], true),
            ("Done", None, &[FINALIZER], true),
            ("Done", None, &[], false),
            ("Running", now, &[FINALIZER], true),
            ("Running", now, &["another's"], false),
        ] {
            assert_eq!(listed(state, deleted, finalizers).has_work(), has_work, "{state}");
        }
    }
}
