//! Every problem that a configuration can have, by its message.
#![allow(clippy::unwrap_used)]

mod certificates;
mod populating;
mod stores;
mod surroundings;

use std::path::PathBuf;

use super::ProcessRole;
use crate::layers::{ConfigLayers, load_config, roles_in};

/// Two UFSs, two mounts, one worker; complete for a gateway and for a worker, but for the files.
const GOOD: &str = r#"
[cluster]
secret = "0123456789abcdef0123456789abcdef"
workers = [{ id = "w0", address = "10.0.0.1:9400" }]
workers_fixed = true
[[ufs]]
name = "ceph"
endpoint = "http://127.0.0.1:7480"
[[ufs]]
name = "aws"
region = "eu-west-1"
[[mount]]
name = "train"
ufs = "ceph"
[[mount]]
name = "eval"
ufs = "aws"
[gateway]
identities = "IDENTITIES"
[worker]
id = "w0"
"#;

/// What is wrong with `text`, one line each.
fn findings(text: &str, roles: &[ProcessRole]) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let identities = folder.path().join("identities.toml");
    std::fs::write(&identities, "").unwrap();
    let file = folder.path().join("verbs3.toml");
    std::fs::write(&file, text.replace("IDENTITIES", identities.to_str().unwrap())).unwrap();
    let problems =
        match load_config(&ConfigLayers { file: Some(file), ..ConfigLayers::default() }, roles) {
            Ok(loaded) => loaded.warnings,
            Err(problems) => problems.0,
        };
    problems
        .iter()
        .map(|problem| problem.to_string().replace(folder.path().to_str().unwrap(), "DIR"))
        .collect()
}

const BOTH: &[ProcessRole] = &[ProcessRole::Gateway, ProcessRole::Worker];

/// `GOOD` with one text replaced has exactly `wanted` wrong.
#[track_caller]
fn broken(from: &str, to: &str, wanted: &[&str]) {
    assert!(GOOD.contains(from), "{from:?} is not in the good configuration");
    assert_eq!(findings(&GOOD.replacen(from, to, 1), BOTH), wanted);
}

#[test]
fn a_complete_configuration_has_no_problem() {
    assert_eq!(findings(GOOD, BOTH), [""; 0]);
}

#[test]
fn urls_of_coordinators_fit_the_certificates() {
    let with = |url: &str, tls: &str| {
        let text = format!("[cluster]\ncoordinators = [\"{url}\"]\n{tls}\n");
        findings(&text, &[])
    };
    let tls =
        |mode| format!("[cluster.tls]\ncertificate = \"c\"\nkey = \"k\"\nca_file = \"a\"\n{mode}");
    assert_eq!(with("http://c:9500", ""), [""; 0]);
    assert_eq!(with("https://c:9500", &tls("")), [""; 0]);
    assert_eq!(with("http://c:9500", &tls("mode = \"use\"")), [""; 0]);
    assert_eq!(
        with("https://c:9500", ""),
        ["cluster.coordinators[0]: begins with https://, which needs cluster.tls"]
    );
    assert_eq!(
        with("http://c:9500", "[cluster.tls]\nmode = \"require\""),
        ["cluster.tls.mode: is set without cluster.tls.certificate: nothing would use TLS"]
    );
    assert_eq!(
        with("http://c:9500", &tls("")),
        ["cluster.coordinators[0]: begins with http://, and cluster.tls.mode is \"require\"; \
            write https://"]
    );
}

#[test]
fn an_empty_configuration_lists_all_that_is_missing() {
    let missing = findings("", BOTH);
    let paths: Vec<&str> = missing.iter().map(|line| line.split(": ").next().unwrap()).collect();
    assert_eq!(
        paths,
        ["cluster.secret", "cluster.workers", "ufs", "mount", "gateway.identities", "worker.id"]
    );
}

#[test]
fn the_development_process_needs_nothing() {
    assert_eq!(findings("", &[ProcessRole::Dev]), [""; 0]);
}

#[test]
fn the_sections_of_a_file_say_whose_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("verbs3.toml");
    for (text, wanted) in [
        ("[worker]\n[cluster]\n", &[ProcessRole::Worker][..]),
        ("[coordinator.store]\n[gateway]\n", &[ProcessRole::Gateway, ProcessRole::Coordinator]),
        ("dev = {}\n", &[ProcessRole::Dev]),
        ("", &[]),
    ] {
        std::fs::write(&file, text).unwrap();
        assert_eq!(roles_in(&file).unwrap(), wanted, "{text}");
    }
}

