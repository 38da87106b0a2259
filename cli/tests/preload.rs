//! Preload jobs as people use them: coordinator, workers and gateway as processes, and the command.
#![allow(clippy::unwrap_used)]

mod processes;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, Output, Stdio};

use aws_sdk_s3::Client;
use processes::{
    Process, dev_key, free_address, get, get_object, mount_of_all, put_object, text, verbs3,
    wait_until, write_config,
};
use verbs3_coordinator_client::proof::{
    ClusterSecret, ProofRecipient, ProvenRequest, RECIPIENT_HEADER, REQUEST_HEADER, wall_clock_ms,
};
use verbs3_tests::configuration::{ANY_PORT, coordinator_section, gateway_section, worker_section};

const SECRET: &str = "a secret of thirty-two characters or more";
const MIB: usize = 1 << 20;

struct PreloadCluster {
    folder: tempfile::TempDir,
    _store: Process,
    workers: Vec<Process>,
    gateway: Process,
    client: Client,
    coordinator: Process,
    url: String,
}

impl PreloadCluster {
    /// Two workers of this much memory: listed by everybody's configuration, or `registered` with
    /// the coordinator.
    fn start(memory: &str, registered: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path();
        let data = at.join("data");
        let store = Process::start_dev(at, "store", &[]);
        let (access, key) = dev_key(&data);
        let mount = mount_of_all(&store, (&access, &key));
        let addresses = [free_address(), free_address()];
        let address = free_address();
        let members = match registered {
            true => format!("coordinators = [\"http://{address}\"]"),
            false => format!(
                "workers_fixed = true\nworkers = [{{ id = \"w0\", address = \"{}\" }}, {{ id = \
                \"w1\", address = \"{}\" }}]",
                addresses[0], addresses[1]
            ),
        };
        let shared = format!(
            "[cluster]\nsecret = \"{SECRET}\"\n{members}\n{mount}attributes_ttl = \"1h\"\n"
        );
        let section = format!(
            "{shared}{}preload = {{ failures = \"{}\", memory = \"16MiB\" }}\n",
            coordinator_section(&address, ANY_PORT, &at.join("coordinator")),
            at.join("failures").display()
        );
        write_config(at, "coordinator", &section);
        let coordinator = Process::start_role(at, "coordinator");
        for (number, listen) in addresses.iter().enumerate() {
            let section = worker_section(&format!("w{number}"), listen, ANY_PORT, memory);
            let section = format!("{shared}{section}[worker.shm]\nenabled = false\n");
            write_config(at, &format!("worker-{number}"), &section);
        }
        let workers = ["worker-0", "worker-1"].map(|name| Process::start_role(at, name)).into();
        let section = gateway_section(ANY_PORT, ANY_PORT, &data.join("identities.toml"));
        let patience = "tier = { hedge_after = \"19s\", first_progress = \"20s\" }\n";
        write_config(at, "gateway", &format!("{shared}{section}{patience}"));
        let gateway = Process::start_role(at, "gateway");
        let client = gateway.client(&access, &key);
        let cluster = Self {
            folder,
            _store: store,
            workers,
            gateway,
            client,
            coordinator,
            url: format!("http://{address}"),
        };
        if registered {
            cluster.until_all_serve();
        }
        cluster
    }

    /// Of a coordinated cluster: both workers own slots, and the gateway has a map.
    fn until_all_serve(&self) {
        let shown = || {
            let mut command = verbs3();
            command.env("VERBS3_CLUSTER__SECRET", SECRET).args([
                "status",
                "--coordinator",
                &self.url,
            ]);
            command.output().unwrap()
        };
        let all_serve = || {
            let status = shown();
            text(&status.stdout).contains("2 of 2 workers serve")
                && status.status.code() == Some(0)
                && get(&self.gateway.admin, "/readyz").status == 200
        };
        wait_until(all_serve, || format!("{}\n{}", said(&shown()), self.coordinator.log()));
    }

