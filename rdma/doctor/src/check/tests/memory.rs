//! Locked memory, limits, huge pages, NUMA.

use crate::check::{HostRequirements, format_bytes};
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

fn needs(gib: u64) -> HostRequirements {
    HostRequirements {
        arenas: vec![
            ("gateway.memory.capacity".to_owned(), 1 << 30),
            ("worker.memory.capacity".to_owned(), gib << 30),
        ],
        ..HostRequirements::default()
    }
}

fn memlock(soft: &'static str) -> impl Fn(&mut FakeHostTree) {
    move |fake| {
        fake.write_file("proc/self/limits", &format!("Max locked memory  {soft}  {soft}  bytes"))
    }
}

const WITH_IPC_LOCK: &str = "Name:\tverbs3\nCapEff:\t0000000000004000\nCpus_allowed_list:\t0-15";

#[test]
fn too_little_locked_memory_fails_and_leaves_tcp() {
    control(
        HostCheckKind::Memlock,
        "process",
        FindingSeverity::Fail,
        "RLIMIT_MEMLOCK 8 MiB, no CAP_IPC_LOCK",
    )
    .holds_after(|fake| memlock("8388608")(fake));
    control(
        HostCheckKind::Transport,
        "host",
        FindingSeverity::Fail,
        "can't be registered (memlock): tcp is used",
    )
    .holds_after(|fake| memlock("65536")(fake));
}

#[test]
fn locked_memory_is_checked_against_the_configured_arena() {
    let severity = |bytes: &'static str, gib| {
        let mut fake = FakeHostTree::mlx5_host();
        memlock(bytes)(&mut fake);
        fake.needs = needs(gib);
        fake.worst_finding(HostCheckKind::Memlock, "process").unwrap().severity
    };
    // 16 GiB, for two rails.
    assert_eq!(severity("17179869184", 4), FindingSeverity::Ok);
    assert_eq!(
        severity("17179869184", 8),
        FindingSeverity::Fail,
        "nothing would be left for queues"
    );
}

#[test]
fn locked_memory_counts_once_for_each_rail() {
    let severity = |rails: usize| {
        let mut fake = FakeHostTree::mlx5_host();
        // 12 GiB.
        memlock("12884901888")(&mut fake);
        fake.needs = needs(8);
        if rails == 1 {
            fake.addresses.remove("ib0");
        }
        fake.worst_finding(HostCheckKind::Memlock, "process").unwrap().severity
    };
    assert_eq!(severity(1), FindingSeverity::Ok);
    assert_eq!(severity(2), FindingSeverity::Fail);
}

#[test]
fn ipc_lock_overrides_the_limit() {
    let mut fake = FakeHostTree::mlx5_host();
    memlock("65536")(&mut fake);
    fake.write_file("proc/self/status", WITH_IPC_LOCK);
    assert_eq!(
        fake.worst_finding(HostCheckKind::Memlock, "process").unwrap().severity,
        FindingSeverity::Ok
    );
    assert_eq!(
        fake.worst_finding(HostCheckKind::Transport, "host").unwrap().severity,
        FindingSeverity::Ok
    );
}

#[test]
fn a_host_without_rdma_needs_no_locked_memory() {
    assert!(FakeHostTree::bare_host().worst_finding(HostCheckKind::Memlock, "process").is_none());
}

const SLICE: &str = "sys/fs/cgroup/system.slice/memory.max";
const UNIT: &str = "sys/fs/cgroup/system.slice/verbs3@worker.service/memory.max";

#[test]
fn an_arena_that_fills_the_cgroup_fails_and_a_tight_one_warns() {
    // 66 GiB.
    let limited = |gib| {
        move |fake: &mut FakeHostTree| {
            fake.write_file(UNIT, "70866960384");
            fake.needs = needs(gib);
        }
    };
    let said = "limit 66 GiB (/sys/fs/cgroup/system.slice/verbs3@worker.service/memory.max); \
        worker.memory.capacity is 66 GiB";
    control(HostCheckKind::MemoryLimit, "cgroup", FindingSeverity::Fail, said)
        .holds_after(limited(66));
    control(
        HostCheckKind::MemoryLimit,
        "cgroup",
        FindingSeverity::Ok,
        "worker.memory.capacity is 65 GiB",
    )
    .holds_after(limited(65));
    control(HostCheckKind::MemoryLimit, "cgroup", FindingSeverity::Warn, "").holds_after(|fake| {
        fake.write_file(UNIT, &((66u64 << 30) + (255 << 20)).to_string());
        fake.needs = needs(66);
    });
}

