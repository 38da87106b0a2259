//! Owns the hot blocks: the coordinator says which have more workers than their owner; the map says
//! which workers these are.
//!
//! Changes no answer: a replica serves a version that the reader names. Attributes stay with the
//! home.

use std::collections::HashMap;

use verbs3_protocol::{BlockHash, PlacementMap};

/// Hot blocks, and how many workers each should have, its owner included.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HotBlockReplicas(pub HashMap<BlockHash, u16>);

/// The workers of each hot block that has more than one: indexes into the map's members, the owner
/// first.
#[derive(Default)]
pub(crate) struct HotBlockSpread(HashMap<BlockHash, Vec<u16>>);

impl HotBlockSpread {
    pub(crate) fn new(hot: &HotBlockReplicas, placement: &PlacementMap) -> Self {
        let of = |(&block, &workers): (&BlockHash, &u16)| {
            let workers = placement.spread_workers(block, usize::from(workers));
            (workers.len() > 1).then_some((block, workers))
        };
        Self(hot.0.iter().filter_map(of).collect())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns a hot block's workers: at least two. `None`: the block is not hot.
    pub(crate) fn workers_of(&self, block: BlockHash) -> Option<&[u16]> {
        self.0.get(&block).map(Vec::as_slice)
    }
}
