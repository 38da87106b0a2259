//! The runbooks of `docs/`, which the binary carries: operators read them where something is wrong,
//! in the version that runs, without another server. Draws the Markdown that they use, and no other.

use std::iter::Peekable;
use std::str::Lines;

use maud::{Markup, html};

macro_rules! runbooks {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_str!(concat!("../../../../../docs/runbooks/", $name, ".md")))),*]
    };
}

/// Each by the name of its file, and its text. The first one has the list of all alerts.
const RUNBOOKS: [(&str, &str); 19] = runbooks![
    "index",
    "certificates",
    "checksums",
    "coordinators",
    "disk",
    "errors",
    "fallback",
    "handshakes",
    "hit-ratio",
    "latency",
    "preload",
    "queues",
    "rails",
    "recovery",
    "seals",
    "store",
    "webhook",
    "workers",
    "writes",
];

/// Returns a runbook's heading and the rest of it.
pub(in super::super) fn find_runbook(name: &str) -> Option<(&'static str, Markup)> {
    let (_, text) = RUNBOOKS.iter().find(|(known, _)| *known == name)?;
    let (title, rest) = text.split_once('\n').unwrap_or((text, ""));
    Some((title.trim_start_matches("# "), draw_blocks(rest)))
}

pub(super) fn runbook_path(name: &str) -> String {
    format!("/console/runbooks/{name}")
}

fn draw_blocks(text: &str) -> Markup {
    let mut lines = text.lines().peekable();
    let mut blocks = Vec::new();
    while let Some(line) = lines.next() {
        if line.is_empty() {
            continue;
        }
        blocks.push(if let Some(heading) = line.strip_prefix("## ") {
            html! { h2 { (draw_line(heading)) } }
        } else if line.starts_with("```") {
            let code: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            html! { pre { code { (code.join("\n")) } } }
        } else if line.starts_with('|') {
            draw_table(line, &take_while(&mut lines, |line| line.starts_with('|')))
        } else if let Some(first) = item_of(line) {
            let rest = take_while(&mut lines, |line| !line.is_empty());
            draw_list(line, &items_of(first, &rest))
        } else {
            let is_more = |line: &str| !line.is_empty() && !line.starts_with('|');
            let rest = take_while(&mut lines, is_more);
            html! { p { (draw_line(&[&[line], rest.as_slice()].concat().join(" "))) } }
        });
    }
    html! { @for block in blocks { (block) } }
}

fn take_while<'a>(lines: &mut Peekable<Lines<'a>>, is_more: impl Fn(&str) -> bool) -> Vec<&'a str> {
    std::iter::from_fn(|| lines.next_if(|line| is_more(line))).collect()
}

/// Returns the text of an item's first line.
fn item_of(line: &str) -> Option<&str> {
    let numbered = || line.split_once(". ").filter(|(number, _)| number.parse::<u8>().is_ok());
    line.strip_prefix("- ").or_else(|| numbered().map(|(_, text)| text))
}

fn items_of(first: &str, rest: &[&str]) -> Vec<String> {
    let mut items = vec![first.to_owned()];
    for line in rest {
        match (item_of(line), items.last_mut()) {
            (None, Some(last)) => last.extend([" ", line.trim_start()]),
            (item, _) => items.push(item.unwrap_or(line).to_owned()),
        }
    }
    items
}

fn draw_list(line: &str, items: &[String]) -> Markup {
    let items = html! { @for item in items { li { (draw_line(item)) } } };
    html! { @if line.starts_with("- ") { ul { (items) } } @else { ol { (items) } } }
}

fn draw_table(head: &str, rows: &[&str]) -> Markup {
    let cells = |row: &str| -> Vec<Markup> {
        row.trim_matches('|').split(" | ").map(|cell| draw_line(cell.trim())).collect()
    };
    let label = head.trim_matches(['|', ' ']).replace(" | ", ", ");
    html! {
        div class="scroll" tabindex="0" role="region" aria-label=(label) {
            table {
                thead { tr { @for cell in cells(head) { th scope="col" { (cell) } } } }
                // The first one is the rule below the head.
                tbody { @for row in rows.iter().skip(1) {
                    tr { @for cell in cells(row) { td { (cell) } } }
                } }
            }
        }
    }
}

