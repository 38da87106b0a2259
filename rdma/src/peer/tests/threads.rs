//! Which runtime drives a connection.

use tokio::runtime::Builder;

use super::bed::Bed;
use super::*;

/// A caller may be one thread's runtime that ends, or that serves one client.
#[test]
fn a_connection_is_driven_where_its_peer_was_made() {
    let shared = Builder::new_multi_thread().enable_all().build().unwrap();
    let bed = shared.block_on(async { Bed::new(1, false, PeerOptions::default()) });
    let caller = Builder::new_current_thread().enable_all().build().unwrap();
    assert_eq!(caller.block_on(bed.ask()).unwrap(), Verbs);
    drop(caller);
    // Neither connection was opened on the runtime that is gone.
    let here = [shared.handle().id()];
    assert_eq!((&bed.tcp.opened_on()[..], &bed.rails[0].opened_on()[..]), (&here[..], &here[..]));
    assert_eq!(shared.block_on(bed.ask()).unwrap(), Verbs);
    assert_eq!(bed.connects(), (1, 0, vec![1]));
}
