//! The native part of the Python package `verbs3`: the lending client, answers as buffers, and its
//! errors as exceptions. What users see is in `verbs3/`.

mod cache_verdicts;
mod cuda_pinner;
mod native_answers;
mod native_body;
mod native_client;
mod native_errors;
mod native_writer;

use pyo3::prelude::*;

/// `verbs3._native`
#[pymodule]
mod _native {
    #[pymodule_export]
    use super::native_body::{NativeBody, NativeSegment};
    #[pymodule_export]
    use super::native_client::{NativeBatch, NativeClient};
    #[pymodule_export]
    use super::native_errors::{LendingError, LendingUnavailable, MemoryFull, RequestTooLong};
    #[pymodule_export]
    use super::native_writer::NativeWriter;
}
