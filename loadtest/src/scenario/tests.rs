//! Scenario files: what is accepted, and how wrong ones are answered.
#![allow(clippy::unwrap_used)]

use super::*;

const GOOD: &str =
    "name = \"x\"\n[objects]\ncount = 8\nbytes = \"4KiB\"\n[access]\npattern = \"uniform\"\n";

fn problems(text: &str) -> Vec<String> {
    let mut shown: Vec<_> =
        BenchScenario::parse(text).unwrap_err().iter().map(ScenarioProblem::to_string).collect();
    shown.sort();
    shown
}

#[test]
fn every_shipped_scenario_is_valid_and_bears_its_name() {
    for (name, text) in SHIPPED {
        let scenario =
            BenchScenario::parse(text).unwrap_or_else(|found| panic!("{name}: {found:?}"));
        assert_eq!(scenario.name, name);
        assert!(!scenario.description.is_empty(), "{name}");
        assert!(scenario.verify > 0.0, "{name} checks nothing");
    }
    let on_disk = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/scenarios")).unwrap();
    let mut names: Vec<_> =
        on_disk.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    let mut listed: Vec<_> = SHIPPED.iter().map(|(name, _)| format!("{name}.toml")).collect();
    listed.sort();
    assert_eq!(names, listed);
    assert!(shipped_scenario("zipf").is_some() && shipped_scenario("nothing").is_none());
}

#[test]
fn defaults_are_what_the_readme_says() {
    let scenario = BenchScenario::parse(GOOD).unwrap();
    assert_eq!((scenario.seed, scenario.verify), (1, 1.0));
    assert_eq!(scenario.access, ScenarioAccess::Uniform { range: None });
    assert_eq!(
        (scenario.load.pace, scenario.load.connections, scenario.load.operations),
        (ScenarioPace::Closed, 8, None)
    );
    assert_eq!(scenario.load.timeout, Duration::from_secs(30));
    let (time, warm_up) = (Duration::from_secs(5), Duration::from_secs(2));
    assert_eq!(scenario.rounds, ScenarioRounds { count: 5, time, warm_up, prime: false });
    assert_eq!((scenario.objects.fresh, scenario.objects.part_bytes), (false, 64 << 20));
}

#[test]
fn all_problems_are_reported_at_once_with_their_paths() {
    let text = "name = \"X\"\nverify = 2\nseeed = 1\n[objects]\nbytes = \"4KB\"\nfresh = 1\n[access]\npattern = \"zipf\"\nexponent = 0\nrnage_bytes = 1\n\
                [load]\npace = \"open\"\nconnections = 0\ntimeout = \"5\"\n[rounds]\ncount = \
                    0\ntime = \"0s\"\n[nonsense]\na = 1\n";
    let found = problems(text);
    let wanted = [
        "access.exponent: must be a number from 0.01 to 5",
        "access.rnage_bytes: unknown field; did you mean `range_bytes`?",
        "load.connections: must be a whole number from 1 to 4096",
        "load.requests_per_second: is missing",
        "load.timeout: \"5\" is no time",
        "name: must be 1 to 60",
        "nonsense: unknown field; there are ",
        "objects.bytes: \"4KB\" is no length",
        "objects.count: is missing",
        "objects.fresh: must be true or false",
        "rounds.count: must be a whole number from 1 to 1000",
        "rounds.time: must be above 0",
        "seeed: unknown field; did you mean `seed`?",
        "verify: must be a number from 0 to 1",
    ];
    for start in wanted {
        assert!(
            found.iter().any(|problem| problem.starts_with(start)),
            "{start}\nnot in\n{found:#?}"
        );
    }
}

#[test]
fn what_is_not_toml_is_one_problem_with_its_line() {
    let found = problems("name = \n");
    assert!(
        found.len() == 1 && found[0].contains("is not TOML") && found[0].contains("line 1"),
        "{found:?}"
    );
}

#[test]
fn fields_that_contradict_each_other_are_refused() {
    let with = |extra: &str, access: &str| {
        problems(&format!(
            "name = \"x\"\n[objects]\ncount = 9\nbytes = {{ from = \"4KiB\", to = \"8KiB\" \
            }}\n{extra}[access]\n{access}\n"
        ))
    };
    for (extra, access, path) in [
        ("", "pattern = \"uniform\"\nrange_bytes = \"5KiB\"", "access.range_bytes"),
        ("", "pattern = \"uniform\"\nalign = 4", "access.align"),
        ("", "pattern = \"sequential\"\nrange_bytes = 1", "objects.bytes"),
        ("fresh = true\n", "pattern = \"uniform\"", "objects.fresh"),
        ("", "pattern = \"write\"\nread_back = false", "objects.count"),
        ("", "pattern = \"shuffle\"\nexponent = 1", "access.exponent"),
    ] {
        let found = with(extra, access);
        assert!(found.len() == 1 && found[0].starts_with(path), "{access}: {found:?}");
    }
    let open = "[load]\npace = \"open\"\nrequests_per_second = 5\n";
    let write = format!("{}{open}", GOOD.replace("uniform", "write"));
    assert!(problems(&write)[0].starts_with("access.read_back"));
    let many = GOOD.replace("4KiB", "100GiB") + "[rounds]\ncount = 1\n";
    assert!(BenchScenario::parse(&many).is_ok());
    let many = many.replace("count = 8", "count = 8\npart_bytes = \"5MiB\"");
    assert!(problems(&many)[0].starts_with("objects.part_bytes"));
}
