//! A body as Python's buffer. Views of it hold the object, and the object holds its part of the
//! lent memory: nothing is used again while any view is left, whatever became of the client. The
//! memory is of one process: in a forked child there are no views of it, and old ones fault.

use std::ffi::c_int;
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use verbs3_lending_client::{ClientLendingError, LentBody};

use crate::native_errors::error_of_client;

/// The bytes of an answer, where they have landed.
#[pyclass(frozen, module = "verbs3._native")]
pub(crate) struct NativeBody {
    body: Arc<LentBody>,
}

/// A part of them that is in one piece.
#[pyclass(frozen, module = "verbs3._native")]
pub(crate) struct NativeSegment {
    body: Arc<LentBody>,
    index: usize,
}

impl NativeBody {
    pub(crate) fn new(body: LentBody) -> Self {
        Self { body: Arc::new(body) }
    }
}

#[pymethods]
impl NativeBody {
    fn __len__(&self) -> usize {
        self.body.body_bytes()
    }

    /// Copies the body into a writable buffer that is as long, without the interpreter's lock.
    fn copy_into(&self, py: Python<'_>, target: PyBuffer<u8>) -> PyResult<()> {
        let bytes = self.body.body_bytes();
        if target.readonly() || !target.is_c_contiguous() || target.len_bytes() != bytes {
            let why = "the target has to be writable, contiguous, and as long as the body";
            return Err(PyValueError::new_err(why));
        }
        if bytes == 0 {
            return Ok(());
        }
        let place = target.buf_ptr() as usize;
        let copied = py.detach(|| {
            // SAFETY: the buffer is exported, so its memory stays while `target` lives. It is
            // writable, contiguous and `bytes` long. Bytes have no invalid values, and who writes
            // to it meanwhile from another thread has asked for this copy as well.
            let slice = unsafe { slice::from_raw_parts_mut(place as *mut u8, bytes) };
            self.body.copy_body(slice)
        });
        copied.map_err(|error| error_of_client(&error))
    }

    /// Returns the parts of the body as they lie, in their order. Each keeps the whole body.
    fn segments(&self) -> Vec<NativeSegment> {
        let indices = 0..self.body.segment_count();
        indices.map(|index| NativeSegment { body: self.body.clone(), index }).collect()
    }

    /// # Safety
    ///
    /// Called by the interpreter alone, with a view to fill in.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let body = &slf.get().body;
        let address = body.body_address().map_err(no_buffer)?;
        // SAFETY: the address is good for as many bytes as long as the object lives. They are
        // read-only, and the gateway is done with them. The interpreter has passed the view.
        unsafe { fill_view(slf.as_any(), address, body.body_bytes(), view, flags) }
    }
}

#[pymethods]
impl NativeSegment {
    /// # Safety
    ///
    /// Called by the interpreter alone, with a view to fill in.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let NativeSegment { body, index } = slf.get();
        let (address, bytes) = body.locate_segment(*index).map_err(no_buffer)?;
        // SAFETY: as for `NativeBody`.
        unsafe { fill_view(slf.as_any(), address, bytes, view, flags) }
    }
}

fn no_buffer(error: ClientLendingError) -> PyErr {
    PyBufferError::new_err(error.to_string())
}

/// # Safety
///
/// The bytes stay readable, and unchanged, as long as `owner` lives. `view` is null or the
/// interpreter's.
unsafe fn fill_view(
    owner: &Bound<'_, PyAny>,
    address: NonNull<u8>,
    bytes: usize,
    view: *mut ffi::Py_buffer,
    flags: c_int,
) -> PyResult<()> {
    if view.is_null() {
        return Err(PyBufferError::new_err("there is no view to fill in"));
    }
    let (place, bytes) = (address.as_ptr().cast(), bytes as isize);
    // SAFETY: the caller's word. The view takes a reference to the owner.
    let filled = unsafe { ffi::PyBuffer_FillInfo(view, owner.as_ptr(), place, bytes, 1, flags) };
    if filled == 0 { Ok(()) } else { Err(PyErr::fetch(owner.py())) }
}
