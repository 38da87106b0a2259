//! Byte sizes ("4MiB") and durations ("10s") as configuration files write them.
//!
//! Owns the two notations and nothing else; what a quantity may be is checked by `check`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};

/// A number of bytes. Written as an integer with a unit: `B`, `KiB`, `MiB`, `GiB`, `TiB` (powers of
/// 1024), or `KB`, `MB`, `GB`, `TB` (powers of 1000).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub u64);

/// A length of time. Written as one or more integers with units: `us`, `ms`, `s`, `m`, `h`, `d`;
/// `"0"` needs none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TimePeriod(pub Duration);

/// Why a text is not a quantity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    #[error("{0:?} is not a size; write an integer with a unit: \"256KiB\", \"4MiB\", \"64GiB\"")]
    Size(String),
    #[error(
        "{0:?} is not a duration; write integers with units: \"100us\", \"500ms\", \"10s\", \"1m30s\", \"12h\""
    )]
    Duration(String),
    #[error("{0:?} is too large to count")]
    TooLarge(String),
}

const SIZES: [(&str, u64); 9] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("KB", 1_000),
    ("B", 1),
];

/// In microseconds.
const PERIODS: [(&str, u64); 6] = [
    ("d", 86_400_000_000),
    ("h", 3_600_000_000),
    ("m", 60_000_000),
    ("s", 1_000_000),
    ("ms", 1_000),
    ("us", 1),
];

impl ByteSize {
    /// `None` where zero stands for no bound.
    pub fn unless_zero(self) -> Option<u64> {
        (self.0 > 0).then_some(self.0)
    }

    /// The size, or the greatest that fits.
    pub fn as_u32(self) -> u32 {
        u32::try_from(self.0).unwrap_or(u32::MAX)
    }

    /// A size in mebibytes. Overflows from 2^44 on.
    pub const fn from_mib(mebibytes: u64) -> Self {
        Self(mebibytes << 20)
    }

    /// As a length in memory. Lossless on the 64-bit hosts this runs on.
    pub fn as_usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

impl TimePeriod {
    /// `None` where zero stands for never, or for no bound.
    pub fn unless_zero(self) -> Option<Duration> {
        (!self.0.is_zero()).then_some(self.0)
    }

    /// A period of whole seconds.
    pub const fn from_seconds(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }

    /// A period of whole milliseconds.
    pub const fn from_millis(milliseconds: u64) -> Self {
        Self(Duration::from_millis(milliseconds))
    }
}

impl FromStr for ByteSize {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let wrong = || QuantityError::Size(text.to_owned());
        let (number, unit) = split_unit(text.trim()).ok_or_else(wrong)?;
        let &(_, factor) = SIZES.iter().find(|(name, _)| *name == unit.trim()).ok_or_else(wrong)?;
        let count: u64 = number.parse().map_err(|_| QuantityError::TooLarge(text.to_owned()))?;
        count.checked_mul(factor).map(Self).ok_or_else(|| QuantityError::TooLarge(text.to_owned()))
    }
}

impl FromStr for TimePeriod {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let wrong = || QuantityError::Duration(text.to_owned());
        let large = || QuantityError::TooLarge(text.to_owned());
        let mut rest = text.trim();
        if rest == "0" {
            return Ok(Self(Duration::ZERO));
        }
        if rest.is_empty() {
            return Err(wrong());
        }
        let mut total: u64 = 0;
        while !rest.is_empty() {
            let (number, tail) = split_unit(rest).ok_or_else(wrong)?;
            let unit_len = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
            let (unit, next) = tail.split_at(unit_len);
            let &(_, factor) = PERIODS.iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?;
            let part = number
                .parse::<u64>()
                .ok()
                .and_then(|count| count.checked_mul(factor))
                .ok_or_else(large)?;
            total = total.checked_add(part).ok_or_else(large)?;
            rest = next;
        }
        Ok(Self(Duration::from_micros(total)))
    }
}

