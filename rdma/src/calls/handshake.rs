//! Owns the handshake, the first frames of a connection: version, then proof of the cluster secret
//! from both sides.
//!
//! The connecting side speaks first (iWARP demands it, so every transport does it). Nothing here is
//! encrypted. The proofs keep strangers out; they do not keep a connection private.
//!
//! ```text
//! requester: Hello(version, nonce, bounds, name)
//! server:    Challenge(version, nonce, bounds, name) | Reject
//! requester: Proof(HMAC("requester", both greetings, ticket), ticket)
//! server:    Welcome(HMAC("server", both greetings, ways), ways) | Reject
//! ```
//!
//! `ways` is a text: the other ways to reach the server (`peer::transport_ways`). Opaque here. The
//! key of the proofs is the cluster's secret. Where a ticket is shown, it is made of both
//! (`way_ticket`).

use std::fmt;
use std::future::Future;
use std::io;
use std::ops::RangeInclusive;
use std::sync::Arc;

use parking_lot::RwLock;
use subtle::ConstantTimeEq;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use verbs3_certificates::{NodeName, NodeNameError, NodeRole};
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use super::frame::{FrameError, FrameHeader, FrameKind, HEADER_BYTES, PROTOCOL_VERSION};
use crate::keyed_mac::{HandshakeKey, HandshakeSide, PROOF_BYTES, SessionKey, compute_mac};
use crate::metrics::HandshakeFailure;
use crate::way_ticket::{KnownTicket, STUB_BYTES, TicketRules, TicketStub, WayTicket};

/// The secret that every host of a cluster knows, and those that are accepted beside it while the
/// cluster changes it. Clones share them, and see them replaced. Never printed.
#[derive(Clone)]
pub struct HandshakeSecret(Arc<RwLock<Vec<HandshakeKey>>>);

impl HandshakeSecret {
    /// Copies the bytes of the secret. Accepts any length, even zero; the configuration's reader
    /// checks the length.
    pub fn new(secret: impl AsRef<[u8]>) -> Self {
        Self(Arc::new(RwLock::new(vec![secret.as_ref().into()])))
    }

    /// Puts other secrets into force, for this and for all its clones: the one that this side
    /// proves, and those that a connecting side may prove as well. Connections stay as they are.
    pub fn replace_secrets<S: AsRef<[u8]>>(&self, used: S, accepted: &[S]) {
        let keys = std::iter::once(&used).chain(accepted).map(|key| key.as_ref().into());
        *self.0.write() = keys.collect();
    }

    /// Returns the secret that this side proves when it connects.
    fn used_key(&self) -> HandshakeKey {
        self.0.read().first().cloned().unwrap_or_default()
    }

    fn accepted_keys(&self) -> Vec<HandshakeKey> {
        self.0.read().clone()
    }
}

impl fmt::Debug for HandshakeSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// The byte channel of a handshake.
pub(crate) trait HandshakeChannel: Send {
    /// Sends all of `bytes`.
    fn send_bytes(&mut self, bytes: &[u8]) -> impl Future<Output = io::Result<()>> + Send;
    /// Receives exactly as many bytes as fit.
    fn receive_bytes(&mut self, to: &mut [u8]) -> impl Future<Output = io::Result<()>> + Send;
    /// Takes the key of the session, before the peer can have sent anything that is sealed with
    /// it. The peer has not proved yet that it knows it.
    fn expect_seals(&mut self, key: &SessionKey, side: HandshakeSide);
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> HandshakeChannel for S {
    async fn send_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes).await?;
        self.flush().await
    }

    async fn receive_bytes(&mut self, to: &mut [u8]) -> io::Result<()> {
        self.read_exact(to).await.map(|_| ())
    }

    /// Streams are sealed by TLS, or not at all.
    fn expect_seals(&mut self, _key: &SessionKey, _side: HandshakeSide) {}
}

const NAME_BYTES: usize = 64;
/// Longest text about ways: some dozens of addresses.
const WAYS_BYTES_MAX: usize = 4096;

