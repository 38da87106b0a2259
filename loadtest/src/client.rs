//! Performs one step of a plan over a kept connection and returns the result.
//!
//! Owns requests, the checks of an answer (status, range, length, bytes), and the connection's
//! life. Does not decide what to request, or when.

mod upload;

use std::collections::HashMap;
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::connection::{BenchConnection, BenchResponse};
use crate::content::BenchBodyCheck;
use crate::endpoint::BenchEndpoint;
use crate::exchange_error::BenchExchangeError;
use crate::random::{SplitMixRandom, hash};
use crate::request_plan::{BenchPlanStep, BenchRequestPlan, ExchangeKind};

/// Most signed requests that a connection keeps for reuse. A whole-object read of a few objects
/// then costs no signature.
const PREPARED_MAX: usize = 1024;
/// How long a signed request is reused. Signatures are valid for 15 minutes.
const PREPARED_FOR: Duration = Duration::from_secs(300);
/// Most objects whose checksum is remembered, 8 bytes each, to check later reads.
const CHECKSUMS_MAX: u64 = 1 << 20;
/// Most bytes of an error's body that are kept.
const EXPLANATION_BYTES_MAX: usize = 300;

/// Checksums of whole objects, from the first checked read of each. 0 is none.
pub struct BenchChecksums(Vec<AtomicU64>);

impl BenchChecksums {
    /// Creates room for the checksums of `objects` objects, 2^20 at most. None is known yet.
    pub fn new(objects: u64) -> Self {
        Self((0..objects.min(CHECKSUMS_MAX)).map(|_| AtomicU64::new(0)).collect())
    }

    fn get(&self, object: u64) -> Option<u64> {
        let found = self.0.get(usize::try_from(object).ok()?)?.load(Ordering::Relaxed);
        (found != 0).then_some(found)
    }

    fn set_checksum(&self, object: u64, crc: u64) {
        if let Some(place) = usize::try_from(object).ok().and_then(|at| self.0.get(at)) {
            place.store(crc, Ordering::Relaxed);
        }
    }
}

/// Result of a step.
#[derive(Debug)]
pub struct BenchStepResult {
    pub bytes: u64,
    /// When the body's first byte arrived, for steps that read.
    pub first_byte: Option<Instant>,
    pub ended: Instant,
    /// The answer's `x-verbs3-cache`.
    pub cache: Option<String>,
    pub outcome: Result<(), BenchExchangeError>,
}

/// Performs steps for one connection, and opens a new one if the last can't be reused.
pub struct BenchClient<'a> {
    endpoint: &'a BenchEndpoint,
    plan: &'a BenchRequestPlan<'a>,
    checksums: &'a BenchChecksums,
    verify: f64,
    timeout: Duration,
    connection: Option<BenchConnection>,
    prepared: HashMap<BenchPlanStep, (Vec<u8>, Instant)>,
    sampling: SplitMixRandom,
}

impl<'a> BenchClient<'a> {
    /// Creates a client. `verify` is the part of the bodies that are checked, 0 to 1. `timeout`
    /// holds for one exchange. `stream` seeds the choice of the bodies to check.
    pub fn new(
        endpoint: &'a BenchEndpoint,
        plan: &'a BenchRequestPlan<'a>,
        checksums: &'a BenchChecksums,
        verify: f64,
        timeout: Duration,
        stream: u64,
    ) -> Self {
        let sampling = SplitMixRandom::new(hash(&[stream, 2]));
        Self {
            endpoint,
            plan,
            checksums,
            verify,
            timeout,
            connection: None,
            prepared: HashMap::new(),
            sampling,
        }
    }

    /// Connects in advance, to keep connection set-up out of the measurement.
    pub fn connect(&mut self) -> Result<(), BenchExchangeError> {
        self.connection =
            Some(BenchConnection::connect_within(self.endpoint.address, self.timeout)?);
        Ok(())
    }

