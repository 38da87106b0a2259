//! The console over HTTP: who gets in, what forms need, and what viewers can't do.

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};
use verbs3_coordinator::{ConsoleRole, ConsoleUsers, make_user_entry};
use verbs3_coordinator_client::api::{
    ActivityRole, ActivityWish, CoordinatorRefusalKind, NodeActivity,
};
use verbs3_coordinator_client::proof::{
    ProofRecipient, ProvenRequest, RECIPIENT_HEADER, REQUEST_HEADER, wall_clock_ms,
};

use super::certified::{KeptLog, TestIssuer, node_tls};
use super::*;

const PASSWORD: &str = "a password of some length";
const FORM: &str = "content-type: application/x-www-form-urlencoded\r\n";

async fn start_console(folder: &tempfile::TempDir) -> Running {
    let running = start_console_with(folder, &["alice", "bob"], |_| {}).await;
    register(&client(&[&running.url], secret()), "a").await;
    running
}

async fn start_console_with(
    folder: &tempfile::TempDir,
    names: &[&str; 2],
    change: impl FnOnce(&mut CoordinatorOptions),
) -> Running {
    start_console_over(file_store(folder), folder, names, change).await
}

/// The first user is an operator, the second one a viewer.
async fn start_console_over(
    store: SharedClusterStore,
    folder: &tempfile::TempDir,
    names: &[&str; 2],
    change: impl FnOnce(&mut CoordinatorOptions),
) -> Running {
    let entry = |name, role| make_user_entry(name, role, PASSWORD).unwrap();
    let file = folder.path().join("users.toml");
    let entries =
        [entry(names[0], ConsoleRole::Operator), entry(names[1], ConsoleRole::Viewer)].join("\n");
    std::fs::write(&file, entries).unwrap();
    let users = ConsoleUsers::read_file(&file).unwrap();
    start_at("127.0.0.1:0", store, |options| {
        options.console_users = Some(users);
        let console = &mut options.settings.console;
        console.sessions_max = 10;
        console.session_idle = TimePeriod(SOON);
        console.session_age = TimePeriod(SOON);
        console.report_every = TimePeriod::from_seconds(7);
        change(options);
    })
    .await
}

async fn ask(running: &Running, method: &str, path: &str, headers: &str, body: &str) -> String {
    let address = running.url.strip_prefix("http://").unwrap();
    let socket = TcpStream::connect(address).await.unwrap();
    ask_over(socket, address, [method, path, headers, body]).await
}

/// Asks over a connection: method, path, headers and body.
async fn ask_over<S: AsyncRead + AsyncWrite + Unpin>(
    mut socket: S,
    address: &str,
    [method, path, headers, body]: [&str; 4],
) -> String {
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\
        content-length: {}\r\n{headers}\r\n{body}",
        body.len()
    );
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let _ = socket.read_to_end(&mut answer).await;
    String::from_utf8(answer).unwrap()
}

fn between<'a>(text: &'a str, before: &str, after: &str) -> &'a str {
    let rest = text.split_once(before).unwrap_or_else(|| panic!("{before} is not in\n{text}")).1;
    rest.split_once(after).unwrap().0
}

async fn sign_in(running: &Running, name: &str, password: &str) -> String {
    let page = ask(running, "GET", "/console/sign-in", "", "").await;
    let nonce = between(&page, "verbs3-console-form=", ";");
    let ticket = between(&page, "name=\"ticket\" value=\"", "\"");
    let body = format!("ticket={ticket}&name={name}&password={}", password.replace(' ', "+"));
    let headers = format!("{FORM}cookie: verbs3-console-form={nonce}\r\n");
    ask(running, "POST", "/console/sign-in", &headers, &body).await
}

