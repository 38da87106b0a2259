//! One kept HTTP/1.1 connection that sends prepared requests and copies the answer's body into a buffer, as a client would.
//!
//! Not a general client: it wants Content-Length, and a status that it was told.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, bail, ensure};

/// Largest answer head that is accepted, bytes.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// One read of the body, bytes: what botocore and most HTTP clients use or exceed.
const READ_BYTES: usize = 256 << 10;

pub struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

/// What came back.
pub struct Answer {
    pub status: u16,
    pub body_bytes: u64,
    /// Lower-cased head, for the few who look.
    pub head: String,
}

impl Connection {
    pub fn open(address: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address).with_context(|| format!("can't connect to {address}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        Ok(Self { stream, buffer: vec![0; READ_BYTES.max(HEAD_BYTES_MAX)] })
    }

    /// Sends `request` and a body of `repeat` times `chunk`, and reads the whole answer.
    pub fn send_repeated(&mut self, request: &[u8], chunk: &[u8], repeat: u64) -> anyhow::Result<Answer> {
        self.stream.write_all(request)?;
        for _ in 0..repeat {
            self.stream.write_all(chunk)?;
        }
        self.answer(|_| {})
    }

    /// Sends `request` (and `body`) and reads the whole answer; `sink` sees the body in order.
    pub fn exchange(&mut self, request: &[u8], body: &[u8], sink: impl FnMut(&[u8])) -> anyhow::Result<Answer> {
        self.stream.write_all(request)?;
        self.stream.write_all(body)?;
        self.answer(sink)
    }

    fn answer(&mut self, mut sink: impl FnMut(&[u8])) -> anyhow::Result<Answer> {
        let mut filled = 0;
        let head_end = loop {
            ensure!(filled < self.buffer.len(), "answer head is longer than {} bytes", self.buffer.len());
            let got = self.stream.read(&mut self.buffer[filled..])?;
            ensure!(got > 0, "the server closed the connection");
            filled += got;
            if let Some(at) = self.buffer[..filled].windows(4).position(|window| window == b"\r\n\r\n") {
                break at + 4;
            }
        };
        let head = String::from_utf8_lossy(&self.buffer[..head_end]).to_ascii_lowercase();
        let status = head.split(' ').nth(1).and_then(|s| s.parse().ok()).context("no status line")?;
        let length: u64 = match head.lines().find_map(|line| line.strip_prefix("content-length:")) {
            Some(value) => value.trim().parse().context("content-length is not a number")?,
            None if status == 204 || status == 304 => 0,
            None => bail!("no content-length in the answer: {head}"),
        };
        let mut got = (filled - head_end) as u64;
        sink(&self.buffer[head_end..filled]);
        while got < length {
            let read = self.stream.read(&mut self.buffer)?;
            ensure!(read > 0, "the server closed the connection after {got} of {length} bytes");
            sink(&self.buffer[..read]);
            got += read as u64;
        }
        ensure!(got == length, "{got} bytes came, {length} were declared");
        Ok(Answer { status, body_bytes: got, head })
    }
}
