//! `verbs3 bench s3`: what clients of an S3 endpoint get. Composes `verbs3_loadtest`, which
//! measures.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use verbs3_loadtest::bench_record::BenchRecord;
use verbs3_loadtest::comparison::{self, BenchPreparation, BenchReference};
use verbs3_loadtest::credentials::BenchCredentials;
use verbs3_loadtest::endpoint::BenchEndpoint;
use verbs3_loadtest::report;
use verbs3_loadtest::scenario::{BenchScenario, SHIPPED, shipped_scenario};

use super::s3_agents::{self, AgentBenchJob};
use super::s3_arguments::S3Arguments;
use crate::process::MISCONFIGURED;

/// What a load is to be, and against whom.
struct S3BenchJob {
    scenario: BenchScenario,
    target: BenchEndpoint,
    against: BenchReference,
    prepare: BenchPreparation,
}

/// Who measures: this process, or agents on other hosts.
enum S3BenchWork {
    Here(S3BenchJob),
    Agents(AgentBenchJob),
}

/// Lists, shows or runs a scenario. Status 1: requests failed. Status 2: the arguments can't be
/// used.
pub fn run_s3_bench(arguments: &S3Arguments) -> ExitCode {
    let named = arguments.scenario.as_deref().unwrap_or_default();
    if arguments.list {
        return list_scenarios();
    }
    if arguments.agent {
        return s3_agents::serve_conductor();
    }
    let job = read_scenario(named).and_then(|text| {
        if arguments.show {
            print!("{text}");
            return Ok(None);
        }
        match &arguments.agents {
            Some(hosts) => {
                let scenario = build_scenario(arguments, named, &text)?;
                AgentBenchJob::from_arguments(arguments, hosts, scenario, text)
                    .map(|job| Some(S3BenchWork::Agents(job)))
            }
            None => build_job(arguments, named, &text).map(|job| Some(S3BenchWork::Here(job))),
        }
    });
    let measured = match job {
        Ok(Some(S3BenchWork::Here(job))) => measure_endpoints(arguments, job),
        Ok(Some(S3BenchWork::Agents(job))) => job
            .measure()
            .and_then(|record| record.map_or(Ok(0), |record| show_record(arguments, &record))),
        Ok(None) => return ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            return ExitCode::from(MISCONFIGURED);
        }
    };
    match measured {
        Ok(0) => ExitCode::SUCCESS,
        Ok(errors) => {
            eprintln!("{errors} requests failed");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn list_scenarios() -> ExitCode {
    for (name, text) in SHIPPED {
        // A test holds that each can be read.
        let description =
            BenchScenario::parse(text).map(|scenario| scenario.description).unwrap_or_default();
        println!("{name:22}{description}");
    }
    ExitCode::SUCCESS
}

/// Of a file, or of a shipped scenario where there is no such file.
fn read_scenario(named: &str) -> anyhow::Result<String> {
    let path = Path::new(named);
    match (path.exists(), shipped_scenario(named)) {
        (false, Some(text)) => Ok(text.to_owned()),
        (false, None) => anyhow::bail!(
            "{named}: no such file, and no such scenario; `verbs3 bench s3 --list` has those that \
            there are"
        ),
        (true, _) => std::fs::read_to_string(path).with_context(|| format!("can't read {named}")),
    }
}

fn build_scenario(
    arguments: &S3Arguments,
    named: &str,
    text: &str,
) -> anyhow::Result<BenchScenario> {
    let mut scenario = BenchScenario::parse(text).map_err(|problems| {
        let lines: Vec<String> =
            problems.iter().map(|problem| format!("{named}: {problem}")).collect();
        anyhow::anyhow!("{}", lines.join("\n"))
    })?;
    arguments.scenario_changes().apply_overrides(&mut scenario)?;
    Ok(scenario)
}

fn build_job(arguments: &S3Arguments, named: &str, text: &str) -> anyhow::Result<S3BenchJob> {
    let scenario = build_scenario(arguments, named, text)?;
    let keys = |access: &Option<String>, secret: &Option<String>| {
        let (access_key, secret_key) = (access.clone()?, secret.clone()?);
        Some(BenchCredentials { access_key, secret_key, region: arguments.region.clone() })
    };
    let own = arguments.own_credentials();
    let theirs = match keys(&arguments.against_access_key, &arguments.against_secret_key) {
        _ if arguments.against_unsigned => None,
        Some(theirs) => Some(theirs),
        None => own.clone(),
    };
    let url = arguments.target.as_deref().unwrap_or_default();
    let target = BenchEndpoint::parse(url, "target", own.as_ref(), &arguments.pids)?;
    let against = match arguments.against.as_deref() {
        None => BenchReference::Nothing,
        Some("nginx") => BenchReference::Nginx,
        Some(url) => BenchReference::Endpoint(BenchEndpoint::parse(
            url,
            "against",
            theirs.as_ref(),
            &arguments.against_pids,
        )?),
    };
    Ok(S3BenchJob { scenario, target, against, prepare: arguments.prepare.into() })
}

/// Gives the number of failed requests.
fn measure_endpoints(arguments: &S3Arguments, job: S3BenchJob) -> anyhow::Result<u64> {
    let S3BenchJob { scenario, target, against, prepare } = job;
    if arguments.prepare_only {
        let endpoint =
            if let BenchReference::Endpoint(endpoint) = &against { Some(endpoint) } else { None };
        comparison::put_in(&scenario, &target, endpoint, prepare)?;
        return Ok(0);
    }
    let record = comparison::run_comparison(scenario, &target, &against, prepare)?;
    show_record(arguments, &record)
}

/// Gives the number of failed requests.
fn show_record(arguments: &S3Arguments, record: &BenchRecord) -> anyhow::Result<u64> {
    if let Some(path) = &arguments.html {
        std::fs::write(path, report::render_html(record))
            .with_context(|| format!("can't write {}", path.display()))?;
    }
    print_record(arguments, record)?;
    Ok(record.error_count())
}

fn print_record(arguments: &S3Arguments, record: &BenchRecord) -> anyhow::Result<()> {
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(record)?);
    } else {
        print!("{}", report::render_text(record));
    }
    Ok(())
}
