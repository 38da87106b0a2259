//! The lending client as Python objects. The interpreter's lock is given up while anything waits.

use std::path::PathBuf;
use std::process;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;
use verbs3_lending_client::{
    ClientLendingError, FORWARDED_HEADERS, LendingClient, LendingClientOptions, LentAnswer,
    LentReadMethod, LentReadRequest, MemoryPinner, ReadBatch, WriteWait, is_write_header,
};

use crate::cache_verdicts::{CacheVerdicts, PROCESS_VERDICTS};
use crate::cuda_pinner::CudaPinner;
use crate::native_answers::{AnswerHeaders, AnswerParts, headers_of, take_apart};
use crate::native_errors::{LendingUnavailable, check_signals, error_of_client};
use crate::native_writer::NativeWriter;

/// A client of one gateway.
#[pyclass(frozen, module = "verbs3._native")]
pub(crate) struct NativeClient {
    client: Arc<LendingClient>,
    verdicts: Arc<CacheVerdicts>,
}

/// GETs that were asked for together.
#[pyclass(frozen, module = "verbs3._native")]
pub(crate) struct NativeBatch {
    batch: Mutex<ReadBatch>,
    verdicts: Arc<CacheVerdicts>,
    /// Who began it. A thread of that process may have held the lock at a fork.
    process: u32,
}

impl NativeBatch {
    fn lock_batch(&self) -> Result<MutexGuard<'_, ReadBatch>, ClientLendingError> {
        if self.process == process::id() {
            return Ok(self.batch.lock().unwrap_or_else(PoisonError::into_inner));
        }
        self.batch.try_lock().map_err(|_| ClientLendingError::OtherProcess)
    }
}

