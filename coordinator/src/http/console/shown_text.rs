//! Writes figures and foreign texts for people. maud escapes what means something to HTML; here is
//! escaped what means something to the eye.

use std::time::Duration;

/// Longest foreign text that a page shows, in letters. S3's keys have up to 1,024 bytes.
const TEXT_LETTERS_MAX: usize = 1100;

/// Writes a name that others chose: control characters, and those that turn the direction of
/// writing or have no width, are spelled out. Else a key could look like another one.
pub(super) fn plain_text(text: &str) -> String {
    let mut shown = String::new();
    for (number, letter) in text.chars().enumerate() {
        if number == TEXT_LETTERS_MAX {
            shown.push('…');
            break;
        }
        if letter.is_control() || is_unseen(letter) {
            shown.extend(letter.escape_unicode());
        } else {
            shown.push(letter);
        }
    }
    shown
}

/// Directions (U+202A…, U+2066…), widths of nothing (U+200B…), separators of lines, and the mark of
/// byte order.
fn is_unseen(letter: char) -> bool {
    matches!(
        letter,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}'
    )
}

/// Begins a sentence with a capital letter and ends it with a full stop.
pub(super) fn sentence(text: &str) -> String {
    let text = plain_text(text);
    let mut letters = text.chars();
    let mut sentence: String =
        letters.next().map(|first| first.to_uppercase().collect()).unwrap_or_default();
    sentence.push_str(letters.as_str());
    if !sentence.ends_with(['.', '!', '?', '…']) {
        sentence.push('.');
    }
    sentence
}

pub(super) fn size_text(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let (mut value, mut unit) = (bytes as f64, 0);
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    match (unit, value >= 100.0) {
        (0, _) => format!("{bytes} B"),
        (_, true) => format!("{value:.0} {}", UNITS[unit]),
        (_, false) => format!("{value:.1} {}", UNITS[unit]),
    }
}

/// Writes a count with thin gaps between thousands.
pub(super) fn count_text(count: u64) -> String {
    let digits = count.to_string();
    let mut shown = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            shown.push('\u{202f}');
        }
        shown.push(digit);
    }
    shown
}

/// Writes an amount a second.
pub(super) fn per_second(amount: u64, over: Duration) -> f64 {
    let seconds = over.as_secs_f64();
    if seconds > 0.0 { amount as f64 / seconds } else { 0.0 }
}

pub(super) fn rate_text(per_second: f64) -> String {
    match per_second {
        rate if rate <= 0.0 => "0/s".to_owned(),
        rate if rate < 10.0 => format!("{rate:.1}/s"),
        rate => format!("{}/s", count_text(rate.round() as u64)),
    }
}

/// Writes a part of a whole. What is nearly all is not said to be all.
pub(super) fn percent_text(part: u64, whole: u64) -> Option<String> {
    if whole == 0 {
        return None;
    }
    let percent = part as f64 / whole as f64 * 100.0;
    let is_all = part >= whole;
    Some(if is_all || percent < 99.9 {
        format!("{percent:.1} %")
    } else {
        format!("{:.2} %", percent.min(99.99))
    })
}

pub(super) fn latency_text(microseconds: Option<f64>) -> String {
    match microseconds {
        None => "–".to_owned(),
        Some(us) if us < 1000.0 => format!("{us:.0} µs"),
        Some(us) if us < 10_000.0 => format!("{:.1} ms", us / 1e3),
        Some(us) if us < 1e6 => format!("{:.0} ms", us / 1e3),
        Some(us) => format!("{:.1} s", us / 1e6),
    }
}

pub(super) fn duration_text(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_deceive_the_eye_are_spelled_out() {
        assert_eq!(plain_text("a/ä.tar"), "a/ä.tar");
        assert_eq!(plain_text("a\nb\u{202e}rat.\u{200b}"), "a\\u{a}b\\u{202e}rat.\\u{200b}");
        assert_eq!(plain_text(&"x".repeat(5000)).chars().count(), TEXT_LETTERS_MAX + 1);
    }

    #[test]
    fn figures_are_readable() {
        assert_eq!(
            [size_text(1023), size_text(1536), size_text(200 << 30)],
            ["1023 B", "1.5 KiB", "200 GiB"]
        );
        assert_eq!(count_text(1_234_567).replace('\u{202f}', " "), "1 234 567");
        assert_eq!(percent_text(1, 0), None);
        assert_eq!(percent_text(99_999, 100_000).as_deref(), Some("99.99 %"));
        assert_eq!(percent_text(1, 3).as_deref(), Some("33.3 %"));
        assert_eq!(latency_text(Some(2500.0)), "2.5 ms");
        assert_eq!(sentence("worker a is lost; start it"), "Worker a is lost; start it.");
    }
}
