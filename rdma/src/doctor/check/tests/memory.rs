//! Locked memory, limits, huge pages, NUMA.

use crate::doctor::check::{Needs, size};
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

fn needs(gib: u64) -> Needs {
    Needs {
        arenas: vec![
            ("gateway.memory.capacity".to_owned(), 1 << 30),
            ("worker.memory.capacity".to_owned(), gib << 30),
        ],
    }
}

fn memlock(soft: &'static str) -> impl Fn(&mut Fake) {
    move |fake| fake.set("proc/self/limits", &format!("Max locked memory  {soft}  {soft}  bytes"))
}

const WITH_IPC_LOCK: &str = "Name:\tverbs3\nCapEff:\t0000000000004000\nCpus_allowed_list:\t0-15";

#[test]
fn too_little_locked_memory_fails_and_leaves_tcp() {
    control(Check::Memlock, "process", Severity::Fail, "RLIMIT_MEMLOCK 8 MiB, no CAP_IPC_LOCK")
        .holds_after(|fake| memlock("8388608")(fake));
    control(Check::Transport, "host", Severity::Fail, "can't be registered (memlock): tcp is used")
        .holds_after(|fake| memlock("65536")(fake));
}

#[test]
fn the_arena_of_the_configuration_is_what_locked_memory_is_held_against() {
    let severity = |bytes: &'static str, gib| {
        let mut fake = Fake::mlx5();
        memlock(bytes)(&mut fake);
        fake.needs = needs(gib);
        fake.about(Check::Memlock, "process").unwrap().severity
    };
    // 8 GiB.
    assert_eq!(severity("8589934592", 4), Severity::Ok);
    assert_eq!(severity("8589934592", 8), Severity::Fail, "nothing would be left for queues");
}

#[test]
fn ipc_lock_overrides_the_limit() {
    let mut fake = Fake::mlx5();
    memlock("65536")(&mut fake);
    fake.set("proc/self/status", WITH_IPC_LOCK);
    assert_eq!(fake.about(Check::Memlock, "process").unwrap().severity, Severity::Ok);
    assert_eq!(fake.about(Check::Transport, "host").unwrap().severity, Severity::Ok);
}

#[test]
fn a_host_without_rdma_needs_no_locked_memory() {
    assert!(Fake::bare().about(Check::Memlock, "process").is_none());
}

const SLICE: &str = "sys/fs/cgroup/system.slice/memory.max";
const UNIT: &str = "sys/fs/cgroup/system.slice/verbs3@worker.service/memory.max";

#[test]
fn an_arena_that_fills_the_cgroup_fails_and_a_tight_one_warns() {
    // 66 GiB.
    let limited = |gib| {
        move |fake: &mut Fake| {
            fake.set(UNIT, "70866960384");
            fake.needs = needs(gib);
        }
    };
    let said = "limit 66 GiB (/sys/fs/cgroup/system.slice/verbs3@worker.service/memory.max); \
        worker.memory.capacity is 66 GiB";
    control(Check::MemoryLimit, "cgroup", Severity::Fail, said).holds_after(limited(66));
    control(Check::MemoryLimit, "cgroup", Severity::Ok, "worker.memory.capacity is 65 GiB")
        .holds_after(limited(65));
    control(Check::MemoryLimit, "cgroup", Severity::Warn, "").holds_after(|fake| {
        fake.set(UNIT, &((66u64 << 30) + (255 << 20)).to_string());
        fake.needs = needs(66);
    });
}

#[test]
fn a_limit_of_an_outer_cgroup_counts() {
    control(
        Check::MemoryLimit,
        "cgroup",
        Severity::Fail,
        "limit 4 GiB (/sys/fs/cgroup/system.slice/memory.max)",
    )
    .holds_after(|fake| {
        fake.set(SLICE, "4294967296");
        fake.set(UNIT, "8589934592");
        fake.needs = needs(6);
    });
}

