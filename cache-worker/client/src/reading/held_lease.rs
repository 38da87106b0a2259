//! Defines what this process holds under a lease: an object's attributes, perhaps with its bytes,
//! or its absence. `lease_table` judges whether the lease still counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use verbs3_protocol::{Epoch, HeadAttributes, KeyGeneration, UfsAnswer, WorkerId};
use verbs3_rdma::transport::TransportKind;

use crate::reading::open_request::OpenRequest;
use crate::reading::small_objects::SmallObjectPlace;

/// A home's answer under a lease that may have expired.
pub(crate) struct HeldLease {
    pub(crate) found: LeasedPresence,
    pub(crate) generation: KeyGeneration,
    pub(super) home: WorkerId,
    pub(super) epoch: Epoch,
    /// The age limit that the granting request accepted. Requests with a lower limit can't use the
    /// lease.
    pub(super) age_ms_max: u64,
    pub(super) stamp: LeaseStamp,
    pub(super) end: Duration,
    /// Reads that it has answered and the home does not know of.
    pub(super) answered: AtomicU32,
}

/// A lease's counters at the time when its question was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LeaseStamp {
    pub(super) key: u64,
    pub(super) all: u64,
}

/// What the home said of the object.
pub(crate) enum LeasedPresence {
    Present(LeasedObject),
    Absent(UfsAnswer),
}

/// An object under a lease.
pub(crate) struct LeasedObject {
    pub(crate) attributes: HeadAttributes,
    /// The transport of the answer that brought them.
    pub(crate) transport: TransportKind,
    /// All bytes of `attributes.version`, if they are held.
    pub(super) small: Option<Arc<SmallObjectPlace>>,
    /// True once a read of a part has asked for the whole object, so that its bytes are held.
    is_widened: AtomicBool,
}

impl HeldLease {
    pub(crate) fn note_answer(&self) {
        self.answered.fetch_add(1, Ordering::Relaxed);
    }
}

impl LeasedPresence {
    pub(super) fn object(&self) -> Option<&LeasedObject> {
        match self {
            Self::Present(object) => Some(object),
            Self::Absent(_) => None,
        }
    }

    /// Returns the age that a request accepts of such an answer.
    pub(super) fn age_ms_max(&self, request: &OpenRequest) -> u64 {
        match self {
            Self::Present(_) => request.attributes_age_ms_max,
            Self::Absent(_) => request.absence_age_ms_max,
        }
    }

    /// Returns whether the answer has all that a request asks for. A GET's client sees an error's
    /// body.
    pub(super) fn is_enough_for(&self, request: &OpenRequest) -> bool {
        match self {
            Self::Present(object) => object.attributes.checksums_known || !request.checksums,
            Self::Absent(answer) => request.want.is_none() || !answer.body.is_empty(),
        }
    }

    /// Returns about how much memory the answer takes, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        match self {
            Self::Present(object) => object.attributes.headers.memory_bytes(),
            Self::Absent(answer) => answer.headers.memory_bytes() + answer.body.len(),
        }
    }
}

impl LeasedObject {
    pub(super) fn new(
        attributes: HeadAttributes,
        transport: TransportKind,
        small: Option<Arc<SmallObjectPlace>>,
    ) -> Self {
        Self { attributes, transport, small, is_widened: AtomicBool::new(false) }
    }

    /// Returns all bytes of the object, if they are held.
    pub(crate) fn read_bytes(&self) -> Option<Bytes> {
        self.small.as_ref()?.read_bytes()
    }

    /// Returns whether a read of a part should ask for the whole object, to hold it. One read under
    /// each lease does.
    pub(crate) fn should_widen(&self) -> bool {
        !self.is_widened.swap(true, Ordering::Relaxed)
    }
}
