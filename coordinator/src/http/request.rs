//! A request whose proof was verified, and what handlers read from it.

use bytes::Bytes;
use http::{Method, StatusCode, request};
use percent_encoding::percent_decode_str;
use serde::de::DeserializeOwned;

use super::caller::RequestCaller;
use super::response::{CoordinatorResponse, malformed_response};

/// Request whose proof was verified.
pub(crate) struct CoordinatorRequest {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) query: String,
    pub(super) body: Bytes,
    /// What stands in the path where its route has a name in braces.
    pub(super) path_values: Vec<PathValue>,
    pub(super) caller: RequestCaller,
}

/// Part of a path, decoded, under its name in the route.
pub(super) struct PathValue {
    pub(super) name: &'static str,
    pub(super) value: String,
}

impl CoordinatorRequest {
    pub(super) fn from_parts(caller: RequestCaller, head: request::Parts, body: Bytes) -> Self {
        Self {
            caller,
            path: head.uri.path().to_owned(),
            query: head.uri.query().unwrap_or_default().to_owned(),
            method: head.method,
            body,
            path_values: Vec::new(),
        }
    }

    /// Returns the part of the path that the route names `{name}`.
    pub(super) fn path_value(&self, name: &str) -> &str {
        let found = self.path_values.iter().find(|value| value.name == name);
        found.map_or("", |found| found.value.as_str())
    }

    pub(super) fn parse_body<T: DeserializeOwned>(&self) -> Result<T, CoordinatorResponse> {
        serde_json::from_slice(&self.body).map_err(|error| {
            malformed_response(
                StatusCode::BAD_REQUEST,
                format!("the body is not what {} takes: {error}", self.path),
            )
        })
    }

    pub(super) fn query_text(&self, name: &str) -> Option<String> {
        query_text(&self.query, name)
    }

    /// Reads a number from the query. Refuses anything else.
    pub(super) fn query_number(&self, name: &str) -> Result<Option<u64>, CoordinatorResponse> {
        let Some(text) = self.query_text(name) else { return Ok(None) };
        let wrong =
            |_| malformed_response(StatusCode::BAD_REQUEST, format!("{name}={text} is no number"));
        text.parse().map(Some).map_err(wrong)
    }
}

pub(super) fn query_text(query: &str, name: &str) -> Option<String> {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let (_, value) = pairs.find(|(key, _)| *key == name)?;
    Some(percent_decode_str(&value.replace('+', "%20")).decode_utf8_lossy().into_owned())
}
