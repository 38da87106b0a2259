//! Answers as Python has them: status, headers, body.

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use verbs3_lending_client::LentAnswer;

use crate::native_body::NativeBody;

/// Names and values.
pub(crate) type AnswerHeaders<'py> = Vec<(String, Bound<'py, PyBytes>)>;
/// Status, headers, body.
pub(crate) type AnswerParts<'py> = (u16, AnswerHeaders<'py>, NativeBody);

pub(crate) fn take_apart(py: Python<'_>, answer: LentAnswer) -> AnswerParts<'_> {
    let LentAnswer { head, body } = answer;
    (head.status, headers_of(py, head.headers), NativeBody::new(body))
}

pub(crate) fn headers_of(py: Python<'_>, headers: Vec<(String, Vec<u8>)>) -> AnswerHeaders<'_> {
    headers.into_iter().map(|(name, value)| (name, PyBytes::new(py, &value))).collect()
}
