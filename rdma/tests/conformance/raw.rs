//! The wire format a second time, by hand. It serves lies, stalls and broken frames to the hostile
//! cases, and pins the layout down. Nothing here is shared with the code under test.

use std::sync::Arc;
use std::time::Duration;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use verbs3_rdma::settings::TcpSettings;
use verbs3_rdma::tcp::{TcpOptions, TcpTransport};
use verbs3_rdma::transport::{PeerAddress, PeerConnection, PeerTransport, TransportError};
use verbs3_settings::TimePeriod;

use crate::transport_fixture::{listen_address, options};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    Hello = 1,
    Challenge = 2,
    Proof = 3,
    Welcome = 4,
    Reject = 5,
    Call = 16,
    Part = 17,
    Wanted = 18,
    Push = 19,
    Cancel = 20,
    CancelAck = 21,
    Fail = 22,
    Goodbye = 23,
    Release = 24,
}

#[derive(Debug, Clone)]
pub struct RawHeader {
    pub kind: u8,
    pub flags: u8,
    pub message_bytes: u32,
    pub segments: u32,
    pub id: u64,
    pub offset: u64,
    pub data_bytes: u64,
    pub lent_bytes: u64,
}

pub fn header(kind: Kind, id: u64) -> RawHeader {
    RawHeader {
        kind: kind as u8,
        flags: 0,
        message_bytes: 0,
        segments: 0,
        id,
        offset: 0,
        data_bytes: 0,
        lent_bytes: 0,
    }
}

impl RawHeader {
    pub fn last(mut self) -> Self {
        self.flags |= 1;
        self
    }

    pub fn data(mut self, bytes: u64) -> Self {
        self.data_bytes = bytes;
        self
    }

    pub fn at(mut self, offset: u64) -> Self {
        self.offset = offset;
        self
    }

    pub fn lent(mut self, bytes: u64) -> Self {
        self.lent_bytes = bytes;
        self
    }

    pub fn placed(mut self) -> Self {
        self.flags |= 4;
        self
    }

    pub fn segments(mut self, count: u32) -> Self {
        self.segments = count;
        self
    }

    pub fn message(mut self, bytes: u32) -> Self {
        self.message_bytes = bytes;
        self
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = b"vb3F".to_vec();
        bytes.extend([self.kind, self.flags, 0, 0]);
        bytes.extend(self.message_bytes.to_le_bytes());
        bytes.extend(self.segments.to_le_bytes());
        for field in [self.id, self.offset, self.data_bytes, self.lent_bytes, 0, 0] {
            bytes.extend(field.to_le_bytes());
        }
        bytes
    }

    fn decode(bytes: &[u8; 64]) -> Self {
        let long = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        assert_eq!(&bytes[..4], b"vb3F");
        Self {
            kind: bytes[4],
            flags: bytes[5],
            message_bytes: u32::from_le_bytes(bytes[8..12].try_into().unwrap()),
            segments: u32::from_le_bytes(bytes[12..16].try_into().unwrap()),
            id: long(16),
            offset: long(24),
            data_bytes: long(32),
            lent_bytes: long(40),
        }
    }
}

/// One end of a connection, in the hands of a case.
pub struct RawEnd<S = TcpStream> {
    pub stream: S,
}

impl<S: AsyncRead + AsyncWrite + Unpin> RawEnd<S> {
    pub async fn send(&mut self, header: &RawHeader, body: &[u8]) {
        self.raw(&header.encode()).await;
        self.raw(body).await;
    }

