//! How a call ended, and in words. Nothing unwinds into the caller.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use verbs3_lending_client::ClientLendingError;

/// How a call ended. An error of S3 is an answer, with its status, and the call is `VERBS3_RESULT_OK`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub enum Verbs3Result {
    /// It is done.
    Ok = 0,
    /// No gateway answers at the socket.
    Unavailable = 1,
    /// The gateway takes no memory of this process: wrong keys, or as much as it may have.
    Refused = 2,
    /// Memory to be lent can't be made.
    NoMemory = 3,
    /// The lent memory has no place: release answers, or lend more.
    MemoryFull = 4,
    /// The request, or the head of its answer, is too long to go this way.
    TooLong = 5,
    /// The gateway could not finish the request.
    Failed = 6,
    /// The body of a write is shorter than was announced. Nothing was sent.
    Incomplete = 7,
    /// The gateway is older than this library.
    Unsupported = 8,
    /// The gateway did not answer in time.
    TimedOut = 9,
    /// The connection has ended.
    Disconnected = 10,
    /// The answer landed in the process that this one was forked from.
    OtherProcess = 11,
    /// `keep_waiting` answered no.
    Stopped = 12,
    /// An argument is missing, or no text in UTF-8.
    BadArgument = 13,
    /// A fault of this library.
    Internal = 14,
}

/// Why a call did not do what it was asked.
pub(crate) enum CallEnd {
    Lending(ClientLendingError),
    Stopped,
    BadArgument(String),
}

impl From<ClientLendingError> for CallEnd {
    fn from(error: ClientLendingError) -> Self {
        Self::Lending(error)
    }
}

impl CallEnd {
    fn result(&self) -> Verbs3Result {
        let Self::Lending(error) = self else {
            let is_stop = matches!(self, Self::Stopped);
            return if is_stop { Verbs3Result::Stopped } else { Verbs3Result::BadArgument };
        };
        match error {
            ClientLendingError::Unavailable { .. } => Verbs3Result::Unavailable,
            ClientLendingError::Refused { .. } => Verbs3Result::Refused,
            ClientLendingError::Memory { .. } | ClientLendingError::Pinning { .. } => {
                Verbs3Result::NoMemory
            }
            ClientLendingError::MemoryFull { .. } => Verbs3Result::MemoryFull,
            ClientLendingError::TooLong => Verbs3Result::TooLong,
            ClientLendingError::Failed => Verbs3Result::Failed,
            ClientLendingError::Incomplete => Verbs3Result::Incomplete,
            ClientLendingError::Unsupported => Verbs3Result::Unsupported,
            ClientLendingError::TimedOut => Verbs3Result::TimedOut,
            ClientLendingError::Disconnected => Verbs3Result::Disconnected,
            ClientLendingError::OtherProcess => Verbs3Result::OtherProcess,
        }
    }

    fn describe(&self) -> String {
        match self {
            Self::Lending(
                error @ (ClientLendingError::Unavailable { source, .. }
                | ClientLendingError::Memory { source, .. }),
            ) => format!("{error} ({source})"),
            Self::Lending(error) => error.to_string(),
            Self::Stopped => "keep_waiting answered that the call should end".to_owned(),
            Self::BadArgument(problem) => problem.clone(),
        }
    }
}

thread_local! {
    static ERROR_TEXT: RefCell<CString> = RefCell::default();
}

/// Does the work of a call, and keeps for the thread what went wrong.
pub(crate) fn enter_call(work: impl FnOnce() -> Result<(), CallEnd>) -> Verbs3Result {
    // What a fault leaves half done is never handed out: results are written last.
    let (result, text) = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => return Verbs3Result::Ok,
        Ok(Err(end)) => (end.result(), end.describe()),
        Err(_) => (Verbs3Result::Internal, "a fault of libverbs3; see standard error".to_owned()),
    };
    let text: Vec<u8> = text.into_bytes().into_iter().filter(|byte| *byte != 0).collect();
    // A thread that is ending has no text any more.
    let _ = ERROR_TEXT.try_with(|kept| *kept.borrow_mut() = CString::new(text).unwrap_or_default());
    result
}

/// Returns in words why the last call of this thread that failed did so. It stays until the thread's
/// next call that fails.
#[unsafe(no_mangle)]
pub extern "C" fn verbs3_error_text() -> *const c_char {
    ERROR_TEXT.try_with(|kept| kept.borrow().as_ptr()).unwrap_or(CStr::as_ptr(c""))
}