#[test]
fn names_that_are_unknown_come_with_a_suggestion() {
    broken(
        "ufs = \"ceph\"",
        "ufs = \"cephh\"",
        &["mount[0].ufs: no [[ufs]] is named \"cephh\"; did you mean \"ceph\"?"],
    );
    broken("ufs = \"ceph\"", "ufs = \"zzzzzz\"", &["mount[0].ufs: no [[ufs]] is named \"zzzzzz\""]);
    broken(
        "id = \"w0\"\n",
        "id = \"w1\"\n",
        &["worker.id: cluster.workers has no worker named \"w1\"; did you mean \"w0\"?"],
    );
    broken(
        "endpoint =",
        "endpiont =",
        &["ufs[0].endpiont: no such setting; did you mean \"endpoint\"?"],
    );
    broken(
        "[gateway]",
        "[gateway]\nlisten_address = 1",
        &["gateway.listen_address: no such setting; there are listen, bind_device, admin_listen, \
            admin_bind_device, domains, own_hosts, identities, sigv2, cors_ttl, cors_stale_max, \
            cache_headers, memory, tls, limits, timeouts, read, tier, populate, peers, lending"],
    );
    broken(
        "name = \"aws\"",
        "name = \"aws\"\nkind = \"s33\"",
        &["ufs[1].kind: \"s33\" is not one of \"s3\", \"local\"; did you mean \"s3\"?"],
    );
}

#[test]
fn values_of_the_wrong_type_say_what_is_wanted() {
    broken(
        "[worker]",
        "[worker.memory]\ncapacity = 5\n[worker]",
        &["worker.memory.capacity: wants a size in quotes, such as \"4MiB\", got 5"],
    );
    broken(
        "[worker]",
        "[worker.memory]\ncapacity = \"5 apples\"\n[worker]",
        &["worker.memory.capacity: \"5 apples\" is not a size; write an integer with a unit: \
            \"256KiB\", \"4MiB\", \"64GiB\""],
    );
    broken(
        "name = \"train\"",
        "name = \"train\"\nattributes_ttl = \"soon\"",
        &["mount[0].attributes_ttl: \"soon\" is not a duration; write integers with units: \
            \"500ms\", \"10s\", \"1m30s\", \"12h\"; or \"0\" (ask every time), or \"immutable\""],
    );
    broken(
        "name = \"train\"",
        "name = \"train\"\nread_only = \"yes\"",
        &["mount[0].read_only: wants a boolean, got \"yes\""],
    );
    broken(
        "[gateway]",
        "[gateway]\nlisten = \"localhost\"",
        &["gateway.listen: is no IP address with a port, such as \"0.0.0.0:9000\""],
    );
}

#[test]
fn a_secret_of_the_wrong_type_is_not_printed() {
    broken(
        "secret = \"0123456789abcdef0123456789abcdef\"",
        "secret = 123456789",
        &["cluster.secret: wants a string, got another type of value"],
    );
}

#[test]
fn every_problem_is_found_at_once() {
    let text = GOOD
        .replace("ufs = \"ceph\"", "ufs = \"cephh\"\ncolour = \"red\"\nabsence_ttl = 1")
        .replace("id = \"w0\"\n", "id = \"w0\"\nlisten = true\n[worker.fill]\nin_flight_max = 0\n");
    let paths: Vec<String> = findings(&text, BOTH)
        .iter()
        .map(|line| line.split(": ").next().unwrap().to_owned())
        .collect();
    let mut sorted = paths.clone();
    sorted.sort();
    assert_eq!(
        sorted,
        [
            "mount[0].absence_ttl",
            "mount[0].colour",
            "mount[0].ufs",
            "worker.fill.in_flight_max",
            "worker.listen"
        ]
    );
}

