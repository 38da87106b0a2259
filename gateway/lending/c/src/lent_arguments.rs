//! What callers hand in: requests, names, headers. Everything is copied before it is used.

use std::ffi::{CStr, c_char};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::{Mutex, MutexGuard, TryLockError};

use verbs3_lending_client::{
    FORWARDED_HEADERS, LentPart, LentReadMethod, LentReadRequest, LentWriteRequest, is_write_header,
};

use crate::call_result::{CallEnd, Verbs3Result, enter_call};

/// A header, as two texts that end with 0. The name is in lower case.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Verbs3Header {
    pub name: *const c_char,
    pub value: *const c_char,
}

/// An object, by bucket and key, as two texts that end with 0.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Verbs3ObjectName {
    pub bucket: *const c_char,
    pub key: *const c_char,
}

/// A read of an object, or of a range of it.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Verbs3ReadRequest {
    pub object: Verbs3ObjectName,
    /// `range` ("bytes=0-4095"), `if-match`, `if-none-match`, `if-modified-since`,
    /// `if-unmodified-since`, `if-range`, `x-amz-checksum-mode`; each once. May be null if there are
    /// none.
    pub headers: *const Verbs3Header,
    pub header_count: usize,
    /// How long the body is expected to be at most, in bytes. A longer one takes a second try. 0: as
    /// long as the range, or else 1 MiB at first.
    pub body_bytes: u64,
    /// Only status and headers are asked for.
    pub is_head: bool,
}

/// A write of an object, or of a part of an upload.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Verbs3WriteRequest {
    pub object: Verbs3ObjectName,
    /// The upload that the body is a part of; null: the body is the object.
    pub upload_id: *const c_char,
    pub part_number: u32,
    /// What a PUT may have: `content-type`, `x-amz-meta-…`, `x-amz-checksum-…`, conditions; each
    /// once.
    pub headers: *const Verbs3Header,
    pub header_count: usize,
}

/// A first place for a body of unknown length.
const GUESSED_BYTES: u64 = 1 << 20;
/// A place for S3's document of an error.
const ERROR_BYTES: u64 = 8192;

/// Returns a pointer that is not null.
pub(crate) fn present<T>(pointer: *mut T, name: &str) -> Result<NonNull<T>, CallEnd> {
    NonNull::new(pointer).ok_or_else(|| CallEnd::BadArgument(format!("{name} is null")))
}

/// Borrows what a pointer points to.
///
/// # Safety
///
/// It is null, or points to a `T` that nobody changes while the borrow lives.
pub(crate) unsafe fn borrow<'a, T>(pointer: *const T, name: &str) -> Result<&'a T, CallEnd> {
    let pointer = present(pointer.cast_mut(), name)?;
    // SAFETY: not null, so by the caller's word a `T` that stays.
    Ok(unsafe { pointer.as_ref() })
}

/// A caller's place for a result. It need not be initialised.
pub(crate) struct ResultPlace<T>(NonNull<T>);

impl<T> ResultPlace<T> {
    /// Takes a place, and puts there what stays if the call fails.
    ///
    /// # Safety
    ///
    /// It is null, or a place for a `T` that nobody else uses until the call returns.
    pub(crate) unsafe fn prepare(place: *mut T, meanwhile: T, name: &str) -> Result<Self, CallEnd> {
        let place = present(place, name)?;
        // SAFETY: not null, so by the caller's word a place for a `T`.
        unsafe { place.write(meanwhile) };
        Ok(Self(place))
    }

    pub(crate) fn put_result(self, value: T) {
        // SAFETY: by the word that `prepare` was given.
        unsafe { self.0.write(value) };
    }
}

/// Does the work of a call that hands out what the caller ends by a call of its own. Null is there if
/// it fails.
///
/// # Safety
///
/// As for [`ResultPlace::prepare`].
pub(crate) unsafe fn enter_handing_out<T>(
    place: *mut *mut T,
    name: &str,
    work: impl FnOnce() -> Result<T, CallEnd>,
) -> Verbs3Result {
    enter_call(|| {
        // SAFETY: the caller's word.
        let place = unsafe { ResultPlace::prepare(place, ptr::null_mut(), name) }?;
        place.put_result(Box::into_raw(Box::new(work()?)));
        Ok(())
    })
}

/// Ends what was handed out. Null is nothing.
///
/// # Safety
///
/// It is null, or was handed out, and is not ended.
pub(crate) unsafe fn end_handed_out<T>(handed_out: *mut T) {
    if !handed_out.is_null() {
        // SAFETY: the caller's word.
        let ended = unsafe { Box::from_raw(handed_out) };
        let _ = enter_call(|| {
            drop(ended);
            Ok(())
        });
    }
}

/// What two calls at once may not use.
pub(crate) fn lock_alone<'a, T>(
    used: &'a Mutex<T>,
    name: &str,
) -> Result<MutexGuard<'a, T>, CallEnd> {
    match used.try_lock() {
        Ok(guard) => Ok(guard),
        Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => {
            Err(CallEnd::BadArgument(format!("{name} is in use by another call")))
        }
    }
}

