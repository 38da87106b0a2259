//! Moves bytes between two hosts: registered memory (`arena`), lent memory (`landing`), and the
//! transports that fill it.
//!
//! Knows no bucket, no object and no block. Most of the workspace's `unsafe` is here.
//!
//! # Words
//! - *Way*: one transport, and over verbs one rail, by which a peer is reached.
//! - *Lane*: what this host keeps of a way better than tcp: connections, trouble, rest
//!   (`peer/transport_lane`).
//! - *Connection*: what a way carries calls over, once the handshake is done: a socket, or a queue
//!   pair.
//! - *Line*: the requester's end of a connection, with its calls (`calls/requester`).
//! - *Session*: the server's end of a connection, with the calls that it serves (`calls/session`).
//! - *Part* of a reply: one message, and the data that it vouches for.
//! - *Outlet*, *inlet*: what a transport brings to both ends, to write frames and to read them
//!   (traits in `calls`).
//! - *Outbox*, *intake*: outlet and inlet over a byte stream, for tcp and shm (`stream`).
//! - *Route*: which transport the calls to a peer take now, beside the best one
//!   (`peer/route_monitor`). In `verbs` a route is that of IP packets.
//!
//! A message goes out and in: `TransportPeer::call_with` → `peer/way_choice` → `calls/line_call` →
//! outlet ⇒ inlet → `calls/session` → `CallService::serve_call`. Its reply: `session/reply_driver`
//! → outlet ⇒ inlet → `calls/requester` → `calls/pending_call` → `OutgoingCall::next`.
//!
//! The outlet and inlet of each transport:
//! - tcp: `stream/frame_outbox` writes; `tcp/stream_inlet` reads over `stream/frame_intake`.
//! - shm: `shm/borrower_halves` has both for the requester, over its `shm/arena_view`;
//!   `shm/owner_halves` both for the worker, with `shm/pin_registry`. Frames go through `stream`.
//! - verbs: `verbs/wire_halves` has both, over `verbs/queue_pair_wire`. There `verbs/chunk_sender`
//!   cuts frames into chunks, and `verbs/write_plan` data into RDMA WRITEs.
//! - `inprocess` has none: it implements `PeerConnection` itself.

pub mod arena;
pub mod calls;
pub mod client_memory;
pub mod cpu_affinity;
pub mod foreign_memory;
pub mod inprocess;
mod keyed_mac;
pub mod landing;
mod memory_span;
pub mod metrics;
#[cfg(not(miri))]
pub mod page_source;
pub mod peer;
pub mod rails;
pub mod settings;
#[cfg(not(miri))]
pub mod shm;
mod stream;
pub mod tcp;
pub mod transport;
pub mod verbs;
pub mod way_ticket;
