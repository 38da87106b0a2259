//! Bounds aws-chunked bodies before s3s sees them. Owns the scan of the chunk framing: sizes, total, end. Does not verify
//! signatures or checksums, and changes no byte.
//!
//! s3s buffers each chunk whole and takes a body that ends between two chunks for complete, so a client could make it hold
//! any amount of memory, or have 5 bytes stored of 11,000 that it announced (FACTS 3.3).

use bytes::Bytes;

/// Longest line of framing: a chunk header or a trailer. s3s allows 1 KiB for a header; trailers are a name and a digest.
const LINE_BYTES_MAX: usize = 1024;
/// All trailers together. s3s allows the same.
const TRAILERS_BYTES_MAX: usize = 16 * 1024;

/// Why a chunked body was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChunkRefusal {
    #[error("a chunk of {bytes} bytes is larger than the {max} bytes this endpoint takes; send smaller chunks")]
    ChunkTooLarge { bytes: u64, max: u64 },
    #[error("the chunk framing of the body is malformed: {what}")]
    Malformed { what: &'static str },
    #[error("the chunks hold more than the {declared} bytes that x-amz-decoded-content-length announced")]
    TooLong { declared: u64 },
    #[error("the chunks hold {got} bytes, x-amz-decoded-content-length announced {declared}")]
    TooShort { got: u64, declared: u64 },
    #[error("the body ended before its final chunk")]
    EndedEarly,
}

impl ChunkRefusal {
    /// The label of the metric.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::ChunkTooLarge { .. } => "chunk_too_large",
            Self::Malformed { .. } => "malformed",
            Self::TooLong { .. } => "too_long",
            Self::TooShort { .. } => "too_short",
            Self::EndedEarly => "ended_early",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// In the line that opens a chunk.
    Header,
    /// In a chunk's data, with so many bytes to come.
    Data(u64),
    /// In the CR LF after a chunk's data; bytes of it seen.
    DataEnd(u8),
    /// After the final chunk: trailer lines up to an empty one.
    Trailer,
    /// After the empty line: nothing may follow.
    End,
}

/// The scanner's state over one body.
#[derive(Debug)]
pub struct ChunkScanner {
    place: Place,
    line: Vec<u8>,
    chunk_bytes_max: u64,
    declared: u64,
    got: u64,
    trailers_bytes: usize,
}

impl ChunkScanner {
    /// `declared` is `x-amz-decoded-content-length`.
    pub fn new(declared: u64, chunk_bytes_max: u64) -> Self {
        Self { place: Place::Header, line: Vec::new(), chunk_bytes_max, declared, got: 0, trailers_bytes: 0 }
    }

    /// Looks at the next bytes of the body, in order.
    pub fn scan(&mut self, bytes: &Bytes) -> Result<(), ChunkRefusal> {
        let mut rest: &[u8] = bytes;
        while !rest.is_empty() {
            rest = match self.place {
                Place::Header => self.header(rest)?,
                Place::Data(left) => {
                    let taken = left.min(rest.len() as u64);
                    self.place = if taken == left { Place::DataEnd(0) } else { Place::Data(left - taken) };
                    // `taken` is at most `rest.len()`, a usize.
                    &rest[taken as usize..]
                }
                Place::DataEnd(seen) => {
                    if rest[0] != b"\r\n"[usize::from(seen)] {
                        return Err(ChunkRefusal::Malformed { what: "a chunk's data is not followed by CR LF" });
                    }
                    self.place = if seen == 0 { Place::DataEnd(1) } else { Place::Header };
                    &rest[1..]
                }
                Place::Trailer => self.trailer(rest)?,
                Place::End => return Err(ChunkRefusal::Malformed { what: "bytes follow the end of the chunks" }),
            };
        }
        Ok(())
    }

    /// To be called at the body's end.
    pub fn finish(&self) -> Result<(), ChunkRefusal> {
        match self.place {
            // The final empty line is optional: AWS's own example of a signed trailer ends with the signature's line.
            Place::End | Place::Trailer if self.line.is_empty() => Ok(()),
            _ => Err(ChunkRefusal::EndedEarly),
        }
    }

