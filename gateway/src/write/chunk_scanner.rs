//! Scans the framing of aws-chunked bodies, as bytes come: sizes, total, trailers, end. Does not
//! verify signatures or checksums (`chunked`), changes no byte, and holds no more than one line of
//! framing.
//!
//! s3s 0.14.1 accepts a body that ends between two chunks, so 5 bytes could be stored of 11,000
//! that a client declared. Documents are scanned here before s3s unwraps them; `chunked` unwraps
//! objects.

use bytes::{Buf as _, Bytes};

use crate::metrics::BodyRefusal;

/// Longest line of framing: a chunk header or a trailer. s3s allows 1 KiB for a header; trailers
/// are a name and a digest.
const LINE_BYTES_MAX: usize = 1024;
/// Most bytes of all trailers together; s3s allows as many.
const TRAILERS_BYTES_MAX: usize = 16 * 1024;

/// The prefix of a chunk's signature, and how many hexadecimal digits follow it.
const SIGNATURE: &[u8] = b"chunk-signature=";
const SIGNATURE_DIGITS: usize = 64;
/// The one line that may follow the empty line after the trailers: minio-go writes it there.
const TRAILER_SIGNATURE: &[u8] = b"x-amz-trailer-signature:";

/// A chunk's signature as the client wrote it: hexadecimal digits.
pub(super) type ChunkSignature = [u8; SIGNATURE_DIGITS];

/// A step of the scan, in the order of the body.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ChunkStep {
    /// A chunk begins. A chunk without bytes is the last.
    Begin { bytes: u64, signature: Option<ChunkSignature> },
    /// Some of the chunk's data. `ends`: this piece is its last.
    Data { piece: Bytes, ends: bool },
    /// A trailer's line, which is not empty.
    Trailer(Vec<u8>),
}

/// Reason why a chunked body was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChunkRefusal {
    #[error(
        "a chunk of {bytes} bytes is larger than the {max} bytes this endpoint takes; send smaller \
        chunks"
    )]
    ChunkTooLarge { bytes: u64, max: u64 },
    #[error("the chunk framing of the body is malformed: {what}")]
    Malformed { what: &'static str },
    #[error(
        "the chunks hold more than the {declared} bytes that x-amz-decoded-content-length announced"
    )]
    TooLong { declared: u64 },
    #[error("the chunks hold {got} bytes, x-amz-decoded-content-length announced {declared}")]
    TooShort { got: u64, declared: u64 },
    #[error("the body ended before its final chunk")]
    EndedEarly,
}

