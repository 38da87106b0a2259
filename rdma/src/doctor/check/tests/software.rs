//! Modules, libraries, device files, containers.

use std::fs;

use crate::doctor::fake::{Control, Fake};
use crate::doctor::finding::{Check, Severity};

const fn control(
    check: Check,
    subject: &'static str,
    severity: Severity,
    said: &'static str,
) -> Control<'static> {
    Control { healthy: Fake::mlx5, check, subject, severity, said }
}

#[test]
fn a_missing_module_fails_and_is_named() {
    control(Check::Modules, "kernel", Severity::Fail, "not loaded: rdma_ucm").holds_after(|fake| {
        let modules = fs::read_to_string(fake.path().join("proc/modules")).unwrap();
        fake.set("proc/modules", &modules.replace("rdma_ucm 32768 0 - Live 0x0\n", ""));
    });
}

#[test]
fn an_infiniband_port_without_ipoib_is_told() {
    control(Check::Modules, "ib_ipoib", Severity::Warn, "not loaded").holds_after(|fake| {
        let modules = fs::read_to_string(fake.path().join("proc/modules")).unwrap();
        fake.set("proc/modules", &modules.replace("ib_ipoib", "ib_other"));
        fake.remove("sys/class/net/ib0");
    });
}

#[test]
fn built_in_modules_count_as_loaded() {
    let fake = Fake::mlx5();
    fake.remove("proc/modules");
    assert_eq!(fake.about(Check::Modules, "kernel").unwrap().seen, "not loaded: rdma_cm, rdma_ucm");
    fake.set("sys/module/rdma_cm/refcnt", "1");
    fake.set("sys/class/misc/rdma_cm/dev", "10:124");
    assert_eq!(fake.about(Check::Modules, "kernel").unwrap().severity, Severity::Ok);
}

#[test]
fn a_nic_whose_rdma_module_is_missing_is_pointed_out_without_alarm() {
    control(Check::Modules, "eth2", Severity::Ok, "can do RDMA").holds_after(|fake| {
        fake.remove("sys/class/infiniband/mlx5_1");
    });
    let fake = Fake::mlx5();
    fake.remove("sys/class/infiniband");
    fake.remove("proc/modules");
    assert_eq!(fake.about(Check::Modules, "eth2").unwrap().remedy.unwrap(), "modprobe mlx5_ib");
}

#[test]
fn an_infiniband_controller_that_is_no_device_is_a_warning() {
    control(Check::Modules, "0000:03:00.0", Severity::Warn, "InfiniBand controller (mlx5_core)")
        .holds_after(|fake| {
            fake.remove("sys/class/infiniband/mlx5_0");
        });
}

#[test]
fn missing_libraries_fail_and_leave_tcp() {
    let lose = |fake: &mut Fake| fake.remove("usr/lib/x86_64-linux-gnu/librdmacm.so.1");
    control(Check::Libraries, "librdmacm.so.1", Severity::Fail, "not found").holds_after(lose);
    control(Check::Transport, "host", Severity::Fail, "librdmacm.so.1 is missing: tcp is used")
        .holds_after(lose);
}

#[test]
fn libraries_are_found_where_the_loader_is_told_to_look() {
    let fake = Fake::mlx5();
    let away = "usr/lib/x86_64-linux-gnu/libibverbs.so.1";
    fake.remove(away);
    assert!(fake.about(Check::Libraries, "libibverbs.so.1").is_some());
    fake.set("opt/rdma/lib/libibverbs.so.1", "");
    fake.set("etc/ld.so.conf.d/rdma.conf", "# ours\n/opt/rdma/lib");
    assert!(fake.about(Check::Libraries, "libibverbs.so.1").is_none());
}

#[test]
fn a_device_without_provider_is_a_warning() {
    let said = "no provider library libmlx5";
    for path in
        ["usr/lib/x86_64-linux-gnu/libibverbs/libmlx5-rdmav34.so", "etc/libibverbs.d/mlx5.driver"]
    {
        control(Check::Libraries, "mlx5_0", Severity::Warn, said)
            .holds_after(|fake| fake.remove(path));
    }
}

