//! Sizes and parts as people read them.

/// `1.50 TiB`: three digits or so, for people.
pub fn show_size(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let power = (bytes.max(1).ilog2() / 10) as usize;
    let value = bytes as f64 / (1u64 << (10 * power)) as f64;
    match value {
        _ if power == 0 => format!("{bytes} B"),
        value if value < 10.0 => format!("{value:.2} {}", units[power]),
        value if value < 100.0 => format!("{value:.1} {}", units[power]),
        value => format!("{value:.0} {}", units[power]),
    }
}

/// `58 %`
pub fn show_percent(part: f64) -> String {
    match part.is_finite() {
        true => format!("{:.0} %", part * 100.0),
        false => "no room at all".to_owned(),
    }
}
