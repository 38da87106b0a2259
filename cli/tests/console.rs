//! The console of a real cluster: what gateway and worker do shows there, and nobody tells it to
//! coordinators that have none.
#![allow(clippy::unwrap_used)]

mod processes;

use std::cell::RefCell;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Stdio;

use processes::{
    Process, dev_key, free_address, get, get_object, mount_of_all, put_object, text, verbs3,
    wait_until, write_config,
};
use verbs3_tests::configuration::{ANY_PORT, coordinator_section, gateway_section, worker_section};

const SECRET: &str = "a secret of thirty-two characters or more";
const PASSWORD: &str = "a password of some length";

struct ConsoleCluster {
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

impl ConsoleCluster {
    fn start(folder: &Path, console: &str) -> Self {
        let store = Process::start_dev(folder, "store", &[]);
        let (access, key) = dev_key(&folder.join("data"));
        let mount = mount_of_all(&store, (&access, &key));
        let (address, listen) = (free_address(), free_address());
        let shared = format!(
            "[cluster]\nreplicas = 1\nsecret = \"{SECRET}\"\ncoordinators = [\"http://{address}\"]\n{mount}"
        );
        let start = |name: &str, section: &str| {
            write_config(folder, name, &format!("{shared}{section}"));
            Process::start_role(folder, name)
        };
        let section = coordinator_section(&address, ANY_PORT, &folder.join("coordinator"));
        let coordinator = start("coordinator", &format!("{section}{console}"));
        let section = worker_section("w0", &listen, ANY_PORT, "64MiB");
        let worker = start("worker", &format!("{section}[worker.shm]\nenabled = false\n"));
        let identities = folder.join("data/identities.toml");
        let gateway = start("gateway", &gateway_section(ANY_PORT, ANY_PORT, &identities));
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
        let page = RefCell::default();
        let is_shown = || {
            page.replace(self.ask("GET", path, cookie, ""));
            holds(&page.borrow())
        };
        wait_until(is_shown, || page.borrow().clone());
        page.into_inner()
    }

    /// Waits until the coordinator counts so many of these.
    fn until_metric(&self, family: &str, labels: &[&str], value: f64) {
        let metrics = || self.coordinator.metrics();
        wait_until(
            || metrics().sum_shown(family, labels) == Some(value),
            || format!("{family}{labels:?} is not {value} in\n{:#?}", metrics()),
        );
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
    let mut cluster = ConsoleCluster::start(folder.path(), &console);
    let cookie = cluster.sign_in();
    let port = cluster.gateway.listen.rsplit(':').next().unwrap().to_owned();
    cluster.until_page(&cookie, "/console/nodes", |page| {
        let is_heard = page.contains(&format!(":{port}</th>")) && !page.contains("no report");
        is_heard && page.contains("w0") && page.contains(">serving<")
    });
    let is_ready = || get(&cluster.gateway.admin, "/readyz").status == 200;
    wait_until(is_ready, || cluster.gateway.log());
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
    cluster.until_metric("verbs3_coordinator_console_sessions", &[], 1.0);
    cluster.until_metric("verbs3_coordinator_activity_reporters", &[], 2.0);
    // Who ends in order is missed by nobody.
    assert_eq!(cluster.gateway.end(), Some(0));
    cluster.until_page(&cookie, "/console/nodes", |page| page.contains("No gateway has reported"));
    cluster.until_metric("verbs3_coordinator_activity_reporters", &[], 1.0);
    // Whoever is taken out of the file is signed out, whether or not they ask.
    std::fs::write(&users, make_entry("viewer").replace("alice", "bob")).unwrap();
    cluster.until_metric("verbs3_coordinator_console_sessions", &[], 0.0);
    assert!(cluster.ask("GET", "/console", &cookie, "").starts_with("HTTP/1.1 303"));
    assert_eq!(cluster.worker.end(), Some(0));
}

#[test]
fn nobody_sends_figures_to_coordinators_without_a_console() {
    let folder = tempfile::tempdir().unwrap();
    let mut cluster = ConsoleCluster::start(folder.path(), "");
    let wishes = ["route=\"activity_wish\"", "status=\"200\""];
    cluster.until_metric("verbs3_coordinator_requests_total", &wishes, 2.0);
    assert_eq!(cluster.gateway.end(), Some(0));
    assert_eq!(cluster.worker.end(), Some(0));
    let metrics = text(&get(&cluster.coordinator.admin, "/metrics").body);
    assert!(!metrics.contains("route=\"activity\""), "{metrics}");
}
