//! Makes `COMPATIBILITY.md` of its template, the operation table, and the S3 suite's results:
//! `BLESS=1 cargo test -p verbs3-gateway compatibility` writes it. The prose is in
//! `compatibility.template.md`.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;

use super::super::*;

#[derive(Deserialize)]
struct SuiteResults {
    operations: BTreeMap<String, SuiteVerdict>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum SuiteVerdict {
    Same(String),
    Differs(Vec<String>),
}

#[derive(Deserialize)]
struct AllowedDifferences {
    allowed: Vec<SuiteDifference>,
}

#[derive(Deserialize)]
struct SuiteDifference {
    case: Option<String>,
    reason: String,
}

#[derive(Deserialize)]
struct KnownDeviations {
    deviation: Vec<SuiteDifference>,
}

fn crate_file(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn read<T: serde::de::DeserializeOwned>(name: &str) -> T {
    let path = crate_file("../tests/s3suite").join(name);
    let text = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    toml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn route_text(row: &OperationRow) -> &'static str {
    match row.way {
        OperationRoute::bypass | OperationRoute::ended => "to the UFS",
        OperationRoute::cached => "through the cache",
        OperationRoute::verified => "to the UFS, its body checked on the way",
        OperationRoute::listed => "to the UFS; homes hear what it shows",
        OperationRoute::copied => "to the UFS; both sides are mounts",
        OperationRoute::batch => "to the UFS, key by key authorised",
        OperationRoute::mounts => "answered from the mounts",
        OperationRoute::refused => "refused: 501",
    }
}

fn right_text(row: &OperationRow) -> &'static str {
    match row.right {
        AccessRight::read => "read",
        AccessRight::write => "write",
        AccessRight::list => "list",
        AccessRight::delete => "delete",
        AccessRight::acl => "acl",
        AccessRight::lock => "lock",
        AccessRight::admin => "admin",
        AccessRight::warm => "warm",
        AccessRight::seen => "any",
    }
}

fn operations_table(results: &SuiteResults) -> String {
    let mut text = "| operation | way | right | on a mount of a part of a bucket | told to the \
        homes | in the suite |\n|---|---|---|---|---|---|\n"
        .to_owned();
    for row in TABLE {
        let prefix = match (row.scope, row.way) {
            (_, OperationRoute::refused) => "",
            (AccessScope::settings, _) => "refused: 403",
            (
                AccessScope::object
                | AccessScope::listing
                | AccessScope::bucket
                | AccessScope::service,
                _,
            ) => "yes",
        };
        let announces = match row.announces {
            HomeNoticeScope::nothing => "",
            HomeNoticeScope::key => "the key",
            HomeNoticeScope::keys => "each key",
        };
        let verdict = match results.operations.get(row.name) {
            None => "",
            Some(SuiteVerdict::Same(same)) => same.as_str(),
            Some(SuiteVerdict::Differs(_)) => "differs, see below",
        };
        let right = if row.way == OperationRoute::refused { "" } else { right_text(row) };
        text += &format!(
            "| {} | {} | {right} | {prefix} | {announces} | {verdict} |\n",
            row.name,
            route_text(row)
        );
    }
    text
}

fn differences_list(results: &SuiteResults) -> String {
    let mut text = String::new();
    for (name, verdict) in &results.operations {
        if let SuiteVerdict::Differs(reasons) = verdict {
            text += &list_item(&format!("**{name}**: {}.", reasons.join("; ")));
        }
    }
    text
}

/// Lists each reason once, with the files of the cases that have it.
fn reasons_list(entries: &[SuiteDifference]) -> String {
    let mut by_reason: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for entry in entries {
        let file = entry.case.as_deref().unwrap_or("*").split("::").next().unwrap();
        let files = by_reason.entry(&entry.reason).or_default();
        if !files.contains(&file) {
            files.push(file);
        }
    }
    let shown = |files: &[&str]| {
        if files == ["*"] { "all cases".to_owned() } else { format!("`{}`", files.join("`, `")) }
    };
    let items = by_reason.iter();
    items.map(|(reason, files)| list_item(&format!("{reason} ({})", shown(files)))).collect()
}

/// Formats an item of a list, wrapped at 100 columns.
fn list_item(text: &str) -> String {
    let (mut item, mut columns) = ("-".to_owned(), 1);
    for word in text.split_whitespace() {
        let width = word.chars().count();
        if columns > 2 && columns + 1 + width > 100 {
            item.push_str("\n ");
            columns = 1;
        }
        item.push(' ');
        item.push_str(word);
        columns += 1 + width;
    }
    item + "\n"
}

fn build_document() -> String {
    let results: SuiteResults = read("results.toml");
    let known = |name: &&String| TABLE.iter().any(|row| row.name == **name);
    let unknown: Vec<&String> = results.operations.keys().filter(|name| !known(name)).collect();
    assert!(
        unknown.is_empty(),
        "the suite asks for operations that the table has not: {unknown:?}"
    );
    let (allowed, gateway): (AllowedDifferences, KnownDeviations) =
        (read("allowed_differences.toml"), read("gateway.toml"));
    let dev: KnownDeviations = read("dev.toml");
    let template = std::fs::read_to_string(crate_file("compatibility.template.md")).unwrap();
    let parts = [
        ("operations", operations_table(&results)),
        ("differences", differences_list(&results)),
        ("allowed", reasons_list(&allowed.allowed)),
        ("gateway", reasons_list(&gateway.deviation)),
        ("dev", reasons_list(&dev.deviation)),
    ];
    parts.into_iter().fold(template, |text, (name, part)| {
        let mark = format!("{{{{{name}}}}}\n");
        assert_eq!(text.matches(&mark).count(), 1, "{mark} in the template");
        text.replace(&mark, &part)
    })
}

#[test]
fn the_compatibility_document_is_what_table_and_suite_say() {
    let (path, wanted) = (crate_file("COMPATIBILITY.md"), build_document());
    if std::env::var_os("BLESS").is_some_and(|value| value == "1") {
        std::fs::write(&path, wanted).unwrap();
        return;
    }
    let found = std::fs::read_to_string(&path).unwrap();
    let missing: Vec<&str> =
        wanted.lines().filter(|line| !found.lines().any(|other| other == *line)).collect();
    let stale: Vec<&str> =
        found.lines().filter(|line| !wanted.lines().any(|other| other == *line)).collect();
    assert!(
        found == wanted,
        "COMPATIBILITY.md is not current: run this with BLESS=1.\nmissing: {missing:#?}\nto go: \
        {stale:#?}"
    );
}
