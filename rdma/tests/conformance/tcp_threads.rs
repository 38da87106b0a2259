//! A tcp server whose connections have threads of their own, as a worker's have.

use tokio::runtime::{Builder, Handle, Runtime};
use verbs3_rdma::tcp::{TcpServerOptions, TcpTransport};
use verbs3_rdma::transport::{PeerAddress, PeerTransport};

use crate::transport_fixture::{collect, options, serve, server_options, service, within_deadline};

/// Threads with a runtime each, named `data-0`, `data-1` and so on.
pub struct Threads(Vec<Runtime>);

impl Threads {
    pub fn start(count: usize) -> Self {
        let runtime = |number| {
            Builder::new_multi_thread()
                .worker_threads(1)
                .thread_name(format!("data-{number}"))
                .enable_all()
                .build()
                .unwrap()
        };
        Self((0..count).map(runtime).collect())
    }

    pub fn handles(&self) -> Vec<Handle> {
        self.0.iter().map(|runtime| runtime.handle().clone()).collect()
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        // A runtime that ends within another one must not wait.
        self.0.drain(..).for_each(Runtime::shutdown_background);
    }
}

#[tokio::test]
async fn connections_go_in_turn_over_the_threads_and_stay_there() {
    within_deadline(async {
        let threads = Threads::start(3);
        let named = service(|_, reply| async move {
            let name = std::thread::current().name().unwrap_or_default().to_owned();
            let _ = reply.send_last(name.into(), 0, vec![]).await;
        });
        let options = TcpServerOptions { runtimes: threads.handles(), ..server_options() };
        let server = serve(named, options).await;
        let transport = TcpTransport::new(self::options());
        let mut connections = Vec::new();
        for turn in 0..7 {
            connections
                .push(transport.connect(&PeerAddress::from(server.local_addr())).await.unwrap());
            for (number, connection) in connections.iter().enumerate() {
                let answer = collect(&mut connection.start_call("".into(), None)).await.unwrap();
                assert_eq!(
                    answer.messages,
                    [format!("data-{}", number % 3)],
                    "connection {number} of {}",
                    turn + 1
                );
            }
        }
        server.shutdown().await;
    })
    .await;
}
