//! Owns the connection in force: makes it, makes it again where the gateway was gone, and makes
//! another one in a process that has forked.

use std::io;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use crate::client_options::{ClientLendingError, LendingClientOptions};
use crate::lent_connection::LentConnection;

/// The first pause between two attempts to connect; it doubles up to the longest.
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// A client of one gateway. Threads share it.
#[derive(Debug)]
pub struct LendingClient {
    options: LendingClientOptions,
    seat: ArcSwap<ProcessSeat>,
    /// Memory that a gateway passed could not be mapped: nobody asks for pages any more.
    refuses_pages: Arc<AtomicBool>,
}

/// The connection of one process. A lock that another thread held at a fork is never seen again: the
/// child has a seat of its own.
struct ProcessSeat {
    process: u32,
    connection: Mutex<Option<Arc<LentConnection>>>,
    /// When the last try to connect failed. Threads that waited for it don't try one by one.
    failed_at: Mutex<Option<Instant>>,
}

impl std::fmt::Debug for ProcessSeat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProcessSeat").field("process", &self.process).finish_non_exhaustive()
    }
}

impl ProcessSeat {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            process: std::process::id(),
            connection: Mutex::new(None),
            failed_at: Mutex::new(None),
        })
    }
}

impl LendingClient {
    /// Connects to the gateway now, so that a wrong path or key is found here.
    pub fn connect(options: LendingClientOptions) -> Result<Arc<Self>, ClientLendingError> {
        let refuses_pages = Arc::new(AtomicBool::new(false));
        let connection = Arc::new(LentConnection::connect(&options, refuses_pages.clone())?);
        let seat = ProcessSeat::new();
        *seat.connection.lock() = Some(connection);
        Ok(Arc::new(Self { options, seat: ArcSwap::new(seat), refuses_pages }))
    }

    /// Returns what the client was made with.
    pub fn client_options(&self) -> &LendingClientOptions {
        &self.options
    }

    /// Returns the connection in force, or makes one. Waits for a gateway that is gone as long as
    /// the options say, and asks `poll` meanwhile.
    pub(crate) fn current_connection<E: From<ClientLendingError>>(
        &self,
        poll: impl FnMut() -> Result<(), E>,
    ) -> Result<Arc<LentConnection>, E> {
        self.find_connection(self.options.reconnect_for, poll)
    }

    /// Returns the connection in force, or makes one, within `reconnect_for`.
    pub(crate) fn find_connection<E: From<ClientLendingError>>(
        &self,
        reconnect_for: Duration,
        mut poll: impl FnMut() -> Result<(), E>,
    ) -> Result<Arc<LentConnection>, E> {
        let until = Instant::now() + reconnect_for;
        let mut pause = PAUSE_MIN;
        loop {
            let failed = match self.try_connection() {
                Ok(connection) => return Ok(connection),
                Err(failed) => failed,
            };
            let is_passing = match &failed {
                ClientLendingError::Unavailable { .. } => true,
                ClientLendingError::Refused { refusal, .. } => refusal.may_pass(),
                _ => false,
            };
            if !is_passing || Instant::now() >= until {
                return Err(failed.into());
            }
            thread::sleep(pause);
            pause = (2 * pause).min(PAUSE_MAX);
            poll()?;
        }
    }

    fn try_connection(&self) -> Result<Arc<LentConnection>, ClientLendingError> {
        let asked_at = Instant::now();
        let seat = self.own_seat();
        let mut connection = seat.connection.lock();
        if let Some(known) = &*connection
            && !known.is_ended()
        {
            return Ok(known.clone());
        }
        if seat.failed_at.lock().is_some_and(|failed_at| failed_at >= asked_at) {
            let source = io::Error::from(io::ErrorKind::TimedOut);
            return Err(ClientLendingError::Unavailable {
                path: self.options.socket.clone(),
                source,
            });
        }
        let made = LentConnection::connect(&self.options, self.refuses_pages.clone());
        let made = Arc::new(made.inspect_err(|failed| {
            if matches!(failed, ClientLendingError::Unavailable { .. }) {
                *seat.failed_at.lock() = Some(Instant::now());
            }
        })?);
        *connection = Some(made.clone());
        Ok(made)
    }

    /// Returns this process's seat. After a fork it is a new one, and the parent's is left alone: not
    /// even dropped, because another thread may have been changing it.
    fn own_seat(&self) -> Arc<ProcessSeat> {
        loop {
            let seat = self.seat.load_full();
            if seat.process == std::process::id() {
                return seat;
            }
            let before = self.seat.compare_and_swap(&seat, ProcessSeat::new());
            mem::forget(Arc::clone(&before));
            mem::forget(seat);
        }
    }
}

impl Drop for LendingClient {
    fn drop(&mut self) {
        let seat = self.seat.load_full();
        if seat.process != std::process::id() {
            mem::forget(seat);
            return;
        }
        // No read is left. Bodies keep their memory; the gateway need not.
        if let Some(connection) = &*seat.connection.lock() {
            connection.hang_up();
        }
    }
}