/// Draws code, what is bold, and links: the one of those that begins first, and then what follows.
fn draw_line(text: &str) -> Markup {
    let span = |mark: &'static str| {
        let (before, rest) = text.split_once(mark)?;
        let (inside, after) = rest.split_once(mark)?;
        Some((before, inside, after, mark))
    };
    let spans = [span("`"), span("**"), find_link(text)];
    let first = spans.into_iter().flatten().min_by_key(|(before, ..)| before.len());
    let Some((before, inside, after, mark)) = first else { return html! { (text) } };
    let drawn = match mark {
        "`" => html! { code { (inside) } },
        "**" => html! { strong { (draw_line(inside)) } },
        _ => draw_link(inside),
    };
    html! { (before) (drawn) (draw_line(after)) }
}

/// Returns what is before a link, the link without its outer brackets, what is after it, and `[`.
fn find_link(text: &str) -> Option<(&str, &str, &str, &'static str)> {
    let (head, tail) = text.split_once("](")?;
    let begin = head.rfind('[')?;
    let end = text.len() - tail.len() + tail.find(')')?;
    Some((&text[..begin], &text[begin + 1..end], &text[end + 1..], "["))
}

/// Other documents are not here: what leads there is named.
fn draw_link(link: &str) -> Markup {
    let (name, target) = link.split_once("](").unwrap_or((link, ""));
    let file = target.split('#').next().unwrap_or(target);
    let known = RUNBOOKS.iter().find(|(name, _)| file.strip_suffix(".md") == Some(name));
    html! {
        @match known {
            Some((runbook, _)) => { a href=(runbook_path(runbook)) { (draw_line(name)) } }
            None => { (draw_line(name)) " (" code { "docs/" (file.trim_start_matches("../")) } ")" }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn all_runbooks_are_here_and_no_markdown_is_left() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/runbooks");
        let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name());
        let files: BTreeSet<String> = files.map(|name| name.into_string().unwrap()).collect();
        let known: BTreeSet<String> =
            RUNBOOKS.iter().map(|(name, _)| format!("{name}.md")).collect();
        assert_eq!(files, known);
        for (name, _) in RUNBOOKS {
            let (title, page) = find_runbook(name).unwrap();
            let mut page = page.into_string();
            assert!(!title.is_empty() && !title.contains('#') && page.len() > 500, "{name}");
            // What stands in code may look as it likes.
            while let Some((before, rest)) = page.split_once("<code>") {
                page = format!("{before}{}", rest.split_once("</code>").unwrap().1);
            }
            for left in ["](", "**", "`", " | ", "---", "\n- ", "##"] {
                assert!(!page.contains(left), "{left} in {name}:\n{page}");
            }
        }
    }

    #[test]
    fn what_runbooks_use_is_drawn() {
        let text = "A `b|c` and\n**d `e`**.\n\n- one\n  more\n- [Rails](rails.md#x), [ops](../operations.md)\n\n\
            1. first\n\n| a | b |\n|---|---|\n| `x` | <y> |\n\n```sh\nls | wc\n```\n";
        let drawn = draw_blocks(text).into_string();
        for part in [
            "<p>A <code>b|c</code> and <strong>d <code>e</code></strong>.</p>",
            "<ul><li>one more</li><li><a href=\"/console/runbooks/rails\">Rails</a>, ops \
            (<code>docs/operations.md</code>)</li></ul>",
            "<ol><li>first</li></ol>",
            "<th scope=\"col\">a</th>",
            "<td><code>x</code></td><td>&lt;y&gt;</td>",
            "<pre><code>ls | wc</code></pre>",
        ] {
            assert!(drawn.contains(part), "{part} is not in\n{drawn}");
        }
        assert!(find_runbook("../index").is_none());
    }
}
