//! Learns whether the store answers: what its last requests show, and a question for that alone.

use std::time::{Duration, Instant};

use http::Method;
use s3s::dto::{HeadBucketInput, ListBucketsInput};

use super::{Ufs, s3_request};
use crate::error::NoAnswerCause;
use crate::store_reachability::StoreSilence;

impl Ufs {
    /// Returns the store's silence, if the last request of this process got no answer. An error is
    /// an answer.
    pub fn current_silence(&self) -> Option<StoreSilence> {
        self.shared.metered.current_silence()
    }

    /// Returns whether the store has answered any request of this process within this time.
    pub fn has_answered_within(&self, period: Duration) -> bool {
        self.shared.metered.has_answered_within(period)
    }

    /// Asks the store for the head of a bucket, or for the list of its buckets, to learn whether it
    /// answers. Takes `ufs.deadlines.first_byte` at most.
    pub async fn probe_store(&self, bucket: Option<&str>) {
        let (sent, deadline) = (Instant::now(), self.shared.settings.deadlines.first_byte.0);
        let s3 = &self.shared.s3;
        let asked = async {
            match bucket {
                Some(bucket) => {
                    let input = HeadBucketInput { bucket: bucket.to_owned(), ..Default::default() };
                    drop(s3.head_bucket(s3_request(Method::HEAD, input)).await);
                }
                None => {
                    let input = ListBucketsInput::default();
                    drop(s3.list_buckets(s3_request(Method::GET, input)).await);
                }
            }
        };
        if tokio::time::timeout(deadline, asked).await.is_err() {
            self.shared.metered.note_silence(sent, NoAnswerCause::FirstByte(deadline));
        }
    }
}
