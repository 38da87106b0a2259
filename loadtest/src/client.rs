//! Performs one step of a plan over a kept connection and says what became of it.
//!
//! Owns requests, what an answer must be (status, range, length, bytes), and the connection's life.
//! Not when, and not which.

mod upload;

use std::collections::HashMap;
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::connection::{Answer, Connection};
use crate::content::Check;
use crate::endpoint::Endpoint;
use crate::failure::Failure;
use crate::plan::{Kind, Plan, Step};
use crate::random::{Random, hash};

/// Signed requests that a connection keeps for reuse; a whole-object read of a few objects then
/// costs no signature.
const PREPARED_MAX: usize = 1024;
/// Signatures are valid for 15 minutes; these are made anew well before.
const PREPARED_FOR: Duration = Duration::from_secs(300);
/// Objects whose checksum is remembered, so that reading them again is checked by it: 8 bytes each.
const CHECKSUMS_MAX: u64 = 1 << 20;
/// What is kept of an error's body.
const EXPLANATION_BYTES_MAX: usize = 300;

/// Checksums of whole objects, as the first checked read of each found them. 0 is none.
pub struct Checksums(Vec<AtomicU64>);

impl Checksums {
    pub fn new(objects: u64) -> Self {
        Self((0..objects.min(CHECKSUMS_MAX)).map(|_| AtomicU64::new(0)).collect())
    }

    fn get(&self, object: u64) -> Option<u64> {
        let found = self.0.get(usize::try_from(object).ok()?)?.load(Ordering::Relaxed);
        (found != 0).then_some(found)
    }

    fn set(&self, object: u64, crc: u64) {
        if let Some(place) = usize::try_from(object).ok().and_then(|at| self.0.get(at)) {
            place.store(crc, Ordering::Relaxed);
        }
    }
}

/// What a step came to.
#[derive(Debug)]
pub struct Done {
    pub bytes: u64,
    /// When the first byte of the body was here, for steps that read.
    pub first_byte: Option<Instant>,
    pub ended: Instant,
    /// `x-verbs3-cache` of the answer.
    pub cache: Option<String>,
    pub outcome: Result<(), Failure>,
}

pub struct Client<'a> {
    endpoint: &'a Endpoint,
    plan: &'a Plan<'a>,
    checksums: &'a Checksums,
    verify: f64,
    timeout: Duration,
    connection: Option<Connection>,
    prepared: HashMap<Step, (Vec<u8>, Instant)>,
    sampling: Random,
}

