//! Devices that make no reliable connections.

use crate::fake_host_tree::FakeHostTree;
use crate::finding::{FindingSeverity, HostCheckKind, worst_severity};

const EFA: &str = "rdmap0s6";

#[test]
fn a_host_with_efa_alone_is_well_and_told_that_tcp_serves_it() {
    let fake = FakeHostTree::efa_host();
    let found = fake.examine_tree();
    assert_eq!(worst_severity(&found), FindingSeverity::Ok, "{found:#?}");
    assert_eq!(
        found[0].seen,
        "no RDMA device that makes reliable connections: tcp is used between hosts, shm within \
        this one"
    );
    let verdict = fake.worst_finding(HostCheckKind::Transport, EFA).unwrap();
    assert!(verdict.seen.starts_with("no reliable connections (driver efa)"), "{verdict:?}");
    assert!(verdict.why.contains("gateway.peers.connections_max"), "{verdict:?}");
    // Locked memory, rdma_cm and addresses are for rails.
    assert!(found.iter().all(|finding| finding.check != HostCheckKind::Memlock), "{found:#?}");
}

#[test]
fn the_kind_of_node_decides_whatever_the_driver_is_called() {
    let verdict = |node: &str| {
        let fake = FakeHostTree::efa_host();
        fake.write_file("sys/class/infiniband/rdmap0s6/node_type", node);
        fake.remove_path("sys/devices/pci0/0000:00:06.0/driver");
        fake.worst_finding(HostCheckKind::Transport, EFA).map(|finding| finding.severity)
    };
    for node in ["5: usNIC", "6: usNIC UDP", "7: unspecified"] {
        assert_eq!(verdict(node), Some(FindingSeverity::Ok), "{node}");
    }
    for node in ["1: CA", "4: RNIC", "", "unspecified"] {
        assert_eq!(verdict(node), None, "{node}");
    }
}

#[test]
fn rails_beside_such_a_device_are_judged_as_ever() {
    let fake = FakeHostTree::mlx5_host();
    fake.write_file("sys/class/infiniband/mlx5_1/node_type", "7: unspecified");
    let summary = fake.worst_finding(HostCheckKind::Transport, "host").unwrap();
    assert_eq!(summary.seen, "verbs can be used on 1 of 1 rail: mlx5_0/1");
    assert!(fake.worst_finding(HostCheckKind::Transport, "mlx5_1").is_some());
    assert!(fake.worst_finding(HostCheckKind::Port, "mlx5_1/1").is_none(), "no rail");
    fake.write_file("sys/class/infiniband/mlx5_0/ports/1/state", "1: DOWN");
    assert_eq!(worst_severity(&fake.examine_tree()), FindingSeverity::Fail);
}