#[test]
fn a_limit_of_cgroups_version_1_counts_and_its_no_limit_is_none() {
    let version_1 = |bytes: &str| {
        let fake = Fake { needs: needs(6), ..Fake::mlx5() };
        fake.set("proc/self/cgroup", "5:cpu,cpuacct:/a\n4:memory:/a/b");
        fake.set("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712");
        fake.set("sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", bytes);
        fake.about(Check::MemoryLimit, "cgroup").map(|finding| finding.severity)
    };
    assert_eq!(version_1("4294967296"), Some(Severity::Fail));
    assert_eq!(version_1("9223372036854771712"), None);
}

#[test]
fn inside_a_container_the_mounts_root_has_the_limit() {
    let fake = Fake { needs: needs(6), ..Fake::mlx5() };
    // The host's path, where no cgroup namespace hides it.
    fake.set("proc/self/cgroup", "0::/kubepods.slice/pod1/container1");
    fake.set("sys/fs/cgroup/memory.max", "2147483648");
    assert_eq!(fake.about(Check::MemoryLimit, "cgroup").unwrap().severity, Severity::Fail);
}

#[test]
fn an_arena_larger_than_the_host_fails() {
    control(Check::MemoryLimit, "host", Severity::Fail, "worker.memory.capacity is 1 TiB")
        .holds_after(|fake| fake.needs = needs(1024));
}

#[test]
fn a_limit_without_configuration_is_explained() {
    let fake = Fake::mlx5();
    fake.set(UNIT, "70866960384");
    let found = fake.about(Check::MemoryLimit, "cgroup").unwrap();
    assert_eq!(found.severity, Severity::Ok);
    assert!(
        found.why.contains("counts against the limit") && found.why.contains("--config FILE"),
        "{found:?}"
    );
}

#[test]
fn no_huge_page_of_any_kind_is_a_warning_where_there_is_a_nic() {
    let pool = "sys/kernel/mm/hugepages/hugepages-2048kB";
    let never = "always within_size advise [never] deny force";
    let shmem = "sys/kernel/mm/transparent_hugepage/shmem_enabled";
    control(
        Check::HugePages,
        "host",
        Severity::Warn,
        "0 free of 1024 × 2 MiB; transparent for shared memory: never",
    )
    .holds_after(|fake| {
        fake.set(&format!("{pool}/free_hugepages"), "0");
        fake.set(shmem, never);
    });
    let pages = Fake::mlx5();
    pages.set(shmem, never);
    assert_eq!(
        pages.about(Check::HugePages, "host").unwrap().severity,
        Severity::Ok,
        "pages are free"
    );
    let bare = Fake::bare().about(Check::HugePages, "host").unwrap();
    assert_eq!(
        (bare.severity, bare.remedy.is_some()),
        (Severity::Ok, true),
        "advice, where no NIC suffers"
    );
}

#[test]
fn a_process_kept_away_from_its_nic_is_a_warning() {
    let status = |cpus: &str| format!("Name:\tverbs3\nCapEff:\t0\nCpus_allowed_list:\t{cpus}");
    control(
        Check::Numa,
        "mlx5_1",
        Severity::Warn,
        "on NUMA node 1 (CPUs 8-15); this process may run on CPUs 0-3,6",
    )
    .holds_after(|fake| fake.set("proc/self/status", &status("0-3,6")));
    let near = Fake::mlx5();
    near.set("proc/self/status", &status("0-3,6"));
    assert_eq!(near.about(Check::Numa, "mlx5_0").unwrap().severity, Severity::Ok);
    near.set("sys/devices/pci0/0000:03:00.0/numa_node", "-1");
    assert!(near.about(Check::Numa, "mlx5_0").is_none(), "the kernel doesn't know");
    assert!(Fake::rxe().about(Check::Numa, "rxe0").is_none(), "one node");
}

#[test]
fn sizes_are_written_as_people_do() {
    let written = [0, 512, 65_536, 8 << 20, 3 << 29, 64 << 30, 1 << 40].map(size);
    assert_eq!(written, ["0 B", "512 B", "64 KiB", "8 MiB", "1.5 GiB", "64 GiB", "1 TiB"]);
}
