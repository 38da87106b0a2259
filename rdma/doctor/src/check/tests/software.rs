//! Modules, libraries, device files, containers.

use std::fs;

use crate::fake_host_tree::{FakeHostTree, FindingExpectation};
use crate::finding::{FindingSeverity, HostCheckKind};

const fn control(
    check: HostCheckKind,
    subject: &'static str,
    severity: FindingSeverity,
    said: &'static str,
) -> FindingExpectation<'static> {
    FindingExpectation { healthy: FakeHostTree::mlx5_host, check, subject, severity, said }
}

#[test]
fn a_missing_module_fails_and_is_named() {
    control(HostCheckKind::Modules, "kernel", FindingSeverity::Fail, "not loaded: rdma_ucm")
        .holds_after(|fake| {
            let modules = fs::read_to_string(fake.root_path().join("proc/modules")).unwrap();
            fake.write_file("proc/modules", &modules.replace("rdma_ucm 32768 0 - Live 0x0\n", ""));
        });
}

#[test]
fn an_infiniband_port_without_ipoib_is_told() {
    control(HostCheckKind::Modules, "ib_ipoib", FindingSeverity::Warn, "not loaded").holds_after(
        |fake| {
            let modules = fs::read_to_string(fake.root_path().join("proc/modules")).unwrap();
            fake.write_file("proc/modules", &modules.replace("ib_ipoib", "ib_other"));
            fake.remove_path("sys/class/net/ib0");
        },
    );
}

#[test]
fn built_in_modules_count_as_loaded() {
    let fake = FakeHostTree::mlx5_host();
    fake.remove_path("proc/modules");
    assert_eq!(
        fake.worst_finding(HostCheckKind::Modules, "kernel").unwrap().seen,
        "not loaded: rdma_cm, rdma_ucm"
    );
    fake.write_file("sys/module/rdma_cm/refcnt", "1");
    fake.write_file("sys/class/misc/rdma_cm/dev", "10:124");
    assert_eq!(
        fake.worst_finding(HostCheckKind::Modules, "kernel").unwrap().severity,
        FindingSeverity::Ok
    );
}

#[test]
fn a_nic_without_its_rdma_module_is_noted_without_alarm() {
    control(HostCheckKind::Modules, "eth2", FindingSeverity::Ok, "can do RDMA").holds_after(
        |fake| {
            fake.remove_path("sys/class/infiniband/mlx5_1");
        },
    );
    let fake = FakeHostTree::mlx5_host();
    fake.remove_path("sys/class/infiniband");
    fake.remove_path("proc/modules");
    assert_eq!(
        fake.worst_finding(HostCheckKind::Modules, "eth2").unwrap().remedy.unwrap(),
        "modprobe mlx5_ib"
    );
}

#[test]
fn an_infiniband_controller_that_is_no_device_is_a_warning() {
    control(
        HostCheckKind::Modules,
        "0000:03:00.0",
        FindingSeverity::Warn,
        "InfiniBand controller (mlx5_core)",
    )
    .holds_after(|fake| {
        fake.remove_path("sys/class/infiniband/mlx5_0");
    });
}

#[test]
fn missing_libraries_fail_and_leave_tcp() {
    let lose =
        |fake: &mut FakeHostTree| fake.remove_path("usr/lib/x86_64-linux-gnu/librdmacm.so.1");
    control(HostCheckKind::Libraries, "librdmacm.so.1", FindingSeverity::Fail, "not found")
        .holds_after(lose);
    control(
        HostCheckKind::Transport,
        "host",
        FindingSeverity::Fail,
        "librdmacm.so.1 is missing: tcp is used",
    )
    .holds_after(lose);
}

#[test]
fn libraries_are_found_where_the_loader_is_told_to_look() {
    let fake = FakeHostTree::mlx5_host();
    let away = "usr/lib/x86_64-linux-gnu/libibverbs.so.1";
    fake.remove_path(away);
    assert!(fake.worst_finding(HostCheckKind::Libraries, "libibverbs.so.1").is_some());
    fake.write_file("opt/rdma/lib/libibverbs.so.1", "");
    fake.write_file("etc/ld.so.conf.d/rdma.conf", "# ours\n/opt/rdma/lib");
    assert!(fake.worst_finding(HostCheckKind::Libraries, "libibverbs.so.1").is_none());
}

#[test]
fn a_device_without_provider_is_a_warning() {
    let said = "no provider library libmlx5";
    for path in
        ["usr/lib/x86_64-linux-gnu/libibverbs/libmlx5-rdmav34.so", "etc/libibverbs.d/mlx5.driver"]
    {
        control(HostCheckKind::Libraries, "mlx5_0", FindingSeverity::Warn, said)
            .holds_after(|fake| fake.remove_path(path));
    }
}

