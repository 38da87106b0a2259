//! The console over HTTP: who gets in, what forms need, and what viewers can't do.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use verbs3_coordinator::{ConsoleOptions, ConsoleRole, ConsoleUsers, make_user_entry};

use super::*;

const PASSWORD: &str = "a password of some length";
const FORM: &str = "content-type: application/x-www-form-urlencoded\r\n";

async fn start_console(folder: &tempfile::TempDir) -> Running {
    let entry = |name, role| make_user_entry(name, role, PASSWORD).unwrap();
    let file = folder.path().join("users.toml");
    let entries =
        [entry("alice", ConsoleRole::Operator), entry("bob", ConsoleRole::Viewer)].join("\n");
    std::fs::write(&file, entries).unwrap();
    let users = ConsoleUsers::read_file(&file).unwrap();
    let running = start_at("127.0.0.1:0", file_store(folder), |options| {
        options.console = Some(ConsoleOptions {
            users,
            plain_allowed: false,
            sessions_max: 10,
            session_idle: SOON,
            session_age: SOON,
        });
    })
    .await;
    register(&client(&[&running.url], secret()), "a").await;
    running
}

async fn ask(running: &Running, method: &str, path: &str, headers: &str, body: &str) -> String {
    let address = running.url.strip_prefix("http://").unwrap();
    let mut socket = TcpStream::connect(address).await.unwrap();
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
