//! Clients: one for each gateway, for all threads of a process.

use std::ffi::{c_char, c_void};
use std::path::PathBuf;
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use verbs3_lending_client::{
    ClientLendingError, LendingClient, LendingClientOptions, LentAnswer, LentReadRequest,
    RING_ENTRIES_MAX,
};

use crate::call_result::{CallEnd, Verbs3Result, enter_call};
use crate::lent_answer::Verbs3Answer;
use crate::lent_arguments::{
    Verbs3ObjectName, Verbs3ReadRequest, borrow, borrow_many, copy_name, copy_read, copy_text,
    end_handed_out, enter_handing_out, present,
};

/// Longest that a thread looks for an answer before it sleeps, in microseconds.
const POLL_FOR_US_MAX: u32 = 1_000;

/// What a client is made with. `verbs3_default_options` fills it; socket and keys are the caller's.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Verbs3Options {
    /// The gateway's socket, by the path that the gateway was configured with.
    pub socket: *const c_char,
    pub access_key: *const c_char,
    pub secret_key: *const c_char,
    pub region: *const c_char,
    /// Memory that is lent, in bytes: bodies that are in use, and some 16 KiB for each read in
    /// flight.
    pub memory_bytes: u64,
    /// Most reads in flight. A power of two, up to 4096.
    pub reads_max: u32,
    /// How long a gateway that is gone is waited for, in milliseconds.
    pub reconnect_for_ms: u32,
    /// How long the next answer is waited for, in milliseconds.
    pub read_for_ms: u32,
    /// How many answers of `verbs3_read_pages` are kept at once, up to 4,096. 0: none, and it reads
    /// as `verbs3_read` does.
    pub pages_max: u32,
    /// How long a thread looks for an answer before it sleeps, in microseconds, up to 1,000, where
    /// the last answers came as fast. Whatever else could run meanwhile does. 0: never.
    pub poll_for_us: u32,
    /// Asked a few times a second by calls that wait for an answer or for room, in the thread of the
    /// call; false ends the call with `VERBS3_RESULT_STOPPED`. Null: they wait. It is not asked while
    /// a connection is made, which takes up to ten seconds where a gateway stands still. It has to
    /// return: no exception, no longjmp. Calls with the batch or write that waits are refused in it.
    pub keep_waiting: Option<unsafe extern "C" fn(context: *mut c_void) -> bool>,
    /// What `keep_waiting` is given. Both are kept until the client, its batches and its writes have
    /// all been ended.
    pub context: *mut c_void,
}

/// Whether a call that waits goes on.
#[derive(Clone, Copy)]
pub(crate) struct WaitQuestion {
    ask: Option<unsafe extern "C" fn(context: *mut c_void) -> bool>,
    context: *mut c_void,
}

impl WaitQuestion {
    pub(crate) fn ask_caller(self) -> Result<(), CallEnd> {
        // SAFETY: the function and its context are the caller's, and by their word may be called
        // in each thread that makes a call.
        let goes_on = self.ask.is_none_or(|ask| unsafe { ask(self.context) });
        if goes_on { Ok(()) } else { Err(CallEnd::Stopped) }
    }
}

/// A client of one gateway. Threads may share it. A forked child may go on with it, and has a
/// connection of its own.
pub struct Verbs3Client {
    pub(crate) client: Arc<LendingClient>,
    pub(crate) question: WaitQuestion,
}

/// Fills options with defaults: 256 MiB, 64 reads, a minute for each wait, polls of 100 µs,
/// `us-east-1`. Socket and keys are null.
///
/// # Safety
///
/// `options` is null, or a place for options.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verbs3_default_options(options: *mut Verbs3Options) {
    if options.is_null() {
        return;
    }
    let defaults = Verbs3Options {
        socket: ptr::null(),
        access_key: ptr::null(),
        secret_key: ptr::null(),
        region: c"us-east-1".as_ptr(),
        memory_bytes: 256 << 20,
        reads_max: 64,
        reconnect_for_ms: 60_000,
        read_for_ms: 60_000,
        pages_max: 0,
        poll_for_us: 100,
        keep_waiting: None,
        context: ptr::null_mut(),
    };
    // SAFETY: not null, so by the caller's word a place for options.
    unsafe { options.write(defaults) };
}

/// Connects to a gateway now, so that a wrong path or key is found here. `verbs3_disconnect` ends it.
///
/// # Safety
///
/// `options` is null, or options whose texts end with 0; `client` is null, or a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verbs3_connect(
    options: *const Verbs3Options,
    client: *mut *mut Verbs3Client,
) -> Verbs3Result {
    let work = || {
        // SAFETY: the caller's word.
        let said = unsafe { borrow(options, "options") }?;
        // SAFETY: the caller's word.
        let client = LendingClient::connect(unsafe { copy_options(said) }?)?;
        let question = WaitQuestion { ask: said.keep_waiting, context: said.context };
        Ok(Verbs3Client { client, question })
    };
    // SAFETY: the caller's word.
    unsafe { enter_handing_out(client, "client", work) }
}

