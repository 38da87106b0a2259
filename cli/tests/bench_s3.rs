//! `verbs3 bench s3` against a real `verbs3 dev`: it measures, it checks, and it finds what is
//! wrong. No times are asserted.
#![allow(clippy::unwrap_used)]

mod processes;

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use processes::{Process, dev_key, text, verbs3, write_config};

/// Small and short: every kind of exchange within a second or two.
const SHORT: [&str; 8] =
    ["--rounds", "2", "--time", "300ms", "--warm-up", "100ms", "--json", "--seed"];

struct BenchFixture {
    process: Process,
    folder: tempfile::TempDir,
    keys: (String, String),
}

impl BenchFixture {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let small =
            ["--set", "worker.memory.capacity=64MiB", "--set", "gateway.memory.capacity=32MiB"];
        let process = Process::start_dev(folder.path(), "dev", &small);
        let keys = dev_key(&folder.path().join("data"));
        Self { process, folder, keys }
    }

    fn url(&self) -> String {
        format!("http://{}/demo", self.process.listen)
    }

    fn scenario(&self, name: &str, rest: &str) -> PathBuf {
        write_config(self.folder.path(), name, &format!("name = \"{name}\"\n{rest}")).into()
    }

    fn bench(&self, words: &[&str]) -> Output {
        let (access, secret) = &self.keys;
        let mut command = verbs3();
        command.env("AWS_ACCESS_KEY_ID", access).env("AWS_SECRET_ACCESS_KEY", secret);
        command.args(["bench", "s3"]).args(words).output().unwrap()
    }

    /// A short run; its record.
    fn measured(&self, scenario: &Path, words: &[&str]) -> serde_json::Value {
        let named = [scenario.to_str().unwrap(), "--target", &self.url()];
        let output = self.bench(&[&named[..], words, &SHORT, &["1"]].concat());
        assert_eq!(
            output.status.code(),
            Some(0),
            "{}{}",
            text(&output.stdout),
            text(&output.stderr)
        );
        assert!(output.stderr.is_empty(), "silent without a terminal: {}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

/// Passes connections on; while `flips`, changes the last byte of each piece of an answer that is
/// longer than a head.
struct Flipper {
    address: SocketAddr,
    flips: Arc<AtomicBool>,
    flipped: Arc<AtomicU64>,
}

impl Flipper {
    fn start(store: &str) -> Self {
        let (listener, store) = (TcpListener::bind("127.0.0.1:0").unwrap(), store.to_owned());
        let address = listener.local_addr().unwrap();
        let (flips, flipped) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let shared = (flips.clone(), flipped.clone());
        // Threads end with their connections, and the listener's with the process of the test.
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let store = TcpStream::connect(&store).unwrap();
                let (mut up_from, mut up_to) =
                    (client.try_clone().unwrap(), store.try_clone().unwrap());
                std::thread::spawn(move || {
                    let _ = std::io::copy(&mut up_from, &mut up_to);
                    let _ = up_to.shutdown(std::net::Shutdown::Write);
                });
                let shared = shared.clone();
                std::thread::spawn(move || pass_flipped(store, client, &shared.0, &shared.1));
            }
        });
        Self { address, flips, flipped }
    }
}

fn pass_flipped(mut from: TcpStream, mut to: TcpStream, flips: &AtomicBool, flipped: &AtomicU64) {
    let mut piece = vec![0; 64 << 10];
    while let Ok(read @ 1..) = from.read(&mut piece) {
        // Longer than any head, so that the end of it is body.
        if read > 4096
            && flips.load(Ordering::Relaxed)
            && flipped.fetch_add(1, Ordering::Relaxed).is_multiple_of(7)
        {
            piece[read - 1] ^= 1;
        }
        if to.write_all(&piece[..read]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Both);
}

#[test]
fn every_pattern_runs_and_every_byte_is_right() {
    let fixture = BenchFixture::start();
    let ended = "[load]\nconnections = 2\noperations = 12\n";
    for (name, rest, kinds) in [
        (
            "uniform",
            "[objects]\ncount = 4\nbytes = \"300KiB\"\n[access]\npattern = \
            \"uniform\"\nrange_bytes = \"10KiB\"\n",
            &["get"][..],
        ),
        (
            "zipf",
            "[objects]\ncount = 8\nbytes = \"4KiB\"\n[access]\npattern = \"zipf\"\n[rounds]\nprime \
            = true\n",
            &["get"],
        ),
        (
            "shuffle",
            "[objects]\ncount = 12\nbytes = { from = \"1B\", to = \"64KiB\" }\nfresh = \
            true\n[access]\npattern = \"shuffle\"\n",
            &["get"],
        ),
        (
            "sequential",
            "[objects]\ncount = 2\nbytes = \"6MiB\"\npart_bytes = \"5MiB\"\n[access]\npattern = \
            \"sequential\"\nrange_bytes = \"1MiB\"\n",
            &["get"],
        ),
        (
            "parquet",
            "[objects]\ncount = 2\nbytes = \"1MiB\"\n[access]\npattern = \"parquet\"\nrow_groups = \
            2\ncolumns = 8\ncolumns_read = 2\n",
            &["chunk", "footer"],
        ),
        (
            "head",
            "[objects]\ncount = 2\nbytes = \"1KiB\"\n[access]\npattern = \"head\"\n",
            &["head"],
        ),
        (
            "put",
            "[objects]\ncount = 2\nbytes = \"100KiB\"\n[access]\npattern = \"write\"\n",
            &["put", "read back"],
        ),
        (
            "multipart",
            "[objects]\ncount = 2\nbytes = \"6MiB\"\n[access]\npattern = \"write\"\npart_bytes = \
            \"5MiB\"\n",
            &["multipart", "read back"],
        ),
    ] {
        let record = fixture.measured(
            &fixture.scenario(name, &format!("{rest}{ended}")),
            &["--pid", &fixture.process.id().to_string()],
        );
        let side = &record["sides"][0];
        let found: Vec<&str> =
            side["all"]["kinds"].as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(found, kinds, "{name}");
        assert!(
            side["all"]["requests"].as_u64().unwrap() > 0 && side["all"]["wrong_answers"] == 0,
            "{name}: {side}"
        );
        assert!(side["all"]["server_cpu_us_per_request"].as_f64().unwrap() > 0.0, "{name}");
        assert_eq!(side["rounds"].as_array().unwrap().len(), 2);
    }
}

#[test]
fn a_page_reports_two_sides_compared_in_an_open_loop() {
    let fixture = BenchFixture::start();
    let rest = "[objects]\ncount = 4\nbytes = \"64KiB\"\n[access]\npattern = \"uniform\"\n\
                [load]\npace = \"open\"\nrequests_per_second = 50\nconnections = \
                    4\n[rounds]\nprime = true\n";
    let page = fixture.folder.path().join("page.html");
    let against = format!("again={}", fixture.url());
    let record = fixture.measured(
        &fixture.scenario("open", rest),
        &["--against", &against, "--html", page.to_str().unwrap()],
    );
    assert_eq!(
        (&record["sides"][0]["label"], &record["sides"][1]["label"]),
        (&"target".into(), &"again".into())
    );
    assert!(record["ratios"]["latency_p50"]["mean"].as_f64().unwrap() > 0.0);
    let cache = record["sides"][0]["all"]["cache"].as_object().unwrap();
    assert_eq!(cache.keys().collect::<Vec<_>>(), ["hit"], "all was read before");
    let page = fs::read_to_string(page).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.contains("target ÷ again"));
}

