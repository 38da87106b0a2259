//! Lengths as people write them: `64`, `4KiB`, `1MiB`.

const UNITS: [(&str, u64); 4] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

/// Of a command line.
pub fn parse(text: &str) -> Result<u64, String> {
    let (number, unit) =
        UNITS.iter().find_map(|(name, unit)| Some((text.strip_suffix(name)?, *unit))).unwrap_or((text, 1));
    let bytes = number.trim().parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    bytes.filter(|&bytes| bytes > 0).ok_or_else(|| format!("{text:?} is no length; 64, 4KiB and 1MiB are"))
}

/// The shortest exact way to write it.
pub fn show(bytes: u64) -> String {
    let (name, unit) =
        UNITS.iter().find(|(_, unit)| bytes >= *unit && bytes.is_multiple_of(*unit)).unwrap_or(&("B", 1));
    format!("{} {name}", bytes / unit)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn lengths_are_read_as_people_write_them() {
        for (text, bytes) in [("64", 64), ("64B", 64), ("4KiB", 4096), ("1 MiB", 1 << 20), ("2GiB", 2 << 30)] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
        for wrong in ["", "0", "-1", "4KB", "x", "99999999999GiB"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        assert_eq!([64, 4096, 1 << 20, 1500].map(show), ["64 B", "4 KiB", "1 MiB", "1500 B"]);
    }
}
