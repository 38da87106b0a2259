//! Defines what an open asks for.

use std::sync::Arc;

use verbs3_protocol::{ByteRange, ObjectKey, TenantTag, TraceContext};

use crate::reading::open_silence::OpenSilence;
use crate::reading::span_request::ObjectBytesPlace;

/// An object to open, and how fresh its attributes have to be.
#[derive(Debug, Clone)]
pub struct OpenRequest {
    pub object: Arc<ObjectKey>,
    pub version_id: Option<String>,
    /// 0 asks the UFS every time, `u64::MAX` never again.
    pub attributes_age_ms_max: u64,
    pub absence_age_ms_max: u64,
    pub checksums: bool,
    /// The bytes that the client wants; `None` for HEAD.
    pub want: Option<ByteRange>,
    /// Is told when the home is silent; whoever listens may ask the store beside it, and drop the
    /// open if the store knows first.
    pub silence: Option<Arc<OpenSilence>>,
    /// Trace context of the client's request, where it is traced.
    pub trace: Option<TraceContext>,
    /// The tenant that the client belongs to.
    pub tenant: Option<TenantTag>,
    /// Where the wanted bytes are to land, if they can. Their first one is known.
    pub place: Option<ObjectBytesPlace>,
}
