//! What leased attributes say to an open.

use crate::reading::opened_object::OpenedObject;

/// An open's answer by leased attributes, or whom to ask.
pub(super) enum LeasedOpening {
    Found(Box<OpenedObject>),
    /// Ask the home.
    Ask,
    /// Ask the home for the whole of a small object of so many bytes, to hold it.
    AskWhole(u64),
}

impl LeasedOpening {
    pub(super) fn found(found: OpenedObject) -> Self {
        Self::Found(Box::new(found))
    }
}
