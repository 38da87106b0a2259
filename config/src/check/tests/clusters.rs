//! Problems of `[cluster]` and of the coordinators.

use super::*;

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
fn cluster_problems() {
    broken_by("[cluster]", "name = \" \"", &["cluster.name: is empty; name the cluster"]);
    broken(
        "0123456789abcdef0123456789abcdef",
        "short",
        &["cluster.secret: is shorter than 32 characters; `openssl rand -hex 32` makes a good one"],
    );
    broken_by(
        "[cluster]",
        "tls = { certificate = \"/dev/null\" }",
        &[
            "cluster.tls.key: is missing; certificate, key and ca_file belong together",
            "cluster.tls.ca_file: is missing; certificate, key and ca_file belong together",
            "cluster.tls.certificate: /dev/null is not a file",
        ],
    );
    broken_by(
        "[cluster]",
        "secret_file = \"/x\"",
        &["cluster.secret_file: cluster.secret is set too; keep one of them"],
    );
    broken(
        "secret = \"0123456789abcdef0123456789abcdef\"",
        "secret_file = \"/no/such\"",
        &["cluster.secret_file: can't read the secret in /no/such; check that the file exists \
            and that this user may read it: No such file or directory (os error 2)"],
    );
    broken_by("[cluster]", "page = \"100KiB\"", &["cluster.page: 100KiB is not a power of two"]);
    broken_by(
        "[cluster]",
        "block = \"4100KiB\"",
        &["cluster.block: 4100KiB is not a multiple of cluster.page (256KiB)"],
    );
    broken_by(
        "[cluster]",
        "block = \"32MiB\"",
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
        broken_by("[worker]", &format!("weight = {weight}"), &[&format!("worker.weight: {why}")]);
    }
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
