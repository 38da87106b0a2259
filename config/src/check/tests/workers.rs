//! Problems of `[worker]`.

use super::*;

#[test]
fn worker_problems() {
    broken_by(
        "[worker]",
        "listen = \"0.0.0.0:9500\"",
        &["warning: worker.listen: listens on port 9500, but cluster.workers sends gateways to \
            10.0.0.1:9400; right only if something forwards it"],
    );
    broken_by(
        "[worker]",
        "admin_listen = \"0.0.0.0:9400\"",
        &["worker.admin_listen: 0.0.0.0:9400 is worker.listen too; give it another port"],
    );
    broken_by(
        "[worker]",
        "fill = { request_max = \"128KiB\" }",
        &["worker.fill.request_max: 128KiB is less than one page (cluster.page is 256KiB)"],
    );
    for part in ["12KiB", "2KiB"] {
        broken_by(
            "[worker]",
            &format!("fill = {{ part = \"{part}\" }}"),
            &[&format!(
                "worker.fill.part: {part} is not a power of two from 4KiB on; \"0B\" fills whole \
                    pages"
            )],
        );
    }
    let small_pages = GOOD
        .replacen("[worker]", "[worker]\nfill = { part = \"64KiB\" }", 1)
        .replacen("[cluster]", "[cluster]\npage = \"64KiB\"", 1);
    assert_eq!(
        findings(&small_pages, BOTH),
        ["warning: worker.fill.part: 64KiB is no less than a page (cluster.page is 64KiB): of no \
            effect"]
    );
    broken_by(
        "[worker]",
        "fill = { reserve = 0.95 }",
        &["worker.fill.reserve: 0.95 is not between 0 and 0.9"],
    );
}

#[test]
fn folders_and_volumes_of_the_disk_tier_are_checked_each() {
    let disk = r#"
[[worker.disk.folders]]
path = "/mnt/a"
capacity = "1MiB"
[[worker.disk.folders]]
path = "/mnt/a"
[[worker.disk.folders]]
[[worker.disk.volumes]]
volume = "ceph"
[[worker.disk.volumes]]
volume = "ceph/scratch"
[[worker.disk.volumes]]
volume = "ceph/scratch"
"#;
    let found = findings(&format!("{GOOD}{disk}"), &[ProcessRole::Worker]);
    for wanted in [
        "worker.disk.folders[0].capacity: 1MiB is not between 16MiB and 1024TiB",
        "worker.disk.folders[1].path: /mnt/a is worker.disk.folders[0] too",
        "worker.disk.folders[2].path: is missing; name a folder on a local drive",
        "worker.disk.volumes[0].volume: \"ceph\" is not the name of a UFS, a slash and a bucket",
        "worker.disk.volumes[2].volume: \"ceph/scratch\" is worker.disk.volumes[1] too",
    ] {
        assert!(found.iter().any(|line| line.contains(wanted)), "{wanted} in {found:#?}");
    }
    let found =
        findings(&format!("{GOOD}[dev]\nworkers = 4\ndisk = \"32MiB\"\n"), &[ProcessRole::Worker]);
    assert!(
        found.iter().any(|line| line.contains("dev.disk: 32MiB is too small for 4 workers")),
        "{found:#?}"
    );
}
