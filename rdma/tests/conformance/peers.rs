//! Peers over real connections: filled in with `Peer`.