#[test]
fn a_device_that_libibverbs_does_not_list_is_a_warning() {
    control(
        HostCheckKind::Libraries,
        "mlx5_1",
        FindingSeverity::Warn,
        "libibverbs doesn't list it",
    )
    .holds_after(|fake| fake.listed = Some(Ok(vec!["mlx5_0"])));
    let fake =
        FakeHostTree { listed: Some(Ok(vec!["mlx5_0", "mlx5_1"])), ..FakeHostTree::mlx5_host() };
    assert_eq!(
        fake.worst_finding(HostCheckKind::Libraries, "mlx5_1").unwrap().severity,
        FindingSeverity::Ok
    );
    control(HostCheckKind::Transport, "host", FindingSeverity::Ok, "on 1 of 2 rails: mlx5_0/1")
        .holds_after(|fake| fake.listed = Some(Ok(vec!["mlx5_0"])));
    control(HostCheckKind::Transport, "host", FindingSeverity::Fail, "libibverbs says: errno 13")
        .holds_after(|fake| fake.listed = Some(Err("errno 13")));
}

#[test]
fn a_missing_device_file_warns_and_fails_if_it_was_the_last() {
    control(
        HostCheckKind::Access,
        "mlx5_1",
        FindingSeverity::Warn,
        "/dev/infiniband/uverbs1 is not there",
    )
    .holds_after(|fake| fake.remove_path("dev/infiniband/uverbs1"));
    control(HostCheckKind::Access, "mlx5_1", FindingSeverity::Fail, "is not there").holds_after(
        |fake| {
            fake.remove_path("dev/infiniband/uverbs0");
            fake.remove_path("dev/infiniband/uverbs1");
        },
    );
}

#[test]
fn a_device_file_that_does_not_open_shows_the_kernels_words() {
    // A folder can't be opened for writing by anybody, not even by root.
    control(
        HostCheckKind::Access,
        "mlx5_0",
        FindingSeverity::Warn,
        "/dev/infiniband/uverbs0 does not open: ",
    )
    .holds_after(|fake| {
        fake.remove_path("dev/infiniband/uverbs0");
        fake.write_file("dev/infiniband/uverbs0/x", "");
    });
    control(HostCheckKind::Access, "rdma_cm", FindingSeverity::Fail, "rdma_cm does not open: ")
        .holds_after(|fake| {
            fake.remove_path("dev/infiniband/rdma_cm");
            fake.write_file("dev/infiniband/rdma_cm/x", "");
        });
}

#[test]
fn without_the_connection_manager_verbs_are_lost() {
    let lose = |fake: &mut FakeHostTree| fake.remove_path("dev/infiniband/rdma_cm");
    control(HostCheckKind::Access, "rdma_cm", FindingSeverity::Fail, "is not there")
        .holds_after(lose);
    control(HostCheckKind::Transport, "host", FindingSeverity::Fail, "rdma_cm can't be opened")
        .holds_after(lose);
}

fn pod() -> FakeHostTree {
    let fake = FakeHostTree::mlx5_host();
    fake.write_file("proc/self/cgroup", "0::/");
    fake.write_file("var/run/secrets/kubernetes.io/serviceaccount/token", "");
    fake
}

#[test]
fn a_container_without_device_files_hears_of_the_device_plugin() {
    let control = FindingExpectation {
        healthy: pod,
        check: HostCheckKind::Container,
        subject: "container",
        severity: FindingSeverity::Fail,
        said: "0 of 2 RDMA devices",
    };
    control.holds_after(|fake| fake.remove_path("dev/infiniband"));
    let fake = pod();
    fake.remove_path("dev/infiniband");
    let remedy = fake.worst_finding(HostCheckKind::Access, "mlx5_0").unwrap().remedy.unwrap();
    assert!(
        remedy.contains("device plugin") && remedy.contains("--device /dev/infiniband"),
        "{remedy}"
    );
}

#[test]
fn a_container_that_was_given_one_device_of_two_is_well() {
    let fake = pod();
    fake.remove_path("dev/infiniband/uverbs1");
    let found = fake.worst_finding(HostCheckKind::Access, "mlx5_1").unwrap();
    assert_eq!(
        (found.severity, found.seen.contains("not given to this container")),
        (FindingSeverity::Ok, true)
    );
    assert_eq!(
        fake.worst_finding(HostCheckKind::Transport, "host").unwrap().seen,
        "verbs can be used on 1 of 2 rails: mlx5_0/1"
    );
}

#[test]
fn marks_tell_containers_from_hosts() {
    let container = |change: fn(&FakeHostTree)| {
        let fake = FakeHostTree::mlx5_host();
        change(&fake);
        fake.worst_finding(HostCheckKind::Container, "container").is_some()
    };
    assert!(!container(|_| {}));
    assert!(!container(
        |fake| fake.write_file("proc/self/cgroup", "0::/system.slice/docker.service")
    ));
    assert!(container(|fake| fake.write_file(".dockerenv", "")));
    assert!(container(|fake| fake.write_file("run/.containerenv", "")));
    assert!(container(|fake| fake.write_file(
        "proc/self/cgroup",
        "0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-1.scope"
    )));
}
