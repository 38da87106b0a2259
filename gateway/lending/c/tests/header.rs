//! `include/verbs3.h` says what the functions are: it is made of their sources.
#![allow(clippy::unwrap_used)]

use std::path::Path;

/// In the order in which a reader wants them.
const SOURCES: [&str; 6] =
    ["call_result", "lent_arguments", "lent_client", "lent_answer", "lent_batch", "lent_writer"];
const HEAD: &str = "\
/* Reads and writes objects through the gateway of this host, by memory that this process lends it.
 *
 * Made of the sources in gateway/lending/c/src; docs/lending-c.md says how to use it. A call copies
 * what it is handed, and keeps no pointer of it, but for keep_waiting and its context. Who calls sees
 * to it that pointers are what is said of them: null is noticed, and nothing else can be. A call that
 * fails leaves null or 0 in the place of its result. */
";

fn make_header(folder: &Path) -> String {
    let config = cbindgen::Config {
        language: cbindgen::Language::C,
        style: cbindgen::Style::Type,
        include_guard: Some("VERBS3_H".to_owned()),
        cpp_compat: true,
        usize_is_size_t: true,
        header: Some(HEAD.trim_end().to_owned()),
        enumeration: cbindgen::EnumConfig {
            rename_variants: cbindgen::RenameRule::QualifiedScreamingSnakeCase,
            ..Default::default()
        },
        ..Default::default()
    };
    let mut builder = cbindgen::Builder::new().with_config(config);
    for name in SOURCES {
        builder = builder.with_src(folder.join("src").join(name).with_extension("rs"));
    }
    let mut made = Vec::new();
    builder.generate().unwrap().write(&mut made);
    // The heading is Rust's custom; the words under it hold for C.
    String::from_utf8(made).unwrap().replace(" * # Safety\n *\n", "")
}

#[test]
fn header_says_what_the_functions_are() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (path, made) = (folder.join("include/verbs3.h"), make_header(folder));
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(kept, made, "{} is not of these sources; run with BLESS=1", path.display());
}
