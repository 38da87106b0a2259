//! Commands that answer and end.
#![allow(clippy::unwrap_used)]

mod processes;

use processes::{run, text, verbs3};

fn example(name: &str) -> String {
    format!("{}/../config/examples/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// The bad one ends with status 2.
#[test]
fn a_good_file_is_fine_and_a_bad_one_lists_its_problems() {
    let good = run(&["config", "check", &example("dev.toml"), "--role", "dev"]);
    assert_eq!((good.status.code(), text(&good.stdout).contains("is fine")), (Some(0), true));
    let bad = run(&[
        "config",
        "check",
        &example("dev.toml"),
        "--set",
        "gateway.lisen=1",
        "--set",
        "worker.fill.reserve=9",
    ]);
    assert_eq!(bad.status.code(), Some(2));
    let said = text(&bad.stdout);
    assert!(
        said.contains("gateway.lisen: no such setting; did you mean \"listen\"? (flag --set)"),
        "{said}"
    );
    assert!(
        said.contains("worker.fill.reserve: 9 is not between 0 and 0.9 (flag --set)"),
        "{said}"
    );
}

#[test]
fn what_is_shown_has_origins_and_no_secret() {
    let mut command = verbs3();
    command.args([
        "config",
        "show",
        &example("dev.toml"),
        "--role",
        "dev",
        "--set",
        "dev.workers=3",
    ]);
    let output = command
        .env("VERBS3_CLUSTER__SECRET", "hunter2 hunter2 hunter2 hunter2 and so on")
        .output()
        .unwrap();
    let shown = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{shown}{}", text(&output.stderr));
    assert!(!shown.contains("hunter2"), "{shown}");
    let line = |start: &str| {
        shown
            .lines()
            .find(|line| line.starts_with(start))
            .unwrap_or_else(|| panic!("{start}\n{shown}"))
    };
    assert!(line("cluster.secret = ").ends_with("environment variable VERBS3_CLUSTER__SECRET"));
    assert!(line("dev.workers = 3").ends_with("flag --set"));
    assert!(line("dev.dir = ").ends_with("dev.toml"));
}

#[test]
fn doctor_says_which_transport_this_host_has() {
    let output = run(&["doctor"]);
    let said = text(&output.stdout);
    // What this host lacks is its own affair; that it is told is not.
    assert!(matches!(output.status.code(), Some(0..=2)), "{said}");
    assert!(
        said.lines().next().is_some_and(|line| line.contains(" transport     host: ")),
        "{said}"
    );
}

#[test]
fn help_teaches_by_example() {
    for (words, wanted) in [
        (&["--help"][..], "verbs3 dev"),
        (&["dev", "--help"], "--no-demo"),
        (&["gateway", "--help"], "SIGTERM"),
        (&["doctor", "--help"], "--peer"),
    ] {
        let output = run(words);
        assert!(output.status.success() && text(&output.stdout).contains(wanted), "{words:?}");
    }
    assert!(text(&run(&["version"]).stdout).starts_with("verbs3 "));
    assert_eq!(run(&["serve"]).status.code(), Some(2));
}

/// A network that lost its NICs would be accepted with the figures of tcp.
#[test]
fn a_way_that_is_named_has_to_be_measured() {
    let bench = ["bench", "fabric", "--loopback", "--sizes", "64B", "--seconds", "0.01"];
    let small = ["--memory", "16MiB", "--directions", "read", "--no-plain"];
    let every = run(&[&bench[..], &small].concat());
    assert_eq!(every.status.code(), Some(0), "{}", text(&every.stderr));
    let named = run(&[&bench[..], &small, &["--ways", "tcp,verbs"]].concat());
    assert_eq!(named.status.code(), Some(1), "{}", text(&named.stderr));
    let said = text(&named.stdout);
    assert!(said.contains("not measured: verbs: "), "{said}");
    assert!(!said.contains("not measured: shm: "), "it was not asked for: {said}");
}
