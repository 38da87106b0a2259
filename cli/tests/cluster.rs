//! Worker and gateway as processes of their own, over TCP.
#![allow(clippy::unwrap_used)]

mod processes;

use std::net::TcpListener;
use std::path::Path;

use processes::{
    Process, dev_key, free_address, get, get_object, mount_of_all, put_object, run, text, verbs3,
    write_config,
};
use verbs3_tests::configuration::{ANY_PORT, gateway_section, worker_section};

/// Files of a cluster of one worker and one gateway, in front of a `verbs3 dev`.
fn write_files(
    folder: &Path,
    store: &Process,
    worker: &str,
    secret: &str,
    shm: &str,
) -> [String; 2] {
    let (access, key) = dev_key(&folder.join("data"));
    let mount = mount_of_all(store, (&access, &key));
    let shared = format!(
        "[cluster]\nsecret = \"{secret}\"\nworkers = [{{ id = \"w0\", address = \"{worker}\" }}]\nworkers_fixed = true\n{mount}"
    );
    let worker = worker_section("w0", worker, ANY_PORT, "64MiB");
    let worker = format!("{shared}{worker}[worker.shm]\n{shm}\n");
    let gateway = gateway_section(ANY_PORT, ANY_PORT, &folder.join("data/identities.toml"));
    [
        write_config(folder, "worker", &worker),
        write_config(folder, "gateway", &format!("{shared}{gateway}")),
    ]
}

/// The same for processes that share a secret and no memory.
fn write_network_files(folder: &Path, store: &Process, worker: &str) -> [String; 2] {
    write_files(folder, store, worker, SECRET, NETWORK_ONLY)
}

fn start_store(folder: &Path) -> Process {
    Process::start_dev(folder, "store", &[])
}

const SECRET: &str = "0123456789abcdef0123456789abcdef";

const NETWORK_ONLY: &str = "enabled = false";

#[tokio::test]
async fn a_gateway_serves_worker_hits_over_tcp_and_both_end_cleanly() {
    let folder = tempfile::tempdir().unwrap();
    serves_hits(folder.path(), NETWORK_ONLY, "tcp").await;
}

#[tokio::test]
async fn a_gateway_beside_its_worker_serves_hits_from_its_memory() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("run/w0.sock");
    serves_hits(folder.path(), &format!("socket = \"{}\"", socket.display()), "shm").await;
    assert!(!socket.exists(), "a worker that ended leaves no socket");
}

async fn serves_hits(folder: &Path, shm: &str, transport: &str) {
    let store = start_store(folder);
    let [worker_file, gateway_file] = write_files(folder, &store, &free_address(), SECRET, shm);
    let mut worker = Process::start(folder, "worker", &["worker", "--config", &worker_file]);
    let mut gateway = Process::start(folder, "gateway", &["gateway", "--config", &gateway_file]);
    let (access, secret) = dev_key(&folder.join("data"));
    let client = gateway.client(&access, &secret);

    let body: Vec<u8> = (0..5_000_000u32).map(|n| (n % 253) as u8).collect();
    put_object(&client, "demo", "k", body.clone()).await;
    let first = get_object(&client, "demo", "k").await;
    let second = get_object(&client, "demo", "k").await;
    assert!(first.body == body && second.body == body);
    assert!(second.head.contains("x-verbs3-cache: hit"), "{}", second.head);
    assert!(second.head.contains(&format!("x-verbs3-transport: {transport}")), "{}", second.head);

    // What one gateway writes is never read as it was before.
    put_object(&client, "demo", "k", b"new").await;
    assert_eq!(get_object(&client, "demo", "k").await.body, b"new");

    for process in [&worker, &gateway] {
        assert_eq!(get(&process.admin, "/healthz").status, 200);
        assert_eq!(get(&process.admin, "/readyz").status, 200);
        let metrics = text(&get(&process.admin, "/metrics").body);
        assert!(
            metrics.contains("verbs3_arena_bytes{") && metrics.contains("verbs3_rdma_bytes_"),
            "{metrics}"
        );
    }
    assert_eq!(gateway.end(), Some(0));
    assert_eq!(worker.end(), Some(0));
}

#[tokio::test]
async fn a_gateway_with_another_secret_reads_around_the_worker() {
    let folder = tempfile::tempdir().unwrap();
    let store = start_store(folder.path());
    let address = free_address();
    let [worker_file, _] = write_network_files(folder.path(), &store, &address);
    let _worker = Process::start(folder.path(), "worker", &["worker", "--config", &worker_file]);
    let [_, gateway_file] = write_files(
        folder.path(),
        &store,
        &address,
        "fedcba9876543210fedcba9876543210",
        NETWORK_ONLY,
    );
    let gateway = Process::start(folder.path(), "gateway", &["gateway", "--config", &gateway_file]);
    let (access, secret) = dev_key(&folder.path().join("data"));
    let direct = store.client(&access, &secret);
    put_object(&direct, "demo", "k", b"bytes").await;
    let answer = get_object(&gateway.client(&access, &secret), "demo", "k").await;
    assert_eq!((answer.status, answer.body.as_slice()), (200, &b"bytes"[..]));
    assert!(answer.head.contains("x-verbs3-cache: bypass"), "{}", answer.head);
}

#[test]
fn a_port_in_use_is_named_with_its_setting() {
    let folder = tempfile::tempdir().unwrap();
    let store = start_store(folder.path());
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let [worker_file, gateway_file] = write_network_files(folder.path(), &store, &address);
    let worker = run(&["worker", "--config", &worker_file]);
    let gateway =
        run(&["gateway", "--config", &gateway_file, "--set", &format!("gateway.listen={address}")]);
    let admin = run(&[
        "gateway",
        "--config",
        &gateway_file,
        "--set",
        &format!("gateway.admin_listen={address}"),
    ]);
    for (output, setting) in
        [(worker, "worker.listen"), (gateway, "gateway.listen"), (admin, "gateway.admin_listen")]
    {
        let complaint = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{complaint}");
        assert!(complaint.contains(&address) && complaint.contains(setting), "{complaint}");
    }
}