#[test]
fn a_limit_of_an_outer_cgroup_counts() {
    control(
        HostCheckKind::MemoryLimit,
        "cgroup",
        FindingSeverity::Fail,
        "limit 4 GiB (/sys/fs/cgroup/system.slice/memory.max)",
    )
    .holds_after(|fake| {
        fake.write_file(SLICE, "4294967296");
        fake.write_file(UNIT, "8589934592");
        fake.needs = needs(6);
    });
}

#[test]
fn a_limit_of_cgroups_version_1_counts_and_its_no_limit_is_none() {
    let version_1 = |bytes: &str| {
        let fake = FakeHostTree { needs: needs(6), ..FakeHostTree::mlx5_host() };
        fake.write_file("proc/self/cgroup", "5:cpu,cpuacct:/a\n4:memory:/a/b");
        fake.write_file("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712");
        fake.write_file("sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", bytes);
        fake.worst_finding(HostCheckKind::MemoryLimit, "cgroup").map(|finding| finding.severity)
    };
    assert_eq!(version_1("4294967296"), Some(FindingSeverity::Fail));
    assert_eq!(version_1("9223372036854771712"), None);
}

#[test]
fn inside_a_container_the_mounts_root_has_the_limit() {
    let fake = FakeHostTree { needs: needs(6), ..FakeHostTree::mlx5_host() };
    // The host's path, where no cgroup namespace hides it.
    fake.write_file("proc/self/cgroup", "0::/kubepods.slice/pod1/container1");
    fake.write_file("sys/fs/cgroup/memory.max", "2147483648");
    assert_eq!(
        fake.worst_finding(HostCheckKind::MemoryLimit, "cgroup").unwrap().severity,
        FindingSeverity::Fail
    );
}

#[test]
fn an_arena_larger_than_the_host_fails() {
    control(
        HostCheckKind::MemoryLimit,
        "host",
        FindingSeverity::Fail,
        "worker.memory.capacity is 1 TiB",
    )
    .holds_after(|fake| fake.needs = needs(1024));
}

#[test]
fn a_limit_without_configuration_is_explained() {
    let fake = FakeHostTree::mlx5_host();
    fake.write_file(UNIT, "70866960384");
    let found = fake.worst_finding(HostCheckKind::MemoryLimit, "cgroup").unwrap();
    assert_eq!(found.severity, FindingSeverity::Ok);
    assert!(
        found.why.contains("counts against the limit") && found.why.contains("--config FILE"),
        "{found:?}"
    );
}

const RDMA_UNIT: &str = "sys/fs/cgroup/system.slice/verbs3@worker.service/rdma.max";

#[test]
fn a_cgroup_that_bounds_a_device_warns_and_names_its_file() {
    let warns = |said| control(HostCheckKind::RdmaLimit, "mlx5_0", FindingSeverity::Warn, said);
    warns("hca_object 2000 (/sys/fs/cgroup/system.slice/verbs3@worker.service/rdma.max)")
        .holds_after(|fake| fake.write_file(RDMA_UNIT, "mlx5_0 hca_handle=max hca_object=2000"));
    // A bound of an outer cgroup holds, too.
    warns("hca_handle 1 (/sys/fs/cgroup/system.slice/rdma.max)").holds_after(|fake| {
        let outer = "mlx5_1 hca_handle=max hca_object=max\nmlx5_0 hca_handle=1 hca_object=max";
        fake.write_file("sys/fs/cgroup/system.slice/rdma.max", outer);
        fake.write_file(RDMA_UNIT, "mlx5_0 hca_handle=8 hca_object=max");
    });
    warns("hca_object 100 (/sys/fs/cgroup/rdma/a/rdma.max)").holds_after(|fake| {
        fake.write_file("proc/self/cgroup", "4:memory:/a\n5:rdma:/a");
        fake.write_file("sys/fs/cgroup/rdma/a/rdma.max", "mlx5_0 hca_handle=max hca_object=100");
    });
}

