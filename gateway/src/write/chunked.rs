//! Unwraps aws-chunked bodies of objects as they come. Owns the order of proof: a chunk's data is
//! passed on while its SHA-256 is computed, and its signature is compared at its end. s3s would
//! hold each chunk whole until then, whatever its size.
//!
//! Bytes therefore go to the UFS before they are proven. If a later proof fails, nothing is stored:
//! `verified_body` holds the body's last frame back until this stream has ended well. That takes
//! every signature, the final chunk and the trailers.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures::Stream;
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body::Body;
use parking_lot::Mutex;
use s3s::stream::{ByteStream, RemainingLength};
use s3s::{S3Error, S3ErrorCode, S3Request, S3Result, StdError};
use sha2::{Digest, Sha256};

use super::body_fault::BodyFault;
use super::chunk_scanner::{ChunkRefusal, ChunkScanner, ChunkSignature, ChunkStep};
use super::chunk_signing::ChunkSigner;

/// Value of `x-amz-content-sha256` for unsigned chunks. All other values that s3s accepts are
/// signed.
const UNSIGNED: &[u8] = b"STREAMING-UNSIGNED-PAYLOAD-TRAILER";

/// The trailers, set once the body has ended well.
pub(crate) type ProvenTrailers = Arc<Mutex<Option<HeaderMap>>>;

/// An aws-chunked body that is unwrapped as it comes.
pub(crate) struct ChunkedBody<B> {
    inner: Option<B>,
    /// Bytes of the last frame that are not scanned yet.
    rest: Bytes,
    declared: u64,
    passed: u64,
    scanner: ChunkScanner,
    proof: ChunkProof,
    over: bool,
}

/// The proof of the chunks so far.
struct ChunkProof {
    signer: ChunkSigner,
    /// True if chunks without a signature are refused.
    signed: bool,
    /// Hash of the chunk under way.
    hash: Sha256,
    expected: Option<ChunkSignature>,
    trailers: Vec<(String, String)>,
    trailers_signature: Option<String>,
    proven: ProvenTrailers,
}

impl<B> ChunkedBody<B> {
    /// Unwraps the body of a request whose own signature is verified. `inner`: its raw body; `None`
    /// if that is empty.
    pub fn new<T>(
        inner: Option<B>,
        request: &S3Request<T>,
        declared: u64,
    ) -> S3Result<(Self, ProvenTrailers)> {
        let secret =
            request.credentials.as_ref().map(|credentials| credentials.secret_key.expose());
        let signer = secret
            .and_then(|secret| ChunkSigner::from_headers(&request.headers, secret))
            .ok_or_else(|| {
                let message = "aws-chunked bodies need a SigV4 Authorization header";
                S3Error::with_message(S3ErrorCode::InvalidRequest, message)
            })?;
        let form = request.headers.get("x-amz-content-sha256").map(HeaderValue::as_bytes);
        let proven = ProvenTrailers::default();
        let proof = ChunkProof {
            signer,
            signed: form != Some(UNSIGNED),
            hash: Sha256::new(),
            expected: None,
            trailers: Vec::new(),
            trailers_signature: None,
            proven: proven.clone(),
        };
        let scanner = ChunkScanner::new(declared, u64::MAX);
        let body =
            Self { inner, rest: Bytes::new(), declared, passed: 0, scanner, proof, over: false };
        Ok((body, proven))
    }

    /// Returns the next piece of data in the bytes that have come.
    fn unwrap_rest(&mut self) -> Result<Option<Bytes>, BodyFault> {
        while let Some(step) = self.scanner.next_step(&mut self.rest)? {
            match step {
                ChunkStep::Begin { bytes, signature } => {
                    self.proof.begin_chunk(bytes, signature)?
                }
                ChunkStep::Data { piece, ends } => {
                    self.proof.hash_data(&piece, ends)?;
                    self.passed += piece.len() as u64;
                    return Ok(Some(piece));
                }
                ChunkStep::Trailer(line) => self.proof.keep_trailer(&line)?,
            }
        }
        Ok(None)
    }

    fn end_body(&mut self) -> Result<(), BodyFault> {
        self.scanner.finish()?;
        self.proof.finish_trailers()
    }
}

