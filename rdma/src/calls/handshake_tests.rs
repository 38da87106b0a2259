//! Tests who gets in, and what the others are told.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;

fn make_terms<'a>(secret: &'a HandshakeSecret, name: &'a str) -> HandshakeTerms<'a> {
    HandshakeTerms {
        secret,
        name,
        frame_bytes_max: 1000,
        calls_in_flight_max: 10,
        ways: "",
        ticket: None,
        rules: None,
    }
}

type HandshakeTestResult = Result<HandshakeAgreement, HandshakeError>;

async fn run_handshake(
    requester: &HandshakeSecret,
    server: &HandshakeSecret,
) -> (HandshakeTestResult, HandshakeTestResult) {
    let (mut left, mut right) = tokio::io::duplex(4096);
    let (mut small, large) = (make_terms(requester, "gw-1\n"), make_terms(server, "gpu-07"));
    small.calls_in_flight_max = 3;
    let large = HandshakeTerms { ways: "verbs 10.0.0.7:9403\n", ..large };
    tokio::join!(async { request_handshake(&mut left, &small).await }, async {
        accept_handshake(&mut right, &large, || Ok(())).await
    },)
}

#[tokio::test]
async fn the_same_secret_lets_both_in_under_the_smaller_bounds() {
    let secret = HandshakeSecret::new("s");
    let (requester, server) = run_handshake(&secret, &secret).await;
    let (requester, server) = (requester.unwrap(), server.unwrap());
    assert_eq!(requester.peer_name, "gpu-07");
    assert_eq!(server.peer_name, "gw-1?");
    assert_eq!(requester.calls_in_flight_max, 3);
    assert_eq!(server.calls_in_flight_max, 3);
    assert_eq!((requester.ways.as_str(), server.ways.as_str()), ("verbs 10.0.0.7:9403\n", ""));
}

/// A line that keeps the keys that a handshake gives it.
struct KeyKeepingLine {
    line: tokio::io::DuplexStream,
    given: Option<(SessionKey, HandshakeSide)>,
}

impl HandshakeChannel for KeyKeepingLine {
    async fn send_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.line.send_bytes(bytes).await
    }

    async fn receive_bytes(&mut self, to: &mut [u8]) -> io::Result<()> {
        self.line.receive_bytes(to).await
    }

    fn expect_seals(&mut self, key: &SessionKey, side: HandshakeSide) {
        self.given = Some((key.clone(), side));
    }
}

async fn keys_of_handshake(requester: &str, server: &str) -> [Option<[u8; 32]>; 2] {
    let (left, right) = tokio::io::duplex(4096);
    let (mut left, mut right) =
        (KeyKeepingLine { line: left, given: None }, KeyKeepingLine { line: right, given: None });
    let (one, other) = (HandshakeSecret::new(requester), HandshakeSecret::new(server));
    let (one, other) = (make_terms(&one, "gw"), make_terms(&other, "gpu"));
    let _ = tokio::join!(async { request_handshake(&mut left, &one).await }, async {
        accept_handshake(&mut right, &other, || Ok(())).await
    });
    assert!(left.given.as_ref().is_none_or(|(_, side)| *side == HandshakeSide::Requester));
    assert!(right.given.as_ref().is_none_or(|(_, side)| *side == HandshakeSide::Server));
    // What the requester sends.
    [left, right].map(|end| Some(end.given?.0.derive_key(b"chunks", HandshakeSide::Requester)))
}

#[tokio::test]
async fn both_sides_of_a_handshake_share_a_key_that_no_other_has() {
    let [one, same] = keys_of_handshake("s", "s").await;
    assert!(one.is_some() && one == same);
    let [again, _] = keys_of_handshake("s", "s").await;
    assert_ne!(one, again, "the same secret, another session");
    let [_, stranger] = keys_of_handshake("a", "b").await;
    assert!(stranger.is_none(), "a server gives no key to who has not proved the secret");
}

#[tokio::test]
async fn another_secret_is_refused_and_both_sides_say_so() {
    let (requester, server) =
        run_handshake(&HandshakeSecret::new("a"), &HandshakeSecret::new("b")).await;
    assert!(matches!(requester, Err(HandshakeError::Secret)));
    assert!(matches!(server, Err(HandshakeError::Secret)));
}

#[tokio::test]
async fn a_secret_is_changed_step_by_step_and_nobody_is_refused() {
    let hosts = [HandshakeSecret::new("old"), HandshakeSecret::new("old")];
    let steps: [(&str, &[&str]); 3] =
        [("old", &["old", "new"]), ("new", &["old", "new"]), ("new", &[])];
    for (used, accepted) in steps {
        // One host after the other. Between them each speaks with each, both ways.
        for host in &hosts {
            host.replace_secrets(used, accepted);
            for (one, other) in [(&hosts[0], &hosts[1]), (&hosts[1], &hosts[0])] {
                let (requester, server) = run_handshake(one, other).await;
                assert!(requester.is_ok() && server.is_ok(), "{used} {accepted:?}: {server:?}");
            }
        }
    }
    let (requester, _) = run_handshake(&HandshakeSecret::new("old"), &hosts[0]).await;
    assert!(matches!(requester, Err(HandshakeError::Secret)), "the old secret is over");
}

