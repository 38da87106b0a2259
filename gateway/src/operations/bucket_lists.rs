//! Asks stores which buckets they have: of each store, a gateway asks one question at a time. Whoever
//! lists buckets needs no right beyond being known, so it must not take the connections of others.
//!
//! A list that was asked for before a request came is no answer to it: a bucket may have been made in
//! between.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use http::Method;
use s3s::dto::{ListBucketsInput, Timestamp};
use tokio::sync::Mutex;
use tracing::warn;
use verbs3_ufs::{Ufs, s3_request};

/// The store's buckets, with their dates where it tells them.
pub(super) type StoreBuckets = HashMap<String, Option<Timestamp>>;

/// The questions to all stores of a gateway.
pub(crate) struct BucketLists {
    /// By the store's name. Who holds the lock asks; the others wait for it.
    stores: HashMap<String, Mutex<Option<BucketList>>>,
}

/// The latest answer of a store.
struct BucketList {
    asked: Instant,
    buckets: Arc<StoreBuckets>,
}

impl BucketLists {
    pub(crate) fn new<'a>(stores: impl IntoIterator<Item = &'a Ufs>) -> Self {
        let stores = stores.into_iter().map(|ufs| (ufs.ufs_name().to_owned(), Mutex::default()));
        Self { stores: stores.collect() }
    }

    /// Returns the buckets of a store, as new as if this call had asked for them. Empty, if the store
    /// does not tell.
    pub(super) async fn list_store(&self, ufs: &Ufs) -> Arc<StoreBuckets> {
        let came = Instant::now();
        let Some(latest) = self.stores.get(ufs.ufs_name()) else { return Arc::default() };
        let mut latest = latest.lock().await;
        if let Some(list) = latest.as_ref().filter(|list| list.asked >= came) {
            return list.buckets.clone();
        }
        let asked = Instant::now();
        let buckets = Arc::new(ask_store(ufs).await);
        *latest = Some(BucketList { asked, buckets: buckets.clone() });
        buckets
    }
}

async fn ask_store(ufs: &Ufs) -> StoreBuckets {
    let request = s3_request(Method::GET, ListBucketsInput::default());
    match ufs.s3_store().list_buckets(request).await {
        Ok(response) => {
            let buckets = response.output.buckets.unwrap_or_default();
            buckets
                .into_iter()
                .filter_map(|bucket| Some((bucket.name?, bucket.creation_date)))
                .collect()
        }
        Err(error) => {
            warn!(
                ufs = ufs.ufs_name(), %error,
                "the store does not list its buckets; their dates are unknown"
            );
            StoreBuckets::new()
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::atomic::{AtomicUsize, Ordering};

    use s3s::dto::{Bucket, ListBucketsOutput};
    use s3s::{S3, S3Request, S3Response, S3Result};
    use tokio::sync::Semaphore;
    use verbs3_ufs::UfsSettings;

    use super::*;

    /// A store with one bucket more at each question; answers wait for permits.
    #[derive(Default)]
    struct GrowingStore {
        asked: AtomicUsize,
        at_once: AtomicUsize,
        at_once_max: AtomicUsize,
        answers: Option<Arc<Semaphore>>,
    }

    struct SharedStore(Arc<GrowingStore>);

    #[async_trait::async_trait]
    impl S3 for SharedStore {
        async fn list_buckets(
            &self,
            _: S3Request<ListBucketsInput>,
        ) -> S3Result<S3Response<ListBucketsOutput>> {
            let store = &self.0;
            let number = store.asked.fetch_add(1, Ordering::SeqCst) + 1;
            let now = store.at_once.fetch_add(1, Ordering::SeqCst) + 1;
            store.at_once_max.fetch_max(now, Ordering::SeqCst);
            store.answers.as_ref().unwrap().acquire().await.unwrap().forget();
            store.at_once.fetch_sub(1, Ordering::SeqCst);
            let bucket = Bucket { name: Some(format!("bucket-{number}")), ..Bucket::default() };
            let output = ListBucketsOutput { buckets: Some(vec![bucket]), ..Default::default() };
            Ok(S3Response::new(output))
        }
    }

    #[tokio::test]
    async fn many_lists_share_two_questions_and_none_predates_its_request() {
        let answers = Arc::new(Semaphore::new(0));
        let store = Arc::new(GrowingStore { answers: Some(answers.clone()), ..Default::default() });
        let ufs = Ufs::new(Arc::new(SharedStore(store.clone())), UfsSettings::with_name("store"));
        let lists = Arc::new(BucketLists::new([&ufs]));
        let list = || {
            let (lists, ufs) = (lists.clone(), ufs.clone());
            tokio::spawn(async move { lists.list_store(&ufs).await })
        };
        let first = list();
        while store.asked.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        // They came after the first question was sent, and share the second.
        let later: Vec<_> = (0..50).map(|_| list()).collect();
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        answers.add_permits(10);
        assert!(first.await.unwrap().contains_key("bucket-1"));
        for one in later {
            assert!(one.await.unwrap().contains_key("bucket-2"));
        }
        assert!(list().await.unwrap().contains_key("bucket-3"));
        assert_eq!(store.at_once_max.load(Ordering::SeqCst), 1, "one at a time");
    }
}
