//! Reads and writes lengths and times as people do: `64`, `4KiB`, `1MiB`; `500ms`, `5s`, `2m`.

use std::time::Duration;

const UNITS: [(&str, u64); 4] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];
/// Units of time. `us` and `ms` come before `s`, which ends like them.
const TIMES: [(&str, f64); 4] = [("us", 1e-6), ("ms", 1e-3), ("s", 1.0), ("m", 60.0)];
/// Longest time; more than a day is a mistake in every use.
const SECONDS_MAX: f64 = 86_400.0;

/// Parses a length above 0.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let (number, unit) = UNITS
        .iter()
        .find_map(|(name, unit)| Some((text.strip_suffix(name)?, *unit)))
        .unwrap_or((text, 1));
    let bytes = number.trim().parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    bytes
        .filter(|&bytes| bytes > 0)
        .ok_or_else(|| format!("{text:?} is no length; 64, 4KiB and 1MiB are"))
}

/// Returns the shortest exact form of a length.
pub fn show_bytes(bytes: u64) -> String {
    let (name, unit) = UNITS
        .iter()
        .find(|(_, unit)| bytes >= *unit && bytes.is_multiple_of(*unit))
        .unwrap_or(&("B", 1));
    format!("{} {name}", bytes / unit)
}

/// Parses a time, 0 included.
pub fn parse_time(text: &str) -> Result<Duration, String> {
    let found = TIMES.iter().find_map(|(name, unit)| Some((text.strip_suffix(name)?, *unit)));
    let seconds = found.and_then(|(number, unit)| Some(number.trim().parse::<f64>().ok()? * unit));
    seconds
        .filter(|seconds| (0.0..=SECONDS_MAX).contains(seconds))
        .map(Duration::from_secs_f64)
        .ok_or_else(|| format!("{text:?} is no time; 500ms, 5s and 2m are"))
}

/// Shows a time with three digits, in a suitable unit.
pub fn show_time(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    match seconds {
        s if s >= 1.0 => format!("{s:.2} s"),
        s if s >= 1e-3 => format!("{:.2} ms", s * 1e3),
        s => format!("{:.0} µs", s * 1e6),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn lengths_are_read_as_people_write_them() {
        for (text, bytes) in
            [("64", 64), ("64B", 64), ("4KiB", 4096), ("1 MiB", 1 << 20), ("2GiB", 2 << 30)]
        {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
        for wrong in ["", "0", "-1", "4KB", "x", "99999999999GiB"] {
            assert!(parse_bytes(wrong).is_err(), "{wrong}");
        }
        assert_eq!([64, 4096, 1 << 20, 1500].map(show_bytes), ["64 B", "4 KiB", "1 MiB", "1500 B"]);
    }

    #[test]
    fn times_are_read_as_people_write_them() {
        for (text, micros) in
            [("20us", 20), ("500ms", 500_000), ("1.5s", 1_500_000), ("2 m", 120_000_000), ("0s", 0)]
        {
            assert_eq!(parse_time(text).unwrap(), Duration::from_micros(micros), "{text}");
        }
        for wrong in ["", "5", "-1s", "1h", "2d", "NaNs", "100000m"] {
            assert!(parse_time(wrong).is_err(), "{wrong}");
        }
        let shown =
            [Duration::from_micros(70), Duration::from_micros(1500), Duration::from_secs(2)]
                .map(show_time);
        assert_eq!(shown, ["70 µs", "1.50 ms", "2.00 s"]);
    }
}