#[test]
fn cluster_problems() {
    broken("[cluster]", "[cluster]\nname = \" \"", &["cluster.name: is empty; name the cluster"]);
    broken(
        "0123456789abcdef0123456789abcdef",
        "short",
        &["cluster.secret: is shorter than 32 characters; `openssl rand -hex 32` makes a good one"],
    );
    broken(
        "[cluster]",
        "[cluster]\ntls = { certificate = \"/dev/null\" }",
        &[
            "cluster.tls.key: is missing; certificate, key and ca_file belong together",
            "cluster.tls.ca_file: is missing; certificate, key and ca_file belong together",
            "cluster.tls.certificate: /dev/null is not a file",
        ],
    );
    broken(
        "[cluster]",
        "[cluster]\nsecret_file = \"/x\"",
        &["cluster.secret_file: cluster.secret is set too; keep one of them"],
    );
    broken(
        "secret = \"0123456789abcdef0123456789abcdef\"",
        "secret_file = \"/no/such\"",
        &["cluster.secret_file: can't read the secret in /no/such; check that the file exists \
            and that this user may read it: No such file or directory (os error 2)"],
    );
    broken(
        "[cluster]",
        "[cluster]\npage = \"100KiB\"",
        &["cluster.page: 100KiB is not a power of two"],
    );
    broken(
        "[cluster]",
        "[cluster]\nblock = \"4100KiB\"",
        &["cluster.block: 4100KiB is not a multiple of cluster.page (256KiB)"],
    );
    broken(
        "[cluster]",
        "[cluster]\nblock = \"32MiB\"",
        &["cluster.block: 32MiB is not between 1MiB and 16MiB"],
    );
    let twice = "{ id = \"w0\", address = \"10.0.0.1:9400\" }, { id = \"w0\", address = \
        \"10.0.0.1:9400\" }";
    broken(
        "{ id = \"w0\", address = \"10.0.0.1:9400\" }",
        twice,
        &[
            "cluster.workers[1].id: \"w0\" is the name of cluster.workers[0] too; names are unique",
            "cluster.workers[1].address: \"10.0.0.1:9400\" is the address of cluster.workers[0] \
            too",
        ],
    );
    let long = "w".repeat(65);
    broken(
        "{ id = \"w0\",",
        &format!("{{ id = {long:?},"),
        &[
            &format!(
                "cluster.workers[0].id: {long:?} is longer than 64 bytes or has control \
                characters; workers say who they are in so many bytes when gateways connect"
            ),
            "worker.id: cluster.workers has no worker named \"w0\"",
        ],
    );
    for (address, why) in [
        ("10.0.0.1", "it has no port"),
        (":9400", "the host is not one"),
        ("::1:9400", "an IPv6 address stands in brackets"),
        ("host:99400", "the port is not between 1 and 65535"),
    ] {
        broken(
            "10.0.0.1:9400",
            address,
            &[&format!("cluster.workers[0].address: {address:?} is not host:port: {why}")],
        );
    }
    broken(
        "address = \"10.0.0.1:9400\"",
        "address = \"10.0.0.1:9400\", weight = nan",
        &["cluster.workers[0].weight: NaN is not between 0.001 and 1000000"],
    );
    for (weight, why) in
        [("nan", "NaN is not between 0 and 1000000"), ("-0.5", "-0.5 is not between 0 and 1000000")]
    {
        broken(
            "[worker]",
            &format!("[worker]\nweight = {weight}"),
            &[&format!("worker.weight: {why}")],
        );
    }
}

