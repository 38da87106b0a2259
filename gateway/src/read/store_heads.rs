//! Asks stores for the attributes of objects whose homes can't say what they are. Of one object, a
//! gateway asks one question at a time.
//!
//! A read joins a question only if it was not sent yet when the read came. So its answer is as new
//! as that of a question of the read's own.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use parking_lot::Mutex;
use tokio::time::timeout;
use verbs3_protocol::{AnswerHeaders, HeadAttributes, ObjectKey, StatedVersion};
use verbs3_ufs::ObjectHead;

/// What a question is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct HeadSubject {
    pub(super) object: Arc<ObjectKey>,
    pub(super) version_id: Option<String>,
    pub(super) checksums: bool,
}

/// The attributes, or why there are none by which bytes can be asked of the tier.
pub(super) type HeadAnswer = Result<Arc<HeadAttributes>, HeadMiss>;

/// Why a question has brought no attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HeadMiss {
    /// The tenant that asked had no place for it. Others may have one.
    NoPlace,
    /// The store names no version that the tier could have, or did not answer.
    NoVersion,
}

/// Longest wait for the question before. A later one may be sent beside it: waiting only saves
/// questions.
const TURN_MAX: Duration = Duration::from_secs(2);

/// The questions of all reads.
#[derive(Default)]
pub(super) struct StoreHeads {
    latest: Mutex<HashMap<HeadSubject, HeadQuestion>>,
}

/// The latest question about one object.
struct HeadQuestion {
    answer: Shared<BoxFuture<'static, HeadAnswer>>,
    is_sent: Arc<AtomicBool>,
    /// Reads that wait for it.
    waiters: usize,
}

/// A read that waits for an answer. The last one takes the question out of the table.
struct HeadWait<'a> {
    heads: &'a StoreHeads,
    subject: HeadSubject,
    /// Names the question.
    is_sent: Arc<AtomicBool>,
}

impl StoreHeads {
    /// Returns the answer of `call`, or of a question that another read has not sent yet. `call` is
    /// first polled when the question before it has been answered, or has taken long.
    pub(super) async fn ask_head(
        &self,
        subject: HeadSubject,
        call: impl Future<Output = HeadAnswer> + Send + 'static,
    ) -> HeadAnswer {
        let (answer, is_sent) = self.join_question(&subject, call);
        let _wait = HeadWait { heads: self, subject, is_sent };
        answer.await
    }

    fn join_question(
        &self,
        subject: &HeadSubject,
        call: impl Future<Output = HeadAnswer> + Send + 'static,
    ) -> (Shared<BoxFuture<'static, HeadAnswer>>, Arc<AtomicBool>) {
        let mut latest = self.latest.lock();
        let known = latest.get_mut(subject);
        let before = match known {
            Some(question) if !question.is_sent.load(Ordering::SeqCst) => {
                question.waiters += 1;
                return (question.answer.clone(), question.is_sent.clone());
            }
            Some(question) => Some(question.answer.clone()),
            None => None,
        };
        let is_sent = Arc::new(AtomicBool::new(false));
        let sends = is_sent.clone();
        let answer = async move {
            if let Some(before) = before {
                let _ = timeout(TURN_MAX, before).await;
            }
            sends.store(true, Ordering::SeqCst);
            call.await
        };
        let answer = answer.boxed().shared();
        let question =
            HeadQuestion { answer: answer.clone(), is_sent: is_sent.clone(), waiters: 1 };
        latest.insert(subject.clone(), question);
        (answer, is_sent)
    }
}

impl Drop for HeadWait<'_> {
    fn drop(&mut self) {
        let mut latest = self.heads.latest.lock();
        // A later question has readers of its own.
        let Some(question) = latest.get_mut(&self.subject) else { return };
        if !Arc::ptr_eq(&question.is_sent, &self.is_sent) {
            return;
        }
        question.waiters -= 1;
        if question.waiters == 0 {
            latest.remove(&self.subject);
        }
    }
}

