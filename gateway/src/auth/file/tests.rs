//! What a file may say, and how its mistakes are told.
#![allow(clippy::unwrap_used)]
use super::*;

#[test]
fn a_file_with_both_kinds_of_secret_is_read() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("b.secret"), "from-a-file\n").unwrap();
    let text = r#"
        [[identity]]
        access_key = "A"
        secret_key = "inline"
        [[identity.allow]]
        mount = "*"
        rights = ["read", "list"]
        [[identity]]
        name = "bee"
        access_key = "B"
        secret_file = "b.secret"
    "#;
    let table = parse_identities(text, folder.path()).unwrap();
    assert_eq!(table["A"].secret.expose(), "inline");
    assert!(table["A"].allows_right("any", "key", AccessRight::read));
    assert_eq!((table["B"].identity_name(), table["B"].secret.expose()), ("bee", "from-a-file"));
    assert!(!table["B"].allows_right("any", "key", AccessRight::read));
}

#[test]
fn every_problem_is_reported_at_once_with_its_place() {
    let text = r#"
        colour = "red"
        [[identity]]
        access_key = 5
        [[identity]]
        access_key = "A"
        secret_key = "x"
        secret_file = "y"
        [[identity]]
        access_key = "A"
        secret_key = "x"
        [[identity]]
        access_key = "A"
        secret_key = "x"
        [[identity.allow]]
        rights = ["read", "fly"]
        prefixes = "a/"
        prefix = "train"
    "#;
    let problems = parse_identities(text, Path::new("/nonexistent")).unwrap_err();
    let places: Vec<&str> = problems.iter().map(|problem| problem.place.as_str()).collect();
    assert_eq!(
        places,
        [
            "colour",
            "identity[0].access_key",
            "identity[0]",
            "identity[1]",
            "identity[3].allow[0].prefixes",
            "identity[3].allow[0].mount",
            "identity[3].allow[0].prefix",
            "identity[3].allow[0].rights[1]",
            "identity[3].access_key",
        ],
        "{problems:#?}"
    );
}

#[test]
fn identity_says_whose_it_is_and_a_tenant_what_it_weighs() {
    let file = |tenant: &str, tail: &str| {
        format!(
            "[[identity]]\naccess_key = \"A\"\nsecret_key = \"x\"\n{tenant}\n\
             [[identity]]\nname = \"bee\"\naccess_key = \"B\"\nsecret_key = \"x\"\n{tail}"
        )
    };
    let table = parse_identities(
        &file("tenant = \"vision\"", "[[tenant]]\nname = \"vision\"\nweight = 3\n"),
        Path::new("."),
    )
    .unwrap();
    let whose = |key: &str| {
        let tenant = table[key].tenant();
        (tenant.tenant_name().to_owned(), tenant.tenant_weight())
    };
    assert_eq!((whose("A"), whose("B")), (("vision".into(), 3), ("bee".into(), 1)));
    for (tenant, tail, place) in [
        ("tenant = \"\"", "", "identity[0].tenant"),
        ("tenant = \"two words\"", "", "identity[0].tenant"),
        (&format!("tenant = \"{}\"", "x".repeat(65)), "", "identity[0].tenant"),
        ("tenant = 7", "", "identity[0].tenant"),
        ("", "[[tenant]]\nname = \"vision\"\n", "tenant[0]"),
        ("", "[[tenant]]\nname = \"bee\"\nweight = 0\n", "tenant[0].weight"),
        ("", "[[tenant]]\nweight = 2\n", "tenant[0].name"),
        ("", "[[tenant]]\nname = \"bee\"\n[[tenant]]\nname = \"bee\"", "tenant[1].name"),
    ] {
        let problems = parse_identities(&file(tenant, tail), Path::new(".")).unwrap_err();
        let places: Vec<&str> = problems.iter().map(|one| one.place.as_str()).collect();
        assert_eq!(places, [place], "{tenant} {tail}");
    }
}

