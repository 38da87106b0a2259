//! The disk tier under real processes: killed at random times, spoilt files, a full and a failing
//! disk, two workers on one folder.
#![allow(clippy::unwrap_used)]

mod processes;

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use aws_sdk_s3::Client;
use processes::{
    Process, dev_key, free_address, get_object, mount_of_all, put_object, run, text, verbs3,
    wait_until, write_config,
};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use verbs3_tests::configuration::{ANY_PORT, gateway_section, worker_section};
use verbs3_tests::seed;

const PAGE: usize = 256 << 10;

/// A store, a worker with a disk, and a gateway, each a process. The worker and the gateway come
/// and go.
struct DiskCluster {
    folder: tempfile::TempDir,
    store: Process,
    address: String,
    key: (String, String),
    objects: Vec<(String, Vec<u8>)>,
    rng: StdRng,
}

impl DiskCluster {
    async fn start(capacity: &str, objects: usize) -> Self {
        let seed = seed::from_environment();
        let folder = tempfile::tempdir().unwrap();
        let store = Process::start_dev(folder.path(), "store", &[]);
        let address = free_address();
        let key = dev_key(&folder.path().join("data"));
        let mut cluster = Self {
            folder,
            store,
            address,
            key,
            objects: Vec::new(),
            rng: StdRng::seed_from_u64(seed),
        };
        cluster.write_files(capacity);
        let client = cluster.store.client(&cluster.key.0, &cluster.key.1);
        for number in 0..objects {
            cluster.objects.push((format!("k{number}"), Vec::new()));
            cluster.overwrite(&client, number).await;
        }
        cluster
    }

    fn write_files(&self, capacity: &str) {
        let shared = format!(
            "[cluster]\nsecret = \"0123456789abcdef0123456789abcdef\"\nworkers = [{{ id = \"w0\", address = \"{}\" }}]\nworkers_fixed = true\n{}",
            self.address,
            mount_of_all(&self.store, (&self.key.0, &self.key.1))
        );
        let worker = format!(
            "{}[worker.shm]\nenabled = false\n\
             [[worker.disk.folders]]\npath = \"{}\"\ncapacity = \"{capacity}\"\n",
            worker_section("w0", &self.address, ANY_PORT, "32MiB"),
            self.tier().display()
        );
        let identities = self.folder.path().join("data/identities.toml");
        let gateway = gateway_section(ANY_PORT, ANY_PORT, &identities);
        write_config(self.folder.path(), "worker", &format!("{shared}{worker}"));
        write_config(self.folder.path(), "gateway", &format!("{shared}{gateway}"));
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(format!("{name}.toml"))
    }

    fn tier(&self) -> PathBuf {
        self.folder.path().join("tier")
    }

    fn worker(&self) -> Process {
        Process::start_role(self.folder.path(), "worker")
    }

    /// A new one each time: an old one would rest its dead worker for a while.
    fn gateway(&self) -> (Process, Client) {
        let gateway = Process::start_role(self.folder.path(), "gateway");
        let client = gateway.client(&self.key.0, &self.key.1);
        (gateway, client)
    }

    /// Writes an object anew, through whomever.
    async fn overwrite(&mut self, client: &Client, number: usize) {
        let bytes =
            [1, 4096, 5000, 100_000, PAGE, 3 * PAGE + 5, 5 << 20][self.rng.random_range(0..7)];
        let mut body = vec![0; bytes];
        self.rng.fill(&mut body[..]);
        let (key, content) = &mut self.objects[number];
        content.clone_from(&body);
        put_object(client, "demo", key, body).await;
    }

    /// Reads all objects, compares them, and says how many answers were hits.
    async fn read_all(&self, client: &Client) -> usize {
        let mut hits = 0;
        for number in 0..self.objects.len() {
            hits += usize::from(self.read(client, number).await);
        }
        hits
    }

    async fn read(&self, client: &Client, number: usize) -> bool {
        let (key, content) = &self.objects[number];
        let answer = get_object(client, "demo", key).await;
        assert_eq!(answer.status, 200, "{}", answer.head);
        assert!(answer.body == *content, "{key} has other bytes; {}", answer.head);
        answer.head.contains("x-verbs3-cache: hit")
    }

    fn pages(&self) -> u64 {
        self.objects.iter().map(|(_, content)| content.len().div_ceil(PAGE) as u64).sum()
    }
}