fn cookie_of(answer: &str) -> String {
    format!("cookie: verbs3-console={}\r\n", between(answer, "set-cookie: verbs3-console=", ";"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_who_signs_in_sees_the_console() {
    let folder = tempfile::tempdir().unwrap();
    let running = start_console(&folder).await;
    let stranger = ask(&running, "GET", "/console", "", "").await;
    assert!(stranger.starts_with("HTTP/1.1 303") && stranger.contains("/console/sign-in"));
    for (name, password) in [("alice", "a wrong one of some length"), ("carol", PASSWORD)] {
        let refused = sign_in(&running, name, password).await;
        assert!(refused.starts_with("HTTP/1.1 401"), "{refused}");
        assert!(refused.contains("Name or password is wrong."));
    }
    let cookie = cookie_of(&sign_in(&running, "alice", PASSWORD).await);
    let page = ask(&running, "GET", "/console", &cookie, "").await;
    assert!(page.starts_with("HTTP/1.1 200") && page.contains("frame-ancestors 'none'"));
    running.coordinator.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forms_need_their_token_and_viewers_change_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let running = start_console(&folder).await;
    for (name, is_operator) in [("alice", true), ("bob", false)] {
        let cookie = cookie_of(&sign_in(&running, name, PASSWORD).await);
        let headers = format!("{FORM}{cookie}");
        let page = ask(&running, "GET", "/console/jobs", &cookie, "").await;
        assert_eq!(page.contains("Begin a job"), is_operator);
        let without = ask(&running, "POST", "/console/jobs", &headers, "id=x").await;
        assert!(without.starts_with("HTTP/1.1 403"), "{without}");
        let token = between(&page, "name=\"form_token\" value=\"", "\"");
        let body = format!("form_token={token}&id=%3Cscript%3E&paths=s3%3A%2F%2Fb%2Fk");
        let foreign = format!("{headers}origin: http://evil.example\r\n");
        let foreign = ask(&running, "POST", "/console/jobs", &foreign, &body).await;
        assert!(foreign.starts_with("HTTP/1.1 403"), "{foreign}");
        // This coordinator has no engine, so an operator's job is refused for that.
        let answer = ask(&running, "POST", "/console/jobs", &headers, &body).await;
        let wanted = if is_operator { "HTTP/1.1 503" } else { "HTTP/1.1 403" };
        assert!(answer.starts_with(wanted), "{answer}");
        assert!(!answer.contains("<script>"), "{answer}");
    }
    running.coordinator.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn there_is_no_console_unless_it_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let running = start(file_store(&folder)).await;
    let answer = ask(&running, "GET", "/console/sign-in", "", "").await;
    assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
    running.coordinator.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_signs_in_or_out_or_fails_to_stands_in_the_audit_log() {
    let kept = KeptLog::of_process();
    let folder = tempfile::tempdir().unwrap();
    let running = start_console_with(&folder, &["ines-signs", "otto-signs"], |_| {}).await;
    assert!(sign_in(&running, "otto-signs", "wrong, and long").await.contains(" 401 "));
    // A password in the wrong field must not be written down.
    assert!(sign_in(&running, "hush-a-secret", PASSWORD).await.contains(" 401 "));
    let cookie = cookie_of(&sign_in(&running, "ines-signs", PASSWORD).await);
    let page = ask(&running, "GET", "/console/object", &cookie, "").await;
    let token = between(&page, "name=\"form_token\" value=\"", "\"");
    let headers = format!("{FORM}{cookie}");
    let unproven = ask(&running, "POST", "/console/sign-out", &headers, "form_token=x").await;
    assert!(unproven.starts_with("HTTP/1.1 403"), "{unproven}");
    let body = format!("form_token={token}");
    let out = ask(&running, "POST", "/console/sign-out", &headers, &body).await;
    assert!(out.starts_with("HTTP/1.1 303") && out.contains("Max-Age=0"), "{out}");
    let after = ask(&running, "GET", "/console/object", &cookie, "").await;
    assert!(after.starts_with("HTTP/1.1 303"), "{after}");
    running.coordinator.shutdown().await;
    let lines = kept.lines();
    let field = |line: &serde_json::Value, name: &str| {
        line["fields"][name].as_str().unwrap_or_default().to_owned()
    };
    let ours: Vec<String> = lines
        .iter()
        .filter(|line| field(line, "who").ends_with("-signs"))
        .map(|line| format!("{} {} {}", line["level"], field(line, "who"), field(line, "message")))
        .collect();
    assert_eq!(
        ours,
        [
            "\"WARN\" console/otto-signs refused",
            "\"INFO\" console/ines-signs signed in",
            "\"INFO\" console/ines-signs signed out",
        ]
    );
    assert!(lines.iter().any(|line| field(line, "who") == "nobody"
        && field(line, "reason") == "wrong name or password"
        && field(line, "address") == "127.0.0.1"));
    assert!(!lines.iter().any(|line| line.to_string().contains("hush-a-secret")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_that_tries_too_often_waits_with_its_forms_unread() {
    let folder = tempfile::tempdir().unwrap();
    let running = start_console(&folder).await;
    let mut refused = 0;
    for _ in 0..12 {
        let answer = ask(&running, "POST", "/console/sign-in", FORM, "name=a&password=b").await;
        let is_late = answer.starts_with("HTTP/1.1 429");
        // Without the ticket of a form that this browser was given, no password is tried.
        assert!(is_late || answer.starts_with("HTTP/1.1 403"), "{answer}");
        refused += u32::from(is_late);
    }
    assert!((3..=4).contains(&refused), "{refused}");
    // Longer than a form of a stranger may be.
    let long = "x".repeat(8 << 10);
    let folder = tempfile::tempdir().unwrap();
    let other = start_console(&folder).await;
    let answer = ask(&other, "POST", "/console/sign-in", FORM, &long).await;
    assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("too long"), "{answer}");
    // Without a session, the body of no other form is waited for.
    let address = other.url.strip_prefix("http://").unwrap();
    let mut socket = TcpStream::connect(address).await.unwrap();
    let head = format!(
        "POST /console/jobs HTTP/1.1\r\nhost: {address}\r\n{FORM}content-length: 1000000\r\n\r\n"
    );
    socket.write_all(head.as_bytes()).await.unwrap();
    let mut answer = [0; 12];
    socket.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 401");
    running.coordinator.shutdown().await;
    other.coordinator.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn figures_are_taken_of_whom_they_are_and_only_with_a_console() {
    let (issuer, folder) = (TestIssuer::new(), tempfile::tempdir().unwrap());
    let tls = || node_tls(&issuer, &folder, "coordinator/c0");
    let running = start_console_with(&folder, &["alice", "bob"], |options| {
        options.tls = Some(tls());
        options.advertise = options.advertise.replace("http://", "https://");
    })
    .await;
    let url = running.url.replace("http://", "https://");
    let client_of = |name: &str| {
        CoordinatorClient::new(CoordinatorClientOptions {
            coordinators: vec![url.clone()],
            secrets: secret().into(),
            tls: Some(node_tls(&issuer, &folder, name)),
            connect_deadline: Duration::from_secs(5),
            deadline: Duration::from_secs(5),
        })
    };
    register(&client_of("worker/a"), "a").await;
    let report =
        |role, name: &str| NodeActivity { role, name: name.to_owned(), ..NodeActivity::default() };
    for (certificate, role, name, is_taken) in [
        ("gateway/g", ActivityRole::Gateway, "host:9000", true),
        ("worker/a", ActivityRole::Worker, "a", true),
        ("worker/b", ActivityRole::Worker, "a", false),
        ("worker/a", ActivityRole::Gateway, "a", false),
        ("gateway/g", ActivityRole::Worker, "a", false),
    ] {
        let told: Result<Option<ActivityWish>, AskError> = client_of(certificate)
            .post_json("/v1/activity", &report(role, name), Duration::ZERO)
            .await;
        match told {
            Ok(wish) => assert_eq!((wish.unwrap().every_ms, is_taken), (7000, true)),
            Err(error) => {
                assert_eq!(error.refusal_kind(), Some(CoordinatorRefusalKind::Forbidden));
                assert!(!is_taken, "{certificate} {role:?}");
            }
        }
    }
    let mut long = report(ActivityRole::Gateway, "host:9000");
    long.tenants = vec![Default::default(); 2000];
    let told: Result<Option<ActivityWish>, AskError> =
        client_of("gateway/g").post_json("/v1/activity", &long, Duration::ZERO).await;
    let refused = told.unwrap_err();
    assert_eq!(refused.refusal_kind(), Some(CoordinatorRefusalKind::Malformed), "{refused}");
    running.coordinator.shutdown().await;
    let folder = tempfile::tempdir().unwrap();
    let without = start(file_store(&folder)).await;
    let client = client(&[&without.url], secret());
    register(&client, "a").await;
    let wish: Option<ActivityWish> = client.get("/v1/activity", Duration::ZERO).await.unwrap();
    assert_eq!(wish.unwrap().every_ms, 0);
    without.coordinator.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_browser_without_a_certificate_reaches_only_the_sign_in() {
    let (issuer, folder) = (TestIssuer::new(), tempfile::tempdir().unwrap());
    let running = start_console_with(&folder, &["alice", "bob"], |options| {
        options.tls = Some(node_tls(&issuer, &folder, "coordinator/c0"));
        options.notification_token = None;
    })
    .await;
    let address = running.url.strip_prefix("http://").unwrap().to_owned();
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(issuer.ca_pem().as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector = TlsConnector::from(Arc::new(config));
    let ask = async |method: &str, path: &str, headers: &str, body: &str| {
        let socket = TcpStream::connect(&address).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let socket = connector.connect(name, socket).await.unwrap();
        ask_over(socket, &address, [method, path, headers, body]).await
    };
    let page = ask("GET", "/console/sign-in", "", "").await;
    assert!(page.starts_with("HTTP/1.1 200"), "{page}");
    assert!(page.contains("__Host-verbs3-console-form=") && page.contains("; Secure"), "{page}");
    for path in ["/console", "/console/nodes", "/console/jobs", "/console/no-such-page"] {
        let answer = ask("GET", path, "", "").await;
        assert!(answer.starts_with("HTTP/1.1 303") && !answer.contains("tests"), "{answer}");
    }
    // It can't use the API, and could not if it knew the secret, either.
    assert!(ask("GET", "/v1/cluster", "", "").await.starts_with("HTTP/1.1 401"));
    let first = ask("GET", "/v1/map", "", "").await;
    let recipient = between(&first, &format!("{RECIPIENT_HEADER}: "), "\r\n");
    for path in ["/v1/map", "/v1/cluster", "/v1/openapi.json", "/v1/activity"] {
        let proven = ProvenRequest { method: "GET", path_and_query: path, body: b"" };
        let recipient = ProofRecipient(recipient.to_owned());
        let (proof, _) = secret().prove_request(proven, &recipient, wall_clock_ms());
        let answer = ask("GET", path, &format!("{REQUEST_HEADER}: {proof}\r\n"), "").await;
        assert!(answer.starts_with("HTTP/1.1 403") && answer.contains("nobody"), "{answer}");
    }
    // Once signed in, it sees pages, and the API no more than before.
    let nonce = between(&page, "__Host-verbs3-console-form=", ";");
    let ticket = between(&page, "name=\"ticket\" value=\"", "\"");
    let body = format!("ticket={ticket}&name=alice&password={}", PASSWORD.replace(' ', "+"));
    let headers = format!("{FORM}cookie: __Host-verbs3-console-form={nonce}\r\n");
    let answer = ask("POST", "/console/sign-in", &headers, &body).await;
    let token = between(&answer, "__Host-verbs3-console=", ";");
    let cookie = format!("cookie: __Host-verbs3-console={token}\r\n");
    assert!(ask("GET", "/console", &cookie, "").await.starts_with("HTTP/1.1 200"));
    assert!(ask("GET", "/v1/cluster", &cookie, "").await.starts_with("HTTP/1.1 401"));
    running.coordinator.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_coordinator_that_follows_names_the_leader_on_a_jobs_page() {
    let folder = tempfile::tempdir().unwrap();
    let store = file_store(&folder);
    let leader = start(store.clone()).await;
    register(&client(&[&leader.url], secret()), "a").await;
    let other = start_console_over(store, &folder, &["alice", "bob"], |_| {}).await;
    let cookie = cookie_of(&sign_in(&other, "alice", PASSWORD).await);
    let page = ask(&other, "GET", "/console/jobs/nightly", &cookie, "").await;
    let named = format!("Another coordinator leads. Sign in at {}/console.", leader.url);
    assert!(page.starts_with("HTTP/1.1 200") && page.contains(&named), "{page}");
    let nothing = ask(&other, "GET", "/console/no-such-page", &cookie, "").await;
    assert!(nothing.starts_with("HTTP/1.1 404"), "{nothing}");
    other.coordinator.shutdown().await;
    leader.coordinator.shutdown().await;
}
