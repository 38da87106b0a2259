//! Tests the findings about a peer, from recorded answers.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use super::*;
use crate::fake_host_tree::FakeHostTree;
use crate::finding::{FindingSeverity, worst_severity};

fn connected(segment_bytes: u32) -> ConnectOutcome {
    ConnectOutcome::Connected {
        round_trip: Duration::from_micros(84),
        segment_bytes: Some(segment_bytes),
    }
}

/// A worker on the RoCE network of `FakeHostTree::mlx5_host`.
fn on_the_rail() -> PeerProbe {
    PeerProbe {
        host: "gpu-08".to_owned(),
        port: 9400,
        resolved: Ok(vec!["10.2.0.8".parse().unwrap()]),
        address: Some("10.2.0.8:9400".parse().unwrap()),
        source: Ok("10.2.0.7".parse().unwrap()),
        device: Some("eth2".to_owned()),
        gateway: None,
        path_mtu: Some(9000),
        reached: connected(8948),
    }
}

fn judged(probe: &PeerProbe) -> Vec<HostFinding> {
    let fake = FakeHostTree::mlx5_host();
    fake.write_file("sys/class/net/eth0/mtu", "1500");
    judge_peer(&fake.read_host(), probe)
}

/// The worst finding.
fn worst(probe: &PeerProbe) -> HostFinding {
    judged(probe).into_iter().max_by_key(|finding| finding.severity).unwrap()
}

#[test]
fn a_peer_on_a_rail_is_well() {
    let found = judged(&on_the_rail());
    assert_eq!(worst_severity(&found), FindingSeverity::Ok, "{found:#?}");
    let seen: Vec<_> = found.iter().map(|finding| finding.seen.as_str()).collect();
    assert_eq!(
        seen,
        [
            "route from 10.2.0.7 on eth2, on the link",
            "port 9400 connects; round trip 0.084 ms",
            "eth2 is on rail mlx5_1/1: verbs can be used",
            "path MTU 9000; RDMA packets carry 4096 bytes",
        ]
    );
    assert_eq!(found[0].subject, "gpu-08 (10.2.0.8:9400)");
}

#[test]
fn a_name_that_does_not_resolve_is_a_failure() {
    let found = worst(&PeerProbe {
        resolved: Err("Name or service not known".to_owned()),
        ..on_the_rail()
    });
    assert_eq!(
        (found.severity, found.seen.as_str()),
        (FindingSeverity::Fail, "can't be resolved: Name or service not known")
    );
}

#[test]
fn a_peer_without_route_is_a_failure() {
    let found =
        worst(&PeerProbe { source: Err("Network is unreachable".to_owned()), ..on_the_rail() });
    assert_eq!(
        (found.severity, found.seen.as_str()),
        (FindingSeverity::Fail, "no route: Network is unreachable")
    );
}

#[test]
fn refused_and_silent_ports_fail_with_different_remedies() {
    let refused = worst(&PeerProbe {
        reached: ConnectOutcome::Refused { round_trip: Duration::from_millis(2) },
        ..on_the_rail()
    });
    assert_eq!(
        (refused.severity, refused.seen.as_str()),
        (FindingSeverity::Fail, "the host answers after 2.000 ms, and refuses port 9400")
    );
    assert!(refused.remedy.unwrap().contains("worker.listen"));
    let silent = worst(&PeerProbe {
        reached: ConnectOutcome::Failed("connection timed out".to_owned()),
        ..on_the_rail()
    });
    assert_eq!(silent.severity, FindingSeverity::Fail);
    assert!(silent.remedy.unwrap().contains("firewalls"));
}

#[test]
fn a_way_past_the_rails_is_a_warning_if_there_are_rails() {
    let past = PeerProbe {
        device: Some("eth0".to_owned()),
        path_mtu: Some(1500),
        reached: connected(1448),
        ..on_the_rail()
    };
    let found = worst(&past);
    assert_eq!(found.severity, FindingSeverity::Warn);
    assert_eq!(
        found.seen,
        "the way leads out of eth0, which is on no rail; this host has mlx5_0/1, mlx5_1/1"
    );
    let bare = judge_peer(&FakeHostTree::bare_host().read_host(), &past);
    assert_eq!(
        worst_severity(&bare),
        FindingSeverity::Ok,
        "without RDMA, tcp is what there is: {bare:#?}"
    );
}

#[test]
fn ends_that_disagree_about_the_mtu_are_a_warning() {
    let found = worst(&PeerProbe { reached: connected(1448), ..on_the_rail() });
    assert_eq!(found.severity, FindingSeverity::Warn);
    assert_eq!(
        found.seen,
        "eth2 has MTU 9000, the peer takes about 1500; RDMA packets carry 4096 bytes"
    );
    let path =
        worst(&PeerProbe { path_mtu: Some(1500), reached: connected(1448), ..on_the_rail() });
    assert_eq!(path.seen, "eth2 has MTU 9000, the path 1500; RDMA packets carry 1024 bytes");
    // A peer without time stamps has 12 bytes more in a segment, and one with options 12 less.
    for segment in [8936, 8960] {
        assert_eq!(
            worst(&PeerProbe { reached: connected(segment), ..on_the_rail() }).severity,
            FindingSeverity::Ok,
            "{segment}"
        );
    }
}

#[test]
fn this_host_is_known_by_its_own_address() {
    let own = PeerProbe {
        address: Some("10.2.0.7:9400".parse().unwrap()),
        path_mtu: Some(65_535),
        ..on_the_rail()
    };
    assert_eq!(worst(&own).severity, FindingSeverity::Ok, "its MTU is the loopback device's");
    assert!(judged(&own).iter().any(|finding| finding.seen == "is this host: shm is used"));
    // Found by trying: the loopback device has MTU 65,536, and its path 65,535.
    let loopback = PeerProbe {
        address: Some("127.0.0.1:9400".parse().unwrap()),
        device: Some("lo".to_owned()),
        path_mtu: Some(65_535),
        reached: connected(32_741),
        ..on_the_rail()
    };
    assert_eq!(worst(&loopback).severity, FindingSeverity::Ok);
}