#[pymethods]
impl NativeClient {
    #[new]
    #[pyo3(signature = (
        socket, access_key, secret_key, *, region, memory_bytes, reads_max, reconnect_for, read_for,
        page_loans=0, poll_for=0.0, cuda_device=None
    ))]
    #[allow(clippy::too_many_arguments, reason = "keyword arguments of one Python call")]
    fn new(
        py: Python<'_>,
        socket: PathBuf,
        access_key: String,
        secret_key: String,
        region: String,
        memory_bytes: u64,
        reads_max: u32,
        reconnect_for: f64,
        read_for: f64,
        page_loans: u32,
        poll_for: f64,
        cuda_device: Option<i32>,
    ) -> PyResult<Self> {
        let pinner = cuda_device.map(|device| py.detach(|| CudaPinner::load_driver(device)));
        let pinner = pinner.transpose().map_err(|error| {
            LendingUnavailable::new_err(format!("lent memory can't be pinned: {error}"))
        })?;
        let reconnect_for = Duration::try_from_secs_f64(reconnect_for).unwrap_or_default();
        let options = LendingClientOptions {
            socket,
            access_key,
            secret_key,
            region,
            memory_bytes,
            reads_max,
            page_loans,
            poll_for: Duration::try_from_secs_f64(poll_for).unwrap_or_default(),
            reconnect_for,
            read_for: Duration::try_from_secs_f64(read_for).unwrap_or(Duration::MAX),
            pinner: pinner.map(|pinner| Arc::new(pinner) as Arc<dyn MemoryPinner>),
        };
        let connected = py.detach(|| LendingClient::connect(options));
        let verdicts = Arc::new(CacheVerdicts::new());
        connected.map(|client| Self { client, verdicts }).map_err(|error| error_of_client(&error))
    }

    /// Reads one object or range; returns status, headers and body. `takes_pages`: its segments may
    /// lie in pages of a worker.
    #[pyo3(signature = (is_head, bucket, key, headers, body_bytes, *, takes_pages=false))]
    #[allow(clippy::too_many_arguments, reason = "one Python call")]
    fn read<'py>(
        &self,
        py: Python<'py>,
        is_head: bool,
        bucket: String,
        key: String,
        headers: Vec<(String, String)>,
        body_bytes: u64,
        takes_pages: bool,
    ) -> PyResult<AnswerParts<'py>> {
        let request = build_request(is_head, bucket, key, headers);
        let client = &self.client;
        let answer = py.detach(|| match takes_pages {
            true => client.read_pages(&request, body_bytes, check_signals),
            false => client.read_object(&request, body_bytes, check_signals),
        })?;
        if !is_head {
            count_verdict(&self.verdicts, &answer);
        }
        Ok(take_apart(py, answer))
    }

    /// Begins a batch of GETs.
    fn begin_batch(&self) -> NativeBatch {
        let batch = Mutex::new(self.client.begin_batch());
        let verdicts = self.verdicts.clone();
        NativeBatch { batch, verdicts, process: process::id() }
    }

    /// Takes memory for the body of a write. `checksum`: one that is taken meanwhile and sent along.
    /// `waits`: there is no other way to write.
    #[pyo3(signature = (body_bytes, checksum=None, *, waits))]
    fn begin_write(
        &self,
        py: Python<'_>,
        body_bytes: u64,
        checksum: Option<&str>,
        waits: bool,
    ) -> PyResult<NativeWriter> {
        let wait = if waits { WriteWait::Long } else { WriteWait::Short };
        NativeWriter::begin_write(py, &self.client, body_bytes, checksum, wait)
    }

    /// Asks for many objects by HEAD, and returns the status of each, in their order.
    fn head_statuses(&self, py: Python<'_>, objects: Vec<(String, String)>) -> PyResult<Vec<u16>> {
        Ok(py.detach(|| self.client.head_statuses(&objects, check_signals))?)
    }

    /// Asks for many objects by HEAD, and returns status and headers of each, in their order.
    fn head_answers<'py>(
        &self,
        py: Python<'py>,
        objects: Vec<(String, String)>,
    ) -> PyResult<Vec<(u16, AnswerHeaders<'py>)>> {
        let heads = py.detach(|| self.client.head_objects(&objects, check_signals))?;
        Ok(heads.into_iter().map(|head| (head.status, headers_of(py, head.headers))).collect())
    }

    /// Returns how many GETs were hits, partial hits, misses and bypasses, by what answers tell.
    fn cache_verdicts(&self) -> [u64; 4] {
        self.verdicts.count_verdicts()
    }

    /// Returns the same for all clients of this process, gone ones included.
    #[staticmethod]
    fn process_verdicts() -> [u64; 4] {
        PROCESS_VERDICTS.count_verdicts()
    }

    /// Headers that a read may carry.
    #[staticmethod]
    fn forwarded_headers() -> Vec<&'static str> {
        FORWARDED_HEADERS.to_vec()
    }

    /// Returns whether a write may carry a header of this name, in lower case.
    #[staticmethod]
    fn is_write_header(name: &str) -> bool {
        is_write_header(name)
    }
}

#[pymethods]
impl NativeBatch {
    /// Adds a read, and returns its index.
    fn add(
        &self,
        py: Python<'_>,
        bucket: String,
        key: String,
        headers: Vec<(String, String)>,
        body_bytes: u64,
    ) -> PyResult<usize> {
        let request = build_request(false, bucket, key, headers);
        let added = py.detach(|| self.lock_batch()?.add_read(&request, body_bytes));
        added.map_err(|error| error_of_client(&error))
    }

    /// Returns the next answer that arrives, with its index. `None`: all have.
    fn next<'py>(&self, py: Python<'py>) -> PyResult<Option<(usize, AnswerParts<'py>)>> {
        // Who waits for the lock has given up the interpreter's, so nobody waits in a circle.
        let answer = py.detach(|| self.lock_batch()?.next_answer(check_signals))?;
        Ok(answer.map(|answer| {
            count_verdict(&self.verdicts, &answer.answer);
            (answer.index, take_apart(py, answer.answer))
        }))
    }
}

fn count_verdict(own: &CacheVerdicts, answer: &LentAnswer) {
    own.count_answer(&answer.head);
    PROCESS_VERDICTS.count_answer(&answer.head);
}

fn build_request(
    is_head: bool,
    bucket: String,
    key: String,
    headers: Vec<(String, String)>,
) -> LentReadRequest {
    let method = if is_head { LentReadMethod::Head } else { LentReadMethod::Get };
    LentReadRequest { method, bucket, key, headers }
}