impl ChunkRefusal {
    /// Returns what the metric calls it.
    pub(crate) fn body_refusal(&self) -> BodyRefusal {
        match self {
            Self::ChunkTooLarge { .. } => BodyRefusal::ChunkTooLarge,
            Self::Malformed { .. } => BodyRefusal::Malformed,
            Self::TooLong { .. } => BodyRefusal::TooLong,
            Self::TooShort { .. } => BodyRefusal::TooShort,
            Self::EndedEarly => BodyRefusal::EndedEarly,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FramingPosition {
    /// In the line that opens a chunk.
    Header,
    /// In a chunk's data; the number of bytes to come.
    Data(u64),
    /// In the CR LF after a chunk's data; the number of its bytes seen.
    DataEnd(u8),
    /// After the final chunk: trailer lines up to an empty one.
    Trailer,
    /// After the empty line. Only empty lines and the trailers' signature may follow.
    End,
}

/// The scanner's state over one body.
#[derive(Debug)]
pub struct ChunkScanner {
    place: FramingPosition,
    line: Vec<u8>,
    chunk_bytes_max: u64,
    declared: u64,
    got: u64,
    trailers_bytes: usize,
}

impl ChunkScanner {
    /// Makes a scanner. `declared` is `x-amz-decoded-content-length`.
    pub fn new(declared: u64, chunk_bytes_max: u64) -> Self {
        Self {
            place: FramingPosition::Header,
            line: Vec::new(),
            chunk_bytes_max,
            declared,
            got: 0,
            trailers_bytes: 0,
        }
    }

    #[cfg(test)]
    pub(super) fn held_bytes(&self) -> usize {
        self.line.len()
    }

    /// Scans the next bytes of the body, in order.
    pub fn scan_bytes(&mut self, bytes: &Bytes) -> Result<(), ChunkRefusal> {
        let mut rest = bytes.clone();
        while self.next_step(&mut rest)?.is_some() {}
        Ok(())
    }

    /// Takes bytes up to the next step. `None`: all were taken.
    pub(super) fn next_step(
        &mut self,
        rest: &mut Bytes,
    ) -> Result<Option<ChunkStep>, ChunkRefusal> {
        while !rest.is_empty() {
            match self.place {
                FramingPosition::Header => {
                    if let Some(line) = self.take_line(rest)? {
                        return self.begin_chunk(line).map(Some);
                    }
                }
                FramingPosition::Data(left) => {
                    let taken = usize::try_from(left).unwrap_or(usize::MAX).min(rest.len());
                    let left = left - taken as u64;
                    self.place = if left == 0 {
                        FramingPosition::DataEnd(0)
                    } else {
                        FramingPosition::Data(left)
                    };
                    return Ok(Some(ChunkStep::Data {
                        piece: rest.split_to(taken),
                        ends: left == 0,
                    }));
                }
                FramingPosition::DataEnd(seen) => {
                    if rest.get_u8() != b"\r\n"[usize::from(seen)] {
                        return Err(ChunkRefusal::Malformed {
                            what: "a chunk's data is not followed by CR LF",
                        });
                    }
                    self.place = if seen == 0 {
                        FramingPosition::DataEnd(1)
                    } else {
                        FramingPosition::Header
                    };
                }
                FramingPosition::Trailer | FramingPosition::End => {
                    if let Some(line) = self.take_trailer(rest)? {
                        return Ok(Some(ChunkStep::Trailer(line)));
                    }
                }
            }
        }
        Ok(None)
    }

    /// Checks that the body may end here. Call it at the body's end.
    pub fn finish(&self) -> Result<(), ChunkRefusal> {
        match self.place {
            // The final empty line is optional: AWS's own example of a signed trailer ends with the
            // signature's line.
            FramingPosition::End | FramingPosition::Trailer if self.line.is_empty() => Ok(()),
            _ => Err(ChunkRefusal::EndedEarly),
        }
    }

    /// Takes bytes up to a line's end (LF), which is kept. `None`: the line is not complete.
    fn take_line(&mut self, rest: &mut Bytes) -> Result<Option<Vec<u8>>, ChunkRefusal> {
        let end = memchr::memchr(b'\n', rest);
        let part = rest.split_to(end.map_or(rest.len(), |at| at + 1));
        if self.line.len() + part.len() > LINE_BYTES_MAX {
            return Err(ChunkRefusal::Malformed {
                what: "a line of framing is longer than 1024 bytes",
            });
        }
        self.line.extend_from_slice(&part);
        Ok(end.map(|_| std::mem::take(&mut self.line)))
    }

    fn begin_chunk(&mut self, line: Vec<u8>) -> Result<ChunkStep, ChunkRefusal> {
        let line = line
            .strip_suffix(b"\r\n")
            .ok_or(ChunkRefusal::Malformed { what: "a line of framing does not end with CR LF" })?;
        let mut fields = line.splitn(2, |&byte| byte == b';');
        let bytes = std::str::from_utf8(fields.next().unwrap_or_default())
            .ok()
            .filter(|digits| {
                (1..=16).contains(&digits.len())
                    && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
            })
            .and_then(|digits| u64::from_str_radix(digits, 16).ok())
            .ok_or(ChunkRefusal::Malformed { what: "a chunk does not start with its size" })?;
        let signature = match fields.next() {
            None => None,
            Some(extension) => Some(
                extension
                    .strip_prefix(SIGNATURE)
                    .and_then(|digits| ChunkSignature::try_from(digits).ok())
                    .ok_or(ChunkRefusal::Malformed {
                        what: "a chunk's size is followed by no signature",
                    })?,
            ),
        };
        if bytes > self.chunk_bytes_max {
            return Err(ChunkRefusal::ChunkTooLarge { bytes, max: self.chunk_bytes_max });
        }
        self.got = self.got.saturating_add(bytes);
        if self.got > self.declared {
            return Err(ChunkRefusal::TooLong { declared: self.declared });
        }
        if bytes == 0 && self.got < self.declared {
            return Err(ChunkRefusal::TooShort { got: self.got, declared: self.declared });
        }
        self.place =
            if bytes == 0 { FramingPosition::Trailer } else { FramingPosition::Data(bytes) };
        Ok(ChunkStep::Begin { bytes, signature })
    }

    /// Takes a line of trailers. Lines end by CR LF or by LF alone: minio-go writes
    /// `name:value\n\r\n`, and then the trailers' signature.
    fn take_trailer(&mut self, rest: &mut Bytes) -> Result<Option<Vec<u8>>, ChunkRefusal> {
        let before = rest.len();
        let line = self.take_line(rest)?;
        self.trailers_bytes += before - rest.len();
        if self.trailers_bytes > TRAILERS_BYTES_MAX {
            return Err(ChunkRefusal::Malformed { what: "the trailers are longer than 16 KiB" });
        }
        let seen = line.as_ref().unwrap_or(&self.line);
        if self.place == FramingPosition::End && !may_follow_end(seen) {
            return Err(ChunkRefusal::Malformed { what: "bytes follow the end of the chunks" });
        }
        let Some(mut line) = line else { return Ok(None) };
        line.pop();
        line.pop_if(|byte| *byte == b'\r');
        if line.is_empty() {
            self.place = FramingPosition::End;
            return Ok(None);
        }
        if !line.contains(&b':') {
            return Err(ChunkRefusal::Malformed { what: "a trailer is not a name and a value" });
        }
        Ok(Some(line))
    }
}

/// Returns whether a line, or its beginning, is empty or the trailers' signature.
fn may_follow_end(line: &[u8]) -> bool {
    let length = line.len().min(TRAILER_SIGNATURE.len());
    b"\r\n".starts_with(line)
        || line == b"\n"
        || line[..length].eq_ignore_ascii_case(&TRAILER_SIGNATURE[..length])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Feeds a body in pieces of every size, so that each state meets each border.
    fn scan(body: &[u8], declared: u64) -> Result<(), ChunkRefusal> {
        let mut results = (1..=body.len()).map(|size| {
            let mut scanner = ChunkScanner::new(declared, 64);
            body.chunks(size)
                .try_for_each(|piece| scanner.scan_bytes(&Bytes::copy_from_slice(piece)))?;
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
        let (one, two) = ("a".repeat(64), "b".repeat(64));
        let body = format!("5;chunk-signature={one}\r\nhello\r\n0;chunk-signature={two}\r\n\r\n");
        assert_eq!(scan(body.as_bytes(), 5), Ok(()));
        let short = body.replace(&one, &one[1..]);
        assert!(matches!(scan(short.as_bytes(), 5), Err(ChunkRefusal::Malformed { .. })));
    }

    #[test]
    fn a_trailer_of_unsigned_chunks_may_lack_its_last_empty_line() {
        assert_eq!(scan(b"5\r\nhello\r\n0\r\nx-amz-checksum-crc32:NhCmhg==\r\n\r\n", 5), Ok(()));
        assert_eq!(scan(b"5\r\nhello\r\n0\r\nx-amz-checksum-crc32:NhCmhg==\r\n", 5), Ok(()));
    }

    /// minio-go ends a trailer by LF, and writes the trailers' signature after an empty line.
    #[test]
    fn trailers_of_minio_go_pass() {
        assert_eq!(scan(b"5\r\nhello\r\n0\r\nx-amz-checksum-crc32c:mnG7TA==\n\r\n", 5), Ok(()));
        assert_eq!(scan(b"5\r\nhello\r\n0\r\nx-amz-checksum-crc32c:mnG7TA==\n\r\n\r\n", 5), Ok(()));
        let signed = b"0\r\nx-amz-checksum-crc32:AA==\n\r\nx-amz-trailer-signature:abc\r\n\r\n";
        assert_eq!(scan(signed, 0), Ok(()));
        for garbage in
            [&b"0\r\na:b\n\r\nx-amz-trailer-sig:abc\r\n\r\n"[..], b"0\r\na:b\n\r\nc:d\r\n"]
        {
            assert!(matches!(scan(garbage, 0), Err(ChunkRefusal::Malformed { .. })), "{garbage:?}");
        }
    }

    #[test]
    fn data_that_looks_like_framing_is_data() {
        assert_eq!(scan(b"7\r\n0\r\n\r\n00\r\n0\r\n\r\n", 7), Ok(()));
    }

    #[test]
    fn more_and_less_than_announced_is_refused() {
        assert_eq!(
            scan(b"6\r\nhello!\r\n0\r\n\r\n", 5),
            Err(ChunkRefusal::TooLong { declared: 5 })
        );
        assert_eq!(
            scan(b"4\r\nhell\r\n0\r\n\r\n", 5),
            Err(ChunkRefusal::TooShort { got: 4, declared: 5 })
        );
    }

    #[test]
    fn a_body_without_its_final_chunk_is_refused() {
        assert_eq!(scan(b"5\r\nhello\r\n", 5), Err(ChunkRefusal::EndedEarly));
        assert_eq!(scan(b"5\r\nhel", 5), Err(ChunkRefusal::EndedEarly));
        assert_eq!(ChunkScanner::new(0, 64).finish(), Err(ChunkRefusal::EndedEarly));
    }

    #[test]
    fn trailing_garbage_is_refused() {
        assert!(matches!(
            scan(b"5\r\nhello\r\n0\r\n\r\ny", 5),
            Err(ChunkRefusal::Malformed { .. })
        ));
        assert!(matches!(
            scan(b"5\r\nhello\r\n0\r\ngarbage\r\n\r\n", 5),
            Err(ChunkRefusal::Malformed { .. })
        ));
    }

    #[test]
    fn a_large_chunk_is_refused_at_its_header() {
        let mut scanner = ChunkScanner::new(u64::MAX, 64);
        let refusal = scanner.scan_bytes(&Bytes::from_static(b"41\r\n")).unwrap_err();
        assert_eq!(refusal, ChunkRefusal::ChunkTooLarge { bytes: 65, max: 64 });
    }

    #[test]
    fn framing_that_is_not_framing_is_refused() {
        for body in [
            &b"\r\nhello"[..],
            b"5;\r\nhello\r\n",
            b"5;x=y\r\nhello\r\n",
            b"12345678901234567\r\n",
            b"xyz\r\n",
            b"-1\r\n",
            b"+5\r\nhello\r\n",
            b"5\nhello\r\n",
            b"5\r\nhelloXX0\r\n\r\n",
        ] {
            assert!(matches!(scan(body, 5), Err(ChunkRefusal::Malformed { .. })), "{body:?}");
        }
        let endless = vec![b'5'; LINE_BYTES_MAX + 1];
        assert!(matches!(
            ChunkScanner::new(5, 64).scan_bytes(&Bytes::from(endless)),
            Err(ChunkRefusal::Malformed { .. })
        ));
    }
}