    /// Performs one step and returns its result, which holds failures as `outcome`.
    pub fn perform_step(&mut self, step: &BenchPlanStep) -> BenchStepResult {
        match step.kind {
            ExchangeKind::Get
            | ExchangeKind::Footer
            | ExchangeKind::Chunk
            | ExchangeKind::ReadBack => self.get(step),
            ExchangeKind::Head => self.head_object(step),
            ExchangeKind::Absent => {
                let answer = self.exchange_head(step);
                self.judge_response(answer, 404, b"")
            }
            ExchangeKind::Put => self.put_object(step),
            ExchangeKind::Multipart => {
                let part_bytes = self.plan.part_bytes();
                let outcome = self.upload_multipart(step, part_bytes);
                step_result(step.bytes, outcome)
            }
        }
    }

    /// Writes an object so that it can be read: in one piece or in parts.
    pub fn store_object(
        &mut self,
        step: &BenchPlanStep,
        part_bytes: u64,
    ) -> Result<(), BenchExchangeError> {
        if step.bytes > part_bytes {
            self.upload_multipart(step, part_bytes)
        } else {
            self.put_object(step).outcome
        }
    }

    /// Returns whether the object is there, with its length.
    pub fn is_stored(&mut self, step: &BenchPlanStep) -> Result<bool, BenchExchangeError> {
        match self.head_object(step).outcome {
            Ok(()) => Ok(true),
            Err(
                BenchExchangeError::Status { status: 404, .. } | BenchExchangeError::Length { .. },
            ) => Ok(false),
            Err(failure) => Err(failure),
        }
    }

    fn get(&mut self, step: &BenchPlanStep) -> BenchStepResult {
        let content = self.plan.object_content(step.object, step.version);
        let known =
            if step.whole && step.version == 0 { self.checksums.get(step.object) } else { None };
        let sampled = self.verify >= 1.0 || self.sampling.next_unit() < self.verify;
        let mut check = match known {
            _ if !sampled => BenchBodyCheck::Skip,
            Some(crc) => BenchBodyCheck::new_checksum(crc),
            None => BenchBodyCheck::new_compare(content, step.first),
        };
        let mut refused = Vec::new();
        let request = match self.prepare_get(step) {
            Ok(request) => request,
            Err(failure) => return step_result(0, Err(failure)),
        };
        let wanted_status = if step.whole { 200 } else { 206 };
        let answer = self.exchange_request(
            &request,
            |_| Ok(()),
            |part| {
                check.check_part(part);
                if refused.len() < EXPLANATION_BYTES_MAX {
                    refused.extend_from_slice(
                        &part[..part.len().min(EXPLANATION_BYTES_MAX - refused.len())],
                    );
                }
            },
        );
        self.keep_prepared(step, request);
        let mut done = self.judge_response(answer, wanted_status, &refused);
        if done.outcome.is_ok() && done.bytes != step.bytes {
            done.outcome = Err(BenchExchangeError::Length { got: done.bytes, wanted: step.bytes });
        }
        if let (Ok(()), Some(wrong)) = (&done.outcome, check.describe_fault()) {
            let key = self.plan.object_key(step.object);
            done.outcome = Err(BenchExchangeError::Bytes(format!(
                "{key}, {} bytes from {}: {wrong}",
                step.bytes, step.first
            )));
        }
        if done.outcome.is_ok() && sampled && known.is_none() && step.whole && step.version == 0 {
            self.checksums.set_checksum(step.object, content.range_crc(0, step.bytes));
        }
        done
    }

    fn head_object(&mut self, step: &BenchPlanStep) -> BenchStepResult {
        let answer = self.exchange_head(step);
        let length = answer
            .as_ref()
            .ok()
            .and_then(|answer| answer.header_value("content-length")?.parse().ok());
        let mut done = self.judge_response(answer, 200, b"");
        if done.outcome.is_ok() && length != Some(step.bytes) {
            done.outcome =
                Err(BenchExchangeError::Length { got: length.unwrap_or(0), wanted: step.bytes });
        }
        done
    }