#[test]
fn gateway_problems() {
    let gateway = |lines: &str| format!("[gateway]\n{lines}\n");
    broken(
        "[gateway]",
        &gateway("listen = \"127.0.0.1:9001\""),
        &["gateway.admin_listen: 127.0.0.1:9001 is gateway.listen too; give it another port"],
    );
    broken(
        "[gateway]",
        &gateway("domains = [\"s3.example\", \"a b\"]"),
        &["gateway.domains[1]: \"a b\" is not a host name"],
    );
    broken(
        "[gateway]",
        &gateway(
            "own_hosts = [\"gpu-07:9000\", \"10.0.0.7\", \"[fd00::7]:9000\", \"[::1]\", \"a/b\"]",
        ),
        &["gateway.own_hosts[4]: \"a/b\" is neither a host name nor an address"],
    );
    broken(
        "[gateway]",
        &gateway("tls = { key = \"/k\" }"),
        &["gateway.tls.certificate: is missing; a key needs its certificate"],
    );
    broken(
        "[gateway]",
        &gateway("tls = { key = \"/k\", certificate = \"/c\" }"),
        &[
            "gateway.tls.certificate: can't read /c: No such file or directory (os error 2)",
            "gateway.tls.key: can't read /k: No such file or directory (os error 2)",
        ],
    );
    broken(
        "IDENTITIES",
        "/no/such",
        &["gateway.identities: can't read /no/such: No such file or directory (os error 2)"],
    );
    broken(
        "[gateway]",
        &gateway("read = { bytes_in_flight_max = \"2GiB\" }"),
        &[
            "gateway.memory.capacity: 1GiB is too small for gateway.read.bytes_in_flight_max (2GiB); raise the one or lower the other",
        ],
    );
    broken(
        "[gateway]",
        &gateway("memory = { capacity = \"32MiB\" }\nread = { window = \"64MiB\" }"),
        &["gateway.memory.capacity: 32MiB is too small for one gateway.read.window (64MiB)"],
    );
    broken(
        "[gateway]",
        &gateway("read = { bytes_in_flight_max = \"16MiB\", window = \"32MiB\" }"),
        &["gateway.read.window: 32MiB is more than bytes_in_flight_max (16MiB): no large read \
            could start"],
    );
    broken(
        "[gateway]",
        &gateway("tier = { hedge_after = \"5s\" }"),
        &["gateway.tier.hedge_after: 5s is not shorter than first_progress (2s): no hedge would \
            ever be sent"],
    );
    let small = "tier = { open_landing = \"128KiB\", small_object_max = \"256KiB\" }";
    let small_pages = GOOD.replacen("[cluster]", "[cluster]\npage = \"64KiB\"", 1);
    assert_eq!(
        findings(&small_pages.replacen("[gateway]", &gateway(small), 1), BOTH),
        ["gateway.tier.small_object_max: 256KiB is more than open_landing (128KiB): such an \
            object would never come whole"]
    );
    // Of use with coordinators alone, and a matter of them alone.
    let in_vain = "tier = { announce_deadline = \"500ms\" }";
    broken("[gateway]", &gateway(in_vain), &[]);
    let too_soon = |deadline: &str| {
        format!(
            "warning: gateway.tier.announce_deadline: {deadline} is not longer than \
            coordinator.lease (6s, as this file has it): writes whose home has died get 503"
        )
    };
    let coordinated = "coordinators = [\"http://10.0.0.1:9500\"]";
    let relayed = GOOD.replacen(
        "workers = [{ id = \"w0\", address = \"10.0.0.1:9400\" }]\nworkers_fixed = true",
        coordinated,
        1,
    );
    assert_eq!(findings(&relayed, BOTH), [""; 0]);
    assert_eq!(
        findings(&relayed.replacen("[gateway]", &gateway(in_vain), 1), BOTH),
        [
            too_soon("500ms"),
            "gateway.tier.relay_after: 500ms is not shorter than announce_deadline (500ms): no \
            announcement would ever be relayed"
                .to_owned()
        ]
    );
    let none = |deadline| {
        let tier = format!("tier = {{ announce_deadline = \"{deadline}\", relays_max = 0 }}");
        findings(&relayed.replacen("[gateway]", &gateway(&tier), 1), BOTH)
    };
    assert_eq!(none("6s"), [too_soon("6s")]);
    assert_eq!(none("6001ms"), [""; 0]);
}

#[test]
fn worker_problems() {
    broken(
        "[worker]",
        "[worker]\nlisten = \"0.0.0.0:9500\"",
        &["warning: worker.listen: listens on port 9500, but cluster.workers sends gateways to \
            10.0.0.1:9400; right only if something forwards it"],
    );
    broken(
        "[worker]",
        "[worker]\nadmin_listen = \"0.0.0.0:9400\"",
        &["worker.admin_listen: 0.0.0.0:9400 is worker.listen too; give it another port"],
    );
    broken(
        "[worker]",
        "[worker]\nfill = { request_max = \"128KiB\" }",
        &["worker.fill.request_max: 128KiB is less than one page (cluster.page is 256KiB)"],
    );
    broken(
        "[worker]",
        "[worker]\nfill = { reserve = 0.95 }",
        &["worker.fill.reserve: 0.95 is not between 0 and 0.9"],
    );
}