#[test]
fn there_is_a_bound_on_tenants() {
    let identity = |number: usize, tenant: &str| {
        format!("[[identity]]\naccess_key = \"A{number}\"\nsecret_key = \"x\"\n{tenant}\n")
    };
    let file = |count: usize, tenant: &str| {
        (0..count).map(|number| identity(number, tenant)).collect::<String>()
    };
    let folder = Path::new(".");
    assert!(parse_identities(&file(TENANTS_MAX, ""), folder).is_ok());
    let problems = parse_identities(&file(TENANTS_MAX + 1, ""), folder).unwrap_err();
    assert_eq!(problems[0].place, format!("identity[{TENANTS_MAX}].tenant"));
    assert!(parse_identities(&file(TENANTS_MAX + 1, "tenant = \"all\""), folder).is_ok());
}

#[test]
fn a_prefix_ends_in_a_slash_or_says_that_it_does_not() {
    let file = |prefix: &str| {
        format!(
            "[[identity]]\naccess_key = \"A\"\nsecret_key = \"x\"\n[[identity.allow]]\nmount = \"sets\"\nprefix = \"{prefix}\"\n\
             rights = [\"read\", \"acl\", \"lock\"]\n"
        )
    };
    for (prefix, opened, closed) in [
        ("", "training/x", None),
        ("*", "training/x", None),
        ("train/", "train/x", Some("training/x")),
        ("train*", "training/x", Some("trail/x")),
        ("train/2*", "train/2026/x", Some("train/x")),
    ] {
        let table = parse_identities(&file(prefix), Path::new(".")).unwrap();
        for right in [AccessRight::read, AccessRight::acl, AccessRight::lock] {
            assert!(table["A"].allows_right("sets", opened, right), "{prefix} {right:?}");
            assert!(
                closed.is_none_or(|closed| !table["A"].allows_right("sets", closed, right)),
                "{prefix} {right:?}"
            );
        }
    }
    let problems = parse_identities(&file("train"), Path::new(".")).unwrap_err();
    assert_eq!((problems.len(), problems[0].place.as_str()), (1, "identity[0].allow[0].prefix"));
    assert!(
        problems[0].what.contains("\"train/\"") && problems[0].what.contains("\"train*\""),
        "{problems:?}"
    );
}

#[test]
fn a_syntax_error_names_its_line_and_quotes_nothing() {
    let problems =
        parse_identities("[[identity]]\nsecret_key = \"hush\" oops\n", Path::new(".")).unwrap_err();
    assert_eq!(problems[0].place, "line 2");
    assert!(!format!("{problems:?}").contains("hush"), "{problems:?}");
}

#[test]
fn a_mount_that_is_no_bucket_name_is_refused() {
    let file = |mount: &str| {
        format!(
            "[[identity]]\naccess_key = \"A\"\nsecret_key = \"x\"\n\
             [[identity.allow]]\nmount = \"{mount}\"\nrights = [\"read\"]\n"
        )
    };
    for good in ["*", "data", "sets.2026", "0-a"] {
        assert!(parse_identities(&file(good), Path::new(".")).is_ok(), "{good}");
    }
    for bad in ["", "dat a", "Data", "data/", "data*", "da", "dät", "-data", &"a".repeat(64)] {
        let problems = parse_identities(&file(bad), Path::new(".")).unwrap_err();
        assert_eq!(problems.len(), 1, "{bad}: {problems:?}");
        assert_eq!(problems[0].place, "identity[0].allow[0].mount");
        assert!(problems[0].what.contains("is no bucket name"), "{problems:?}");
        assert_eq!(problems[0].line, Some(5));
    }
}

#[test]
fn an_access_key_that_no_signature_can_name_is_refused() {
    let file = |key: &str| format!("[[identity]]\naccess_key = \"{key}\"\nsecret_key = \"x\"\n");
    for good in ["A", "AKTRAINER", "a-b_c.d+e="] {
        assert!(parse_identities(&file(good), Path::new(".")).is_ok(), "{good}");
    }
    for bad in ["hush/er", "hush,er", "hush er", " hush", "hush\\ter", "hüsh", "hush\\u007f"] {
        let problems = parse_identities(&file(bad), Path::new(".")).unwrap_err();
        assert_eq!(problems.len(), 1, "{bad}: {problems:?}");
        let told = problems[0].to_string();
        assert!(told.starts_with("identity[0].access_key (line 2): holds a "), "{told}");
        // It may be a secret in the wrong place.
        let what = &problems[0].what;
        assert!(!what.contains("hush") && !what.contains("hüsh"), "{what}");
    }
}
