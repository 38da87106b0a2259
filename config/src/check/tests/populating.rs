//! Populate on write, of mounts that can't have it.

use super::{BOTH, GOOD, broken, findings};

#[test]
fn only_a_mount_that_caches_and_writes_copies_its_writes() {
    let mount = |more: &str| format!("name = \"train\"\npopulate_on_write = \"on\"\n{more}");
    let untaken = "warning: worker.populate.staged_max: mount train copies its writes, and this worker \
                   takes none; give it memory for them";
    broken("name = \"train\"", &mount(""), &[untaken]);
    let taken =
        GOOD.replace("name = \"train\"", &mount("")) + "populate = { staged_max = \"1GiB\" }";
    assert_eq!(findings(&taken, BOTH), [""; 0]);
    broken(
        "name = \"train\"",
        &mount("cached = false"),
        &[
            "mount[0].populate_on_write: copies writes to workers, which keep nothing of a mount with \
         cached = false; set it to \"off\"",
            untaken,
        ],
    );
    broken(
        "name = \"train\"",
        &mount("read_only = true"),
        &[
            "mount[0].populate_on_write: copies writes, and read_only refuses them all; set it to \
             \"off\"",
            untaken,
        ],
    );
}