#[tokio::test]
async fn a_server_without_the_secret_is_found_out() {
    let secret = HandshakeSecret::new("s");
    let (mut left, mut right) = tokio::io::duplex(4096);
    let impostor = async {
        let hello: HandshakeGreeting = receive_payload(&mut right, FrameKind::Hello).await.unwrap();
        send_frame(&mut right, FrameKind::Challenge, hello.as_bytes()).await.unwrap();
        // The stranger can only send the requester's own proof back.
        let proof: [u8; 32] = receive_payload(&mut right, FrameKind::Proof).await.unwrap();
        send_frame(&mut right, FrameKind::Welcome, &proof).await.unwrap();
    };
    let terms = make_terms(&secret, "");
    let (outcome, ()) = tokio::join!(request_handshake(&mut left, &terms), impostor);
    assert!(matches!(outcome, Err(HandshakeError::Secret)));
}

#[tokio::test]
async fn another_version_is_refused_before_any_proof() {
    let secret = HandshakeSecret::new("s");
    let (mut left, mut right) = tokio::io::duplex(4096);
    let terms = make_terms(&secret, "");
    let old = async {
        let mut hello = make_greeting(&terms);
        hello.version = 99.into();
        send_frame(&mut left, FrameKind::Hello, hello.as_bytes()).await.unwrap();
        receive_payload::<_, HandshakeGreeting>(&mut left, FrameKind::Challenge)
            .await
            .err()
            .unwrap()
    };
    let (told, seen) = tokio::join!(old, accept_handshake(&mut right, &terms, || Ok(())));
    assert!(matches!(told, HandshakeError::Version { theirs: PROTOCOL_VERSION }));
    assert!(matches!(seen, Err(HandshakeError::Version { theirs: 99 })));
}

#[tokio::test]
async fn a_full_server_says_so_to_those_who_know_the_secret_only() {
    for (secret, full) in [("s", true), ("other", false)] {
        let (mine, theirs) = (HandshakeSecret::new(secret), HandshakeSecret::new("s"));
        let (mut left, mut right) = tokio::io::duplex(4096);
        let (a, b) = (make_terms(&mine, ""), make_terms(&theirs, ""));
        let (told, _) = tokio::join!(
            request_handshake(&mut left, &a),
            accept_handshake(&mut right, &b, || Err(HandshakeError::Full)),
        );
        assert_eq!(matches!(told, Err(HandshakeError::Full)), full);
    }
}

#[test]
fn a_secret_is_never_printed() {
    assert_eq!(format!("{:?}", HandshakeSecret::new("hunter2")), "Secret(…)");
}

proptest! {
    #[test]
    fn garbage_ends_the_handshake_without_a_panic(
        garbage in proptest::collection::vec(any::<u8>(), 0..400),
        framed in any::<bool>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let secret = HandshakeSecret::new("s");
            let (mut left, mut right) = tokio::io::duplex(4096);
            if framed {
                let hello = make_greeting(&make_terms(&secret, "x"));
                send_frame(&mut left, FrameKind::Hello, hello.as_bytes()).await.unwrap();
            }
            left.write_all(&garbage).await.unwrap();
            left.shutdown().await.unwrap();
            let outcome = accept_handshake(&mut right, &make_terms(&secret, ""), || Ok(())).await;
            prop_assert!(outcome.is_err());
            Ok(())
        })?;
    }
}

async fn run_ticketed(
    ticket: Option<&WayTicket>,
    rules: Option<&TicketRules>,
) -> (HandshakeTestResult, HandshakeTestResult) {
    let (mut left, mut right) = tokio::io::duplex(4096);
    let secret = HandshakeSecret::new("s");
    let requester = HandshakeTerms { ticket, ..make_terms(&secret, "gw-1") };
    let server = HandshakeTerms { rules, ..make_terms(&secret, "gpu-07") };
    tokio::join!(async { request_handshake(&mut left, &requester).await }, async {
        accept_handshake(&mut right, &server, || Ok(())).await
    })
}

#[tokio::test]
async fn a_ticket_lets_its_node_in_under_its_role() {
    let rules = TicketRules::new(true);
    let ticket = rules.office.issue_ticket(NodeRole::Worker, i64::from(u32::MAX));
    let (requester, server) = run_ticketed(Some(&ticket), Some(&rules)).await;
    assert_eq!(server.unwrap().requester_role, Some(NodeRole::Worker));
    assert!(requester.is_ok());
}

#[tokio::test]
async fn a_foreign_or_missing_ticket_is_refused_where_one_is_required() {
    let rules = TicketRules::new(true);
    let foreign = TicketRules::new(true).office.issue_ticket(NodeRole::Worker, i64::from(u32::MAX));
    let (requester, server) = run_ticketed(Some(&foreign), Some(&rules)).await;
    assert!(matches!(server, Err(HandshakeError::Ticket)), "{server:?}");
    assert!(matches!(requester, Err(HandshakeError::Ticket)), "{requester:?}");
    let (requester, server) = run_ticketed(None, Some(&rules)).await;
    assert!(matches!(server, Err(HandshakeError::Plain)), "{server:?}");
    assert!(matches!(requester, Err(HandshakeError::Plain)), "{requester:?}");
    let relaxed = TicketRules::new(false);
    let (_, server) = run_ticketed(None, Some(&relaxed)).await;
    assert_eq!(server.unwrap().requester_role, None);
    // Who gives no tickets can't know one.
    let (_, server) = run_ticketed(Some(&foreign), None).await;
    assert!(matches!(server, Err(HandshakeError::Ticket)), "{server:?}");
}