/// Borrows `count` values. `count` may be 0, and the pointer null then.
///
/// # Safety
///
/// As for [`borrow`], for each of them.
pub(crate) unsafe fn borrow_many<'a, T>(
    pointer: *const T,
    count: usize,
    name: &str,
) -> Result<&'a [T], CallEnd> {
    if count == 0 {
        return Ok(&[]);
    }
    let pointer = present(pointer.cast_mut(), name)?;
    let bytes = count.checked_mul(size_of::<T>());
    if bytes.is_none_or(|bytes| bytes > isize::MAX as usize) {
        return Err(CallEnd::BadArgument(format!("{count} is no number of {name}")));
    }
    // SAFETY: not null, so by the caller's word `count` of them that stay.
    Ok(unsafe { slice::from_raw_parts(pointer.as_ptr(), count) })
}

/// Copies a text.
///
/// # Safety
///
/// It is null, or ends with 0.
pub(crate) unsafe fn copy_text(text: *const c_char, name: &str) -> Result<String, CallEnd> {
    let text = present(text.cast_mut(), name)?;
    // SAFETY: not null, so by the caller's word a text that ends with 0.
    let text = unsafe { CStr::from_ptr(text.as_ptr()) };
    let text = text.to_str().map_err(|_| CallEnd::BadArgument(format!("{name} is no UTF-8")))?;
    Ok(text.to_owned())
}

/// Copies headers, and refuses one that could not be sent.
///
/// # Safety
///
/// As for [`borrow_many`] and [`copy_text`].
unsafe fn copy_headers(
    headers: *const Verbs3Header,
    count: usize,
    may_be_sent: impl Fn(&str) -> bool,
) -> Result<Vec<(String, String)>, CallEnd> {
    // SAFETY: the caller's word.
    let headers = unsafe { borrow_many(headers, count, "headers") }?;
    let mut copied: Vec<(String, String)> = Vec::with_capacity(headers.len());
    for header in headers {
        // SAFETY: the caller's word.
        let name = unsafe { copy_text(header.name, "a header's name") }?;
        let is_lower = !name.bytes().any(|byte| byte.is_ascii_uppercase());
        if !is_lower || !may_be_sent(&name) || copied.iter().any(|(other, _)| *other == name) {
            let problem =
                format!("no header {name:?} can be sent with this request, or it is there");
            return Err(CallEnd::BadArgument(format!("{problem} twice; names are in lower case")));
        }
        // SAFETY: the caller's word.
        let value = unsafe { copy_text(header.value, "a header's value") }?;
        copied.push((name, value));
    }
    Ok(copied)
}

/// Copies a name.
///
/// # Safety
///
/// As for [`copy_text`].
pub(crate) unsafe fn copy_name(object: &Verbs3ObjectName) -> Result<(String, String), CallEnd> {
    // SAFETY: the caller's word.
    let name = unsafe { (copy_text(object.bucket, "bucket")?, copy_text(object.key, "key")?) };
    if name.0.is_empty() || name.1.is_empty() {
        return Err(CallEnd::BadArgument("bucket or key is empty".to_owned()));
    }
    Ok(name)
}

/// Copies a read, and how long its body may be.
///
/// # Safety
///
/// As for [`borrow`], and each of its pointers.
pub(crate) unsafe fn copy_read(
    request: *const Verbs3ReadRequest,
) -> Result<(LentReadRequest, u64), CallEnd> {
    // SAFETY: the caller's word.
    let request = unsafe { borrow(request, "request") }?;
    // SAFETY: the caller's word.
    let (bucket, key) = unsafe { copy_name(&request.object) }?;
    let may_be_sent = |name: &str| FORWARDED_HEADERS.contains(&name);
    // SAFETY: the caller's word.
    let headers = unsafe { copy_headers(request.headers, request.header_count, may_be_sent) }?;
    let method = if request.is_head { LentReadMethod::Head } else { LentReadMethod::Get };
    let copied = LentReadRequest { method, bucket, key, headers };
    let bytes = if request.body_bytes == 0 { expect_bytes(&copied) } else { request.body_bytes };
    Ok((copied, bytes))
}

/// How long the body of an answer is taken to be, where the caller does not say.
fn expect_bytes(request: &LentReadRequest) -> u64 {
    if request.method == LentReadMethod::Head {
        return ERROR_BYTES;
    }
    let range = request.headers.iter().find(|(name, _)| name == "range");
    let ends = range.and_then(|(_, range)| range.strip_prefix("bytes=")?.split_once('-'));
    let length = ends.and_then(|(first, last)| {
        let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
        last.checked_sub(first)?.checked_add(1)
    });
    length.map_or(GUESSED_BYTES, |length| length.max(ERROR_BYTES))
}

/// Copies a write.
///
/// # Safety
///
/// As for [`borrow`], and each of its pointers.
pub(crate) unsafe fn copy_write(
    request: *const Verbs3WriteRequest,
) -> Result<LentWriteRequest, CallEnd> {
    // SAFETY: the caller's word.
    let request = unsafe { borrow(request, "request") }?;
    // SAFETY: the caller's word.
    let (bucket, key) = unsafe { copy_name(&request.object) }?;
    let part = if request.upload_id.is_null() {
        None
    } else {
        // SAFETY: the caller's word.
        let upload_id = unsafe { copy_text(request.upload_id, "upload_id") }?;
        Some(LentPart { upload_id, number: request.part_number })
    };
    // SAFETY: the caller's word.
    let headers = unsafe { copy_headers(request.headers, request.header_count, is_write_header) }?;
    Ok(LentWriteRequest { bucket, key, part, headers })
}