    /// Takes bytes up to a line's end; `None` while the line goes on.
    fn line<'a>(&mut self, bytes: &'a [u8]) -> Result<(Option<Vec<u8>>, &'a [u8]), ChunkRefusal> {
        let end = bytes.iter().position(|&byte| byte == b'\n');
        let (part, rest) = end.map_or((bytes, &bytes[bytes.len()..]), |at| bytes.split_at(at + 1));
        if self.line.len() + part.len() > LINE_BYTES_MAX {
            return Err(ChunkRefusal::Malformed { what: "a line of framing is longer than 1024 bytes" });
        }
        self.line.extend_from_slice(part);
        if end.is_none() {
            return Ok((None, rest));
        }
        let mut line = std::mem::take(&mut self.line);
        line.pop();
        if line.pop().is_some_and(|byte| byte != b'\r') {
            return Err(ChunkRefusal::Malformed { what: "a line of framing does not end with CR LF" });
        }
        Ok((Some(line), rest))
    }

    fn header<'a>(&mut self, bytes: &'a [u8]) -> Result<&'a [u8], ChunkRefusal> {
        let (line, rest) = self.line(bytes)?;
        let Some(line) = line else { return Ok(rest) };
        let digits = line.split(|&byte| byte == b';').next().unwrap_or_default();
        let size = std::str::from_utf8(digits)
            .ok()
            .filter(|digits| (1..=8).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
            .and_then(|digits| u64::from_str_radix(digits, 16).ok())
            .ok_or(ChunkRefusal::Malformed { what: "a chunk does not start with its size" })?;
        if size > self.chunk_bytes_max {
            return Err(ChunkRefusal::ChunkTooLarge { bytes: size, max: self.chunk_bytes_max });
        }
        self.got += size;
        if self.got > self.declared {
            return Err(ChunkRefusal::TooLong { declared: self.declared });
        }
        if size == 0 && self.got < self.declared {
            return Err(ChunkRefusal::TooShort { got: self.got, declared: self.declared });
        }
        self.place = if size == 0 { Place::Trailer } else { Place::Data(size) };
        Ok(rest)
    }

    fn trailer<'a>(&mut self, bytes: &'a [u8]) -> Result<&'a [u8], ChunkRefusal> {
        let (line, rest) = self.line(bytes)?;
        let Some(line) = line else { return Ok(rest) };
        self.trailers_bytes += line.len();
        if self.trailers_bytes > TRAILERS_BYTES_MAX {
            return Err(ChunkRefusal::Malformed { what: "the trailers are longer than 16 KiB" });
        }
        if line.is_empty() {
            self.place = Place::End;
        } else if !line.contains(&b':') {
            return Err(ChunkRefusal::Malformed { what: "a trailer is not a name and a value" });
        }
        Ok(rest)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Feeds a body in pieces of every size, so that each state meets each border.
    fn scan(body: &[u8], declared: u64) -> Result<(), ChunkRefusal> {
        let mut results = (1..=body.len()).map(|size| {
            let mut scanner = ChunkScanner::new(declared, 64);
            body.chunks(size).try_for_each(|piece| scanner.scan(&Bytes::copy_from_slice(piece)))?;
            scanner.finish()
        });
        let first = results.next().unwrap();
        for other in results {
            assert_eq!(first, other, "the outcome depends on how the body was cut");
        }
        first
    }

    #[test]
    fn signed_chunks_pass() {
        assert_eq!(scan(b"5;chunk-signature=aa\r\nhello\r\n0;chunk-signature=bb\r\n\r\n", 5), Ok(()));
    }

    #[test]
    fn unsigned_chunks_with_a_trailer_pass_with_and_without_the_last_empty_line() {
        assert_eq!(scan(b"5\r\nhello\r\n0\r\nx-amz-checksum-crc32:NhCmhg==\r\n\r\n", 5), Ok(()));
        assert_eq!(scan(b"5\r\nhello\r\n0\r\nx-amz-checksum-crc32:NhCmhg==\r\n", 5), Ok(()));
    }

    #[test]
    fn data_that_looks_like_framing_is_data() {
        assert_eq!(scan(b"7\r\n0\r\n\r\n00\r\n0\r\n\r\n", 7), Ok(()));
    }

    #[test]
    fn more_and_less_than_announced_is_refused() {
        assert_eq!(scan(b"6\r\nhello!\r\n0\r\n\r\n", 5), Err(ChunkRefusal::TooLong { declared: 5 }));
        assert_eq!(scan(b"4\r\nhell\r\n0\r\n\r\n", 5), Err(ChunkRefusal::TooShort { got: 4, declared: 5 }));
    }

    #[test]
    fn a_body_without_its_final_chunk_is_refused() {
        assert_eq!(scan(b"5\r\nhello\r\n", 5), Err(ChunkRefusal::EndedEarly));
        assert_eq!(scan(b"5\r\nhel", 5), Err(ChunkRefusal::EndedEarly));
        assert_eq!(ChunkScanner::new(0, 64).finish(), Err(ChunkRefusal::EndedEarly));
    }

    #[test]
    fn trailing_garbage_is_refused() {
        assert!(matches!(scan(b"5\r\nhello\r\n0\r\n\r\nx", 5), Err(ChunkRefusal::Malformed { .. })));
        assert!(matches!(scan(b"5\r\nhello\r\n0\r\ngarbage\r\n\r\n", 5), Err(ChunkRefusal::Malformed { .. })));
    }

    #[test]
    fn a_large_chunk_is_refused_at_its_header() {
        let mut scanner = ChunkScanner::new(u64::MAX, 64);
        let refusal = scanner.scan(&Bytes::from_static(b"41\r\n")).unwrap_err();
        assert_eq!(refusal, ChunkRefusal::ChunkTooLarge { bytes: 65, max: 64 });
    }

    #[test]
    fn framing_that_is_not_framing_is_refused() {
        for body in
            [&b"\r\nhello"[..], b"xyz\r\n", b"-1\r\n", b"+5\r\nhello\r\n", b"5\nhello\r\n", b"5\r\nhelloXX0\r\n\r\n"]
        {
            assert!(matches!(scan(body, 5), Err(ChunkRefusal::Malformed { .. })), "{body:?}");
        }
        let endless = vec![b'5'; LINE_BYTES_MAX + 1];
        assert!(matches!(ChunkScanner::new(5, 64).scan(&Bytes::from(endless)), Err(ChunkRefusal::Malformed { .. })));
    }
}
