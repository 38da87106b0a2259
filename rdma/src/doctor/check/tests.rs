//! Each check on a tree where it must fire, and on the healthy one where it must not.
#![allow(clippy::unwrap_used)]

mod memory;
mod ports;
mod software;

use crate::doctor::fake::Fake;
use crate::doctor::finding::{Check, Severity, verdict};

#[test]
fn a_healthy_node_has_nothing_to_do() {
    let fake = Fake::mlx5();
    let bad: Vec<_> =
        fake.findings().into_iter().filter(|finding| finding.severity > Severity::Ok).collect();
    assert_eq!(bad, []);
    let summary = fake.about(Check::Transport, "host").unwrap();
    assert_eq!(summary.seen, "verbs can be used on 2 of 2 rails: mlx5_0/1, mlx5_1/1");
    assert_eq!(verdict(&fake.findings()).exit_status(), 0);
}

#[test]
fn a_host_without_rdma_is_well_and_told_how_to_get_it() {
    let fake = Fake::bare();
    assert_eq!(verdict(&fake.findings()), Severity::Ok, "{:#?}", fake.findings());
    let summary = fake.about(Check::Transport, "host").unwrap();
    assert!(summary.seen.contains("tcp is used between hosts, shm within"), "{summary:?}");
    assert!(summary.remedy.unwrap().contains("rdma link add"));
}

#[test]
fn an_empty_root_is_a_host_without_rdma() {
    let fake = Fake::bare();
    for path in ["sys", "proc"] {
        fake.remove(path);
    }
    assert_eq!(verdict(&fake.findings()), Severity::Ok, "{:#?}", fake.findings());
}

#[test]
fn soft_roce_is_usable_with_two_warnings_as_in_the_vm() {
    let fake = Fake::rxe();
    let bad: Vec<_> =
        fake.findings().into_iter().filter(|finding| finding.severity > Severity::Ok).collect();
    let checks: Vec<_> = bad.iter().map(|finding| (finding.check, finding.severity)).collect();
    assert_eq!(checks, [(Check::Mtu, Severity::Warn), (Check::HugePages, Severity::Warn)]);
    assert_eq!(
        fake.about(Check::Transport, "host").unwrap().seen,
        "verbs can be used on 1 of 1 rail: rxe0/1"
    );
    // The GID table names the address; nothing else in the tree does.
    assert_eq!(fake.about(Check::Address, "rxe0/1").unwrap().seen, "10.77.0.2");
    assert_eq!(
        fake.about(Check::Rate, "rxe0/1").unwrap().why,
        "nominal: the speed is that of the CPU"
    );
}

#[test]
fn a_host_whose_rails_are_all_unusable_falls_back_to_tcp_and_fails() {
    let mut fake = Fake::mlx5();
    fake.addresses.clear();
    fake.set("sys/class/infiniband/mlx5_1/ports/1/state", "1: DOWN");
    let summary = fake.about(Check::Transport, "host").unwrap();
    assert_eq!(summary.severity, Severity::Fail);
    assert!(summary.seen.ends_with("tcp is used"), "{summary:?}");
}

#[test]
fn every_warning_and_failure_says_why_and_what_to_do() {
    let fake = Fake::mlx5();
    for path in ["dev/infiniband", "usr/lib", "sys/class/net/ib0", "sys/kernel/mm", "proc/modules"]
    {
        fake.remove(path);
    }
    fake.set("proc/self/limits", "Max locked memory  65536  65536  bytes");
    fake.set("sys/class/infiniband/mlx5_1/ports/1/state", "2: INIT");
    let bad: Vec<_> =
        fake.findings().into_iter().filter(|finding| finding.severity > Severity::Ok).collect();
    assert!(bad.len() >= 8, "{bad:#?}");
    for finding in bad {
        assert!(
            !finding.why.is_empty() && finding.remedy.is_some_and(|remedy| !remedy.is_empty()),
            "{}",
            finding.seen
        );
    }
}
