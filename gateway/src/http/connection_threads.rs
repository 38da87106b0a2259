//! Which thread serves a connection: with a runtime for each thread, what a connection waits for
//! wakes the thread that serves it, and no other. New connections go where the fewest are, so that
//! a client's do not end up on one core. A connection stays where it is: the streams of one HTTP/2
//! connection share a thread.

use std::io;
use std::net::TcpStream as StdTcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{Method, Request};
use tokio::net::TcpStream;
use tokio::runtime::Handle;

/// The threads of a listener.
#[derive(Default)]
pub(super) struct ConnectionThreads(Vec<ConnectionThread>);

struct ConnectionThread {
    runtime: Handle,
    connections: Arc<AtomicUsize>,
}

/// A connection's place on its thread, until it is dropped.
pub(super) struct ThreadPlace {
    pub runtime: Handle,
    connections: Arc<AtomicUsize>,
}

impl ConnectionThreads {
    /// Each runtime is one thread's.
    pub fn new(runtimes: Vec<Handle>) -> Self {
        let thread = |runtime| ConnectionThread { runtime, connections: Arc::default() };
        Self(runtimes.into_iter().map(thread).collect())
    }

    /// Takes a place where the fewest connections are. `None`: there are no threads.
    pub fn take_place(&self) -> Option<ThreadPlace> {
        let count = |thread: &&ConnectionThread| thread.connections.load(Ordering::Relaxed);
        let thread = self.0.iter().min_by_key(count)?;
        thread.connections.fetch_add(1, Ordering::Relaxed);
        let ConnectionThread { runtime, connections } = thread;
        Some(ThreadPlace { runtime: runtime.clone(), connections: connections.clone() })
    }
}

impl Drop for ThreadPlace {
    fn drop(&mut self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A connection on its way from the thread that accepted it to the one that serves it: events of
/// its socket wake the latter.
pub(super) struct MovedConnection(StdTcpStream);

impl MovedConnection {
    pub fn leave_thread(socket: TcpStream) -> io::Result<Self> {
        socket.into_std().map(Self)
    }

    /// Must be called on the thread that serves it.
    pub fn join_thread(self) -> io::Result<TcpStream> {
        TcpStream::from_std(self.0)
    }
}

/// Whether answering may keep a thread busy for milliseconds, which all other connections of the
/// thread would notice: documents are read or written, of a thousand keys or parts. Objects, their
/// parts, and short documents (ACL, tags) are not among them. Names of one part are taken for a
/// bucket's, which costs clients who put the bucket in the host name a hand-over.
pub(super) fn may_compute_long<B>(request: &Request<B>) -> bool {
    let plain = [Method::GET, Method::HEAD, Method::PUT, Method::DELETE].contains(request.method());
    let mut parts = request.uri().path().trim_start_matches('/').splitn(2, '/');
    let has_key = parts.nth(1).is_some_and(|key| !key.is_empty());
    let lists = |query: &str| query.contains("uploadId=") || query.contains("attributes");
    let lists_parts = request.method() == Method::GET && request.uri().query().is_some_and(lists);
    !plain || !has_key || lists_parts
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use tokio::runtime::Builder;

    use super::*;

    #[test]
    fn a_connection_goes_where_the_fewest_are() {
        let runtimes = [(); 2].map(|()| Builder::new_current_thread().build().unwrap());
        let threads = ConnectionThreads::new(
            runtimes.iter().map(|runtime| runtime.handle().clone()).collect(),
        );
        let ids = runtimes.each_ref().map(|runtime| runtime.handle().id());
        let places: Vec<_> = (0..5).map(|_| threads.take_place().unwrap()).collect();
        let on = |id| places.iter().filter(|place| place.runtime.id() == id).count();
        assert_eq!(ids.map(on), [3, 2]);
        // Whoever goes leaves room.
        let (left, kept): (Vec<_>, Vec<_>) =
            places.into_iter().partition(|place| place.runtime.id() == ids[0]);
        drop(left);
        assert_eq!(threads.take_place().unwrap().runtime.id(), ids[0]);
        assert_eq!(kept.len(), 2);
        assert!(ConnectionThreads::default().take_place().is_none());
    }

    #[test]
    fn documents_compute_long_and_objects_do_not() {
        let asks = |method: &str, path: &str| {
            may_compute_long(&Request::builder().method(method).uri(path).body(()).unwrap())
        };
        for (method, path) in
            [("GET", "/data/a/b?versionId=1"), ("HEAD", "/data/a"), ("PUT", "/data/a?partNumber=1")]
        {
            assert!(!asks(method, path), "{method} {path}");
        }
        for (method, path) in [
            ("GET", "/"),
            ("GET", "/data?list-type=2"),
            ("GET", "/data/?list-type=2"),
            ("POST", "/data?delete"),
            ("POST", "/data/a?uploadId=u"),
            ("GET", "/data/a?max-parts=1000&uploadId=u"),
            ("DELETE", "/data?policy"),
        ] {
            assert!(asks(method, path), "{method} {path}");
        }
    }
}
