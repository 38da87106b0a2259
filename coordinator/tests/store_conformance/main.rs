//! Tests what every store does, with both of them: a folder, and a real etcd process.
#![allow(clippy::unwrap_used)]

mod cases;
mod crash;
mod etcd;
mod interrupted;
mod secured;

use std::path::Path;
use std::sync::Arc;

use verbs3_coordinator::store::SharedClusterStore;
use verbs3_coordinator::store::file::FileStore;

/// Two participants of one store, as two coordinators are.
pub struct Pair {
    pub one: SharedClusterStore,
    pub other: SharedClusterStore,
}

fn in_folder(folder: &Path) -> Pair {
    let store: SharedClusterStore = Arc::new(FileStore::open_folder(folder).unwrap());
    // A folder has one process: its participants share the handle.
    Pair { one: store.clone(), other: store }
}

macro_rules! conform {
    ($($case:ident),+ $(,)?) => {
        mod folder_store {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                let folder = tempfile::tempdir().unwrap();
                super::cases::$case(super::in_folder(folder.path())).await;
            })+
        }

        mod etcd_store {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                super::cases::$case(super::etcd::pair(stringify!($case)).await).await;
            })+
        }
    };
}

conform!(
    what_was_put_is_got,
    lists_are_of_a_prefix_and_in_order,
    a_write_that_expects_something_else_changes_nothing,
    revisions_never_repeat,
    of_many_that_swap_at_once_one_wins,
    a_watch_tells_of_changes_below_its_prefix_alone,
    there_is_one_leader,
    a_deposed_leader_can_not_write,
    who_resigns_is_followed_at_once,
    keys_and_values_have_bounds,
    a_list_of_many_megabytes_comes_whole,
);
