//! Asks for many objects by lists of HEADs: a few submissions for a thousand names.

use std::sync::Arc;

use verbs3_lending_protocol::{
    AnswerHead, HeadDetail, HeadProblem, LentHeadList, decode_heads, decode_statuses,
};

use crate::client_options::ClientLendingError;
use crate::lending_client::LendingClient;

/// How long a head is taken to be. A list whose heads are longer takes a second try.
const HEAD_BYTES: u64 = 1024;
/// Length of a status, and of the number of its name.
const STATUS_BYTES: u64 = 3;

/// The place of a list's names among all that were asked for.
struct ListedNames {
    first: usize,
    count: usize,
}

impl LendingClient {
    /// Asks for objects, as `(bucket, key)`, by HEAD. Returns the status of each, in their order.
    /// `poll` is asked a few times a second whether to go on.
    pub fn head_statuses<E: From<ClientLendingError>>(
        self: &Arc<Self>,
        objects: &[(String, String)],
        poll: impl FnMut() -> Result<(), E>,
    ) -> Result<Vec<u16>, E> {
        self.ask_lists(objects, HeadDetail::Status, decode_statuses, poll)
    }

    /// Asks for objects, as `(bucket, key)`, by HEAD. Returns status and headers of each, in their
    /// order.
    pub fn head_objects<E: From<ClientLendingError>>(
        self: &Arc<Self>,
        objects: &[(String, String)],
        poll: impl FnMut() -> Result<(), E>,
    ) -> Result<Vec<AnswerHead>, E> {
        self.ask_lists(objects, HeadDetail::Head, decode_heads, poll)
    }

    /// Asks by lists, each of adjacent objects of one bucket.
    fn ask_lists<T: Default + Clone, E: From<ClientLendingError>>(
        self: &Arc<Self>,
        objects: &[(String, String)],
        detail: HeadDetail,
        decode: fn(&[u8], usize) -> Result<Vec<T>, HeadProblem>,
        mut poll: impl FnMut() -> Result<(), E>,
    ) -> Result<Vec<T>, E> {
        let mut batch = self.begin_batch();
        let mut lists = Vec::new();
        let mut rest = objects;
        while let Some((bucket, _)) = rest.first() {
            let of_bucket = rest.iter().take_while(|(other, _)| other == bucket);
            let keys = of_bucket.map(|(_, key)| key.as_str());
            let count = LentHeadList::count_fitting(bucket, keys);
            if count == 0 {
                return Err(ClientLendingError::TooLong.into());
            }
            let (listed, after) = rest.split_at(count);
            let keys = listed.iter().map(|(_, key)| key.clone()).collect();
            let entry_bytes = match detail {
                HeadDetail::Status => STATUS_BYTES,
                HeadDetail::Head => HEAD_BYTES,
            };
            let list = LentHeadList { detail, bucket: bucket.clone(), keys };
            batch.add_head_list(&list, entry_bytes * count as u64)?;
            lists.push(ListedNames { first: objects.len() - rest.len(), count });
            rest = after;
        }
        let mut answers = vec![T::default(); objects.len()];
        while let Some(answer) = batch.next_answer(&mut poll)? {
            let ListedNames { first, count } = lists[answer.index];
            let answered = decode(&answer.answer.body.to_vec(), count);
            let answered = answered.map_err(|_| ClientLendingError::Failed)?;
            answers[first..first + count].clone_from_slice(&answered);
        }
        Ok(answers)
    }
}
