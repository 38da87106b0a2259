//! Answers as servers send them, good and bad.
#![allow(clippy::unwrap_used)]

use std::net::TcpListener;

use super::*;

/// Gives `answer` to a request, in pieces, and keeps the connection open or closes it; then what
/// the client made of it.
fn answered(
    pieces: &'static [&'static str],
    closes: bool,
    method: &str,
) -> (Result<BenchResponse, BenchExchangeError>, Vec<u8>, bool) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (done, wait) = std::sync::mpsc::channel::<()>();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0; 1024];
        assert!(stream.read(&mut request).unwrap() > 0);
        for piece in pieces {
            stream.write_all(piece.as_bytes()).unwrap();
            stream.flush().unwrap();
        }
        if !closes {
            let _ = wait.recv();
        }
    });
    let mut connection = BenchConnection::connect_within(address, Duration::from_secs(5)).unwrap();
    let mut body = Vec::new();
    let request = format!("{method} / HTTP/1.1\r\nhost: x\r\n\r\n");
    let answer =
        connection.exchange_request(request.as_bytes(), b"", |part| body.extend_from_slice(part));
    let reusable = connection.is_reusable();
    drop(done);
    server.join().unwrap();
    (answer, body, reusable)
}

#[test]
fn bodies_are_read_whatever_their_framing() {
    for (pieces, closes, reusable) in [
        (&["HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel", "lo"][..], false, true),
        (
            &["HTTP/1.1 200 OK\r\ncontent-length: 5\r\nConnection: close\r\n\r\n", "hello"],
            false,
            false,
        ),
        (
            &["HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello"],
            false,
            true,
        ),
        (
            &[
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r",
                "\n3;a=b\r\nllo\r\n0\r\nx: y\r\n\r\n",
            ],
            false,
            true,
        ),
        (&["HTTP/1.1 200 OK\r\n\r\nhel", "lo"], true, false),
    ] {
        let (answer, body, again) = answered(pieces, closes, "GET");
        let answer = answer.unwrap();
        assert_eq!(
            (answer.status, answer.body_bytes, body.as_slice()),
            (200, 5, &b"hello"[..]),
            "{pieces:?}"
        );
        assert_eq!(again, reusable, "{pieces:?}");
    }
    let (answer, body, again) =
        answered(&["HTTP/1.1 200 OK\r\nContent-Length: 5\r\nETag: \"Ab\"\r\n\r\n"], false, "HEAD");
    assert_eq!(
        (answer.unwrap().header_value("etag"), body.len(), again),
        (Some("\"Ab\""), 0, true)
    );
}

#[test]
fn a_broken_answer_fails_by_its_kind_and_ends_the_connection() {
    for (pieces, kind) in [
        (&["HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhel"][..], "closed"),
        (&["HTTP/1.1 200 OK\r\ncontent-le"], "closed"),
        (&[], "closed"),
        (&["HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n"], "malformed"),
        (&["nonsense\r\n\r\n"], "malformed"),
        (&["HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhello"], "malformed"),
        (&["HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n"], "malformed"),
        (&["HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhel"], "closed"),
    ] {
        let (answer, _, reusable) = answered(pieces, true, "GET");
        assert_eq!(answer.unwrap_err().kind_label(), kind, "{pieces:?}");
        assert!(!reusable);
    }
}

#[test]
fn a_server_that_says_nothing_is_a_timeout() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut connection =
        BenchConnection::connect_within(listener.local_addr().unwrap(), Duration::from_millis(50))
            .unwrap();
    let failure = connection.exchange_request(b"GET / HTTP/1.1\r\n\r\n", b"", |_| {}).unwrap_err();
    assert_eq!(failure.kind_label(), "timeout");
}