/// Returns the attributes that a store's answer to HEAD has. `None`: they name no version that the
/// tier could have.
pub(super) fn read_attributes(
    head: ObjectHead,
    subject: &HeadSubject,
) -> Option<Arc<HeadAttributes>> {
    let stated = StatedVersion {
        etag: head.etag.as_deref(),
        bytes: head.bytes,
        version_id: head.version_id.as_deref(),
        has_client_key: head.has_client_key(),
    };
    let version = stated.cacheable_version(subject.version_id.as_deref()).ok()?;
    let fields = head.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
    Some(Arc::new(HeadAttributes {
        version,
        last_modified: head.last_modified,
        headers: AnswerHeaders::copy_fields(fields),
        checksums_known: subject.checksums,
    }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::atomic::AtomicUsize;

    use http::HeaderMap;
    use tokio::sync::Semaphore;
    use verbs3_protocol::ObjectVolume;

    use super::*;

    fn subject(key: &str) -> HeadSubject {
        let object = ObjectKey { volume: ObjectVolume::new("store", "train"), key: key.into() };
        HeadSubject { object: Arc::new(object), version_id: None, checksums: false }
    }

    fn head(etag: &str, version_id: Option<&str>) -> ObjectHead {
        ObjectHead {
            etag: Some(etag.into()),
            bytes: 5,
            version_id: version_id.map(Into::into),
            last_modified: Some(1),
            headers: HeaderMap::new(),
        }
    }

    #[tokio::test]
    async fn reads_join_a_question_that_is_not_sent_and_no_other() {
        let heads = Arc::new(StoreHeads::default());
        let (sent, answers) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
        let ask = || {
            let (heads, sent, answers) = (heads.clone(), sent.clone(), answers.clone());
            tokio::spawn(async move {
                let call = async move {
                    let number = sent.fetch_add(1, Ordering::SeqCst) + 1;
                    answers.acquire().await.unwrap().forget();
                    let head = head(&format!("\"{number}\""), None);
                    read_attributes(head, &subject("k")).ok_or(HeadMiss::NoVersion)
                };
                heads.ask_head(subject("k"), call).await.unwrap().version.etag.clone()
            })
        };
        let settle = async || {
            for _ in 0..50 {
                tokio::task::yield_now().await;
            }
        };
        let first = ask();
        settle().await;
        // They came after the first was sent, and share the second.
        let later: Vec<_> = (0..5).map(|_| ask()).collect();
        settle().await;
        assert_eq!(sent.load(Ordering::SeqCst), 1, "one at a time");
        answers.add_permits(1);
        assert_eq!(first.await.unwrap(), "\"1\"");
        settle().await;
        let last = ask();
        settle().await;
        answers.add_permits(2);
        for one in later {
            assert_eq!(one.await.unwrap(), "\"2\"");
        }
        assert_eq!(last.await.unwrap(), "\"3\"");
        assert!(heads.latest.lock().is_empty());
    }

    #[tokio::test]
    async fn a_read_that_goes_away_leaves_the_question_to_others() {
        let heads = StoreHeads::default();
        let answer = || async {
            read_attributes(head("\"x\"", None), &subject("k")).ok_or(HeadMiss::NoVersion)
        };
        let silent = heads.ask_head(subject("k"), std::future::pending());
        let mut gone = Box::pin(silent);
        assert!(futures::poll!(&mut gone).is_pending());
        drop(gone);
        assert!(heads.latest.lock().is_empty());
        assert!(heads.ask_head(subject("k"), answer()).await.is_ok());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn readers_that_wake_together_leave_no_question_behind() {
        let heads = Arc::new(StoreHeads::default());
        for _ in 0..200 {
            let readers: Vec<_> = (0..20)
                .map(|_| {
                    let heads = heads.clone();
                    let call = async {
                        tokio::task::yield_now().await;
                        Err(HeadMiss::NoVersion)
                    };
                    tokio::spawn(async move { heads.ask_head(subject("k"), call).await })
                })
                .collect();
            for reader in readers {
                assert_eq!(reader.await.unwrap(), Err(HeadMiss::NoVersion));
            }
            assert!(heads.latest.lock().is_empty());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_that_hangs_holds_up_none_for_long() {
        let heads = StoreHeads::default();
        let mut hung = Box::pin(heads.ask_head(subject("k"), std::future::pending()));
        assert!(futures::poll!(&mut hung).is_pending());
        let next = heads.ask_head(subject("k"), async { Err(HeadMiss::NoPlace) });
        assert_eq!(next.await, Err(HeadMiss::NoPlace));
        drop(hung);
        assert!(heads.latest.lock().is_empty());
    }

    #[test]
    fn only_a_version_that_the_tier_could_have_is_read_from_it() {
        let named = HeadSubject { version_id: Some("v".into()), ..subject("k") };
        assert!(read_attributes(head("\"x\"", Some("v")), &named).is_some());
        assert!(read_attributes(head("\"x\"", None), &named).is_none());
        assert!(read_attributes(head("W/\"x\"", None), &subject("k")).is_none());
        let null = read_attributes(head("\"x\"", Some("null")), &subject("k")).unwrap();
        assert_eq!(null.version.version_id, None);
        let mut secret = head("\"x\"", None);
        let name = "x-amz-server-side-encryption-customer-algorithm";
        secret.headers.insert(name, http::HeaderValue::from_static("AES256"));
        assert!(read_attributes(secret, &subject("k")).is_none());
    }
}
