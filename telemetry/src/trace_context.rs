//! Reads and writes W3C trace context (Recommendation of 23 November 2021): `traceparent` and
//! `tracestate`. Decides nothing about sampling.
//!
//! The types are OpenTelemetry's. Its `TraceContextPropagator` is not used: it takes fields of any
//! length, the first of two `traceparent` headers, and no more than one `tracestate` header.

use http::{HeaderMap, HeaderValue};
use opentelemetry::trace::{SpanContext, SpanId, TraceFlags, TraceId, TraceState};

/// Length of `tracestate` that must at least be passed on, in bytes (section 3.3.1.5). A longer one
/// is dropped whole, since a cut one may mean something else.
const STATE_BYTES_MAX: usize = 512;

/// Reads a client's headers. `None`: it sent none or an invalid one, which counts as absent
/// (section 2.3).
pub(super) fn read_trace_headers(headers: &HeaderMap) -> Option<SpanContext> {
    let mut values = headers.get_all("traceparent").iter();
    let (value, None) = (values.next()?, values.next()) else { return None };
    let (trace, span, flags) = parse_traceparent(value.to_str().ok()?)?;
    let states = headers.get_all("tracestate").iter().map(|value| value.to_str().ok());
    let state = states.collect::<Option<Vec<_>>>().unwrap_or_default().join(",");
    valid_context(SpanContext::new(trace, span, flags, true, parse_tracestate(&state)))
}

/// Returns the context that a peer sent without headers, by the same rules.
pub fn build_remote_context(
    trace: u128,
    span: u64,
    sampled: bool,
    state: Option<&str>,
) -> Option<SpanContext> {
    let flags = TraceFlags::default().with_sampled(sampled);
    let state = parse_tracestate(state.unwrap_or_default());
    valid_context(SpanContext::new(trace.into(), span.into(), flags, true, state))
}

/// Returns `traceparent` and `tracestate` for the next call.
pub fn write_trace_headers(context: &SpanContext) -> (HeaderValue, Option<HeaderValue>) {
    let (trace, span) = (context.trace_id(), context.span_id());
    let text = format!("00-{trace}-{span}-{:02x}", context.trace_flags());
    let traceparent = HeaderValue::try_from(text).expect("hexadecimal digits are a header value");
    let state = Some(context.trace_state().header()).filter(|state| !state.is_empty());
    (traceparent, state.and_then(|state| HeaderValue::try_from(state).ok()))
}

fn valid_context(context: SpanContext) -> Option<SpanContext> {
    context.is_valid().then_some(context)
}

/// Parses `VERSION-TRACE-SPAN-FLAGS`. Later versions may append to it. Digits are lower-case only
/// (section 3.2.2). Of the flags only the one for sampling is known.
fn parse_traceparent(text: &str) -> Option<(TraceId, SpanId, TraceFlags)> {
    let mut fields = text.splitn(5, '-');
    let mut next_field = |digits: usize| {
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        fields.next().filter(|field| field.len() == digits && field.bytes().all(is_digit))
    };
    let (version, trace, span, flags) =
        (next_field(2)?, next_field(32)?, next_field(16)?, next_field(2)?);
    if version == "ff" || (version == "00" && fields.next().is_some()) {
        return None;
    }
    let flags = TraceFlags::new(u8::from_str_radix(flags, 16).ok()?) & TraceFlags::SAMPLED;
    Some((TraceId::from_hex(trace).ok()?, SpanId::from_hex(span).ok()?, flags))
}

/// Parses a list of vendors' entries. One that is too long or invalid counts as absent.
fn parse_tracestate(list: &str) -> TraceState {
    let is_allowed =
        list.len() <= STATE_BYTES_MAX && list.bytes().all(|byte| (0x20..0x7f).contains(&byte));
    is_allowed.then(|| list.parse().ok()).flatten().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

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
        let read = read_trace_headers(&headers(&[
            ("traceparent", GOOD),
            ("tracestate", "a=1"),
            ("tracestate", "b=2"),
        ]))
        .unwrap();
        let (traceparent, tracestate) = write_trace_headers(&read);
        assert_eq!(
            (traceparent.to_str().unwrap(), tracestate.unwrap().to_str().unwrap()),
            (GOOD, "a=1,b=2")
        );
        let trace = 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736;
        let by_peer = build_remote_context(trace, 0x00f0_67aa_0ba9_02b7, true, Some("a=1,b=2"));
        assert_eq!(by_peer, Some(read));
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
            assert_eq!(read_trace_headers(&headers(&[("traceparent", bad)])), None, "{bad}");
        }
        assert_eq!(
            read_trace_headers(&headers(&[("traceparent", GOOD), ("traceparent", GOOD)])),
            None
        );
        let later = "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00-what-comes";
        assert!(!read_trace_headers(&headers(&[("traceparent", later)])).unwrap().is_sampled());
    }

    #[test]
    fn a_state_that_is_too_long_is_dropped_whole() {
        let (first, second) = (format!("a={}", "x".repeat(253)), format!("b={}", "x".repeat(255)));
        let long = format!("{first},{second}");
        assert_eq!(long.len(), STATE_BYTES_MAX + 1);
        let read = |states: &[&str]| {
            let states = states.iter().map(|&state| ("tracestate", state));
            let all: Vec<_> = [("traceparent", GOOD)].into_iter().chain(states).collect();
            read_trace_headers(&headers(&all)).unwrap().trace_state().header()
        };
        let longest = &long[..STATE_BYTES_MAX];
        assert_eq!((read(&[longest]).as_str(), read(&[&long])), (longest, String::new()));
        assert_eq!((read(&[&first]), read(&[&first, &second])), (first.clone(), String::new()));
        for bad in [long.as_str(), "a=1\r\nx: y", "a=\u{e4}"] {
            let read = build_remote_context(1, 2, true, Some(bad)).unwrap();
            assert_eq!(read.trace_state(), &TraceState::NONE, "{bad:?}");
        }
        assert_eq!(
            (build_remote_context(0, 2, true, None), build_remote_context(1, 0, true, None)),
            (None, None)
        );
    }
}
