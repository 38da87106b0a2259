//! Each check on a tree where it must fire, and on the healthy one where it must not.
#![allow(clippy::unwrap_used)]

mod datagram;
mod memory;
mod pci;
mod ports;
mod rail_choice;
mod software;

use crate::fake_host_tree::FakeHostTree;
use crate::finding::{FindingSeverity, HostCheckKind, worst_severity};

#[test]
fn a_healthy_node_has_nothing_to_do() {
    let fake = FakeHostTree::mlx5_host();
    let bad: Vec<_> = fake
        .examine_tree()
        .into_iter()
        .filter(|finding| finding.severity > FindingSeverity::Ok)
        .collect();
    assert_eq!(bad, []);
    let summary = fake.worst_finding(HostCheckKind::Transport, "host").unwrap();
    assert_eq!(summary.seen, "verbs can be used on 2 of 2 rails: mlx5_0/1, mlx5_1/1");
    assert_eq!(worst_severity(&fake.examine_tree()).exit_status(), 0);
}

#[test]
fn a_host_without_rdma_is_well_and_told_how_to_get_it() {
    let fake = FakeHostTree::bare_host();
    assert_eq!(
        worst_severity(&fake.examine_tree()),
        FindingSeverity::Ok,
        "{:#?}",
        fake.examine_tree()
    );
    let summary = fake.worst_finding(HostCheckKind::Transport, "host").unwrap();
    assert!(summary.seen.contains("tcp is used between hosts, shm within"), "{summary:?}");
    assert!(summary.remedy.unwrap().contains("rdma link add"));
}

#[test]
fn an_empty_root_is_a_host_without_rdma() {
    let fake = FakeHostTree::bare_host();
    for path in ["sys", "proc"] {
        fake.remove_path(path);
    }
    assert_eq!(
        worst_severity(&fake.examine_tree()),
        FindingSeverity::Ok,
        "{:#?}",
        fake.examine_tree()
    );
}

#[test]
fn soft_roce_is_usable_with_two_warnings_as_in_the_vm() {
    let fake = FakeHostTree::soft_roce_host();
    let bad: Vec<_> = fake
        .examine_tree()
        .into_iter()
        .filter(|finding| finding.severity > FindingSeverity::Ok)
        .collect();
    let checks: Vec<_> = bad.iter().map(|finding| (finding.check, finding.severity)).collect();
    assert_eq!(
        checks,
        [
            (HostCheckKind::Mtu, FindingSeverity::Warn),
            (HostCheckKind::HugePages, FindingSeverity::Warn)
        ]
    );
    assert_eq!(
        fake.worst_finding(HostCheckKind::Transport, "host").unwrap().seen,
        "verbs can be used on 1 of 1 rail: rxe0/1"
    );
    // The GID table names the address; nothing else in the tree does.
    assert_eq!(fake.worst_finding(HostCheckKind::Address, "rxe0/1").unwrap().seen, "10.77.0.2");
    assert_eq!(
        fake.worst_finding(HostCheckKind::Rate, "rxe0/1").unwrap().why,
        "nominal: the speed is that of the CPU"
    );
}

#[test]
fn a_host_without_a_usable_rail_falls_back_to_tcp_and_fails() {
    let mut fake = FakeHostTree::mlx5_host();
    fake.addresses.clear();
    fake.write_file("sys/class/infiniband/mlx5_1/ports/1/state", "1: DOWN");
    let summary = fake.worst_finding(HostCheckKind::Transport, "host").unwrap();
    assert_eq!(summary.severity, FindingSeverity::Fail);
    assert!(summary.seen.ends_with("tcp is used"), "{summary:?}");
}

#[test]
fn every_warning_and_failure_says_why_and_what_to_do() {
    let fake = FakeHostTree::mlx5_host();
    for path in ["dev/infiniband", "usr/lib", "sys/class/net/ib0", "sys/kernel/mm", "proc/modules"]
    {
        fake.remove_path(path);
    }
    fake.write_file("proc/self/limits", "Max locked memory  65536  65536  bytes");
    fake.write_file("sys/class/infiniband/mlx5_1/ports/1/state", "2: INIT");
    let bad: Vec<_> = fake
        .examine_tree()
        .into_iter()
        .filter(|finding| finding.severity > FindingSeverity::Ok)
        .collect();
    assert!(bad.len() >= 8, "{bad:#?}");
    for finding in bad {
        assert!(
            !finding.why.is_empty() && finding.remedy.is_some_and(|remedy| !remedy.is_empty()),
            "{}",
            finding.seen
        );
    }
}