impl<'a> Client<'a> {
    pub fn new(
        endpoint: &'a Endpoint,
        plan: &'a Plan<'a>,
        checksums: &'a Checksums,
        (verify, timeout): (f64, Duration),
        stream: u64,
    ) -> Self {
        let sampling = Random::new(hash(&[stream, 2]));
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

    /// Connects, so that connection set-up is not measured where it does not belong.
    pub fn connect(&mut self) -> Result<(), Failure> {
        self.connection = Some(Connection::open_within(self.endpoint.address, self.timeout)?);
        Ok(())
    }

    pub fn perform(&mut self, step: &Step) -> Done {
        match step.kind {
            Kind::Get | Kind::Footer | Kind::Chunk | Kind::ReadBack => self.get(step),
            Kind::Head => self.head(step),
            Kind::Put => self.put(step),
            Kind::Multipart => {
                let part_bytes = self.plan.part_bytes();
                let outcome = self.multipart(step, part_bytes);
                done(step.bytes, outcome)
            }
        }
    }

    /// Writes an object as it must be before it can be read: in one piece or in parts.
    pub fn store(&mut self, step: &Step, part_bytes: u64) -> Result<(), Failure> {
        if step.bytes > part_bytes {
            self.multipart(step, part_bytes)
        } else {
            self.put(step).outcome
        }
    }

    /// Whether the object is there, with its length.
    pub fn is_stored(&mut self, step: &Step) -> Result<bool, Failure> {
        match self.head(step).outcome {
            Ok(()) => Ok(true),
            Err(Failure::Status { status: 404, .. } | Failure::Length { .. }) => Ok(false),
            Err(failure) => Err(failure),
        }
    }

    fn get(&mut self, step: &Step) -> Done {
        let content = self.plan.content(step.object, step.version);
        let known =
            if step.whole && step.version == 0 { self.checksums.get(step.object) } else { None };
        let sampled = self.verify >= 1.0 || self.sampling.unit() < self.verify;
        let mut check = match known {
            _ if !sampled => Check::Skip,
            Some(crc) => Check::checksum(crc),
            None => Check::compare(content, step.first),
        };
        let mut refused = Vec::new();
        let request = match self.prepared(step) {
            Ok(request) => request,
            Err(failure) => return done(0, Err(failure)),
        };
        let wanted_status = if step.whole { 200 } else { 206 };
        let answer = self.exchange(
            &request,
            |_| Ok(()),
            |part| {
                check.see(part);
                if refused.len() < EXPLANATION_BYTES_MAX {
                    refused.extend_from_slice(
                        &part[..part.len().min(EXPLANATION_BYTES_MAX - refused.len())],
                    );
                }
            },
        );
        self.keep(step, request);
        let mut done = self.judged(answer, wanted_status, &refused);
        if done.outcome.is_ok() && done.bytes != step.bytes {
            done.outcome = Err(Failure::Length { got: done.bytes, wanted: step.bytes });
        }
        if let (Ok(()), Some(wrong)) = (&done.outcome, check.verdict()) {
            let key = self.plan.key(step.object);
            done.outcome = Err(Failure::Bytes(format!(
                "{key}, {} bytes from {}: {wrong}",
                step.bytes, step.first
            )));
        }
        if done.outcome.is_ok() && sampled && known.is_none() && step.whole && step.version == 0 {
            self.checksums.set(step.object, content.crc(0, step.bytes));
        }
        done
    }

    fn head(&mut self, step: &Step) -> Done {
        let request = match self.signed("HEAD", &self.endpoint.path(&self.plan.key(step.object))) {
            Ok(request) => request,
            Err(failure) => return done(0, Err(failure)),
        };
        let answer = self.exchange(&request, |_| Ok(()), |_| {});
        let length =
            answer.as_ref().ok().and_then(|answer| answer.header("content-length")?.parse().ok());
        let mut done = self.judged(answer, 200, b"");
        if done.outcome.is_ok() && length != Some(step.bytes) {
            done.outcome = Err(Failure::Length { got: length.unwrap_or(0), wanted: step.bytes });
        }
        done
    }

    fn exchange(
        &mut self,
        request: &[u8],
        body: impl FnOnce(&mut TcpStream) -> std::io::Result<()>,
        sink: impl FnMut(&[u8]),
    ) -> Result<Answer, Failure> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => Connection::open_within(self.endpoint.address, self.timeout)?,
        };
        let answer = connection.send(request, body, sink)?;
        if connection.reusable() {
            self.connection = Some(connection);
        }
        Ok(answer)
    }

    fn judged(&self, answer: Result<Answer, Failure>, wanted_status: u16, refused: &[u8]) -> Done {
        let ended = Instant::now();
        match answer {
            Ok(answer) => {
                let cache = answer.header("x-verbs3-cache").map(str::to_owned);
                let right = answer.status == wanted_status;
                let outcome = if right { Ok(()) } else { Err(refusal(answer.status, refused)) };
                Done {
                    bytes: answer.body_bytes,
                    first_byte: Some(answer.first_byte),
                    ended,
                    cache,
                    outcome,
                }
            }
            Err(failure) => {
                Done { bytes: 0, first_byte: None, ended, cache: None, outcome: Err(failure) }
            }
        }
    }

    fn signed(&self, method: &str, path: &str) -> Result<Vec<u8>, Failure> {
        self.endpoint.signer.request(method, path, b"").map_err(unsent)
    }

    /// The bytes of a GET, kept from before or made now.
    fn prepared(&mut self, step: &Step) -> Result<Vec<u8>, Failure> {
        if let Some((request, made)) = self.prepared.remove(step)
            && made.elapsed() < PREPARED_FOR
        {
            return Ok(request);
        }
        let path = self.endpoint.path(&self.plan.key(step.object));
        if step.whole {
            return self.signed("GET", &path);
        }
        self.endpoint.signer.range(&path, step.first, step.first + step.bytes - 1).map_err(unsent)
    }

    fn keep(&mut self, step: &Step, request: Vec<u8>) {
        // What was written just now is read once.
        if step.whole && step.version == 0 && self.prepared.len() < PREPARED_MAX {
            self.prepared.insert(*step, (request, Instant::now()));
        }
    }
}

fn done(bytes: u64, outcome: Result<(), Failure>) -> Done {
    let bytes = if outcome.is_ok() { bytes } else { 0 };
    Done { bytes, first_byte: None, ended: Instant::now(), cache: None, outcome }
}

fn unsent(error: anyhow::Error) -> Failure {
    Failure::Request(format!("{error:#}"))
}

fn refusal(status: u16, body: &[u8]) -> Failure {
    let text = String::from_utf8_lossy(&body[..body.len().min(EXPLANATION_BYTES_MAX)]).into_owned();
    let code = between(&text, "<Code>", "</Code>");
    Failure::Status { status, body: code.unwrap_or(text) }
}

fn between(text: &str, from: &str, to: &str) -> Option<String> {
    let rest = text.split_once(from)?.1;
    Some(rest.split_once(to)?.0.to_owned())
}