/// First frame of each side. The layout up to and including `version` holds for every later
/// version.
#[derive(Clone, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct HandshakeGreeting {
    version: U32,
    frame_bytes_max: U32,
    calls_in_flight_max: U32,
    name_bytes: U32,
    nonce: [u8; 32],
    name: [u8; NAME_BYTES],
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct HandshakeRejection {
    reason: U32,
    version: U32,
}

/// The terms that one side brings to a handshake.
pub(crate) struct HandshakeTerms<'a> {
    pub(crate) secret: &'a HandshakeSecret,
    pub(crate) name: &'a str,
    pub(crate) frame_bytes_max: u32,
    pub(crate) calls_in_flight_max: u32,
    /// The other ways to the accepting side, as it announces them.
    pub(crate) ways: &'a str,
    /// The ticket that the connecting side shows.
    pub(crate) ticket: Option<&'a WayTicket>,
    /// The accepting side's rules for tickets. `None`: it takes none.
    pub(crate) rules: Option<&'a TicketRules>,
}

/// The agreement of both sides: the smaller of each pair of bounds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HandshakeAgreement {
    pub(crate) peer_name: String,
    pub(crate) frame_bytes_max: u32,
    pub(crate) calls_in_flight_max: u32,
    /// The ways that the accepting side announced; empty on that side.
    pub(crate) ways: String,
    /// Role of the connecting side, by its certificate. `None`: it has shown none.
    pub(crate) requester_role: Option<NodeRole>,
}

