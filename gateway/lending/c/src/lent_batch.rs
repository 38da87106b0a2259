//! Reads that are asked for together, in the order of their arrival.

use std::ptr;
use std::sync::Mutex;

use verbs3_lending_client::ReadBatch;

use crate::call_result::{Verbs3Result, enter_call};
use crate::lent_answer::Verbs3Answer;
use crate::lent_arguments::{
    ResultPlace, Verbs3ReadRequest, borrow, copy_read, end_handed_out, enter_handing_out,
    lock_alone,
};
use crate::lent_client::{Verbs3Client, WaitQuestion};

/// Reads under way. For one call at a time: another one meanwhile is refused.
pub struct Verbs3Batch {
    batch: Mutex<ReadBatch>,
    question: WaitQuestion,
}

/// Begins a batch of reads. `verbs3_end_batch` ends it.
///
/// # Safety
///
/// `client` is null, or a client; `batch` is null, or a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verbs3_begin_batch(
    client: *const Verbs3Client,
    batch: *mut *mut Verbs3Batch,
) -> Verbs3Result {
    let work = || {
        // SAFETY: the caller's word.
        let own = unsafe { borrow(client, "client") }?;
        Ok(Verbs3Batch { batch: Mutex::new(own.client.begin_batch()), question: own.question })
    };
    // SAFETY: the caller's word.
    unsafe { enter_handing_out(batch, "batch", work) }
}

/// Adds a read, and gives its index: they count from 0. It is sent by the next
/// `verbs3_next_answer`.
///
/// # Safety
///
/// `batch` is null, or a batch that is not ended; `request` is null, or a request whose
/// texts end with 0; `index` is null, or a place for an index.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verbs3_add_read(
    batch: *mut Verbs3Batch,
    request: *const Verbs3ReadRequest,
    index: *mut usize,
) -> Verbs3Result {
    enter_call(|| {
        // SAFETY: the caller's word.
        let own = unsafe { borrow(batch, "batch") }?;
        // SAFETY: the caller's word.
        let (request, bytes) = unsafe { copy_read(request) }?;
        let added = lock_alone(&own.batch, "the batch")?.add_read(&request, bytes)?;
        if !index.is_null() {
            // SAFETY: not null, so by the caller's word a place for an index.
            unsafe { index.write(added) };
        }
        Ok(())
    })
}

/// Waits for the next answer that arrives, and gives it with the index of its read. A null answer:
/// all have arrived. A call that fails gives no answer, and as the index that of a read that can't be
/// answered and has left the batch, or `SIZE_MAX` where none has: the batch goes on with the next
/// call. Reads are sent as there is place for them, so who keeps the answers of many gets
/// `VERBS3_RESULT_MEMORY_FULL` with `SIZE_MAX` until some are released; with an index, that read is
/// longer than all that is lent.
///
/// # Safety
///
/// `batch` is null, or a batch that is not ended; `index` and `answer` are null, or places for an index
/// and a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verbs3_next_answer(
    batch: *mut Verbs3Batch,
    index: *mut usize,
    answer: *mut *mut Verbs3Answer,
) -> Verbs3Result {
    enter_call(|| {
        // SAFETY: the caller's word.
        let (index, place) = unsafe {
            (
                ResultPlace::prepare(index, usize::MAX, "index")?,
                ResultPlace::prepare(answer, ptr::null_mut(), "answer")?,
            )
        };
        // SAFETY: the caller's word.
        let own = unsafe { borrow(batch, "batch") }?;
        let mut reads = lock_alone(&own.batch, "the batch")?;
        match reads.next_answer(|| own.question.ask_caller()) {
            Ok(Some(next)) => {
                index.put_result(next.index);
                place.put_result(Box::into_raw(Box::new(next.answer.into())));
            }
            Ok(None) => {}
            Err(end) => {
                index.put_result(reads.failed_read().unwrap_or(usize::MAX));
                return Err(end);
            }
        }
        Ok(())
    })
}

/// Ends a batch, whatever is under way. Null is nothing, and so is a batch that a call is using.
///
/// # Safety
///
/// `batch` is null, or a batch that is not ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verbs3_end_batch(batch: *mut Verbs3Batch) {
    // SAFETY: the caller's word.
    let is_free = unsafe { batch.as_ref() }.is_some_and(|own| lock_alone(&own.batch, "").is_ok());
    if is_free {
        // SAFETY: the caller's word, and no call has it.
        unsafe { end_handed_out(batch) };
    }
}
