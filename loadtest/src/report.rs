//! Presents a record for people and for programs.

mod html;
mod plot;
mod text;

pub use html::render_html;
pub use text::render_text;

/// Returns a ratio's name in words.
fn in_words(name: &str) -> &str {
    match name {
        "requests_per_second" => "requests/s",
        "mib_per_second" => "MiB/s",
        "latency_p50" => "latency, median",
        "latency_p99" => "latency, 99th percentile",
        "first_byte_p50" => "first byte, median",
        "server_cpu_per_request" => "server CPU per request",
        other => other,
    }
}

#[cfg(test)]
mod tests;
