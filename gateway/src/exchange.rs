//! What the front of the gateway knows of one request, beside what `request` keeps for all: the operation, who asks, what it is
//! about, and why its body was refused. Put into the request's extensions by `http` as `Arc<Exchange>`.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use crate::auth::Identity;
use crate::request::RequestContext;
use crate::write::verified::FaultSlot;

pub(crate) struct Exchange {
    pub cx: Arc<RequestContext>,
    /// Set once the request has been parsed and its signature verified.
    /// Its place in the table.
    pub row: OnceLock<usize>,
    pub identity: OnceLock<Arc<Identity>>,
    /// Bucket and key for the log.
    pub target: OnceLock<(Box<str>, Box<str>)>,
    pub fault: FaultSlot,
    /// The operation's own code was reached: its input was read whole.
    pub entered: AtomicBool,
    /// Its refusal has been counted, under a reason that its code does not tell.
    pub counted: AtomicBool,
}

impl Exchange {
    pub fn new(cx: Arc<RequestContext>) -> Self {
        Self {
            cx,
            row: OnceLock::new(),
            identity: OnceLock::new(),
            target: OnceLock::new(),
            fault: FaultSlot::default(),
            entered: AtomicBool::new(false),
            counted: AtomicBool::new(false),
        }
    }
}
