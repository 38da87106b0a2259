//! What goes wrong, as Python's exceptions.

use pyo3::create_exception;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use verbs3_lending_client::ClientLendingError;

create_exception!(verbs3, LendingError, PyException, "A read by lent memory has no answer.");
create_exception!(
    verbs3,
    LendingUnavailable,
    LendingError,
    "No gateway answers at the socket, or it takes no memory of this process."
);
create_exception!(
    verbs3,
    MemoryFull,
    LendingError,
    "The lent memory has no place for the answer: release views, or lend more."
);
create_exception!(
    verbs3,
    RequestTooLong,
    LendingError,
    "The request, or its answer's head, is too long for lent memory. HTTP takes it."
);

/// Why a wait ended: by the client, or by Python (a signal's handler).
pub(crate) enum WaitEnd {
    Lending(ClientLendingError),
    Python(PyErr),
}

impl From<ClientLendingError> for WaitEnd {
    fn from(error: ClientLendingError) -> Self {
        Self::Lending(error)
    }
}

impl From<WaitEnd> for PyErr {
    fn from(end: WaitEnd) -> Self {
        match end {
            WaitEnd::Python(error) => error,
            WaitEnd::Lending(error) => error_of_client(&error),
        }
    }
}

/// Lets handlers of signals run, as any wait of Python does.
pub(crate) fn check_signals() -> Result<(), WaitEnd> {
    Python::attach(|py| py.check_signals()).map_err(WaitEnd::Python)
}

/// Returns the exception for a client's error.
pub(crate) fn error_of_client(error: &ClientLendingError) -> PyErr {
    let text = error.to_string();
    match error {
        ClientLendingError::Unavailable { source, .. } => {
            LendingUnavailable::new_err(format!("{text} ({source})"))
        }
        ClientLendingError::Refused { .. }
        | ClientLendingError::Memory { .. }
        | ClientLendingError::Pinning { .. } => LendingUnavailable::new_err(text),
        ClientLendingError::MemoryFull { .. } => MemoryFull::new_err(text),
        ClientLendingError::TooLong => RequestTooLong::new_err(text),
        ClientLendingError::Failed
        | ClientLendingError::Incomplete
        | ClientLendingError::Unsupported
        | ClientLendingError::TimedOut
        | ClientLendingError::Disconnected
        | ClientLendingError::OtherProcess => LendingError::new_err(text),
    }
}