#[test]
fn what_is_not_toml_is_located_without_its_text() {
    let found = findings("[cluster]\nsecret = hunter2\n", BOTH);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].starts_with("DIR/verbs3.toml:2:") && !found[0].contains("hunter2"),
        "{found:?}"
    );
}

#[test]
fn a_missing_file_is_named() {
    let layers =
        ConfigLayers { file: Some(PathBuf::from("/no/such.toml")), ..ConfigLayers::default() };
    let problems = load_config(&layers, &[]).unwrap_err();
    assert_eq!(
        problems.to_string(),
        "can't read /no/such.toml: No such file or directory (os error 2)"
    );
}

#[test]
fn rails_are_devices_network_devices_or_addresses_each_once() {
    let rails = |list: &str| findings(&format!("{GOOD}[verbs]\nrails = {list}\n"), BOTH);
    for good in
        [r#"["auto"]"#, r#"["mlx5_0", "mlx5_1:2", "ib0", "bond0.100", "10.0.0.1", "fd00::1"]"#]
    {
        assert_eq!(rails(good), [""; 0], "{good}");
    }
    let wrong = [
        (r#"[]"#, "verbs.rails: is empty"),
        (r#"["auto", "ib0"]"#, "verbs.rails[0]: \"auto\" stands alone"),
        (r#"["ib0", "ib0"]"#, "verbs.rails[1]: \"ib0\" is listed twice"),
        (r#"["mlx5_0:0"]"#, "verbs.rails[0]: \"mlx5_0:0\" has no port number"),
        (r#"["mlx5_0:x"]"#, "verbs.rails[0]: \"mlx5_0:x\" has no port number"),
        (r#"["../etc"]"#, "verbs.rails[0]: \"../etc\" is neither"),
        (r#"[""]"#, "verbs.rails[0]: \"\" is neither"),
        (r#"["0.0.0.0"]"#, "verbs.rails[0]: \"0.0.0.0\" is no address of one host"),
    ];
    for (list, message) in wrong {
        let found = rails(list);
        assert!(found.len() == 1 && found[0].contains(message), "{list}: {found:?}");
    }
}

#[test]
fn ways_that_can_not_work_are_errors() {
    let wrong = [
        ("[verbs]\nport = 9400", "verbs.port: 9400 is the port of worker.listen too"),
        ("[verbs]\nmode = \"always\"", "is not one of"),
        ("[verbs]\npath_mtu_max = 1500", "verbs.path_mtu_max: 1500 is no path MTU"),
        (
            "[worker.shm]\nsocket = \"relative.sock\"",
            "worker.shm.socket: relative.sock is no absolute path",
        ),
        (
            "[gateway.peers]\nrest_min = \"10m\"",
            "gateway.peers.rest_min: 10m is more than rest_max (5m)",
        ),
        (
            "[gateway.lending]\nmemory_max = \"2GiB\"\nmemory_total = \"1GiB\"",
            "gateway.lending.memory_max: 2GiB is more than gateway.lending.memory_total, 1GiB",
        ),
        (
            "[gateway.lending]\nsocket = \"relative.sock\"",
            "gateway.lending.socket: has to be an absolute path",
        ),
    ];
    for (text, message) in wrong {
        let found = findings(&format!("{GOOD}{text}\n"), BOTH);
        assert!(found.len() == 1 && found[0].contains(message), "{text}: {found:?}");
    }
}

#[test]
fn what_is_no_name_of_a_network_device_is_an_error_for_every_role() {
    // A table that the good configuration has already is gone on with by its last line.
    let settings = [
        ("gateway.bind_device", "identities ="),
        ("gateway.admin_bind_device", "identities ="),
        ("worker.admin_bind_device", "id = \"w0\"\n"),
        ("tcp.bind_device", "[worker]"),
    ];
    for (setting, before) in settings {
        let (section, field) = setting.split_once('.').unwrap();
        let with = |name: &str| {
            let table = if section == "tcp" { "[tcp]\n" } else { "" };
            let (head, tail) = GOOD.rsplit_once(before).unwrap();
            findings(&format!("{head}{table}{field} = \"{name}\"\n{before}{tail}"), BOTH)
        };
        for name in ["", "..", "a/b", "two words", "sixteen-letters-"] {
            let found = with(name);
            assert!(
                found.len() == 1 && found[0].contains("is not the name of a network device"),
                "{name}: {found:?}"
            );
            assert!(found[0].contains(setting), "{found:?}");
        }
        assert!(with("bond0.100").is_empty());
    }
}

#[test]
fn folders_and_volumes_of_the_disk_tier_are_checked_each() {
    let disk = r#"
[[worker.disk.folders]]
path = "/mnt/a"
capacity = "1MiB"
[[worker.disk.folders]]
path = "/mnt/a"
[[worker.disk.folders]]
[[worker.disk.volumes]]
volume = "ceph"
[[worker.disk.volumes]]
volume = "ceph/scratch"
[[worker.disk.volumes]]
volume = "ceph/scratch"
"#;
    let found = findings(&format!("{GOOD}{disk}"), &[ProcessRole::Worker]);
    for wanted in [
        "worker.disk.folders[0].capacity: 1MiB is not between 16MiB and 1024TiB",
        "worker.disk.folders[1].path: /mnt/a is worker.disk.folders[0] too",
        "worker.disk.folders[2].path: is missing; name a folder on a local drive",
        "worker.disk.volumes[0].volume: \"ceph\" is not the name of a UFS, a slash and a bucket",
        "worker.disk.volumes[2].volume: \"ceph/scratch\" is worker.disk.volumes[1] too",
    ] {
        assert!(found.iter().any(|line| line.contains(wanted)), "{wanted} in {found:#?}");
    }
    let found =
        findings(&format!("{GOOD}[dev]\nworkers = 4\ndisk = \"32MiB\"\n"), &[ProcessRole::Worker]);
    assert!(
        found.iter().any(|line| line.contains("dev.disk: 32MiB is too small for 4 workers")),
        "{found:#?}"
    );
}

#[test]
fn a_list_of_workers_wants_a_promise_or_an_age() {
    const WHY: &str = "cluster.workers: while a list changes, processes of the old one are alive, and reads through them miss writes for as \
                       long as mount[0] believes attributes; name cluster.coordinators instead (one with a folder will do), or say coherence \
                       = \"ttl\" on every cached mount, or cluster.workers_fixed = true if all \
                           processes are stopped before the list changes";
    let changing = GOOD.replacen("workers_fixed = true\n", "", 1);
    assert_eq!(findings(&changing, BOTH), [WHY]);
    assert_eq!(findings(&changing, &[ProcessRole::Worker]), [""; 0], "a worker has no mounts");
    let aged = changing.replace("[[mount]]", "[[mount]]\ncoherence = \"ttl\"");
    assert_eq!(findings(&aged, BOTH), [""; 0]);
    let half = changing.replacen("[[mount]]", "[[mount]]\ncoherence = \"ttl\"", 1);
    assert_eq!(findings(&half, BOTH), [WHY.replace("mount[0]", "mount[1]")]);
    let uncached = half.replace("ufs = \"aws\"", "ufs = \"aws\"\ncached = false");
    assert_eq!(findings(&uncached, BOTH), [""; 0]);
    let listed = "workers = [{ id = \"w0\", address = \"10.0.0.1:9400\" }]";
    broken(
        listed,
        "coordinators = [\"http://10.0.0.1:9500\"]",
        &["cluster.workers_fixed: does nothing without cluster.workers"],
    );
}

#[test]
fn a_lease_that_a_leaders_death_would_end_is_warned_of() {
    let of = |lines: &str| {
        let text = format!(
            "[cluster]\nsecret = \"0123456789abcdef0123456789abcdef\"\n[coordinator]\n{lines}\n"
        );
        findings(&text, &[ProcessRole::Coordinator])
    };
    let etcd = "store = { kind = \"etcd\", endpoints = [\"http://10.0.0.1:2379\"] }";
    assert_eq!(of(etcd), [""; 0]);
    assert_eq!(
        of(&format!("lease = \"5s\"\n{etcd}")),
        ["warning: coordinator.lease: 5s is less than three times leadership (2s): when a \
            leader dies, workers lose their leases, and reads ask the store"]
    );
    assert_eq!(of("lease = \"1s\""), [""; 0], "a folder has one leader");
}