#[test]
fn one_flipped_bit_on_the_way_is_found_and_fails_the_run() {
    let fixture = BenchFixture::start();
    let flipper = Flipper::start(&fixture.process.listen);
    let url = format!("http://{}/demo", flipper.address);
    for (name, access) in [("whole", ""), ("ranges", "range_bytes = \"100KiB\"\n")] {
        let rest = format!(
            "[objects]\ncount = 2\nbytes = \"300KiB\"\n[access]\npattern = \
            \"uniform\"\n{access}[load]\nconnections = 2\n"
        );
        let scenario = fixture.scenario(name, &rest);
        let words = [scenario.to_str().unwrap(), "--target", &url];
        let words = [&words[..], &SHORT, &["1"]].concat();
        flipper.flips.store(false, Ordering::Relaxed);
        let clean = fixture.bench(&words);
        assert_eq!(clean.status.code(), Some(0), "{}{}", text(&clean.stdout), text(&clean.stderr));

        flipper.flips.store(true, Ordering::Relaxed);
        // Nothing else works, and a warm-up in which nothing works ends the run.
        let words: Vec<&str> =
            words.iter().map(|word| if *word == "100ms" { "0s" } else { word }).collect();
        let found = fixture.bench(&words);
        assert_eq!(found.status.code(), Some(1), "{}", text(&found.stdout));
        let record: serde_json::Value = serde_json::from_slice(&found.stdout).unwrap();
        let all = &record["sides"][0]["all"];
        assert!(
            all["wrong_answers"].as_u64().unwrap() > 0
                && all["errors"]["wrong bytes"].as_u64().unwrap() > 0,
            "{all}"
        );
        let example = record["sides"][0]["examples"][0].as_str().unwrap();
        assert!(
            example.contains("loadtest/") && example.contains("wrong b"),
            "names the object: {example}"
        );
    }
    assert!(flipper.flipped.load(Ordering::Relaxed) > 0);
}

#[test]
fn a_wrong_key_or_scenario_is_reported_before_any_measurement() {
    let fixture = BenchFixture::start();
    let rest = "[objects]\ncount = 2\nbytes = \"1KiB\"\n[access]\npattern = \"uniform\"\n";
    let good = fixture.scenario("good", rest);
    let mut command = verbs3();
    command.args([
        "bench",
        "s3",
        good.to_str().unwrap(),
        "--target",
        &fixture.url(),
        "--access-key",
        "x",
        "--secret-key",
        "y",
    ]);
    let refused = command.output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("status 403"), "{}", text(&refused.stderr));

    let wrong = fixture
        .scenario("wrong", "speed = 1\n[objects]\ncount = 0\n[access]\npattern = \"uniform\"\n");
    let output = fixture.bench(&[wrong.to_str().unwrap(), "--target", &fixture.url()]);
    let complaint = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{complaint}");
    for problem in ["objects.count: must be", "objects.bytes: is missing", "speed: unknown field"] {
        assert!(complaint.contains(problem), "{problem} not in {complaint}");
    }
    assert_eq!(fixture.bench(&["nothing", "--target", &fixture.url()]).status.code(), Some(2));
    let listed = text(&fixture.bench(&["--list"]).stdout);
    assert!(listed.contains("hot-4k") && listed.contains("checkpoint-multipart"), "{listed}");
    let shown = text(&fixture.bench(&["zipf", "--show"]).stdout);
    assert!(shown.starts_with("name = \"zipf\""), "{shown}");
}
