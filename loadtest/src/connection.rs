//! Owns one kept HTTP/1.1 connection, which sends prepared requests and copies the answer's body
//! into a buffer, as a client would.
//!
//! Owns framing (Content-Length, chunked), the deadline, and whether the connection can be reused.
//! Not a general client: it has no redirects, no compression and no retries, because failures must
//! be counted and not hidden.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::exchange_error::BenchExchangeError;

/// Largest accepted head of an answer, in bytes.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// Bytes of one read of the body: what botocore and most HTTP clients use or exceed.
const READ_BYTES: usize = 256 << 10;
/// Longest line that announces a chunk, in bytes.
const CHUNK_LINE_BYTES_MAX: usize = 256;
/// Timeout for scenarios that set none.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Blocking HTTP/1.1 connection with one buffer of 256 KiB.
pub struct BenchConnection {
    stream: TcpStream,
    buffer: Vec<u8>,
    timeout: Duration,
    reusable: bool,
}

/// Answer to a request.
#[derive(Debug)]
pub struct BenchResponse {
    pub status: u16,
    pub body_bytes: u64,
    pub head: String,
    /// When the body's first byte arrived, or the head if there is no body.
    pub first_byte: Instant,
}

impl BenchResponse {
    /// Returns a header's value by its lower-case name.
    pub fn header_value(&self, name: &str) -> Option<&str> {
        find_header(&self.head, name)
    }
}

