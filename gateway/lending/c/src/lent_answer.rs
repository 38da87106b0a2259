//! Answers: status, headers, and the body where it landed.

use std::ffi::{CStr, CString, c_char};
use std::ptr::{self, NonNull};

use verbs3_lending_client::{LentAnswer, LentBody};

use crate::call_result::{CallEnd, Verbs3Result, enter_call};
use crate::lent_arguments::{ResultPlace, borrow, end_handed_out};

/// An answer. It keeps its part of the lent memory until it is released.
pub struct Verbs3Answer {
    status: u16,
    headers: Vec<(CString, CString)>,
    body: LentBody,
}

impl From<LentAnswer> for Verbs3Answer {
    fn from(LentAnswer { head, body }: LentAnswer) -> Self {
        // Neither names nor values of headers have a 0 in them.
        let text = |bytes: Vec<u8>| CString::new(bytes).unwrap_or_default();
        let headers = head.headers.into_iter();
        let headers = headers.map(|(name, value)| (text(name.into_bytes()), text(value))).collect();
        Self { status: head.status, headers, body }
    }
}

/// Returns the status as HTTP has it: 200, 206, 304, 404, …; 0 for null.
///
/// # Safety
///
/// `answer` is null, or an answer that is not released.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verbs3_answer_status(answer: *const Verbs3Answer) -> u16 {
    // SAFETY: the caller's word.
    unsafe { answer.as_ref() }.map_or(0, |answer| answer.status)
}

/// Returns the value of a header by its name in lower case, the first if there are several; null if
/// there is none. It stays until the answer is released.
///
/// # Safety
///
/// `answer` is null, or an answer that is not released; `name` is null, or ends with 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verbs3_answer_header(
    answer: *const Verbs3Answer,
    name: *const c_char,
) -> *const c_char {
    // SAFETY: the caller's word.
    let Some(answer) = (unsafe { answer.as_ref() }) else { return ptr::null() };
    if name.is_null() {
        return ptr::null();
    }
    // SAFETY: not null, so by the caller's word a text that ends with 0.
    let name = unsafe { CStr::from_ptr(name) };
    let found = answer.headers.iter().find(|(known, _)| known.as_c_str() == name);
    found.map_or(ptr::null(), |(_, value)| value.as_ptr())
}

/// Gives name and value of the header at `index`, which counts from 0. False: there are fewer.
///
/// # Safety
///
/// `answer` is null, or an answer that is not released; `name` and `value` are null, or places for a
/// pointer each.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verbs3_answer_header_at(
    answer: *const Verbs3Answer,
    index: usize,
    name: *mut *const c_char,
    value: *mut *const c_char,
) -> bool {
    // SAFETY: the caller's word.
    let answer = unsafe { answer.as_ref() };
    let Some((its_name, its_value)) = answer.and_then(|answer| answer.headers.get(index)) else {
        return false;
    };
    if name.is_null() || value.is_null() {
        return false;
    }
    // SAFETY: not null, so by the caller's word places for a pointer each.
    unsafe {
        name.write(its_name.as_ptr());
        value.write(its_value.as_ptr());
    }
    true
}

/// Gives the place of the body in this process's memory, and its length. The bytes stay as they are
/// until the answer is released; nobody may write to them. A body of several segments is copied
/// together the first time.
///
/// # Safety
///
/// `answer` is null, or an answer that is not released; `bytes` and `length` are null, or places for
/// a pointer and a length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verbs3_answer_body(
    answer: *const Verbs3Answer,
    bytes: *mut *const u8,
    length: *mut usize,
) -> Verbs3Result {
    // SAFETY: the caller's word.
    unsafe {
        give_piece(answer, bytes, length, |body| Ok((body.body_address()?, body.body_bytes())))
    }
}

/// Returns how many segments the body has, which lie apart: 1, but for answers of
/// `verbs3_read_pages`; 0 for null.
///
/// # Safety
///
/// `answer` is null, or an answer that is not released.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verbs3_answer_segment_count(answer: *const Verbs3Answer) -> usize {
    // SAFETY: the caller's word.
    unsafe { answer.as_ref() }.map_or(0, |answer| answer.body.segment_count())
}

/// Gives the place of a segment of the body in this process's memory, and its length. `index`
/// counts from 0, in the body's order. The bytes stay as they are until the answer is released;
/// nobody may write to them.
///
/// # Safety
///
/// `answer` is null, or an answer that is not released; `bytes` and `length` are null, or places
/// for a pointer and a length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verbs3_answer_segment(
    answer: *const Verbs3Answer,
    index: usize,
    bytes: *mut *const u8,
    length: *mut usize,
) -> Verbs3Result {
    let find = |body: &LentBody| {
        let count = body.segment_count();
        if index >= count {
            return Err(CallEnd::BadArgument(format!("the body has {count} segments")));
        }
        Ok(body.locate_segment(index)?)
    };
    // SAFETY: the caller's word.
    unsafe { give_piece(answer, bytes, length, find) }
}

/// Gives the place and the length of what is found in the body.
///
/// # Safety
///
/// As for `verbs3_answer_body`.
unsafe fn give_piece(
    answer: *const Verbs3Answer,
    bytes: *mut *const u8,
    length: *mut usize,
    find: impl FnOnce(&LentBody) -> Result<(NonNull<u8>, usize), CallEnd>,
) -> Verbs3Result {
    enter_call(|| {
        // SAFETY: the caller's word.
        let (bytes, length) = unsafe {
            (
                ResultPlace::prepare(bytes, ptr::null(), "bytes")?,
                ResultPlace::prepare(length, 0, "length")?,
            )
        };
        // SAFETY: the caller's word.
        let answer = unsafe { borrow(answer, "answer") }?;
        let (address, found_bytes) = find(&answer.body)?;
        bytes.put_result(address.as_ptr().cast_const());
        length.put_result(found_bytes);
        Ok(())
    })
}

/// Releases an answer: its memory is used anew, and what was taken from it is gone. Null is nothing.
///
/// # Safety
///
/// `answer` is null, or an answer that is not released.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verbs3_release_answer(answer: *mut Verbs3Answer) {
    // SAFETY: the caller's word.
    unsafe { end_handed_out(answer) };
}
