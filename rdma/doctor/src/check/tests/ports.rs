//! Ports, GIDs, addresses, MTUs, partitions, IPoIB, bonds, counters.

use crate::fake_host_tree::{FakeHostTree, FindingExpectation};
use crate::finding::{FindingSeverity, HostCheckKind};

const IB: &str = "sys/class/infiniband/mlx5_0/ports/1";
const ROCE: &str = "sys/class/infiniband/mlx5_1/ports/1";

const fn warns(
    check: HostCheckKind,
    subject: &'static str,
    said: &'static str,
) -> FindingExpectation<'static> {
    FindingExpectation {
        healthy: FakeHostTree::mlx5_host,
        check,
        subject,
        severity: FindingSeverity::Warn,
        said,
    }
}

fn remedy(fake: &FakeHostTree, check: HostCheckKind, subject: &str) -> String {
    fake.worst_finding(check, subject).unwrap().remedy.unwrap()
}

#[test]
fn a_port_that_is_down_is_a_warning_with_its_netdev() {
    warns(HostCheckKind::Port, "mlx5_1/1", "down, physical Disabled, RoCE on Ethernet, eth2")
        .holds_after(|fake| {
            fake.write_file(&format!("{ROCE}/state"), "1: DOWN");
            fake.write_file(&format!("{ROCE}/phys_state"), "3: Disabled");
            assert!(
                remedy(fake, HostCheckKind::Port, "mlx5_1/1").starts_with("ip link set eth2 up")
            );
        });
}

#[test]
fn a_port_without_subnet_manager_is_told_so() {
    warns(HostCheckKind::Port, "mlx5_0/1", "init").holds_after(|fake| {
        fake.write_file(&format!("{IB}/state"), "2: INIT");
        assert!(remedy(fake, HostCheckKind::Port, "mlx5_0/1").contains("opensm"));
    });
}

/// One lane of Ethernet is none.
#[test]
fn only_an_infiniband_link_that_negotiated_down_is_a_warning() {
    warns(HostCheckKind::Rate, "mlx5_0/1", "1 × NDR")
        .holds_after(|fake| fake.write_file(&format!("{IB}/rate"), "100 Gb/sec (1X NDR)"));
    warns(HostCheckKind::Rate, "mlx5_0/1", "4 × SDR")
        .holds_after(|fake| fake.write_file(&format!("{IB}/rate"), "10 Gb/sec (4X SDR)"));
    let ethernet =
        FakeHostTree::mlx5_host().worst_finding(HostCheckKind::Rate, "mlx5_1/1").unwrap();
    assert_eq!(
        (ethernet.severity, ethernet.seen.as_str()),
        (FindingSeverity::Ok, "25 Gb/s (1 × EDR)")
    );
}

#[test]
fn roce_v1_alone_is_a_warning_and_infiniband_is_not_roce_v1() {
    warns(HostCheckKind::Gid, "mlx5_1/1", "RoCE v1 only").holds_after(|fake| {
        for index in [1, 3] {
            fake.write_file(&format!("{ROCE}/gid_attrs/types/{index}"), "IB/RoCE v1");
        }
        assert!(
            remedy(fake, HostCheckKind::Gid, "mlx5_1/1")
                .starts_with("cma_roce_mode -d mlx5_1 -p 1 -m 2")
        );
    });
    let infiniband =
        FakeHostTree::mlx5_host().worst_finding(HostCheckKind::Gid, "mlx5_0/1").unwrap();
    assert_eq!(
        infiniband.seen, "0 fe80::c42:a103:0:1",
        "one GID; the empty entry with its prefix is none"
    );
}

#[test]
fn gid_entries_whose_type_can_not_be_read_do_no_harm() {
    // rxe and mlx5 list all places of the table and answer EINVAL for the type of an empty one.
    let fake = FakeHostTree::soft_roce_host();
    fake.write_file("sys/class/infiniband/rxe0/ports/1/gid_attrs/types/2/x", "");
    assert_eq!(fake.read_host().devices[0].ports[0].gids.len(), 2);
}

#[test]
fn a_port_without_gid_is_a_warning() {
    warns(HostCheckKind::Gid, "mlx5_1/1", "none")
        .holds_after(|fake| fake.remove_path(&format!("{ROCE}/gids")));
}

