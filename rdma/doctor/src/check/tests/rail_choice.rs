//! What `[verbs]` says of a host's ports. The host has InfiniBand `mlx5_0/1` with 10.1.0.7 and RoCE
//! `mlx5_1/1` with 10.2.0.7.

use verbs3_rdma::settings::{VerbsMode, VerbsSettings};

use crate::check::HostRequirements;
use crate::fake_host_tree::FakeHostTree;
use crate::finding::{FindingSeverity, HostCheckKind, worst_severity};

fn host_with(change: impl FnOnce(&mut VerbsSettings)) -> FakeHostTree {
    let mut verbs = VerbsSettings::default();
    change(&mut verbs);
    let needs =
        HostRequirements { arenas: vec![("worker.memory.capacity".to_owned(), 1 << 30)], verbs };
    FakeHostTree { needs, ..FakeHostTree::mlx5_host() }
}

fn names(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|&text| text.to_owned()).collect()
}

fn seen_of(fake: &FakeHostTree) -> String {
    fake.worst_finding(HostCheckKind::Transport, "host").unwrap().seen
}

#[test]
fn ports_that_no_rule_takes_are_no_rails() {
    let one = "verbs can be used on 1 of 1 rail: mlx5_0/1";
    for (rails, except) in [
        (&["10.1.0.0/16"][..], &[][..]),
        (&["mlx5_0"], &[]),
        (&["mlx5_0:1"], &[]),
        (&["ib0"], &[]),
        (&["auto"], &["10.2.0.0/16"]),
        (&["auto"], &["mlx5_1:1"]),
        (&["auto"], &["eth2"]),
    ] {
        let fake = host_with(|verbs| {
            (verbs.rails, verbs.rails_except) = (names(rails), names(except));
        });
        assert_eq!(seen_of(&fake), one, "{rails:?} {except:?}");
        assert_eq!(fake.worst_finding(HostCheckKind::Port, "mlx5_1/1"), None, "of somebody else");
    }
    let named = host_with(|verbs| {
        (verbs.rails, verbs.rails_except) = (names(&["auto", "mlx5_1"]), names(&["10.2.0.0/16"]));
    });
    assert!(seen_of(&named).contains("2 of 2 rails"), "who is named is no exception");
}

/// 1 GiB and what is beside it fit twice into 2.2 GiB, and not three times.
#[test]
fn the_arena_counts_for_rails_alone() {
    let limit = |fake: &FakeHostTree| {
        fake.write_file("proc/self/limits", "Max locked memory  1288490188  1288490188  bytes");
        fake.worst_finding(HostCheckKind::Memlock, "process").unwrap().severity
    };
    assert_eq!(limit(&host_with(|_| {})), FindingSeverity::Fail);
    let one = host_with(|verbs| verbs.rails_except = names(&["mlx5_1"]));
    assert_eq!(limit(&one), FindingSeverity::Ok);
}

/// Its link-local address is none that a rule means, and its GIDs show its other one.
#[test]
fn a_port_without_its_address_may_be_a_rail_yet() {
    let mut fake = host_with(|verbs| verbs.rails = names(&["10.1.0.0/16", "10.2.0.0/16"]));
    fake.addresses.remove("ib0");
    assert!(seen_of(&fake).contains("1 of 2 rails"), "{}", seen_of(&fake));
    fake.addresses.insert("ib0".to_owned(), vec!["fe80::7".parse().unwrap()]);
    assert!(seen_of(&fake).contains("1 of 2 rails"), "{}", seen_of(&fake));
    let found = fake.worst_finding(HostCheckKind::Address, "mlx5_0/1").unwrap();
    assert!(found.severity > FindingSeverity::Ok, "{}", found.seen);
}

#[test]
fn rules_that_leave_no_port_are_told() {
    for (mode, severity) in
        [(VerbsMode::Auto, FindingSeverity::Warn), (VerbsMode::On, FindingSeverity::Fail)]
    {
        let fake = host_with(|verbs| {
            (verbs.mode, verbs.rails) = (mode, names(&["10.9.0.0/16"]));
        });
        let found = fake.worst_finding(HostCheckKind::Transport, "host").unwrap();
        assert_eq!(found.severity, severity);
        assert!(found.seen.contains("this host has mlx5_0:1, mlx5_1:1"), "{}", found.seen);
    }
}

#[test]
fn a_rail_that_is_not_there_is_named_beside_those_that_are() {
    let fake = host_with(|verbs| verbs.rails = names(&["mlx5_0", "mlx5_9"]));
    let found = fake.worst_finding(HostCheckKind::Transport, "mlx5_9").unwrap();
    assert_eq!(found.severity, FindingSeverity::Warn);
    assert!(found.seen.contains("this host has mlx5_0:1, mlx5_1:1"), "{}", found.seen);
    assert_eq!(fake.worst_finding(HostCheckKind::Transport, "mlx5_0"), None);
}

#[test]
fn without_verbs_nothing_is_wrong_with_rails() {
    let fake = host_with(|verbs| verbs.mode = VerbsMode::Off);
    fake.write_file("proc/self/limits", "Max locked memory  65536  65536  bytes");
    fake.write_file("proc/modules", "");
    fake.write_file("sys/kernel/mm/transparent_hugepage/shmem_enabled", "[never]");
    assert_eq!(worst_severity(&fake.examine_tree()), FindingSeverity::Ok);
    assert!(seen_of(&fake).contains("verbs.mode is \"off\""));
}

#[test]
fn the_configured_bound_on_connections_is_compared() {
    let fake = host_with(|verbs| verbs.connections_max = 100);
    let needed = 64 + 4 * 100;
    fake.write_file(
        "sys/fs/cgroup/system.slice/verbs3@worker.service/rdma.max",
        &format!("mlx5_0 hca_handle=2 hca_object={needed}"),
    );
    let found = fake.worst_finding(HostCheckKind::RdmaLimit, "mlx5_0").unwrap();
    assert_eq!(found.severity, FindingSeverity::Ok, "{}", found.seen);
}
