//! Makes text of other hosts fit for a terminal: it can't move the cursor, and can't look like
//! another text. Owns which characters are shown, and how much.

use std::io::{BufRead as _, BufReader, Read, Write};

/// Longest text that is shown, in characters.
const SHOWN_MAX: usize = 300;
/// Most lines of one host that are shown.
const LINES_MAX: usize = 100;
/// Longest line in bytes; the rest counts as the next one.
const LINE_BYTES_MAX: u64 = 4096;

/// Returns what another host said, safe for a terminal, and in bounds.
pub fn printable_text(text: &str) -> String {
    text.chars().map(|char| if deceives(char) { '?' } else { char }).take(SHOWN_MAX).collect()
}

/// Shows the first lines that a host says, each behind its name. Reads on to the end, so that the
/// host never waits for its reader.
pub fn relay_lines(name: &str, said: impl Read, mut shown: impl Write) {
    let mut said = BufReader::new(said);
    for number in 0_usize.. {
        let mut line = Vec::new();
        if !(&mut said).take(LINE_BYTES_MAX).read_until(b'\n', &mut line).is_ok_and(|read| read > 0)
        {
            return;
        }
        let text = printable_text(String::from_utf8_lossy(&line).trim_end());
        if number < LINES_MAX && !text.is_empty() {
            // A terminal that is gone shows nothing.
            let _ = writeln!(shown, "{name}: {text}");
        }
    }
}

/// Controls, directions (U+202A…, U+2066…), widths of nothing (U+200B…), separators of lines, tags,
/// and the mark of byte order.
fn deceives(char: char) -> bool {
    char.is_control()
        || matches!(
            char,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_a_host_says_can_not_drive_a_terminal() {
        assert_eq!(printable_text("a\u{1b}[2Jb\u{7}\u{9b}1m\r\n"), "a?[2Jb??1m??");
    }

    #[test]
    fn what_a_host_says_can_not_look_like_another_text() {
        for deceiving in ['\u{202e}', '\u{2028}', '\u{2029}', '\u{2066}', '\u{200b}', '\u{feff}'] {
            assert_eq!(printable_text(&format!("ä{deceiving}µ")), "ä?µ", "{deceiving:?}");
        }
        assert_eq!(printable_text(&"x".repeat(5000)).len(), SHOWN_MAX);
    }

    #[test]
    fn lines_of_a_host_are_shown_behind_its_name_and_in_bounds() {
        let mut said = b"denied\x1b[2J\r\n\n\xff\n".to_vec();
        said.extend(b"x\n".repeat(10_000));
        said.extend(b"y".repeat(100_000));
        let (mut said, mut shown) = (said.as_slice(), Vec::new());
        relay_lines("gpu-07", &mut said, &mut shown);
        let shown = String::from_utf8(shown).unwrap();
        assert!(shown.starts_with("gpu-07: denied?[2J\ngpu-07: \u{fffd}\ngpu-07: x\n"), "{shown}");
        assert!(shown.lines().count() < LINES_MAX && said.is_empty());
    }
}
