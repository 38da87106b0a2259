//! Makes text of other hosts fit for a terminal: it can't move the cursor, and can't look like
//! another text. Owns which characters are shown, and how much.

/// Longest text that is shown, in characters.
const SHOWN_MAX: usize = 300;

/// Returns what another host said, safe for a terminal, and in bounds.
pub fn printable_text(text: &str) -> String {
    text.chars().map(|char| if deceives(char) { '?' } else { char }).take(SHOWN_MAX).collect()
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
}
