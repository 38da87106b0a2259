//! The embedded store against the conformance cases.
#![allow(clippy::unwrap_used)]

mod store_conformance;

use s3s::S3;
use verbs3_ufs::local::{LocalOptions, LocalStore};

/// A store in a folder that goes with it.
struct Fresh {
    store: LocalStore,
    _folder: tempfile::TempDir,
}

impl Fresh {
    async fn open() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = LocalOptions { sync: false, ..LocalOptions::new(folder.path()) };
        Fresh { store: LocalStore::open_store(options).unwrap(), _folder: folder }
    }

    fn store(&self) -> &dyn S3 {
        &self.store
    }
}

store_conformance::all_cases!(crate::Fresh::open);
