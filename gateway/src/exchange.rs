//! What the front of the gateway knows of one request, beside what `request` keeps for all: the operation, who asks, what it is
//! about, and why its body was refused. Put into the request's extensions by `http` as `Arc<Exchange>`.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use crate::auth::Identity;
use crate::http::Inbound;
use crate::request::RequestContext;
use crate::write::body_budget::BodyReservation;
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
    /// An aws-chunked body as it comes, for whoever unwraps it.
    pub chunked: Mutex<Option<Inbound>>,
    /// Memory for the body. Not set: the request has none, or a form took it.
    pub body: OnceLock<Arc<BodyReservation>>,
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
            chunked: Mutex::new(None),
            body: OnceLock::new(),
            entered: AtomicBool::new(false),
            counted: AtomicBool::new(false),
        }
    }

    /// Takes memory for the body, if it has none yet. False: there is none left.
    pub fn reserve_body(&self) -> bool {
        self.body.get().is_none_or(|body| body.ensure_place())
    }

    /// The operation is over, and with it whatever there was of its body.
    pub fn drop_body(&self) {
        self.chunked.lock().take();
        if let Some(body) = self.body.get() {
            body.release_place();
        }
    }
}
