//! The S3 client against the conformance cases: over loopback, in front of the embedded store.
#![allow(clippy::unwrap_used)]

mod loopback;
mod store_conformance;

use std::sync::Arc;

use loopback::Server;
use s3s::S3;
use verbs3_ufs::local::{LocalOptions, LocalStore};

/// A client of a store in a folder that goes with it.
struct Fresh {
    client: Arc<dyn S3>,
    _server: Server,
    _folder: tempfile::TempDir,
}

impl Fresh {
    async fn open() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = LocalOptions { sync: false, ..LocalOptions::new(folder.path()) };
        let server = Server::over(LocalStore::open_store(options).unwrap()).await;
        Fresh { client: server.client().await, _server: server, _folder: folder }
    }

    fn store(&self) -> &dyn S3 {
        self.client.as_ref()
    }
}

const EXCEPTIONS: &[store_conformance::Exception] = &[
    (
        "objects::a_wrong_digest_stores_nothing",
        "it ends with a promised trailing checksum, which whoever has the client's trailers must check: a store behind HTTP \
         never sees them",
    ),
    (
        "objects::awkward_keys_are_kept_apart",
        "it lists keys that XML can't carry without encoding-type=url, and the SDK's parser \
        refuses such a listing",
    ),
    (
        "buckets::operations_on_an_absent_bucket_say_no_such_bucket",
        "it asks for a code of a HEAD, whose 404 says not what is absent",
    ),
    (
        "objects::ranges_are_cut_as_rfc_9110_says",
        "it wants 206 of a HEAD, which the s3s server of this test can not send",
    ),
];

store_conformance::all_cases!(crate::Fresh::open, crate::EXCEPTIONS);