fn is_root() -> bool {
    let root = text(&Command::new("id").arg("-u").output().unwrap().stdout).trim() == "0";
    if !root {
        assert!(
            std::env::var_os("VERBS3_TEST_UNPRIVILEGED").is_some(),
            "this test mounts a file system: run it as root, or set VERBS3_TEST_UNPRIVILEGED=1 to \
            leave it out"
        );
        println!("NOT PROVEN: a full disk under a real process (needs root)");
    }
    root
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_worker_serves_no_wrong_byte_and_keeps_its_cache() {
    let mut cluster = DiskCluster::start("256MiB", 30).await;
    for _ in 0..4 {
        let (mut worker, (_gateway, client)) = (cluster.worker(), cluster.gateway());
        for _ in 0..4 {
            let number = cluster.rng.random_range(0..cluster.objects.len());
            cluster.overwrite(&client, number).await;
        }
        let dies = Instant::now() + Duration::from_millis(cluster.rng.random_range(0..900));
        while Instant::now() < dies {
            let number = cluster.rng.random_range(0..cluster.objects.len());
            cluster.read(&client, number).await;
        }
        let killed = async {
            worker.signal("-KILL");
            worker.ended()
        };
        let (_, status) = tokio::join!(cluster.read(&client, 0), killed);
        assert_eq!(status, None, "killed, not ended");
        cluster.read(&client, 1).await;
    }
    // What is read once is on disk soon, and survives one more kill.
    let (mut worker, (gateway, client)) = (cluster.worker(), cluster.gateway());
    // All anew: pages of versions that are gone are on disk, too, and don't count.
    let gone = worker.metrics().sum("verbs3_disk_pages", &[]) as u64;
    for number in 0..cluster.objects.len() {
        cluster.overwrite(&client, number).await;
    }
    let began = Instant::now();
    while (worker.metrics().sum("verbs3_disk_pages", &[]) as u64) < gone + cluster.pages() {
        assert!(began.elapsed() < Duration::from_secs(180), "not all pages came to the disk");
        cluster.read_all(&client).await;
    }
    worker.signal("-KILL");
    worker.ended();
    drop((worker, gateway));
    let (worker, (_gateway, client)) = (cluster.worker(), cluster.gateway());
    assert_eq!(cluster.read_all(&client).await, cluster.objects.len(), "some answers were no hits");
    assert_eq!(
        worker.metrics().sum("verbs3_worker_filled_bytes_total", &[]),
        0.0,
        "the store was read for what is on disk"
    );
    assert_eq!(worker.metrics().sum("verbs3_disk_corrupt_total", &[]), 0.0, "a kill tears nothing");
    assert!(worker.metrics().sum("verbs3_disk_promotions_total", &[]) as u64 >= cluster.pages());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_spoilt_between_two_runs_cost_fills_and_no_wrong_byte() {
    let mut cluster = DiskCluster::start("64MiB", 20).await;
    let (mut worker, (gateway, client)) = (cluster.worker(), cluster.gateway());
    cluster.read_all(&client).await;
    assert_eq!(worker.end(), Some(0));
    drop(gateway);
    for entry in std::fs::read_dir(cluster.tier()).unwrap() {
        let path = entry.unwrap().path();
        if !path.to_str().unwrap().contains("/segment-") {
            continue;
        }
        let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        let bytes = file.metadata().unwrap().len();
        for _ in 0..12 {
            // Heads, headers and pages alike.
            let within = [4096, 64 << 10, bytes][cluster.rng.random_range(0..3)];
            let mut rot = [0u8; 300];
            cluster.rng.fill(&mut rot[..]);
            file.write_all_at(&rot, cluster.rng.random_range(0..within - 300)).unwrap();
        }
    }
    let (worker, (_gateway, client)) = (cluster.worker(), cluster.gateway());
    cluster.read_all(&client).await;
    assert!(worker.metrics().sum("verbs3_disk_corrupt_total", &[]) > 0.0, "nothing was found");
    cluster.read_all(&client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_in_use_and_a_foreign_folder_are_refused() {
    let cluster = DiskCluster::start("64MiB", 1).await;
    let worker = cluster.worker();
    let file = cluster.file("worker");
    let other = ["--set", "worker.listen=127.0.0.1:0"];
    let second = run(&[&["worker", "--config", file.to_str().unwrap()], &other[..]].concat());
    let complaint = text(&second.stderr);
    assert_eq!(second.status.code(), Some(1), "{complaint}");
    assert!(complaint.contains("in use by another process"), "{complaint}");
    drop(worker);
    std::fs::write(cluster.tier().join("notes.txt"), "mine").unwrap();
    let third = run(&["worker", "--config", file.to_str().unwrap()]);
    let complaint = text(&third.stderr);
    assert_eq!(third.status.code(), Some(1), "{complaint}");
    assert!(
        complaint.contains("notes.txt") && complaint.contains("worker.disk.folders"),
        "{complaint}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_shrinks_the_tier_and_costs_no_request() {
    if !is_root() {
        return;
    }
    let cluster = DiskCluster::start("256MiB", 60).await;
    std::fs::create_dir(cluster.tier()).unwrap();
    // A mount namespace of its own: nobody else sees this file system, and it ends with the
    // process.
    let script = "mount -t tmpfs -o size=14m tmpfs \"$0\" && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script]).arg(cluster.tier()).arg(verbs3().get_program());
    command.args(["worker", "--config"]).arg(cluster.file("worker"));
    let worker = Process::start_command(cluster.folder.path(), "worker", command);
    let (_gateway, client) = cluster.gateway();
    for _ in 0..3 {
        cluster.read_all(&client).await;
    }
    wait_until(
        || worker.metrics().sum("verbs3_disk_folder_full", &[]) == 1.0,
        || "the disk is not said to be full".to_owned(),
    );
    // These two are looked over now and then.
    wait_until(
        || worker.metrics().sum("verbs3_disk_pages", &[]) > 0.0,
        || "what fits is not kept".to_owned(),
    );
    assert!(worker.metrics().sum("verbs3_disk_file_bytes", &[]) <= (14 << 20) as f64);
    assert!(worker.metrics().sum("verbs3_disk_errors_total", &["kind=\"full\""]) >= 1.0);
    assert_eq!(worker.metrics().sum("verbs3_disk_folder_up", &[]), 1.0);
    assert_eq!(worker.log().matches("the disk is full").count(), 1, "{}", worker.log());
}

/// A worker whose disk fails (`EIO_WHILE`) or hangs (`HANG_WHILE`) as long as the file exists.
fn ailing(cluster: &DiskCluster, how: &str, trigger: &Path) -> Process {
    let shim = cluster.folder.path().join("shim.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/eio/shim.c");
    let made = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .arg(&shim)
        .arg(source)
        .arg("-ldl")
        .status();
    assert!(made.unwrap().success(), "the build needs cc anyway");
    let file = cluster.file("worker");
    // A slow machine is not a disk that hangs.
    let stall_max = if how == "HANG_WHILE" { "500ms" } else { "60s" };
    let stall_max = format!("worker.disk.stall_max={stall_max}");
    let words = ["worker", "--config", file.to_str().unwrap(), "--set", &stall_max];
    let variables = [("LD_PRELOAD", shim.to_str().unwrap()), (how, trigger.to_str().unwrap())];
    Process::start_in(cluster.folder.path(), "worker", &words, &variables)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failing_or_hanging_disk_is_left_and_costs_no_request() {
    for (how, kind) in [("EIO_WHILE", "kind=\"io\""), ("HANG_WHILE", "kind=\"stalled\"")] {
        let cluster = DiskCluster::start("256MiB", 12).await;
        // Pages of an earlier life, so that there is something to read.
        let (mut worker, (gateway, client)) = (cluster.worker(), cluster.gateway());
        cluster.read_all(&client).await;
        assert_eq!(worker.end(), Some(0));
        drop(gateway);
        let trigger = cluster.folder.path().join("ailing");
        let mut worker = ailing(&cluster, how, &trigger);
        let (gateway, client) = cluster.gateway();
        cluster.read(&client, 0).await;
        std::fs::write(&trigger, "").unwrap();
        let began = Instant::now();
        cluster.read_all(&client).await;
        wait_until(
            || worker.metrics().sum("verbs3_disk_folder_up", &[]) == 0.0,
            || "the folder goes on".to_owned(),
        );
        assert!(worker.metrics().sum("verbs3_disk_errors_total", &[kind]) >= 1.0);
        assert_eq!(
            worker.log().matches("of the disk tier failed and rests").count(),
            1,
            "{}",
            worker.log()
        );
        cluster.read_all(&client).await;
        assert!(
            began.elapsed() < Duration::from_secs(120),
            "readers waited for the disk: {:?}",
            began.elapsed()
        );
        // A device that hangs does not keep the process.
        assert_eq!(worker.end(), Some(0));
        drop(gateway);
        // The disk is well again: so is what it holds.
        std::fs::remove_file(&trigger).unwrap();
        let (worker, (_gateway, client)) = (cluster.worker(), cluster.gateway());
        cluster.read_all(&client).await;
        assert!(worker.metrics().sum("verbs3_disk_promotions_total", &[]) > 0.0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dev_keeps_what_it_cached_when_asked_to() {
    let folder = tempfile::tempdir().unwrap();
    let sizes =
        ["worker.memory.capacity=128MiB", "gateway.memory.capacity=32MiB", "dev.disk=64MiB"];
    let mut words = vec!["--workers", "2"];
    words.extend(sizes.iter().flat_map(|size| ["--set", *size]));
    let body: Vec<u8> = (0..3_000_000u32).map(|n| (n % 251) as u8).collect();
    let mut dev = Process::start_dev(folder.path(), "dev", &words);
    let (access, secret) = dev_key(&folder.path().join("data"));
    let client = dev.client(&access, &secret);
    put_object(&client, "demo", "k", body.clone()).await;
    assert!(get_object(&client, "demo", "k").await.body == body);
    assert_eq!(dev.end(), Some(0));
    let dev = Process::start_dev(folder.path(), "dev", &words);
    let answer = get_object(&dev.client(&access, &secret), "demo", "k").await;
    assert!(answer.body == body && answer.head.contains("x-verbs3-cache: hit"), "{}", answer.head);
    assert_eq!(dev.metrics().sum("verbs3_worker_filled_bytes_total", &[]), 0.0);
}