#[test]
fn a_network_device_that_is_not_there_is_named_with_its_setting() {
    let folder = tempfile::tempdir().unwrap();
    let store = start_store(folder.path());
    let [worker_file, gateway_file] = write_network_files(folder.path(), &store, &free_address());
    for setting in [
        "gateway.bind_device",
        "gateway.admin_bind_device",
        "worker.admin_bind_device",
        "tcp.bind_device",
    ] {
        let gateway = setting.starts_with("gateway");
        let (role, file) =
            if gateway { ("gateway", &gateway_file) } else { ("worker", &worker_file) };
        let output = run(&[role, "--config", file, "--set", &format!("{setting}=ib77")]);
        let complaint = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{complaint}");
        assert!(complaint.contains("ib77") && complaint.contains("ip link"), "{complaint}");
        assert!(complaint.contains(setting), "{complaint}");
    }
}

/// A rail that is missing is an error and not silence, where the configuration insists.
#[test]
fn a_process_that_insists_on_rdma_does_not_run_without_a_rail() {
    let folder = tempfile::tempdir().unwrap();
    let store = start_store(folder.path());
    let [worker_file, gateway_file] = write_network_files(folder.path(), &store, &free_address());
    // An address that no host has, also one with RDMA.
    let rails = "verbs.rails=[\"192.0.2.77\"]";
    for (role, file) in [("worker", &worker_file), ("gateway", &gateway_file)] {
        let words = [role, "--config", file, "--set", "verbs.mode=on", "--set", rails];
        let output = run(&words);
        let complaint = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{role}: {complaint}");
        assert!(complaint.contains("verbs.mode is"), "{role}: {complaint}");
    }
}

#[tokio::test]
async fn every_role_can_be_bound_to_a_device() {
    let folder = tempfile::tempdir().unwrap();
    let store = start_store(folder.path());
    let address = free_address();
    let [worker_file, gateway_file] = write_network_files(folder.path(), &store, &address);
    let device = |setting: &str| format!("{setting}=lo");
    let set = |role: &str| {
        ["bind_device", "admin_bind_device"].map(|field| device(&format!("{role}.{field}")))
    };
    let (tcp, [_, control]) = (device("tcp.bind_device"), set("worker"));
    let worker = ["worker", "--config", &worker_file, "--set", &tcp, "--set", &control];
    let _worker = Process::start(folder.path(), "worker", &worker);
    let [http, control] = set("gateway");
    let gateway =
        ["gateway", "--config", &gateway_file, "--set", &tcp, "--set", &http, "--set", &control];
    let gateway = Process::start(folder.path(), "gateway", &gateway);
    let (access, secret) = dev_key(&folder.path().join("data"));
    let direct = store.client(&access, &secret);
    put_object(&direct, "demo", "k", b"bytes").await;
    let answer = get_object(&gateway.client(&access, &secret), "demo", "k").await;
    assert_eq!((answer.status, answer.body.as_slice()), (200, &b"bytes"[..]));
    assert!(answer.head.contains("x-verbs3-transport: tcp"), "{}", answer.head);
    assert_eq!(get(&gateway.admin, "/readyz").status, 200);
}

/// Somebody has edited the endpoint in the file of one node.
#[tokio::test]
async fn a_gateway_of_another_store_shares_nothing_with_the_workers() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let (worker, secret) = (free_address(), SECRET);
    let stores = folders.each_ref().map(|folder| start_store(folder.path()));
    let files = [0, 1]
        .map(|at| write_files(folders[at].path(), &stores[at], &worker, secret, NETWORK_ONLY));
    let _worker =
        Process::start(folders[0].path(), "worker", &["worker", "--config", &files[0][0]]);
    let gateways = [0, 1].map(|at| {
        Process::start(folders[at].path(), "gateway", &["gateway", "--config", &files[at][1]])
    });
    let clients = [0, 1].map(|at| {
        let (access, key) = dev_key(&folders[at].path().join("data"));
        gateways[at].client(&access, &key)
    });
    let body = |at: usize, round: usize| format!("version {round} at store {at}").into_bytes();
    for round in 0..3 {
        for (at, client) in clients.iter().enumerate() {
            put_object(client, "demo", "k", body(at, round)).await;
        }
        for _ in 0..2 {
            for (at, client) in clients.iter().enumerate() {
                let answer = get_object(client, "demo", "k").await;
                assert_eq!(answer.status, 200, "{}", answer.head);
                assert_eq!(text(&answer.body), text(&body(at, round)), "through gateway {at}");
            }
        }
    }
    let log = gateways[1].log();
    assert!(log.contains("ufs store is another store here"), "{log}");
}

#[test]
fn a_wrong_configuration_starts_nothing_and_lists_everything() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gateway.toml");
    std::fs::write(&file, "[cluster]\nblok = 1\n[gateway]\nlisten = \"here\"\n").unwrap();
    let output = verbs3().args(["gateway", "--config"]).arg(&file).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let complaint = text(&output.stderr);
    for path in [
        "cluster.blok",
        "gateway.listen",
        "cluster.secret",
        "cluster.workers",
        "ufs",
        "mount",
        "gateway.identities",
    ] {
        assert!(
            complaint.lines().any(|line| line.starts_with(&format!("{path}: "))),
            "{path} in\n{complaint}"
        );
    }
}