/// Reason why a handshake failed.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    #[error(
        "it speaks protocol version {theirs}, this side {PROTOCOL_VERSION}; run the same release \
        of verbs3 on both"
    )]
    Version { theirs: u32 },
    #[error("the cluster secrets differ; give both sides the same secret")]
    Secret,
    #[error("it has as many connections as it may; raise its connections_max")]
    Full,
    #[error("it is shutting down")]
    Draining,
    #[error("it took longer than the deadline")]
    Deadline,
    #[error("it had proved nothing yet, and others wanted its turn")]
    Displaced,
    #[error(
        "{found:?} answers where {expected:?} should; correct that worker's address in \
        cluster.workers, or its own worker.id"
    )]
    OtherName { expected: String, found: String },
    #[error("the TLS handshake failed")]
    Tls(#[source] io::Error),
    #[error("it shows no certificate, and cluster.tls.mode is \"require\"")]
    Plain,
    #[error("its ticket does not hold here; it gets another one with its next connection over tcp")]
    Ticket,
    #[error("its certificate is not the one of that node")]
    Certificate(#[from] NodeNameError),
    #[error("{0} may not ask workers: its role is another one")]
    OtherRole(NodeName),
    #[error("it does not speak verbs3: {0}")]
    Malformed(String),
    #[error("the line broke")]
    Lost(#[from] io::Error),
}

impl HandshakeError {
    /// Returns the value of the metric's label.
    pub(crate) fn handshake_failure(&self) -> HandshakeFailure {
        match self {
            Self::Version { .. } => HandshakeFailure::Version,
            Self::Secret => HandshakeFailure::Secret,
            Self::Full => HandshakeFailure::Full,
            Self::Draining => HandshakeFailure::Draining,
            Self::Deadline => HandshakeFailure::Deadline,
            Self::Displaced => HandshakeFailure::Displaced,
            Self::OtherName { .. } => HandshakeFailure::Name,
            Self::Tls(_)
            | Self::Plain
            | Self::Ticket
            | Self::Certificate(_)
            | Self::OtherRole(_) => HandshakeFailure::Tls,
            Self::Malformed(_) => HandshakeFailure::Malformed,
            Self::Lost(_) => HandshakeFailure::Lost,
        }
    }

    fn reason_code(&self) -> u32 {
        match self {
            Self::Version { .. } => 1,
            Self::Secret => 2,
            Self::Full => 3,
            Self::Draining => 4,
            Self::Ticket => 6,
            Self::Plain => 7,
            Self::Deadline
            | Self::Displaced
            | Self::OtherName { .. }
            | Self::Tls(_)
            | Self::Certificate(_)
            | Self::OtherRole(_)
            | Self::Malformed(_)
            | Self::Lost(_) => 5,
        }
    }

    fn from_rejection(rejection: &HandshakeRejection) -> Self {
        match rejection.reason.get() {
            1 => Self::Version { theirs: rejection.version.get() },
            2 => Self::Secret,
            3 => Self::Full,
            4 => Self::Draining,
            6 => Self::Ticket,
            7 => Self::Plain,
            code => Self::Malformed(format!("it refused this side's greeting (code {code})")),
        }
    }
}

impl From<FrameError> for HandshakeError {
    fn from(error: FrameError) -> Self {
        Self::Malformed(error.to_string())
    }
}

/// Runs the connecting side of the handshake.
pub(crate) async fn request_handshake<S>(
    stream: &mut S,
    terms: &HandshakeTerms<'_>,
) -> Result<HandshakeAgreement, HandshakeError>
where
    S: HandshakeChannel,
{
    let hello = make_greeting(terms);
    send_frame(stream, FrameKind::Hello, hello.as_bytes()).await?;
    let challenge: HandshakeGreeting = receive_payload(stream, FrameKind::Challenge).await?;
    check_version(&challenge)?;
    let secret = terms.secret.used_key();
    let key = match terms.ticket {
        Some(ticket) => ticket.bind_secret(&secret),
        None => secret,
    };
    stream.expect_seals(&make_session_key(&key, &hello, &challenge), HandshakeSide::Requester);
    let stub = terms.ticket.map(|ticket| ticket.stub().as_bytes()).unwrap_or_default();
    let proof = compute_proof(&key, b"verbs3 requester", &hello, &challenge, stub);
    send_frame(stream, FrameKind::Proof, &[&proof, stub].concat()).await?;
    let welcome =
        receive_some(stream, FrameKind::Welcome, PROOF_BYTES..=PROOF_BYTES + WAYS_BYTES_MAX)
            .await?;
    let (proof, ways) = welcome
        .split_first_chunk::<PROOF_BYTES>()
        .ok_or_else(|| malformed_error("a welcome cut short"))?;
    verify_proof(&key, b"verbs3 server", &hello, &challenge, ways, proof)?;
    let ways =
        String::from_utf8(ways.to_vec()).map_err(|_| malformed_error("its ways are no text"))?;
    Ok(HandshakeAgreement { ways, ..agree_terms(terms, &challenge) })
}

/// Checks that the authenticated peer has the expected name.
pub(crate) fn check_name(
    agreed: HandshakeAgreement,
    expected: Option<&str>,
) -> Result<HandshakeAgreement, HandshakeError> {
    match expected {
        Some(expected) if expected != agreed.peer_name => Err(HandshakeError::OtherName {
            expected: expected.to_owned(),
            found: agreed.peer_name,
        }),
        _ => Ok(agreed),
    }
}

/// Runs the accepting side of the handshake. `admit` decides whether there is room; it is called
/// only for a peer that proved the secret.
pub(crate) async fn accept_handshake<S>(
    stream: &mut S,
    terms: &HandshakeTerms<'_>,
    admit: impl FnOnce() -> Result<(), HandshakeError>,
) -> Result<HandshakeAgreement, HandshakeError>
where
    S: HandshakeChannel,
{
    let result = accept_or_say_why(stream, terms, admit).await;
    if let Err(error) = &result
        && !matches!(error, HandshakeError::Lost(_))
    {
        let rejection = HandshakeRejection {
            reason: error.reason_code().into(),
            version: PROTOCOL_VERSION.into(),
        };
        // The peer may be gone already. The caller needs the original error.
        let _ = send_frame(stream, FrameKind::Reject, rejection.as_bytes()).await;
    }
    result
}

async fn accept_or_say_why<S>(
    stream: &mut S,
    terms: &HandshakeTerms<'_>,
    admit: impl FnOnce() -> Result<(), HandshakeError>,
) -> Result<HandshakeAgreement, HandshakeError>
where
    S: HandshakeChannel,
{
    let hello: HandshakeGreeting = receive_payload(stream, FrameKind::Hello).await?;
    check_version(&hello)?;
    let challenge = make_greeting(terms);
    send_frame(stream, FrameKind::Challenge, challenge.as_bytes()).await?;
    let proved =
        receive_some(stream, FrameKind::Proof, PROOF_BYTES..=PROOF_BYTES + STUB_BYTES).await?;
    let (proof, stub) =
        proved.split_first_chunk::<PROOF_BYTES>().ok_or_else(|| malformed_error("no proof"))?;
    let known = find_ticket(terms.rules, stub)?;
    // The answer is proved with the secret that the peer knows.
    let accepted = terms.secret.accepted_keys();
    let keys = accepted.iter().map(|secret| match &known {
        Some(known) => known.ticket.bind_secret(secret),
        None => secret.clone(),
    });
    let holds = |key: &HandshakeKey| {
        verify_proof(key, b"verbs3 requester", &hello, &challenge, stub, proof).is_ok()
    };
    let refused = if known.is_some() { HandshakeError::Ticket } else { HandshakeError::Secret };
    let key = keys.into_iter().find(holds).ok_or(refused)?;
    admit()?;
    stream.expect_seals(&make_session_key(&key, &hello, &challenge), HandshakeSide::Server);
    let ways = &terms.ways.as_bytes()[..terms.ways.len().min(WAYS_BYTES_MAX)];
    let mut welcome = compute_proof(&key, b"verbs3 server", &hello, &challenge, ways).to_vec();
    welcome.extend_from_slice(ways);
    send_frame(stream, FrameKind::Welcome, &welcome).await?;
    let requester_role = known.map(|known| known.role);
    Ok(HandshakeAgreement { requester_role, ..agree_terms(terms, &hello) })
}

/// Returns the ticket of which this is the open part. `None`: none was shown, and none is wanted.
fn find_ticket(
    rules: Option<&TicketRules>,
    stub: &[u8],
) -> Result<Option<KnownTicket>, HandshakeError> {
    if stub.is_empty() {
        let required = rules.is_some_and(|rules| rules.required);
        return if required { Err(HandshakeError::Plain) } else { Ok(None) };
    }
    let stub = TicketStub::read_from_bytes(stub).map_err(|_| malformed_error("half a ticket"))?;
    let known = rules.and_then(|rules| rules.office.find_ticket(&stub));
    known.map(Some).ok_or(HandshakeError::Ticket)
}

fn make_greeting(terms: &HandshakeTerms<'_>) -> HandshakeGreeting {
    let mut name_bytes = terms.name.len().min(NAME_BYTES);
    while !terms.name.is_char_boundary(name_bytes) {
        name_bytes -= 1;
    }
    let mut name = [0; NAME_BYTES];
    name[..name_bytes].copy_from_slice(&terms.name.as_bytes()[..name_bytes]);
    let mut nonce = [0; 32];
    rand::fill(&mut nonce);
    HandshakeGreeting {
        version: PROTOCOL_VERSION.into(),
        frame_bytes_max: terms.frame_bytes_max.into(),
        calls_in_flight_max: terms.calls_in_flight_max.into(),
        name_bytes: (name_bytes as u32).into(),
        nonce,
        name,
    }
}

fn check_version(greeting: &HandshakeGreeting) -> Result<(), HandshakeError> {
    let theirs = greeting.version.get();
    if theirs == PROTOCOL_VERSION { Ok(()) } else { Err(HandshakeError::Version { theirs }) }
}

fn agree_terms(terms: &HandshakeTerms<'_>, peer: &HandshakeGreeting) -> HandshakeAgreement {
    let name = &peer.name[..(peer.name_bytes.get() as usize).min(NAME_BYTES)];
    let peer_name = String::from_utf8_lossy(name)
        .chars()
        .map(|c| if c.is_control() { '?' } else { c })
        .collect();
    HandshakeAgreement {
        peer_name,
        frame_bytes_max: terms.frame_bytes_max.min(peer.frame_bytes_max.get()),
        // A bound of zero would make every call wait for ever.
        calls_in_flight_max: terms.calls_in_flight_max.min(peer.calls_in_flight_max.get()).max(1),
        ways: String::new(),
        requester_role: None,
    }
}

/// Computes one side's proof, under its own role and over both nonces. So neither proof can be
/// reflected or replayed.
fn compute_proof(
    key: &[u8],
    role: &[u8],
    hello: &HandshakeGreeting,
    challenge: &HandshakeGreeting,
    said: &[u8],
) -> [u8; PROOF_BYTES] {
    compute_mac(key, &[role, &[0], hello.as_bytes(), challenge.as_bytes(), said])
}

/// Makes the key of the session: both nonces are in it, and what both sides prove.
fn make_session_key(
    key: &[u8],
    hello: &HandshakeGreeting,
    challenge: &HandshakeGreeting,
) -> SessionKey {
    SessionKey::from_bytes(compute_proof(key, b"verbs3 session", hello, challenge, &[]))
}

fn verify_proof(
    key: &[u8],
    role: &[u8],
    hello: &HandshakeGreeting,
    challenge: &HandshakeGreeting,
    said: &[u8],
    proof: &[u8; PROOF_BYTES],
) -> Result<(), HandshakeError> {
    let expected = compute_proof(key, role, hello, challenge, said);
    if bool::from(expected.ct_eq(proof)) { Ok(()) } else { Err(HandshakeError::Secret) }
}

async fn send_frame<S>(
    stream: &mut S,
    kind: FrameKind,
    payload: &[u8],
) -> Result<(), HandshakeError>
where
    S: HandshakeChannel,
{
    let header = FrameHeader { message_bytes: payload.len() as u32, ..FrameHeader::new(kind, 0) };
    let mut frame = header.encode().to_vec();
    frame.extend_from_slice(payload);
    Ok(stream.send_bytes(&frame).await?)
}

/// Reads exactly one frame of `kind`, whose payload has exactly the size of `T`. Turns a `Reject`
/// into its error.
async fn receive_payload<S, T>(stream: &mut S, kind: FrameKind) -> Result<T, HandshakeError>
where
    S: HandshakeChannel,
    T: FromBytes + IntoBytes + FromZeros,
{
    let payload = receive_some(stream, kind, size_of::<T>()..=size_of::<T>()).await?;
    T::read_from_bytes(&payload).map_err(|_| malformed_error("a frame of another length"))
}

/// Reads one frame like [`receive_payload`], for a payload whose length lies in `lengths`.
async fn receive_some<S>(
    stream: &mut S,
    kind: FrameKind,
    lengths: RangeInclusive<usize>,
) -> Result<Vec<u8>, HandshakeError>
where
    S: HandshakeChannel,
{
    let mut header = [0; HEADER_BYTES];
    stream.receive_bytes(&mut header).await?;
    let header =
        FrameHeader::decode(&header, *lengths.end().max(&size_of::<HandshakeRejection>()) as u32)?;
    let length = header.message_bytes as usize;
    let rejected = header.kind == FrameKind::Reject && length == size_of::<HandshakeRejection>();
    if !rejected && (header.kind != kind || !lengths.contains(&length)) {
        return Err(malformed_error(&format!("{:?} frame where {kind:?} was due", header.kind)));
    }
    let mut payload = vec![0; length];
    stream.receive_bytes(&mut payload).await?;
    match HandshakeRejection::read_from_bytes(&payload) {
        Ok(rejection) if rejected => Err(HandshakeError::from_rejection(&rejection)),
        _ => Ok(payload),
    }
}

fn malformed_error(reason: &str) -> HandshakeError {
    HandshakeError::Malformed(reason.to_owned())
}

#[cfg(test)]
#[path = "handshake_tests.rs"]
mod tests;