/// # Safety
///
/// The texts are null, or end with 0.
unsafe fn copy_options(said: &Verbs3Options) -> Result<LendingClientOptions, CallEnd> {
    let milliseconds = |count: u32| Duration::from_millis(count.into());
    if !said.reads_max.is_power_of_two() || said.reads_max > RING_ENTRIES_MAX {
        let problem = format!("reads_max is no power of two up to {RING_ENTRIES_MAX}");
        return Err(CallEnd::BadArgument(problem));
    }
    if said.pages_max > RING_ENTRIES_MAX {
        return Err(CallEnd::BadArgument(format!("pages_max is above {RING_ENTRIES_MAX}")));
    }
    if said.poll_for_us > POLL_FOR_US_MAX {
        return Err(CallEnd::BadArgument(format!("poll_for_us is above {POLL_FOR_US_MAX}")));
    }
    // SAFETY: the caller's word.
    unsafe {
        Ok(LendingClientOptions {
            socket: PathBuf::from(copy_text(said.socket, "socket")?),
            access_key: copy_text(said.access_key, "access_key")?,
            secret_key: copy_text(said.secret_key, "secret_key")?,
            region: copy_text(said.region, "region")?,
            memory_bytes: said.memory_bytes,
            reads_max: said.reads_max,
            page_loans: said.pages_max,
            poll_for: Duration::from_micros(said.poll_for_us.into()),
            reconnect_for: milliseconds(said.reconnect_for_ms),
            read_for: milliseconds(said.read_for_ms),
            pinner: None,
        })
    }
}

/// Ends a client. Its answers, batches and writes stay until they are ended by their own calls. Null
/// is nothing.
///
/// # Safety
///
/// `client` is null, or a client that is not ended and that no thread is using.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verbs3_disconnect(client: *mut Verbs3Client) {
    // SAFETY: the caller's word.
    unsafe { end_handed_out(client) };
}

/// Reads one object or range, and waits for the answer.
///
/// # Safety
///
/// `client` is null, or a client; `request` is null, or a request whose texts end with 0; `answer` is
/// null, or a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verbs3_read(
    client: *const Verbs3Client,
    request: *const Verbs3ReadRequest,
    answer: *mut *mut Verbs3Answer,
) -> Verbs3Result {
    // SAFETY: the caller's word.
    unsafe {
        read_by(client, request, answer, |client, request, bytes, question| {
            client.read_object(request, bytes, || question.ask_caller())
        })
    }
}

/// Reads one object or range as `verbs3_read` does, and leaves its bytes where they lie, if a
/// worker of this host has them and the gateway lends its pages (`gateway.lending.pages_total`).
/// The body then has several segments (`verbs3_answer_segment`).
///
/// # Safety
///
/// `client` is null, or a client; `request` is null, or a request whose texts end with 0; `answer`
/// is null, or a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verbs3_read_pages(
    client: *const Verbs3Client,
    request: *const Verbs3ReadRequest,
    answer: *mut *mut Verbs3Answer,
) -> Verbs3Result {
    // SAFETY: the caller's word.
    unsafe {
        read_by(client, request, answer, |client, request, bytes, question| {
            client.read_pages(request, bytes, || question.ask_caller())
        })
    }
}

/// Reads one object or range in this way.
///
/// # Safety
///
/// As for `verbs3_read`.
unsafe fn read_by(
    client: *const Verbs3Client,
    request: *const Verbs3ReadRequest,
    answer: *mut *mut Verbs3Answer,
    read: impl FnOnce(
        &Arc<LendingClient>,
        &LentReadRequest,
        u64,
        WaitQuestion,
    ) -> Result<LentAnswer, CallEnd>,
) -> Verbs3Result {
    let work = || {
        // SAFETY: the caller's word.
        let own = unsafe { borrow(client, "client") }?;
        // SAFETY: the caller's word.
        let (request, bytes) = unsafe { copy_read(request) }?;
        Ok(read(&own.client, &request, bytes, own.question)?.into())
    };
    // SAFETY: the caller's word.
    unsafe { enter_handing_out(answer, "answer", work) }
}

/// Asks for many objects by HEAD, and gives the status of each, in their order: 200 for one that is
/// there, 404 for one that is not.
///
/// # Safety
///
/// `client` is null, or a client; `objects` are `count` names whose texts end with 0, `statuses` a
/// place for as many.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verbs3_head_statuses(
    client: *const Verbs3Client,
    objects: *const Verbs3ObjectName,
    count: usize,
    statuses: *mut u16,
) -> Verbs3Result {
    enter_call(|| {
        // SAFETY: the caller's word.
        let own = unsafe { borrow(client, "client") }?;
        // SAFETY: the caller's word.
        let objects = unsafe { borrow_many(objects, count, "objects") }?;
        if count == 0 {
            return Ok(());
        }
        let place = present(statuses, "statuses")?;
        // SAFETY: the caller's word.
        let names = objects.iter().map(|object| unsafe { copy_name(object) });
        let names = names.collect::<Result<Vec<_>, CallEnd>>()?;
        let question = own.question;
        let found = own.client.head_statuses(&names, || question.ask_caller())?;
        if found.len() != count {
            return Err(ClientLendingError::Failed.into());
        }
        // SAFETY: there are `count`, and by the caller's word a place for them, which is nobody
        // else's.
        unsafe { ptr::copy_nonoverlapping(found.as_ptr(), place.as_ptr(), count) };
        Ok(())
    })
}
