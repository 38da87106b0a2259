//! Owns the beginning of a requester's connection: it puts the line, the handle and the task
//! together once the handshake is done.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::coalescing_waker::coalesce_wakes;
use super::line_call::{LineConnection, RequesterLineHandle};
use super::requester::{RequesterLine, run_connection};
use super::{CallOptions, ConnectionTasks, FrameInlet, FrameOutlet, HandshakeAgreement};
use crate::peer::TransportWays;
use crate::transport::PeerConnection;

/// Makes a connection from an inlet and an outlet whose handshake is done. Its task runs on
/// `runtime` and belongs to `tasks`. The task ends when the last handle is dropped, or when the
/// line breaks.
pub(crate) fn start_connection<O: FrameOutlet, I: FrameInlet + 'static>(
    outlet: O,
    inlet: I,
    agreed: &HandshakeAgreement,
    address: &str,
    options: &CallOptions,
    runs_on: ConnectionTasks<'_>,
) -> Arc<dyn PeerConnection> {
    let ConnectionTasks { runtime, tasks } = runs_on;
    let peer = format!("{} ({address})", agreed.peer_name);
    let ways = TransportWays::parse(&agreed.ways).unwrap_or_else(|error| {
        tracing::warn!(
            peer, %error,
            "what a peer says of other ways to it can't be used; it is reached over this one alone"
        );
        TransportWays::default()
    });
    let line = Arc::new(RequesterLine::new(outlet, peer, agreed, options));
    let hung_up = CancellationToken::new();
    tasks.spawn_on(coalesce_wakes(run_connection(line.clone(), inlet, hung_up.clone())), runtime);
    Arc::new(LineConnection { handle: Arc::new(RequesterLineHandle { line, hung_up }), ways })
}