    /// Waits until the workers have filled so many bytes more than `before`.
    fn until_filled(&self, before: f64, bytes: usize) {
        wait_until(
            || self.metric("verbs3_worker_filled_bytes_total") - before >= bytes as f64,
            || format!("nothing is loaded:\n{}", self.coordinator.log()),
        );
    }

    fn preload(&self, words: &[&str]) -> Child {
        let mut command = verbs3();
        command
            .env("VERBS3_CLUSTER__SECRET", SECRET)
            .arg("preload")
            .args(words)
            .args(["--coordinator", &self.url]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Objects in the store, past the gateway's tier: nothing of them is cached. Their bytes in
    /// all.
    async fn put(&self, count: usize, bytes: usize) -> usize {
        for number in 0..count {
            let key = format!("set/{number:03}");
            put_object(&self.client, "demo", &key, content(number, bytes)).await;
        }
        count * bytes
    }

    /// Of all workers.
    fn metric(&self, name: &str) -> f64 {
        self.workers.iter().map(|worker| worker.metrics().sum(name, &[])).sum()
    }
}

fn content(number: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| ((at + 7 * number).wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

/// What a coordinator calls itself; it tells everybody.
fn recipient(host: &str) -> ProofRecipient {
    let mut stream = TcpStream::connect(host).unwrap();
    write!(stream, "GET / HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let answer = text(&answer);
    let name =
        answer.lines().find_map(|line| line.strip_prefix(RECIPIENT_HEADER)?.strip_prefix(": "));
    ProofRecipient(name.unwrap().to_owned())
}

/// The lines of a job's progress, each of which proves itself. Until it is over. `meanwhile` is
/// done once the first has come.
fn progress(url: &str, id: &str, meanwhile: impl FnOnce()) -> Vec<serde_json::Value> {
    let secret = ClusterSecret::new("verbs3", SECRET);
    let path = format!("/v1/preload/{id}/progress");
    let host = url.strip_prefix("http://").unwrap();
    let said = ProvenRequest { method: "GET", path_and_query: &path, body: b"" };
    let (header, proof) = secret.prove_request(said, &recipient(host), wall_clock_ms());
    let mut stream = TcpStream::connect(host).unwrap();
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n{REQUEST_HEADER}: \
        {header}\r\n\r\n"
    )
    .unwrap();
    let mut answer = Vec::new();
    while !text(&answer).contains("{\"proof\"") {
        let mut piece = [0; 4096];
        let bytes = stream.read(&mut piece).unwrap();
        assert!(bytes > 0, "it ended without a line: {}", text(&answer));
        answer.extend_from_slice(&piece[..bytes]);
    }
    meanwhile();
    stream.read_to_end(&mut answer).unwrap();
    let answer = text(&answer);
    assert!(
        answer.starts_with("HTTP/1.1 200") && answer.contains("application/x-ndjson"),
        "{answer}"
    );
    // Between the lines are the lengths of chunks.
    let lines =
        answer.lines().filter_map(|line| line.strip_prefix("{\"proof\":\"")?.strip_suffix('}'));
    let check = |(number, line): (usize, &str)| {
        let (mac, said) = line.split_once("\",\"said\":").unwrap();
        assert!(secret.check_line(&proof, number as u64, said.as_bytes(), mac), "{line}");
        assert!(!secret.check_line(&proof, number as u64 + 1, said.as_bytes(), mac), "{line}");
        serde_json::from_str(said).unwrap()
    };
    lines.enumerate().map(check).collect()
}

fn said(output: &Output) -> String {
    format!("{:?}\n{}\n{}", output.status, text(&output.stdout), text(&output.stderr))
}

#[tokio::test]
async fn a_job_survives_its_coordinators_death_and_makes_all_hot() {
    let mut cluster = PreloadCluster::start("96MiB", true);
    let bytes = cluster.put(30, MIB + 1000).await;
    let filled_before = cluster.metric("verbs3_worker_filled_bytes_total");
    let words = [
        "s3://demo/set/",
        "--id",
        "night",
        "--bandwidth",
        "2MiB",
        "--verify",
        "--follow",
        "--json",
    ];
    let following = cluster.preload(&words);
    // Somewhere in the middle.
    cluster.until_filled(filled_before, 8 * MIB);
    cluster.coordinator.signal("-KILL");
    cluster.coordinator.ended();
    cluster.coordinator = Process::start_role(cluster.folder.path(), "coordinator");

    let output = following.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let last = text(&output.stdout).lines().last().unwrap().to_owned();
    let job: serde_json::Value = serde_json::from_str(&last).unwrap();
    assert_eq!((&job["state"], &job["resumed"]), (&"done".into(), &1.into()), "{last}");
    let counters = &job["counters"];
    assert_eq!(
        (&counters["objects_loaded"], &counters["objects_compared"]),
        (&30.into(), &30.into()),
        "{last}"
    );
    let filled = cluster.metric("verbs3_worker_filled_bytes_total") - filled_before;
    assert!(filled <= bytes as f64 * 1.01, "{filled} bytes came from the store for {bytes}");

    let asked = cluster.metric("verbs3_worker_ufs_requests_total");
    for number in 0..30 {
        let answer = get_object(&cluster.client, "demo", &format!("set/{number:03}")).await;
        assert!(answer.body == content(number, MIB + 1000), "{number} has other bytes");
        assert!(answer.head.contains("x-verbs3-cache: hit"), "{number}: {}", answer.head);
    }
    assert_eq!(
        cluster.metric("verbs3_worker_ufs_requests_total"),
        asked,
        "reads went to the store"
    );

    let lines = progress(&cluster.url, "night", || ());
    assert!(lines.len() == 1 && lines[0]["state"] == "done", "{lines:?}");

    let listed = cluster.preload(&["ls"]).wait_with_output().unwrap();
    assert!(text(&listed.stdout).contains("night"), "{}", said(&listed));
    let shown = cluster.preload(&["show", "night"]).wait_with_output().unwrap();
    assert!(text(&shown.stdout).contains("job night: done"), "{}", said(&shown));
    assert_eq!(cluster.coordinator.end(), Some(0));
    assert_eq!(cluster.gateway.end(), Some(0));
}

#[tokio::test]
async fn what_a_worker_takes_with_it_is_loaded_again() {
    let mut cluster = PreloadCluster::start("96MiB", true);
    cluster.put(30, MIB + 1000).await;
    let filled_before = cluster.metric("verbs3_worker_filled_bytes_total");
    let following = cluster.preload(&[
        "s3://demo/set/",
        "--id",
        "night",
        "--bandwidth",
        "2MiB",
        "--follow",
        "--json",
    ]);
    cluster.until_filled(filled_before, 12 * MIB);
    cluster.workers[0].signal("-KILL");
    cluster.workers[0].ended();
    cluster.workers[0] = Process::start_role(cluster.folder.path(), "worker-0");

    let output = following.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let last = text(&output.stdout).lines().last().unwrap().to_owned();
    let job: serde_json::Value = serde_json::from_str(&last).unwrap();
    assert_eq!(job["state"], "done", "{last}");
    assert!(job["rounds"].as_u64() > Some(0), "{last}");
    let counters = &job["counters"];
    assert_eq!(
        (&counters["objects_checked"], &counters["bytes_missing"]),
        (&30.into(), &0.into()),
        "{last}"
    );
    for number in 0..30 {
        let answer = get_object(&cluster.client, "demo", &format!("set/{number:03}")).await;
        assert!(answer.body == content(number, MIB + 1000), "{number} has other bytes");
    }
}

#[tokio::test]
async fn the_exit_status_says_what_happened() {
    let mut cluster = PreloadCluster::start("32MiB", false);
    cluster.put(12, 8 * MIB).await;
    let status = |words: &[&str]| {
        let output = cluster.preload(words).wait_with_output().unwrap();
        (output.status.code(), said(&output))
    };
    let (code, said) = status(&["s3://demo/set/", "--dry-run", "--follow"]);
    assert!(code == Some(0) && said.contains("12 objects, 96.00 MiB"), "{said}");
    // More than fits.
    let (code, said) = status(&["s3://demo/set/", "--follow"]);
    assert!(
        code == Some(1) && said.contains("incomplete") && said.contains("not in the tier any more"),
        "{said}"
    );
    let (code, said) = status(&["--path", "s3://demo/missing", "--follow"]);
    assert!(code == Some(1) && said.contains("there is no such object"), "{said}");
    let (code, said) = status(&["s3://demo/set/", "--pin-ttl", "5"]);
    assert!(code == Some(2) && said.contains("tier disk"), "{said}");
    let (code, said) = status(&["show", "unknown"]);
    assert!(code == Some(2) && said.contains("there is no job unknown"), "{said}");
    let (code, said) = status(&["s3://demo/set/", "--id", "slow", "--bandwidth", "1KiB"]);
    assert!(code == Some(0), "{said}");
    // Who follows it hears of it as it is, and of its end.
    let lines = progress(&cluster.url, "slow", || {
        let (code, said) = status(&["stop", "slow"]);
        assert!(code == Some(0) && said.contains("stopped"), "{said}");
    });
    let states: Vec<&str> = lines.iter().map(|line| line["state"].as_str().unwrap()).collect();
    assert!(states.len() >= 2 && states.last() == Some(&"stopped"), "{states:?}");
    assert!(
        states[..states.len() - 1].iter().all(|state| matches!(*state, "queued" | "running")),
        "{states:?}"
    );
    let (code, said) = status(&["s3://demo/set/", "--id", "slow", "--bandwidth", "1KiB"]);
    assert!(code == Some(1) && said.contains("nothing was done now"), "{said}");
    let (code, said) = status(&["stop", "slo w"]);
    assert!(code == Some(2) && said.contains("is no job's id"), "{said}");
    assert_eq!(cluster.coordinator.end(), Some(0));
    let (code, said) = {
        let output = cluster.preload(&["ls"]).wait_with_output().unwrap();
        (output.status.code(), self::said(&output))
    };
    assert!(code == Some(2) && said.contains("no coordinator answers"), "{said}");
}

/// To this gateway, `part` is a folder of a bucket. To the coordinator, it is the bucket of that
/// name, which no rule gives to anybody.
#[tokio::test]
async fn a_gateway_with_other_mounts_has_nothing_listed() {
    let mut cluster = PreloadCluster::start("96MiB", true);
    cluster.put(3, 1000).await;
    let at = cluster.folder.path();
    let part =
        "[[mount]]\nname = \"part\"\nufs = \"store\"\nbucket = \"demo\"\nprefix = \"set/\"\n";
    let settings = std::fs::read_to_string(at.join("gateway.toml")).unwrap();
    let settings = settings.replace("[gateway]", &format!("{part}[gateway]"));
    let file = write_config(at, "other", &settings);
    let mut other = Process::start(at, "other", &["gateway", "--config", &file]);
    let (access, secret) = dev_key(&at.join("data"));
    let count = |path: &str| {
        let endpoint = format!("http://{}", other.listen);
        let words = ["preload", path, "--dry-run", "--follow", "--endpoint", &endpoint];
        let mut command = verbs3();
        command.args(words).env("AWS_ACCESS_KEY_ID", &access).env("AWS_SECRET_ACCESS_KEY", &secret);
        let output = command.output().unwrap();
        (output.status.code(), said(&output))
    };
    let (code, said) = count("s3://part/");
    assert!(
        code == Some(2) && said.contains("[[mount]] part") && said.contains("bucket, prefix"),
        "{said}"
    );
    let (code, said) = count("s3://demo/set/");
    assert!(code == Some(0) && said.contains("3 objects"), "{said}");
    assert_eq!(other.end(), Some(0));
    assert_eq!(cluster.coordinator.end(), Some(0));
}