#[test]
fn a_rail_without_ip_address_is_a_warning() {
    warns(HostCheckKind::Address, "mlx5_0/1", "no IP address on ib0").holds_after(|fake| {
        fake.addresses.remove("ib0");
    });
    warns(HostCheckKind::Address, "mlx5_0/1", "no network device").holds_after(|fake| {
        fake.addresses.remove("ib0");
        fake.remove_path("sys/devices/pci0/0000:03:00.0/net");
    });
    warns(HostCheckKind::Address, "mlx5_1/1", "no IP address on eth2").holds_after(|fake| {
        fake.addresses.remove("eth2");
        for index in [2, 3] {
            fake.remove_path(&format!("{ROCE}/gids/{index}"));
        }
        // Link-local addresses are no addresses of a rail.
        fake.addresses.insert(
            "eth2".to_owned(),
            vec!["fe80::1".parse().unwrap(), "169.254.1.1".parse().unwrap()],
        );
    });
}

#[test]
fn a_netdev_that_is_down_below_an_active_port_is_a_warning() {
    warns(HostCheckKind::Address, "mlx5_0/1", "ib0 is down")
        .holds_after(|fake| fake.write_file("sys/class/net/ib0/operstate", "down"));
}

#[test]
fn ports_of_one_card_have_their_own_netdevs() {
    let fake = FakeHostTree::mlx5_host();
    for (name, port) in [("ib1", "1"), ("ib2", "0")] {
        fake.write_file(&format!("sys/devices/pci0/0000:03:00.0/net/{name}/mtu"), "2044");
        fake.write_file(&format!("sys/class/net/{name}/mtu"), "2044");
        fake.write_file(&format!("sys/class/net/{name}/dev_port"), port);
    }
    assert_eq!(fake.read_host().devices[0].ports[0].netdevs, ["ib0", "ib2"]);
}

#[test]
fn an_iwarp_port_finds_its_netdev_by_mac_and_needs_no_roce_gid() {
    let fake = FakeHostTree::soft_roce_host();
    let device = "sys/class/infiniband/rxe0";
    fake.remove_path(&format!("{device}/parent"));
    fake.write_file(&format!("{device}/node_type"), "4: RNIC");
    fake.write_file(&format!("{device}/node_desc"), "Software iWARP stack");
    fake.remove_path(&format!("{device}/ports/1/gids"));
    fake.remove_path(&format!("{device}/ports/1/gid_attrs"));
    fake.write_file(&format!("{device}/ports/1/gids/0"), "5254:0012:3456:0000:0000:0000:0000:0000");
    let host = fake.read_host();
    assert_eq!((host.devices[0].driver.as_deref(), host.devices[0].iwarp), (Some("siw"), true));
    assert_eq!(host.devices[0].ports[0].netdevs, ["eth0"]);
    assert_eq!(
        fake.worst_finding(HostCheckKind::Gid, "rxe0/1").unwrap().severity,
        FindingSeverity::Ok
    );
    assert!(
        fake.worst_finding(HostCheckKind::Port, "rxe0/1")
            .unwrap()
            .seen
            .contains("iWARP on Ethernet, in software, eth0")
    );
}

#[test]
fn a_small_mtu_is_a_warning_with_the_packet_size_that_it_leaves() {
    let mtu = |bytes: &'static str| {
        move |fake: &mut FakeHostTree| fake.write_file("sys/class/net/eth2/mtu", bytes)
    };
    warns(HostCheckKind::Mtu, "mlx5_1/1", "eth2 MTU 1500, so RDMA packets carry up to 1024 bytes")
        .holds_after(mtu("1500"));
    warns(HostCheckKind::Mtu, "mlx5_1/1", "up to 2048 bytes").holds_after(mtu("4191"));
    warns(HostCheckKind::Mtu, "mlx5_1/1", "too small for any RDMA packet").holds_after(mtu("300"));
    let enough = FakeHostTree::mlx5_host();
    enough.write_file("sys/class/net/eth2/mtu", "4192");
    assert_eq!(
        enough.worst_finding(HostCheckKind::Mtu, "mlx5_1/1").unwrap().severity,
        FindingSeverity::Ok
    );
}

