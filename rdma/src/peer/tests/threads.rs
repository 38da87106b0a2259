//! Which runtime drives a connection.

use tokio::runtime::Builder;

use super::peer_fixture::PeerFixture;
use super::*;

/// A caller may be one thread's runtime that ends, or that serves one client.
#[test]
fn a_connection_is_driven_where_its_peer_was_made() {
    let shared = Builder::new_multi_thread().enable_all().build().unwrap();
    let fixture = shared.block_on(async { PeerFixture::new(1, false, PeerOptions::default()) });
    let caller = Builder::new_current_thread().enable_all().build().unwrap();
    assert_eq!(caller.block_on(fixture.ask()).unwrap(), Verbs);
    drop(caller);
    // Neither connection was opened on the runtime that is gone.
    let here = [shared.handle().id()];
    assert_eq!(
        (&fixture.tcp.opened_on()[..], &fixture.rails[0].opened_on()[..]),
        (&here[..], &here[..])
    );
    assert_eq!(shared.block_on(fixture.ask()).unwrap(), Verbs);
    assert_eq!(fixture.connects(), (1, 0, vec![1]));
}