#[test]
fn a_device_that_libibverbs_does_not_list_is_a_warning() {
    control(Check::Libraries, "mlx5_1", Severity::Warn, "libibverbs doesn't list it")
        .holds_after(|fake| fake.listed = Some(Ok(vec!["mlx5_0"])));
    let fake = Fake { listed: Some(Ok(vec!["mlx5_0", "mlx5_1"])), ..Fake::mlx5() };
    assert_eq!(fake.about(Check::Libraries, "mlx5_1").unwrap().severity, Severity::Ok);
    control(Check::Transport, "host", Severity::Ok, "on 1 of 2 rails: mlx5_0/1")
        .holds_after(|fake| fake.listed = Some(Ok(vec!["mlx5_0"])));
    control(Check::Transport, "host", Severity::Fail, "libibverbs says: errno 13")
        .holds_after(|fake| fake.listed = Some(Err("errno 13")));
}

#[test]
fn a_missing_device_file_is_a_warning_and_a_failure_if_it_was_the_last() {
    control(Check::Access, "mlx5_1", Severity::Warn, "/dev/infiniband/uverbs1 is not there")
        .holds_after(|fake| fake.remove("dev/infiniband/uverbs1"));
    control(Check::Access, "mlx5_1", Severity::Fail, "is not there").holds_after(|fake| {
        fake.remove("dev/infiniband/uverbs0");
        fake.remove("dev/infiniband/uverbs1");
    });
}

#[test]
fn a_device_file_that_does_not_open_is_told_with_the_kernels_words() {
    // A folder can't be opened for writing by anybody, not even by root.
    control(Check::Access, "mlx5_0", Severity::Warn, "/dev/infiniband/uverbs0 does not open: ")
        .holds_after(|fake| {
            fake.remove("dev/infiniband/uverbs0");
            fake.set("dev/infiniband/uverbs0/x", "");
        });
    control(Check::Access, "rdma_cm", Severity::Fail, "rdma_cm does not open: ").holds_after(
        |fake| {
            fake.remove("dev/infiniband/rdma_cm");
            fake.set("dev/infiniband/rdma_cm/x", "");
        },
    );
}

#[test]
fn without_the_connection_manager_verbs_are_lost() {
    let lose = |fake: &mut Fake| fake.remove("dev/infiniband/rdma_cm");
    control(Check::Access, "rdma_cm", Severity::Fail, "is not there").holds_after(lose);
    control(Check::Transport, "host", Severity::Fail, "rdma_cm can't be opened").holds_after(lose);
}

fn pod() -> Fake {
    let fake = Fake::mlx5();
    fake.set("proc/self/cgroup", "0::/");
    fake.set("var/run/secrets/kubernetes.io/serviceaccount/token", "");
    fake
}

#[test]
fn a_container_without_device_files_is_told_of_the_device_plugin() {
    let control = Control {
        healthy: pod,
        check: Check::Container,
        subject: "container",
        severity: Severity::Fail,
        said: "0 of 2 RDMA devices",
    };
    control.holds_after(|fake| fake.remove("dev/infiniband"));
    let fake = pod();
    fake.remove("dev/infiniband");
    let remedy = fake.about(Check::Access, "mlx5_0").unwrap().remedy.unwrap();
    assert!(
        remedy.contains("device plugin") && remedy.contains("--device /dev/infiniband"),
        "{remedy}"
    );
}

#[test]
fn a_container_that_was_given_one_device_of_two_is_well() {
    let fake = pod();
    fake.remove("dev/infiniband/uverbs1");
    let found = fake.about(Check::Access, "mlx5_1").unwrap();
    assert_eq!(
        (found.severity, found.seen.contains("not given to this container")),
        (Severity::Ok, true)
    );
    assert_eq!(
        fake.about(Check::Transport, "host").unwrap().seen,
        "verbs can be used on 1 of 2 rails: mlx5_0/1"
    );
}

#[test]
fn containers_are_known_by_their_marks_and_hosts_are_not_taken_for_one() {
    let container = |change: fn(&Fake)| {
        let fake = Fake::mlx5();
        change(&fake);
        fake.about(Check::Container, "container").is_some()
    };
    assert!(!container(|_| {}));
    assert!(!container(|fake| fake.set("proc/self/cgroup", "0::/system.slice/docker.service")));
    assert!(container(|fake| fake.set(".dockerenv", "")));
    assert!(container(|fake| fake.set("run/.containerenv", "")));
    assert!(container(|fake| fake
        .set("proc/self/cgroup", "0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-1.scope")));
}
