//! Writes: a body is put into the lent memory piece by piece, and sent as one.

use std::ptr;
use std::sync::Mutex;

use verbs3_lending_client::{LentWriter, WriteWait};

use crate::call_result::{CallEnd, Verbs3Result, enter_call};
use crate::lent_answer::Verbs3Answer;
use crate::lent_arguments::{
    ResultPlace, Verbs3WriteRequest, borrow, borrow_many, copy_write, end_handed_out,
    enter_handing_out, lock_alone,
};
use crate::lent_client::{Verbs3Client, WaitQuestion};

/// A write that is being made. For one call at a time: another one meanwhile is refused.
pub struct Verbs3Writer {
    /// `None`: it is being sent.
    writer: Mutex<Option<LentWriter>>,
    question: WaitQuestion,
}

/// A write that is ended when this is dropped.
struct EndedWriter(*mut Verbs3Writer);

impl Drop for EndedWriter {
    fn drop(&mut self) {
        // SAFETY: made by `verbs3_begin_write`. Who made this has found that no other call has it, and
        // by the caller's word it was not ended before.
        unsafe { end_handed_out(self.0) };
    }
}

/// Takes memory for a body of exactly `body_bytes`, or waits for room. `verbs3_finish_write` or
/// `verbs3_abandon_write` ends it.
///
/// # Safety
///
/// `client` is null, or a client; `writer` is null, or a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verbs3_begin_write(
    client: *const Verbs3Client,
    body_bytes: u64,
    writer: *mut *mut Verbs3Writer,
) -> Verbs3Result {
    let work = || {
        // SAFETY: the caller's word.
        let own = unsafe { borrow(client, "client") }?;
        let question = own.question;
        let begun =
            own.client.begin_write(body_bytes, WriteWait::Long, || question.ask_caller())?;
        Ok(Verbs3Writer { writer: Mutex::new(Some(begun)), question })
    };
    // SAFETY: the caller's word.
    unsafe { enter_handing_out(writer, "writer", work) }
}

/// Copies the next bytes of the body into the lent memory. More than were announced are
/// `VERBS3_RESULT_MEMORY_FULL`, and none of them are copied.
///
/// # Safety
///
/// `writer` is null, or a write that no other thread is using; `bytes` are `length` bytes that nobody
/// changes meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verbs3_append_body(
    writer: *mut Verbs3Writer,
    bytes: *const u8,
    length: usize,
) -> Verbs3Result {
    enter_call(|| {
        // SAFETY: the caller's word.
        let own = unsafe { borrow(writer, "writer") }?;
        // SAFETY: the caller's word.
        let bytes = unsafe { borrow_many(bytes, length, "bytes") }?;
        match &mut *lock_alone(&own.writer, "the write")? {
            Some(writer) => Ok(writer.append_bytes(bytes)?),
            None => Err(CallEnd::BadArgument("the write is being sent".to_owned())),
        }
    })
}

/// Sends the write, and waits for its answer. The write is ended by it, however the call ends, unless
/// another call is using it (`VERBS3_RESULT_BAD_ARGUMENT`). After
/// `VERBS3_RESULT_FAILED`, `…_TIMED_OUT`, `…_DISCONNECTED`, `…_STOPPED` and `…_INTERNAL` nobody knows
/// whether the object was written. A write that is given up while it is sent ends the connection:
/// what other threads have begun to write ends with `VERBS3_RESULT_DISCONNECTED`, and their reads are
/// repeated.
///
/// # Safety
///
/// `writer` is null, or a write that is not ended and that no other thread is using; `request` is null,
/// or a request whose texts end with 0; `answer` is null, or a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verbs3_finish_write(
    writer: *mut Verbs3Writer,
    request: *const Verbs3WriteRequest,
    answer: *mut *mut Verbs3Answer,
) -> Verbs3Result {
    enter_call(|| {
        // SAFETY: the caller's word.
        let own = unsafe { borrow(writer, "writer") }?;
        let Some(begun) = lock_alone(&own.writer, "the write")?.take() else {
            return Err(CallEnd::BadArgument("the write is being sent".to_owned()));
        };
        let question = own.question;
        // Ended with this call, and not before: the caller may be asked meanwhile, and try to use it.
        let _ended = EndedWriter(writer);
        // SAFETY: the caller's word.
        let place = unsafe { ResultPlace::prepare(answer, ptr::null_mut(), "answer") }?;
        // SAFETY: the caller's word.
        let request = unsafe { copy_write(request) }?;
        let answer = begun.finish_write(&request, || question.ask_caller())?;
        place.put_result(Box::into_raw(Box::new(answer.into())));
        Ok(())
    })
}

/// Ends a write of which nothing was sent. Null is nothing, and so is a write that a call is using.
///
/// # Safety
///
/// `writer` is null, or a write that is not ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verbs3_abandon_write(writer: *mut Verbs3Writer) {
    // SAFETY: the caller's word.
    let is_free = unsafe { writer.as_ref() }
        .is_some_and(|own| lock_alone(&own.writer, "").is_ok_and(|writer| writer.is_some()));
    if is_free {
        drop(EndedWriter(writer));
    }
}