    pub async fn raw(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    pub async fn receive(&mut self) -> std::io::Result<(RawHeader, Vec<u8>)> {
        let mut bytes = [0; 64];
        self.stream.read_exact(&mut bytes).await?;
        let header = RawHeader::decode(&bytes);
        let in_stream = if header.flags & 4 == 0 { header.data_bytes } else { 0 };
        let words = header.segments as usize * 16 + header.message_bytes as usize;
        let mut body = vec![0; words + in_stream as usize];
        self.stream.read_exact(&mut body).await?;
        Ok((header, body))
    }

    pub async fn expect(&mut self, kind: Kind) -> RawHeader {
        let (header, _) = self.receive().await.unwrap();
        assert_eq!(header.kind, kind as u8, "{header:?}");
        header
    }

    /// Waits until the other side has closed; whatever it still says is dropped.
    pub async fn closed(&mut self) {
        let mut scratch = [0; 4096];
        while let Ok(1..) = self.stream.read(&mut scratch).await {}
    }

    async fn greet(&mut self, kind: Kind, greeting: &[u8]) {
        let header = header(kind, 0).message(greeting.len() as u32);
        self.send(&header, greeting).await;
    }
}

pub fn greeting(version: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    for field in [version, 64 << 10, 8, 3] {
        bytes.extend(field.to_le_bytes());
    }
    bytes.extend([7; 32]);
    bytes.extend(b"raw");
    bytes.resize(112, 0);
    bytes
}

pub fn proof(secret: &[u8], role: &[u8], hello: &[u8], challenge: &[u8]) -> Vec<u8> {
    let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(secret).unwrap();
    mac.update(role);
    mac.update(&[0]);
    mac.update(hello);
    mac.update(challenge);
    mac.finalize().into_bytes().to_vec()
}

/// Version of the hand-written frames.
pub const VERSION: u32 = 7;

pub const SECRET: &[u8] = b"the cluster's secret";

/// A requester by hand, let in by a real server.
pub async fn raw_client(server: std::net::SocketAddr) -> RawEnd {
    introduce(TcpStream::connect(server).await.unwrap()).await
}

/// The requester's half of the handshake.
pub async fn introduce<S: AsyncRead + AsyncWrite + Unpin>(stream: S) -> RawEnd<S> {
    let mut end = RawEnd { stream };
    let hello = greeting(VERSION);
    end.greet(Kind::Hello, &hello).await;
    let (header, challenge) = end.receive().await.unwrap();
    assert_eq!(header.kind, Kind::Challenge as u8);
    let mine = proof(SECRET, b"verbs3 requester", &hello, &challenge);
    end.greet(Kind::Proof, &mine).await;
    let (header, welcome) = end.receive().await.unwrap();
    assert_eq!(header.kind, Kind::Welcome as u8);
    assert_eq!(welcome, proof(SECRET, b"verbs3 server", &hello, &challenge));
    end
}

/// The server's half of the handshake.
pub async fn let_in<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    version: u32,
    secret: &[u8],
) -> RawEnd<S> {
    let mut end = RawEnd { stream };
    let (_, hello) = end.receive().await.unwrap();
    let challenge = greeting(version);
    end.greet(Kind::Challenge, &challenge).await;
    if end.receive().await.is_ok() {
        let mine = proof(secret, b"verbs3 server", &hello, &challenge);
        end.greet(Kind::Welcome, &mine).await;
    }
    end
}

/// A server by hand, connected to by the real transport.
pub struct RawServer;

impl RawServer {
    /// The connection waits long for acknowledgements.
    pub async fn pair() -> (Arc<dyn PeerConnection>, RawEnd) {
        Self::pair_within(Duration::from_secs(60)).await
    }

    pub async fn pair_within(cancel_ack_deadline: Duration) -> (Arc<dyn PeerConnection>, RawEnd) {
        Self::pair_with(|settings| settings.cancel_ack_deadline = TimePeriod(cancel_ack_deadline))
            .await
    }

    pub async fn pair_with(
        change: impl FnOnce(&mut TcpSettings),
    ) -> (Arc<dyn PeerConnection>, RawEnd) {
        let mut options = options();
        change(&mut options.calls.settings);
        let (connection, end) = Self::meet(options, VERSION, SECRET).await;
        (connection.unwrap(), end)
    }

    pub async fn meet(
        options: TcpOptions,
        version: u32,
        secret: &[u8],
    ) -> (Result<Arc<dyn PeerConnection>, TransportError>, RawEnd) {
        let listener = TcpListener::bind(listen_address()).await.unwrap();
        let tcp = listener.local_addr().unwrap();
        let transport = TcpTransport::new(options);
        let accept = async {
            let (stream, _) = listener.accept().await.unwrap();
            let_in(stream, version, secret).await
        };
        let address = PeerAddress::from(tcp);
        tokio::join!(transport.connect(&address), accept)
    }
}
