//! Reads and writes W3C trace context (Recommendation of 23 November 2021): `traceparent` and
//! `tracestate`. Owns ids. Decides nothing about sampling.

use std::fmt;

use http::{HeaderMap, HeaderName, HeaderValue};

pub(crate) const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
pub(crate) const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// Length of `tracestate` that must at least be passed on, in bytes (section 3.3.1.5). A longer one
/// is dropped whole, since a cut one may mean something else.
const STATE_BYTES_MAX: usize = 512;

/// Id of a trace; never 0.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TraceId(pub u128);

/// Id of a span within its trace; never 0.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SpanId(pub u64);

impl TraceId {
    /// Draws 128 random bits, and never 0.
    pub fn generate() -> Self {
        Self(rand::random::<u128>().max(1))
    }
}

impl SpanId {
    /// Draws 64 random bits, and never 0.
    pub fn generate() -> Self {
        Self(rand::random::<u64>().max(1))
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Span that a request belongs to, as the caller sends it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceParent {
    pub trace: TraceId,
    pub span: SpanId,
    pub sampled: bool,
    pub state: Option<HeaderValue>,
}

impl TraceParent {
    /// Reads a client's headers. `None`: it sent none or an invalid one, which counts as absent
    /// (section 2.3).
    pub fn from_headers(headers: &HeaderMap) -> Option<Self> {
        let mut values = headers.get_all(&TRACEPARENT).iter();
        let (value, None) = (values.next()?, values.next()) else { return None };
        let (trace, span, sampled) = parse_traceparent(value.as_bytes())?;
        Some(Self { trace, span, sampled, state: read_tracestate(headers) })
    }

    /// Creates a context from what a peer sent without headers, by the same rules.
    pub fn new(trace: u128, span: u64, sampled: bool, state: Option<&str>) -> Option<Self> {
        let known = trace != 0 && span != 0;
        let state = state
            .filter(|state| is_state(state.as_bytes()))
            .and_then(|state| HeaderValue::from_str(state).ok());
        known.then_some(Self { trace: TraceId(trace), span: SpanId(span), sampled, state })
    }

    /// Returns `traceparent` and `tracestate` for the next call.
    pub fn to_headers(&self) -> (HeaderValue, Option<HeaderValue>) {
        let text = format!("00-{}-{}-{:02x}", self.trace, self.span, u8::from(self.sampled));
        let traceparent =
            HeaderValue::try_from(text).expect("hexadecimal digits are a header value");
        (traceparent, self.state.clone())
    }
}

fn is_state(bytes: &[u8]) -> bool {
    bytes.len() <= STATE_BYTES_MAX && bytes.iter().all(|byte| (0x20..0x7f).contains(byte))
}

/// Joins the lists of all headers of this name into one.
fn read_tracestate(headers: &HeaderMap) -> Option<HeaderValue> {
    let mut values = headers.get_all(&TRACESTATE).iter();
    let first = values.next()?.clone();
    let joined = values.try_fold(first.as_bytes().to_vec(), |mut joined, next| {
        joined.push(b',');
        joined.extend(next.as_bytes());
        (joined.len() <= STATE_BYTES_MAX).then_some(joined)
    })?;
    is_state(&joined).then(|| HeaderValue::from_bytes(&joined).ok()).flatten()
}

/// Parses `00-TRACE-SPAN-FLAGS`. Later versions may append to the flags.
fn parse_traceparent(text: &[u8]) -> Option<(TraceId, SpanId, bool)> {
    let version = parse_hex(text.get(..2)?)?;
    let (head, rest) = text.split_at_checked(55)?;
    let ends = match version {
        0 => rest.is_empty(),
        0xff => false,
        _ => rest.first().is_none_or(|&byte| byte == b'-'),
    };
    if !ends || [head[2], head[35], head[52]].iter().any(|&byte| byte != b'-') {
        return None;
    }
    let (trace, span, flags) =
        (parse_hex(&head[3..35])?, parse_hex(&head[36..52])?, parse_hex(&head[53..])?);
    let span = u64::try_from(span).ok()?;
    (trace != 0 && span != 0).then_some((TraceId(trace), SpanId(span), flags & 1 == 1))
}

/// Parses hexadecimal digits, lower-case only (section 3.2.2).
fn parse_hex(digits: &[u8]) -> Option<u128> {
    digits.iter().try_fold(0, |number, &digit| {
        let value = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(number << 4 | u128::from(value))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn parent(headers: &HeaderMap) -> Option<TraceParent> {
        TraceParent::from_headers(headers)
    }

    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    #[test]
    fn a_context_is_read_and_written_alike() {
        let read = parent(&headers(&[
            ("traceparent", GOOD),
            ("tracestate", "a=1"),
            ("tracestate", "b=2"),
        ]))
        .unwrap();
        let (traceparent, tracestate) = read.to_headers();
        assert_eq!(
            (traceparent.to_str().unwrap(), tracestate.unwrap().to_str().unwrap()),
            (GOOD, "a=1,b=2")
        );
        let TraceParent { trace, span, sampled, state } = read.clone();
        assert_eq!(
            TraceParent::new(
                trace.0,
                span.0,
                sampled,
                state.as_ref().map(|state| state.to_str().unwrap())
            ),
            Some(read)
        );
    }

    #[test]
    fn what_is_no_context_is_as_if_it_were_not_there() {
        for bad in [
            "",
            "00",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-1",
            "00_4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01more",
        ] {
            assert_eq!(parent(&headers(&[("traceparent", bad)])), None, "{bad}");
        }
        assert_eq!(parent(&headers(&[("traceparent", GOOD), ("traceparent", GOOD)])), None);
        let later = "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00-what-comes";
        assert!(!parent(&headers(&[("traceparent", later)])).unwrap().sampled);
    }

    #[test]
    fn a_state_that_is_too_long_is_dropped_whole() {
        let long = "x".repeat(STATE_BYTES_MAX + 1);
        assert_eq!(
            parent(&headers(&[("traceparent", GOOD), ("tracestate", &long)])).unwrap().state,
            None
        );
        let half = "x".repeat(300);
        let two = headers(&[("traceparent", GOOD), ("tracestate", &half), ("tracestate", &half)]);
        assert_eq!(parent(&two).unwrap().state, None);
        for bad in [long.as_str(), "a=1\r\nx: y", "a=\u{e4}"] {
            assert_eq!(TraceParent::new(1, 2, true, Some(bad)).unwrap().state, None, "{bad:?}");
        }
        assert_eq!(
            (TraceParent::new(0, 2, true, None), TraceParent::new(1, 0, true, None)),
            (None, None)
        );
    }
}