#[test]
fn an_active_mtu_below_what_the_netdev_allows_is_a_warning() {
    warns(HostCheckKind::Mtu, "mlx5_1/1", "active MTU 1024, eth2 MTU 9000")
        .holds_after(|fake| fake.active_mtu = Some(1024));
    warns(HostCheckKind::Mtu, "mlx5_0/1", "active MTU 1024")
        .holds_after(|fake| fake.active_mtu = Some(1024));
    let whole = FakeHostTree { active_mtu: Some(4096), ..FakeHostTree::mlx5_host() };
    assert_eq!(
        whole.worst_finding(HostCheckKind::Mtu, "mlx5_1/1").unwrap().severity,
        FindingSeverity::Ok
    );
}

#[test]
fn limited_members_of_a_partition_are_a_warning() {
    warns(HostCheckKind::Pkey, "mlx5_0/1", "limited membership only: 0x7fff")
        .holds_after(|fake| fake.write_file(&format!("{IB}/pkeys/0"), "0x7fff"));
    let both = FakeHostTree::mlx5_host();
    both.write_file(&format!("{IB}/pkeys/1"), "0x0012");
    assert_eq!(both.worst_finding(HostCheckKind::Pkey, "mlx5_0/1").unwrap().seen, "0xffff, 0x0012");
    assert!(
        both.worst_finding(HostCheckKind::Pkey, "mlx5_1/1").is_none(),
        "Ethernet has none that mean anything"
    );
}

#[test]
fn ipoib_says_why_a_large_mtu_is_refused() {
    let datagram = FakeHostTree::mlx5_host().worst_finding(HostCheckKind::Ipoib, "ib0").unwrap();
    assert_eq!(
        (datagram.severity, datagram.seen.as_str()),
        (FindingSeverity::Ok, "datagram mode, MTU 2044")
    );
    assert!(
        datagram.why.contains("capped at 2,044")
            && datagram.why.contains("MTU of 9000 refused there is expected"),
        "{datagram:?}"
    );
    warns(HostCheckKind::Ipoib, "ib0", "datagram mode, MTU 1500")
        .holds_after(|fake| fake.write_file("sys/class/net/ib0/mtu", "1500"));
    warns(HostCheckKind::Ipoib, "ib0", "connected mode, MTU 2044")
        .holds_after(|fake| fake.write_file("sys/class/net/ib0/mode", "connected"));
    let connected = FakeHostTree::mlx5_host();
    connected.write_file("sys/class/net/ib0/mode", "connected");
    connected.write_file("sys/class/net/ib0/mtu", "65520");
    assert_eq!(
        connected.worst_finding(HostCheckKind::Ipoib, "ib0").unwrap().severity,
        FindingSeverity::Ok
    );
    assert!(connected.worst_finding(HostCheckKind::Ipoib, "eth2").is_none());
}

#[test]
fn counters_above_0_are_warnings_with_their_numbers() {
    warns(HostCheckKind::Counters, "mlx5_0/1", "symbol_error 17, rnr_nak_retry_err 3").holds_after(
        |fake| {
            fake.write_file(&format!("{IB}/counters/symbol_error"), "17");
            fake.write_file(&format!("{IB}/hw_counters/rnr_nak_retry_err"), "3");
            assert!(
                fake.worst_finding(HostCheckKind::Counters, "mlx5_0/1")
                    .unwrap()
                    .why
                    .contains("packets arrive damaged")
            );
            assert_eq!(
                fake.worst_finding(HostCheckKind::Counters, "mlx5_1/1").unwrap().severity,
                FindingSeverity::Ok,
                "of another port"
            );
        },
    );
    for name in ["link_downed", "out_of_sequence"] {
        warns(HostCheckKind::Counters, "mlx5_0/1", name).holds_after(|fake| {
            let folder = if name == "link_downed" { "counters" } else { "hw_counters" };
            fake.write_file(&format!("{IB}/{folder}/{name}"), "1");
        });
    }
    // Traffic is no trouble.
    let busy = FakeHostTree::soft_roce_host();
    busy.write_file("sys/class/infiniband/rxe0/ports/1/hw_counters/sent_pkts", "999999");
    assert_eq!(
        busy.worst_finding(HostCheckKind::Counters, "rxe0/1").unwrap().severity,
        FindingSeverity::Ok
    );
}