#[test]
fn a_cgroup_that_leaves_a_device_enough_is_fine() {
    let severity = |text: &str| {
        let fake = FakeHostTree::mlx5_host();
        fake.write_file(RDMA_UNIT, text);
        fake.worst_finding(HostCheckKind::RdmaLimit, "mlx5_0").map(|finding| finding.severity)
    };
    assert_eq!(severity("mlx5_0 hca_handle=max hca_object=max"), None);
    assert_eq!(severity("mlx4_9 hca_handle=1 hca_object=1"), None, "no device of this host");
    assert_eq!(severity("mlx5_0 hca_handle=2 hca_object=16448"), Some(FindingSeverity::Ok));
    assert_eq!(severity("mlx5_0 hca_handle=2 hca_object=16447"), Some(FindingSeverity::Warn));
}

#[test]
fn an_arena_without_huge_pages_warns_where_there_is_a_nic() {
    let never = "always within_size advise [never] deny force";
    let shmem = "sys/kernel/mm/transparent_hugepage/shmem_enabled";
    let warns = |said| control(HostCheckKind::HugePages, "host", FindingSeverity::Warn, said);
    // The healthy host has free pages of hugetlbfs, which a memfd can't use.
    warns("transparent for shared memory: never; 1024 free of 1024 × 2 MiB, which no arena uses")
        .holds_after(|fake| fake.write_file(shmem, never));
    let fake = FakeHostTree::mlx5_host();
    fake.write_file(shmem, never);
    let found = fake.worst_finding(HostCheckKind::HugePages, "host").unwrap();
    assert!(
        found.why.contains("shmem_enabled") && found.remedy.unwrap().contains("shmem_enabled"),
        "the setting is named"
    );
    let advised = FakeHostTree::mlx5_host();
    advised.write_file("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "0");
    advised.write_file(shmem, "always within_size [advise] never deny force");
    assert_eq!(
        advised.worst_finding(HostCheckKind::HugePages, "host").unwrap().severity,
        FindingSeverity::Ok,
        "transparent pages are enough"
    );
    let bare = FakeHostTree::bare_host().worst_finding(HostCheckKind::HugePages, "host").unwrap();
    assert_eq!(
        (bare.severity, bare.remedy.is_some()),
        (FindingSeverity::Ok, true),
        "advice, where no NIC suffers"
    );
}

#[test]
fn a_process_kept_away_from_its_nic_is_a_warning() {
    let status = |cpus: &str| format!("Name:\tverbs3\nCapEff:\t0\nCpus_allowed_list:\t{cpus}");
    control(
        HostCheckKind::Numa,
        "mlx5_1",
        FindingSeverity::Warn,
        "on NUMA node 1 (CPUs 8-15); this process may run on CPUs 0-3,6",
    )
    .holds_after(|fake| fake.write_file("proc/self/status", &status("0-3,6")));
    let near = FakeHostTree::mlx5_host();
    near.write_file("proc/self/status", &status("0-3,6"));
    assert_eq!(
        near.worst_finding(HostCheckKind::Numa, "mlx5_0").unwrap().severity,
        FindingSeverity::Ok
    );
    near.write_file("sys/devices/pci0/0000:03:00.0/numa_node", "-1");
    assert!(near.worst_finding(HostCheckKind::Numa, "mlx5_0").is_none(), "the kernel doesn't know");
    assert!(
        FakeHostTree::soft_roce_host().worst_finding(HostCheckKind::Numa, "rxe0").is_none(),
        "one node"
    );
}

#[test]
fn sizes_are_written_as_people_do() {
    let written = [0, 512, 65_536, 8 << 20, 3 << 29, 64 << 30, 1 << 40].map(format_bytes);
    assert_eq!(written, ["0 B", "512 B", "64 KiB", "8 MiB", "1.5 GiB", "64 GiB", "1 TiB"]);
}