    fn exchange_head(&mut self, step: &BenchPlanStep) -> Result<BenchResponse, BenchExchangeError> {
        let path = self.endpoint.object_path(&self.plan.object_key(step.object));
        let request = self.sign_request("HEAD", &path)?;
        self.exchange_request(&request, |_| Ok(()), |_| {})
    }

    fn exchange_request(
        &mut self,
        request: &[u8],
        body: impl FnOnce(&mut TcpStream) -> std::io::Result<()>,
        sink: impl FnMut(&[u8]),
    ) -> Result<BenchResponse, BenchExchangeError> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => BenchConnection::connect_within(self.endpoint.address, self.timeout)?,
        };
        let answer = connection.send_request(request, body, sink)?;
        if connection.is_reusable() {
            self.connection = Some(connection);
        }
        Ok(answer)
    }

    fn judge_response(
        &self,
        answer: Result<BenchResponse, BenchExchangeError>,
        wanted_status: u16,
        refused: &[u8],
    ) -> BenchStepResult {
        let ended = Instant::now();
        match answer {
            Ok(answer) => {
                let cache = answer.header_value("x-verbs3-cache").map(str::to_owned);
                let right = answer.status == wanted_status;
                let outcome =
                    if right { Ok(()) } else { Err(status_failure(answer.status, refused)) };
                BenchStepResult {
                    bytes: answer.body_bytes,
                    first_byte: Some(answer.first_byte),
                    ended,
                    cache,
                    outcome,
                }
            }
            Err(failure) => BenchStepResult {
                bytes: 0,
                first_byte: None,
                ended,
                cache: None,
                outcome: Err(failure),
            },
        }
    }

    fn sign_request(&self, method: &str, path: &str) -> Result<Vec<u8>, BenchExchangeError> {
        self.endpoint.signer.sign_request(method, path, b"").map_err(request_failure)
    }

    /// Returns the bytes of a GET request, cached or newly made.
    fn prepare_get(&mut self, step: &BenchPlanStep) -> Result<Vec<u8>, BenchExchangeError> {
        if let Some((request, made)) = self.prepared.remove(step)
            && made.elapsed() < PREPARED_FOR
        {
            return Ok(request);
        }
        let path = self.endpoint.object_path(&self.plan.object_key(step.object));
        if step.whole {
            return self.sign_request("GET", &path);
        }
        self.endpoint
            .signer
            .sign_range(&path, step.first, step.first + step.bytes - 1)
            .map_err(request_failure)
    }

    fn keep_prepared(&mut self, step: &BenchPlanStep, request: Vec<u8>) {
        // Only these requests are kept: a version that was just written is read once.
        if step.whole && step.version == 0 && self.prepared.len() < PREPARED_MAX {
            self.prepared.insert(*step, (request, Instant::now()));
        }
    }
}

fn step_result(bytes: u64, outcome: Result<(), BenchExchangeError>) -> BenchStepResult {
    let bytes = if outcome.is_ok() { bytes } else { 0 };
    BenchStepResult { bytes, first_byte: None, ended: Instant::now(), cache: None, outcome }
}

fn request_failure(error: anyhow::Error) -> BenchExchangeError {
    BenchExchangeError::Request(format!("{error:#}"))
}

fn status_failure(status: u16, body: &[u8]) -> BenchExchangeError {
    let text = String::from_utf8_lossy(&body[..body.len().min(EXPLANATION_BYTES_MAX)]).into_owned();
    let code = text_between(&text, "<Code>", "</Code>");
    BenchExchangeError::Status { status, body: code.unwrap_or(text) }
}

fn text_between(text: &str, from: &str, to: &str) -> Option<String> {
    let rest = text.split_once(from)?.1;
    Some(rest.split_once(to)?.0.to_owned())
}
