//! A write from lent memory as a Python object: its body is put in piece by piece, and its checksum
//! is taken meanwhile.

use std::process;
use std::slice;
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use crc_fast::{CrcAlgorithm, Digest};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use verbs3_lending_client::{
    ClientLendingError, LendingClient, LentPart, LentWriteRequest, LentWriter, WriteWait,
};

use crate::native_answers::{AnswerParts, take_apart};
use crate::native_errors::{WaitEnd, check_signals, error_of_client};

/// A write that is being made.
#[pyclass(frozen, module = "verbs3._native")]
pub(crate) struct NativeWriter {
    /// `None`: it was sent.
    write: Mutex<Option<BegunWrite>>,
    process: u32,
}

struct BegunWrite {
    writer: LentWriter,
    checksum: Option<RunningChecksum>,
}

/// A checksum of S3 over the body so far.
struct RunningChecksum {
    header: &'static str,
    /// Bytes of the value.
    bytes: usize,
    digest: Digest,
}

impl RunningChecksum {
    /// Begins the checksum of this name. `None`: there is none here.
    fn begin_checksum(name: &str) -> Option<Self> {
        let (header, bytes, algorithm) = match name {
            "crc32" => ("x-amz-checksum-crc32", 4, CrcAlgorithm::Crc32IsoHdlc),
            "crc32c" => ("x-amz-checksum-crc32c", 4, CrcAlgorithm::Crc32Iscsi),
            "crc64nvme" => ("x-amz-checksum-crc64nvme", 8, CrcAlgorithm::Crc64Nvme),
            _ => return None,
        };
        Some(Self { header, bytes, digest: Digest::new(algorithm) })
    }

    fn as_header(&self) -> (String, String) {
        let value = self.digest.finalize().to_be_bytes();
        (self.header.to_owned(), STANDARD.encode(&value[value.len() - self.bytes..]))
    }
}

impl NativeWriter {
    pub(crate) fn begin_write(
        py: Python<'_>,
        client: &Arc<LendingClient>,
        bytes: u64,
        checksum: Option<&str>,
        wait: WriteWait,
    ) -> PyResult<Self> {
        let checksum = checksum
            .map(|name| {
                let unknown = || PyValueError::new_err(format!("no checksum is named {name}"));
                RunningChecksum::begin_checksum(name).ok_or_else(unknown)
            })
            .transpose()?;
        let writer = py.detach(|| client.begin_write(bytes, wait, check_signals))?;
        let write = Mutex::new(Some(BegunWrite { writer, checksum }));
        Ok(Self { write, process: process::id() })
    }

    /// Works on the write, without the interpreter's lock. Who waits here holds none of Python's.
    fn with_write<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut Option<BegunWrite>) -> Result<T, WaitEnd> + Send,
    ) -> PyResult<T> {
        if self.process != process::id() {
            // A thread of the other process may have held the lock at the fork.
            return Err(error_of_client(&ClientLendingError::OtherProcess));
        }
        let done = py.detach(|| {
            let mut write = self.write.lock().unwrap_or_else(PoisonError::into_inner);
            work(&mut write)
        });
        Ok(done?)
    }
}

#[pymethods]
impl NativeWriter {
    /// Puts the next bytes of the body into the memory.
    fn append(&self, py: Python<'_>, source: PyBuffer<u8>) -> PyResult<()> {
        if !source.is_c_contiguous() {
            return Err(PyValueError::new_err("the bytes have to be contiguous"));
        }
        let (bytes, place) = (source.len_bytes(), source.buf_ptr() as usize);
        if bytes == 0 {
            return Ok(());
        }
        self.with_write(py, |write| {
            let Some(write) = write else { return Err(ClientLendingError::Incomplete.into()) };
            // SAFETY: the buffer is exported, so its memory stays while `source` lives. It is
            // contiguous and `bytes` long. Bytes have no invalid values; who changes them meanwhile
            // from another thread gets one or the other written, or a checksum that does not hold.
            let slice = unsafe { slice::from_raw_parts(place as *const u8, bytes) };
            write.writer.append_bytes(slice)?;
            if let Some(checksum) = &mut write.checksum {
                checksum.digest.update(slice);
            }
            Ok(())
        })
    }

    /// Sends the write; returns status, headers and body of its answer. `part`: upload and number.
    fn finish<'py>(
        &self,
        py: Python<'py>,
        bucket: String,
        key: String,
        part: Option<(String, u32)>,
        mut headers: Vec<(String, String)>,
    ) -> PyResult<AnswerParts<'py>> {
        let part = part.map(|(upload_id, number)| LentPart { upload_id, number });
        let answer = self.with_write(py, |write| {
            let Some(BegunWrite { writer, checksum }) = write.take() else {
                return Err(ClientLendingError::Incomplete.into());
            };
            headers.extend(checksum.map(|checksum| checksum.as_header()));
            let request = LentWriteRequest { bucket, key, part, headers };
            writer.finish_write(&request, check_signals)
        })?;
        Ok(take_apart(py, answer))
    }
}