/// `eth2` in a bond that the RDMA device carries, as RoCE LAG presents it.
fn lag() -> FakeHostTree {
    let mut fake = FakeHostTree::mlx5_host();
    bond(&mut fake, "802.3ad 4");
    for index in 0..4 {
        fake.write_file(&format!("{ROCE}/gid_attrs/ndevs/{index}"), "bond0");
    }
    fake
}

fn bond(fake: &mut FakeHostTree, mode: &str) {
    for (file, text) in [
        ("type", "1"),
        ("mtu", "9000"),
        ("operstate", "up"),
        ("bonding/mode", mode),
        ("bonding/slaves", "eth2 eth3"),
        ("bonding/xmit_hash_policy", "layer3+4 1"),
    ] {
        fake.write_file(&format!("sys/class/net/bond0/{file}"), text);
    }
    fake.write_file("sys/class/net/eth3/mtu", "9000");
    for slave in ["eth2", "eth3"] {
        fake.link_file(&format!("sys/class/net/{slave}/master"), "../bond0");
        fake.write_file(&format!("sys/class/net/{slave}/bonding_slave/mii_status"), "up");
    }
    let addresses = fake.addresses.remove("eth2").unwrap();
    fake.addresses.insert("bond0".to_owned(), addresses);
}

#[test]
fn a_bond_that_is_one_rdma_device_is_one_rail() {
    let found = lag().worst_finding(HostCheckKind::Bonding, "bond0").unwrap();
    assert_eq!(found.severity, FindingSeverity::Ok);
    assert_eq!(
        found.seen,
        "RoCE LAG: mlx5_1/1 on eth2, eth3, mode 802.3ad, hash layer3+4: one rail"
    );
    assert!(FakeHostTree::mlx5_host().worst_finding(HostCheckKind::Bonding, "bond0").is_none());
}

#[test]
fn a_bond_without_lag_or_with_a_slave_down_is_a_warning() {
    let warns =
        |said| FindingExpectation { healthy: lag, ..warns(HostCheckKind::Bonding, "bond0", said) };
    warns("mode balance-rr")
        .holds_after(|fake| fake.write_file("sys/class/net/bond0/bonding/mode", "balance-rr 0"));
    warns("its slave eth3 is down")
        .holds_after(|fake| fake.write_file("sys/class/net/eth3/bonding_slave/mii_status", "down"));
}

#[test]
fn a_bond_over_rdma_ports_that_no_device_carries_is_a_warning() {
    warns(HostCheckKind::Bonding, "bond0", "no RDMA device on it, but mlx5_1/1 on its slaves")
        .holds_after(|fake| bond(fake, "802.3ad 4"));
}

#[test]
fn a_bond_of_plain_ports_is_nobodys_business() {
    let mut fake = FakeHostTree::mlx5_host();
    bond(&mut fake, "802.3ad 4");
    fake.write_file("sys/class/net/bond0/bonding/slaves", "eth3");
    assert!(fake.worst_finding(HostCheckKind::Bonding, "bond0").is_none());
}

/// `ib0` and `ib1` in a bond, of which no RDMA device knows.
fn ipoib_bond() -> FakeHostTree {
    let mut fake = FakeHostTree::mlx5_host();
    bond(&mut fake, "active-backup 1");
    for (file, text) in [("type", "32"), ("mtu", "2044")] {
        fake.write_file(&format!("sys/class/net/bond0/{file}"), text);
    }
    fake.write_file("sys/class/net/bond0/bonding/slaves", "ib0");
    fake
}

#[test]
fn a_bond_of_ipoib_devices_is_no_lag() {
    let found = ipoib_bond().worst_finding(HostCheckKind::Bonding, "bond0").unwrap();
    assert_eq!(found.severity, FindingSeverity::Ok);
    assert!(found.seen == "IPoIB: mode active-backup of ib0" && found.why.contains("two rails"));
    let warns = FindingExpectation {
        healthy: ipoib_bond,
        ..warns(HostCheckKind::Bonding, "bond0", "IPoIB: mode 802.3ad of ib0")
    };
    warns.holds_after(|fake| {
        fake.write_file("sys/class/net/bond0/bonding/mode", "802.3ad 4");
        assert!(!remedy(fake, HostCheckKind::Bonding, "bond0").contains("layer3+4"));
    });
}