impl ChunkProof {
    fn begin_chunk(
        &mut self,
        bytes: u64,
        signature: Option<ChunkSignature>,
    ) -> Result<(), BodyFault> {
        if self.signed && signature.is_none() {
            return Err(ChunkRefusal::Malformed { what: "a chunk is not signed" }.into());
        }
        self.expected = signature;
        if bytes == 0 { self.compare_signature() } else { Ok(()) }
    }

    fn hash_data(&mut self, data: &[u8], ends: bool) -> Result<(), BodyFault> {
        if self.expected.is_some() {
            self.hash.update(data);
        }
        if ends { self.compare_signature() } else { Ok(()) }
    }

    /// Compares the signature at a chunk's end.
    fn compare_signature(&mut self) -> Result<(), BodyFault> {
        let Some(expected) = self.expected.take() else { return Ok(()) };
        let digest = self.hash.finalize_reset();
        if self.signer.accept_chunk(&digest, &expected) {
            Ok(())
        } else {
            Err(BodyFault::ChunkSignature)
        }
    }

    fn keep_trailer(&mut self, line: &[u8]) -> Result<(), BodyFault> {
        let malformed = ChunkRefusal::Malformed { what: "a trailer is not a name and a value" };
        let text = std::str::from_utf8(line).map_err(|_| malformed.clone())?;
        let (name, value) = text.split_once(':').ok_or(malformed)?;
        let (name, value) = (name.to_ascii_lowercase(), value.trim_matches([' ', '\t']).to_owned());
        if name == "x-amz-trailer-signature" {
            self.trailers_signature = Some(value);
        } else {
            self.trailers.push((name, value));
        }
        Ok(())
    }

    /// Checks the trailers' signature at the body's end, and publishes the trailers.
    fn finish_trailers(&mut self) -> Result<(), BodyFault> {
        self.trailers.sort_by(|one, other| one.0.cmp(&other.0));
        if let Some(given) = &self.trailers_signature {
            let canonical: String =
                self.trailers.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
            if !self.signer.accept_trailers(canonical.as_bytes(), given.as_bytes()) {
                return Err(BodyFault::ChunkSignature);
            }
        } else if self.signed && !self.trailers.is_empty() {
            return Err(BodyFault::ChunkSignature);
        }
        let mut headers = HeaderMap::new();
        for (name, value) in self.trailers.drain(..) {
            let malformed =
                || ChunkRefusal::Malformed { what: "a trailer is not a name and a value" };
            let name = HeaderName::try_from(name).map_err(|_| malformed())?;
            headers.append(name, HeaderValue::try_from(value).map_err(|_| malformed())?);
        }
        *self.proven.lock() = Some(headers);
        Ok(())
    }
}

impl<B: Body<Data = Bytes, Error = StdError> + Unpin> Stream for ChunkedBody<B> {
    type Item = Result<Bytes, StdError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        while !this.over {
            match this.unwrap_rest() {
                Ok(Some(piece)) => return Poll::Ready(Some(Ok(piece))),
                Ok(None) => {}
                Err(fault) => {
                    this.over = true;
                    return Poll::Ready(Some(Err(fault.into())));
                }
            }
            let frame = match &mut this.inner {
                Some(inner) => ready!(Pin::new(inner).poll_frame(cx)),
                None => None,
            };
            match frame.transpose() {
                Ok(Some(frame)) => this.rest = frame.into_data().unwrap_or_default(),
                Ok(None) => {
                    this.over = true;
                    if let Err(fault) = this.end_body() {
                        return Poll::Ready(Some(Err(fault.into())));
                    }
                }
                Err(error) => {
                    this.over = true;
                    return Poll::Ready(Some(Err(error)));
                }
            }
        }
        Poll::Ready(None)
    }
}

impl<B: Body<Data = Bytes, Error = StdError> + Unpin + Send + Sync> ByteStream for ChunkedBody<B> {
    fn remaining_length(&self) -> RemainingLength {
        usize::try_from(self.declared.saturating_sub(self.passed))
            .map_or_else(|_| RemainingLength::unknown(), RemainingLength::new_exact)
    }
}

#[cfg(test)]
mod tests;
