//! The console of a real cluster: what gateway and worker do shows there, and nobody tells it to
//! coordinators that have none.
#![allow(clippy::unwrap_used)]

mod processes;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use processes::{
    Process, dev_key, free_address, get, get_object, mount_of_all, put_object, text, verbs3,
};

const SECRET: &str = "a secret of thirty-two characters or more";
const PASSWORD: &str = "a password of some length";
const WITHIN: Duration = Duration::from_secs(90);

struct Cluster {
    _store: Process,
    coordinator: Process,
    worker: Process,
    gateway: Process,
    url: String,
}

fn make_entry(role: &str) -> String {
    let mut command = verbs3();
    command.args(["console-user", "alice", "--role", role]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(PASSWORD.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    text(&output.stdout)
}

impl Cluster {
    fn start(folder: &Path, console: &str) -> Self {
        let store = Process::start_dev(folder, "store", &[]);
        let (access, key) = dev_key(&folder.join("data"));
        let mount = mount_of_all(&store, (&access, &key));
        let (address, listen) = (free_address(), free_address());
        let shared = format!(
            "[cluster]\nreplicas = 1\nsecret = \"{SECRET}\"\ncoordinators = [\"http://{address}\"]\n{mount}"
        );
        let start = |name: &str, section: String| {
            let file = folder.join(format!("{name}.toml"));
            std::fs::write(&file, format!("{shared}[{name}]\n{section}")).unwrap();
            Process::start(folder, name, &[name, "--config", file.to_str().unwrap()])
        };
        let admin = "admin_listen = \"127.0.0.1:0\"";
        let memory = "memory = { capacity = \"64MiB\" }";
        let coordinator = start(
            "coordinator",
            format!(
                "listen = \"{address}\"\n{admin}\nstore = {{ path = \"{}\" }}\n{console}",
                folder.join("coordinator").display()
            ),
        );
        let worker = start(
            "worker",
            format!(
                "id = \"w0\"\nlisten = \"{listen}\"\n{admin}\n{memory}\n[worker.shm]\nenabled = \
                 false\n"
            ),
        );
        let gateway = start(
            "gateway",
            format!(
                "listen = \"127.0.0.1:0\"\n{admin}\n{memory}\nidentities = \"{}\"\n",
                folder.join("data/identities.toml").display()
            ),
        );
        Self { _store: store, coordinator, worker, gateway, url: address }
    }

    fn ask(&self, method: &str, path: &str, headers: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(&self.url).unwrap();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ncontent-length: \
             {}\r\n{headers}\r\n{body}",
            self.url,
            body.len()
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// Signs in, and returns the header that says so.
    fn sign_in(&self) -> String {
        let page = self.ask("GET", "/console/sign-in", "", "");
        let nonce = between(&page, "verbs3-console-form=", ";");
        let ticket = between(&page, "name=\"ticket\" value=\"", "\"");
        let body = format!("ticket={ticket}&name=alice&password={}", PASSWORD.replace(' ', "+"));
        let headers = format!(
            "content-type: application/x-www-form-urlencoded\r\ncookie: \
             verbs3-console-form={nonce}\r\n"
        );
        let answer = self.ask("POST", "/console/sign-in", &headers, &body);
        format!("cookie: verbs3-console={}\r\n", between(&answer, "verbs3-console=", ";"))
    }

    fn until_page(&self, cookie: &str, path: &str, holds: impl Fn(&str) -> bool) -> String {
        let began = Instant::now();
        loop {
            let page = self.ask("GET", path, cookie, "");
            if holds(&page) {
                return page;
            }
            assert!(began.elapsed() < WITHIN, "{page}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn until_metric(&self, line: &str) {
        let began = Instant::now();
        loop {
            let metrics = text(&get(&self.coordinator.admin, "/metrics").body);
            if metrics.contains(line) {
                return;
            }
            assert!(began.elapsed() < WITHIN, "{line} is not in\n{metrics}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

fn between<'a>(text: &'a str, before: &str, after: &str) -> &'a str {
    let rest = text.split_once(before).unwrap_or_else(|| panic!("{before} is not in\n{text}")).1;
    rest.split_once(after).unwrap().0
}

/// Returns the value of the tile of this name on the first page.
fn tile<'a>(page: &'a str, name: &str) -> &'a str {
    between(between(page, &format!("<h3>{name}</h3>"), "</div>"), "<p class=\"figure\">", "</p>")
}

#[tokio::test]
async fn what_a_gateway_and_a_worker_do_shows_in_the_console() {
    let folder = tempfile::tempdir().unwrap();
    let users = folder.path().join("users.toml");
    std::fs::write(&users, make_entry("viewer")).unwrap();
    let console =
        format!("console = {{ users = \"{}\", report_every = \"1s\" }}\n", users.display());
    let mut cluster = Cluster::start(folder.path(), &console);
    let cookie = cluster.sign_in();
    let port = cluster.gateway.listen.rsplit(':').next().unwrap().to_owned();
    cluster.until_page(&cookie, "/console/nodes", |page| {
        let is_heard = page.contains(&format!(":{port}</th>")) && !page.contains("no report");
        is_heard && page.contains("w0") && page.contains(">serving<")
    });
    let began = Instant::now();
    while get(&cluster.gateway.admin, "/readyz").status != 200 {
        assert!(began.elapsed() < WITHIN, "{}", cluster.gateway.log());
        std::thread::sleep(Duration::from_millis(50));
    }
    cluster.until_page(&cookie, "/console", |page| page.contains("The cluster is well"));
    let (access, key) = dev_key(&folder.path().join("data"));
    let client = cluster.gateway.client(&access, &key);
    put_object(&client, "demo", "k", vec![7; 3 << 20]).await;
    for _ in 0..3 {
        assert_eq!(get_object(&client, "demo", "k").await.body.len(), 3 << 20);
    }
    let page = cluster.until_page(&cookie, "/console", |page| {
        tile(page, "Sent to clients") == "9.0 MiB" && tile(page, "Hit ratio") != "–"
    });
    assert!(page.contains("3.0 MiB taken from them"), "{page}");
    assert!(page.contains("From 1 gateway and 1 worker"), "{page}");
    let ways = cluster.until_page(&cookie, "/console/nodes", |page| page.contains(">tcp</td>"));
    assert!(ways.contains("9.0 MiB"), "{ways}");
    cluster.until_page(&cookie, "/console/tenants", |page| page.contains("9.0 MiB"));
    cluster.until_metric("verbs3_coordinator_console_sessions 1\n");
    cluster.until_metric("verbs3_coordinator_activity_reporters 2\n");
    // Who ends in order is missed by nobody.
    assert_eq!(cluster.gateway.end(), Some(0));
    cluster.until_page(&cookie, "/console/nodes", |page| page.contains("No gateway has reported"));
    cluster.until_metric("verbs3_coordinator_activity_reporters 1\n");
    // Whoever is taken out of the file is signed out, whether or not they ask.
    std::fs::write(&users, make_entry("viewer").replace("alice", "bob")).unwrap();
    cluster.until_metric("verbs3_coordinator_console_sessions 0\n");
    assert!(cluster.ask("GET", "/console", &cookie, "").starts_with("HTTP/1.1 303"));
    assert_eq!(cluster.worker.end(), Some(0));
}

#[test]
fn nobody_sends_figures_to_coordinators_without_a_console() {
    let folder = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::start(folder.path(), "");
    cluster.until_metric("route=\"activity_wish\",status=\"200\"} 2\n");
    assert_eq!(cluster.gateway.end(), Some(0));
    assert_eq!(cluster.worker.end(), Some(0));
    let metrics = text(&get(&cluster.coordinator.admin, "/metrics").body);
    assert!(!metrics.contains("route=\"activity\""), "{metrics}");
}
