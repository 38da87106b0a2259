//! The proxy in front of a small server. Bounds are one-sided: a busy machine is slower, never
//! faster.
#![allow(clippy::unwrap_used)]

use super::*;

const FREE: StoreProxyShape = StoreProxyShape {
    bandwidth: None,
    connection_bandwidth: None,
    first_byte: Duration::ZERO,
    connections_max: 64,
};

/// Answers each line with as many bytes as it says.
async fn server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (from, mut to) = stream.into_split();
                let mut lines = tokio::io::BufReader::new(from);
                let mut line = String::new();
                while tokio::io::AsyncBufReadExt::read_line(&mut lines, &mut line)
                    .await
                    .unwrap_or(0)
                    > 0
                {
                    let bytes: usize = line.trim().parse().unwrap();
                    to.write_all(&vec![7; bytes]).await.unwrap();
                    line.clear();
                }
            });
        }
    });
    address
}

async fn proxied(
    shape: StoreProxyShape,
) -> (SocketAddr, StoreProxyMeter, tokio::task::JoinHandle<()>) {
    let proxy = StoreProxyServer::bind("127.0.0.1:0".parse().unwrap(), server().await, shape)
        .await
        .unwrap();
    let (address, counts) = (proxy.local_addr().unwrap(), proxy.proxy_meter());
    (address, counts, tokio::spawn(proxy.run()))
}

async fn ask(stream: &mut TcpStream, bytes: usize) -> Duration {
    let began = Instant::now();
    stream.write_all(format!("{bytes}\n").as_bytes()).await.unwrap();
    let mut got = vec![0; bytes];
    stream.read_exact(&mut got).await.unwrap();
    assert!(got.iter().all(|byte| *byte == 7));
    began.elapsed()
}

#[tokio::test]
async fn bytes_pass_unchanged_and_are_counted() {
    let (address, counts, proxy) = proxied(FREE).await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    ask(&mut stream, 300_000).await;
    ask(&mut stream, 5).await;
    let passed = counts.read_totals();
    assert_eq!(
        passed,
        StoreProxyTotals { from_store: 300_005, to_store: 9, answers: 2, connections: 1, full: 0 }
    );
    proxy.abort();
}

#[tokio::test]
async fn every_answer_waits_for_its_first_byte_and_only_for_that() {
    let (address, counts, proxy) =
        proxied(StoreProxyShape { first_byte: Duration::from_millis(30), ..FREE }).await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    for _ in 0..3 {
        assert!(ask(&mut stream, 1_000_000).await >= Duration::from_millis(30));
    }
    assert_eq!(counts.read_totals().answers, 3, "one wait an answer, not one a piece");
    proxy.abort();
}

#[tokio::test]
async fn connections_share_the_bandwidth_and_each_has_its_own_bound() {
    let megabyte = 1_000_000;
    for (shape, seconds) in [
        (StoreProxyShape { bandwidth: Some(4_000_000), ..FREE }, 2.0 / 4.0),
        (StoreProxyShape { connection_bandwidth: Some(4_000_000), ..FREE }, 1.0 / 4.0),
    ] {
        let (address, _, proxy) = proxied(shape).await;
        let began = Instant::now();
        let one = async || ask(&mut TcpStream::connect(address).await.unwrap(), megabyte).await;
        tokio::join!(one(), one());
        // Less the burst.
        assert!(began.elapsed().as_secs_f64() >= seconds - 0.03, "{:?}", began.elapsed());
        proxy.abort();
    }
}

#[tokio::test]
async fn connections_above_the_bound_wait() {
    let (address, counts, proxy) = proxied(StoreProxyShape { connections_max: 1, ..FREE }).await;
    let mut first = TcpStream::connect(address).await.unwrap();
    ask(&mut first, 1).await;
    let mut second = TcpStream::connect(address).await.unwrap();
    second.write_all(b"3\n").await.unwrap();
    let mut byte = [0; 3];
    let early =
        tokio::time::timeout(Duration::from_millis(100), second.read_exact(&mut byte)).await;
    let totals = counts.read_totals();
    assert!(early.is_err() && totals.connections == 1 && totals.full == 1, "{totals:?}");
    drop(first);
    second.read_exact(&mut byte).await.unwrap();
    assert_eq!(counts.read_totals().connections, 2);
    proxy.abort();
}