fn find_header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| {
        let (found, value) = line.split_once(':')?;
        found.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

/// How a body's end is recognised.
enum ResponseFraming {
    Length(u64),
    Chunked,
    /// The end of the connection.
    Close,
}

impl BenchConnection {
    /// Connects, with 30 seconds for connecting and for each exchange.
    pub fn connect(address: SocketAddr) -> Result<Self, BenchExchangeError> {
        Self::connect_within(address, TIMEOUT)
    }

    /// Connects, with `timeout` for connecting and for each exchange.
    pub fn connect_within(
        address: SocketAddr,
        timeout: Duration,
    ) -> Result<Self, BenchExchangeError> {
        let open = || {
            let stream = TcpStream::connect_timeout(&address, timeout)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(timeout))?;
            stream.set_write_timeout(Some(timeout))?;
            Ok(stream)
        };
        let stream = open().map_err(BenchExchangeError::Connect)?;
        Ok(Self {
            stream,
            buffer: vec![0; READ_BYTES.max(HEAD_BYTES_MAX)],
            timeout,
            reusable: true,
        })
    }

    /// Returns whether the connection can carry another request.
    pub fn is_reusable(&self) -> bool {
        self.reusable
    }

    /// Sends `request` and a body of `repeat` times `chunk`, and reads the whole answer.
    pub fn send_repeated(
        &mut self,
        request: &[u8],
        chunk: &[u8],
        repeat: u64,
    ) -> Result<BenchResponse, BenchExchangeError> {
        self.send_request(request, |out| (0..repeat).try_for_each(|_| out.write_all(chunk)), |_| {})
    }

    /// Sends `request` (and `body`) and reads the whole answer; `sink` sees the body in order.
    pub fn exchange_request(
        &mut self,
        request: &[u8],
        body: &[u8],
        sink: impl FnMut(&[u8]),
    ) -> Result<BenchResponse, BenchExchangeError> {
        self.send_request(request, |out| out.write_all(body), sink)
    }

    /// Sends `request` with a body that is made while it is sent, and reads the whole answer.
    pub fn send_request(
        &mut self,
        request: &[u8],
        body: impl FnOnce(&mut TcpStream) -> io::Result<()>,
        sink: impl FnMut(&[u8]),
    ) -> Result<BenchResponse, BenchExchangeError> {
        // The connection is reused only if everything goes well.
        self.reusable = false;
        let deadline = Instant::now() + self.timeout;
        let sent = self.stream.write_all(request).and_then(|()| body(&mut self.stream));
        // A server may refuse before it has read everything. Its answer says more than the broken
        // pipe.
        let answer = self.read_response(deadline, request.starts_with(b"HEAD "), sink);
        match (sent, answer) {
            (Ok(()), answer) => answer,
            (Err(_), Ok(answer)) if answer.status >= 400 => {
                self.reusable = false;
                Ok(answer)
            }
            (Err(error), _) => Err(BenchExchangeError::from_io_error(error)),
        }
    }

    fn read_response(
        &mut self,
        deadline: Instant,
        headless: bool,
        mut sink: impl FnMut(&[u8]),
    ) -> Result<BenchResponse, BenchExchangeError> {
        let (mut filled, head_end) = self.read_head(deadline)?;
        let head = String::from_utf8_lossy(&self.buffer[..head_end]).into_owned();
        let status = head.split(' ').nth(1).and_then(|text| text.parse().ok());
        let status: u16 = status.ok_or(BenchExchangeError::Malformed("no status line"))?;
        let closes = find_header(&head, "connection")
            .is_some_and(|value| value.eq_ignore_ascii_case("close"));
        let framing = if headless || status == 204 || status == 304 {
            ResponseFraming::Length(0)
        } else {
            parse_framing(&head)?
        };
        let mut first_byte = Instant::now();
        if head_end == filled && !matches!(framing, ResponseFraming::Length(0)) {
            self.buffer.copy_within(head_end..filled, 0);
            filled = self.read(0, deadline, 0)?;
            first_byte = Instant::now();
        } else {
            self.buffer.copy_within(head_end..filled, 0);
            filled -= head_end;
        }
        let ended_by_close = matches!(framing, ResponseFraming::Close);
        let body_bytes = match framing {
            ResponseFraming::Length(length) => {
                self.read_counted_body(filled, length, deadline, &mut sink)?
            }
            ResponseFraming::Chunked => self.read_chunked_body(filled, deadline, &mut sink)?,
            ResponseFraming::Close => self.read_until_closed(filled, deadline, &mut sink)?,
        };
        self.reusable = !closes && !ended_by_close;
        Ok(BenchResponse { status, body_bytes, head, first_byte })
    }

    /// Reads until the head is whole, and skips interim answers. Returns the bytes in the buffer
    /// and the length of the head.
    fn read_head(&mut self, deadline: Instant) -> Result<(usize, usize), BenchExchangeError> {
        let mut filled = 0;
        loop {
            if filled >= HEAD_BYTES_MAX
                && !self.buffer[..filled].windows(4).any(|four| four == b"\r\n\r\n")
            {
                return Err(BenchExchangeError::Malformed("its head is too long"));
            }
            let got = self.read(filled, deadline, 0)?;
            if got == 0 {
                return Err(BenchExchangeError::Closed { got: filled as u64 });
            }
            filled += got;
            while let Some(at) =
                self.buffer[..filled].windows(4).position(|four| four == b"\r\n\r\n")
            {
                let interim = self.buffer.starts_with(b"HTTP/1.1 1");
                if !interim {
                    return Ok((filled, at + 4));
                }
                self.buffer.copy_within(at + 4..filled, 0);
                filled -= at + 4;
            }
        }
    }

    fn read(
        &mut self,
        from: usize,
        deadline: Instant,
        got: u64,
    ) -> Result<usize, BenchExchangeError> {
        loop {
            match self.stream.read(&mut self.buffer[from..]) {
                Ok(read) if Instant::now() <= deadline => return Ok(read),
                Ok(_) => return Err(BenchExchangeError::Timeout),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                    return Err(BenchExchangeError::Closed { got });
                }
                Err(error) => return Err(BenchExchangeError::from_io_error(error)),
            }
        }
    }

    fn read_counted_body(
        &mut self,
        filled: usize,
        length: u64,
        deadline: Instant,
        sink: &mut impl FnMut(&[u8]),
    ) -> Result<u64, BenchExchangeError> {
        let mut got = filled as u64;
        sink(&self.buffer[..filled]);
        while got < length {
            let read = self.read(0, deadline, got)?;
            if read == 0 {
                return Err(BenchExchangeError::Closed { got });
            }
            sink(&self.buffer[..read]);
            got += read as u64;
        }
        if got == length {
            Ok(got)
        } else {
            Err(BenchExchangeError::Malformed("more bytes came than were declared"))
        }
    }

    fn read_until_closed(
        &mut self,
        filled: usize,
        deadline: Instant,
        sink: &mut impl FnMut(&[u8]),
    ) -> Result<u64, BenchExchangeError> {
        let (mut got, mut read) = (0, filled);
        while read > 0 {
            sink(&self.buffer[..read]);
            got += read as u64;
            read = self.read(0, deadline, got)?;
        }
        Ok(got)
    }

    /// Reads chunks (RFC 9112, section 7.1) and skips extensions and trailers.
    fn read_chunked_body(
        &mut self,
        filled: usize,
        deadline: Instant,
        sink: &mut impl FnMut(&[u8]),
    ) -> Result<u64, BenchExchangeError> {
        let (mut at, mut end, mut body) = (0, filled, 0);
        loop {
            let line = self.read_line(&mut at, &mut end, deadline)?;
            let size = line.split(';').next().unwrap_or_default().trim();
            let size = u64::from_str_radix(size, 16)
                .map_err(|_| BenchExchangeError::Malformed("a chunk has no length"))?;
            if size == 0 {
                while !self.read_line(&mut at, &mut end, deadline)?.is_empty() {}
                return Ok(body);
            }
            let mut left = size;
            while left > 0 {
                if at == end {
                    (at, end) = (0, self.read(0, deadline, body)?);
                    if end == 0 {
                        return Err(BenchExchangeError::Closed { got: body });
                    }
                }
                let part = left.min((end - at) as u64) as usize;
                sink(&self.buffer[at..at + part]);
                (at, left, body) = (at + part, left - part as u64, body + part as u64);
            }
            if !self.read_line(&mut at, &mut end, deadline)?.is_empty() {
                return Err(BenchExchangeError::Malformed("a chunk is longer than it says"));
            }
        }
    }

    /// Returns the next line without its end.
    fn read_line(
        &mut self,
        at: &mut usize,
        end: &mut usize,
        deadline: Instant,
    ) -> Result<String, BenchExchangeError> {
        let mut line = Vec::new();
        loop {
            if *at == *end {
                (*at, *end) = (0, self.read(0, deadline, 0)?);
                if *end == 0 {
                    return Err(BenchExchangeError::Closed { got: 0 });
                }
            }
            let byte = self.buffer[*at];
            *at += 1;
            match byte {
                b'\n' => {
                    return Ok(String::from_utf8_lossy(&line).trim_end_matches('\r').to_owned());
                }
                _ if line.len() >= CHUNK_LINE_BYTES_MAX => {
                    return Err(BenchExchangeError::Malformed("a chunk's line is too long"));
                }
                _ => line.push(byte),
            }
        }
    }
}

fn parse_framing(head: &str) -> Result<ResponseFraming, BenchExchangeError> {
    if find_header(head, "transfer-encoding")
        .is_some_and(|value| value.eq_ignore_ascii_case("chunked"))
    {
        return Ok(ResponseFraming::Chunked);
    }
    match find_header(head, "content-length") {
        Some(value) => value
            .parse()
            .map(ResponseFraming::Length)
            .map_err(|_| BenchExchangeError::Malformed("content-length is not a number")),
        None => Ok(ResponseFraming::Close),
    }
}

#[cfg(test)]
mod tests;
