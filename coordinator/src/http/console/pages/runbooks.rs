//! The runbooks of `docs/`, which the binary carries: operators read them where something is wrong,
//! in the version that runs, without another server.

use maud::{Markup, PreEscaped};
use pulldown_cmark::html::push_html;
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

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
    Some((title.trim_start_matches("# "), draw_markdown(rest)))
}

pub(super) fn runbook_path(name: &str) -> String {
    format!("/console/runbooks/{name}")
}

/// Draws Markdown. HTML in it is shown as it is written.
fn draw_markdown(text: &str) -> Markup {
    let (mut tables, mut elsewhere) = (0_u32, None);
    let events = Parser::new_ext(text, Options::ENABLE_TABLES).flat_map(|event| match event {
        Event::Start(Tag::Table(_)) => {
            tables += 1;
            let region = format!(
                "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Table {tables}\">"
            );
            vec![Event::Html(region.into()), event]
        }
        Event::End(TagEnd::Table) => vec![event, Event::Html("</div>".into())],
        Event::Start(Tag::Link { link_type, dest_url, title, id }) => {
            let file = dest_url.split('#').next().unwrap_or_default();
            match RUNBOOKS.iter().find(|(name, _)| file.strip_suffix(".md") == Some(name)) {
                Some((name, _)) => {
                    let dest_url = runbook_path(name).into();
                    vec![Event::Start(Tag::Link { link_type, dest_url, title, id })]
                }
                None => {
                    elsewhere = Some(format!("docs/{}", file.trim_start_matches("../")));
                    Vec::new()
                }
            }
        }
        // Other documents are not here: what leads there is named.
        Event::End(TagEnd::Link) => match elsewhere.take() {
            Some(file) => {
                vec![Event::Text(" (".into()), Event::Code(file.into()), Event::Text(")".into())]
            }
            None => vec![event],
        },
        Event::Html(text) | Event::InlineHtml(text) => vec![Event::Text(text)],
        event => vec![event],
    });
    let mut drawn = String::with_capacity(2 * text.len());
    push_html(&mut drawn, events);
    PreEscaped(drawn)
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
            while let Some((before, rest)) = page.split_once("<code") {
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
        let drawn = draw_markdown(text).into_string();
        for part in [
            "<p>A <code>b|c</code> and\n<strong>d <code>e</code></strong>.</p>",
            "<li>one\nmore</li>",
            "<li><a href=\"/console/runbooks/rails\">Rails</a>, ops (<code>docs/operations.md</code>)</li>",
            "<ol>\n<li>first</li>\n</ol>",
            "aria-label=\"Table 1\"><table>",
            "<th>a</th>",
            "<td><code>x</code></td><td>&lt;y&gt;</td>",
            "<pre><code class=\"language-sh\">ls | wc\n</code></pre>",
        ] {
            assert!(drawn.contains(part), "{part} is not in\n{drawn}");
        }
        assert!(find_runbook("../index").is_none());
    }
}