/// Digits, and what follows them; `None` without a digit.
fn split_unit(text: &str) -> Option<(&str, &str)> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    (digits > 0).then(|| text.split_at(digits))
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, factor) = SIZES
            .iter()
            .find(|(name, factor)| {
                name.len() != 2 && self.0 >= *factor && self.0.is_multiple_of(*factor)
            })
            .unwrap_or(&("B", 1));
        write!(f, "{}{name}", self.0 / factor)
    }
}

impl fmt::Display for TimePeriod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = u64::try_from(self.0.as_micros()).unwrap_or(u64::MAX);
        if total == 0 {
            return f.write_str("0");
        }
        let whole =
            PERIODS.iter().find(|(_, factor)| total.is_multiple_of(*factor)).unwrap_or(&("us", 1));
        write!(f, "{}{}", total / whole.1, whole.0)
    }
}

impl Serialize for ByteSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Serialize for TimePeriod {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Accepts a string, and says what a string should look like when it gets something else.
struct TextVisitor<T>(&'static str, std::marker::PhantomData<T>);

impl<T> Visitor<'_> for TextVisitor<T>
where
    T: FromStr<Err = QuantityError>,
{
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(TextVisitor(
            "a size in quotes, such as \"4MiB\"",
            std::marker::PhantomData,
        ))
    }
}

impl<'de> Deserialize<'de> for TimePeriod {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(TextVisitor(
            "a duration in quotes, such as \"10s\"",
            std::marker::PhantomData,
        ))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn sizes_are_read_in_every_unit() {
        for (text, bytes) in [
            ("0B", 0),
            ("4MiB", 4 << 20),
            ("1 KiB", 1024),
            ("3GB", 3_000_000_000),
            ("2TiB", 2 << 40),
            ("17B", 17),
        ] {
            assert_eq!(text.parse::<ByteSize>().unwrap().0, bytes, "{text}");
        }
    }

    #[test]
    fn sizes_without_a_known_unit_are_refused() {
        for text in ["", "4", "MiB", "4mib", "4 apples", "-1MiB", "1.5GiB", "0x10B"] {
            assert_eq!(text.parse::<ByteSize>(), Err(QuantityError::Size(text.into())), "{text}");
        }
        assert_eq!(
            "99999999999TiB".parse::<ByteSize>(),
            Err(QuantityError::TooLarge("99999999999TiB".into()))
        );
    }

    #[test]
    fn durations_are_read_in_every_unit() {
        for (text, ms) in [
            ("0", 0),
            ("0s", 0),
            ("500ms", 500),
            ("10s", 10_000),
            ("1m30s", 90_000),
            ("2d", 172_800_000),
        ] {
            assert_eq!(text.parse::<TimePeriod>().unwrap(), TimePeriod::from_millis(ms), "{text}");
        }
        for (text, us) in [("100us", 100), ("1ms500us", 1500), ("1s1us", 1_000_001)] {
            let period = text.parse::<TimePeriod>().unwrap();
            assert_eq!(period.0, Duration::from_micros(us), "{text}");
            assert_eq!(period.to_string().parse::<TimePeriod>().unwrap(), period, "{text}");
        }
    }

    #[test]
    fn durations_without_a_known_unit_are_refused() {
        for text in ["", "10", "s", "10 s", "10sec", "1.5s", "-1s"] {
            assert_eq!(
                text.parse::<TimePeriod>(),
                Err(QuantityError::Duration(text.into())),
                "{text}"
            );
        }
        let large = "300000000000000000d";
        assert_eq!(large.parse::<TimePeriod>(), Err(QuantityError::TooLarge(large.into())));
    }

    #[test]
    fn what_is_shown_reads_back_as_the_same() {
        for bytes in [0, 1, 1023, 1024, 4 << 20, 3_000_000_000, 5 << 40] {
            assert_eq!(ByteSize(bytes).to_string().parse::<ByteSize>().unwrap().0, bytes);
        }
        for ms in [0, 1, 1500, 60_000, 90_000, 86_400_000] {
            assert_eq!(
                TimePeriod::from_millis(ms).to_string().parse::<TimePeriod>().unwrap(),
                TimePeriod::from_millis(ms)
            );
        }
    }
}
