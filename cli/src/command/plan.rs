//! `verbs3 plan`: does the data fit, what does it take, how long until it is warm. Reads figures,
//! prints a plan, writes a configuration. `formulas` computes; this asks and shows.

mod capacity_input;
mod capacity_plan;
mod configuration_file;
mod findings;
mod formulas;
mod shown_figures;
mod table;

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use verbs3_config::{ConfigLayers, RootSettings, load_config};

pub use capacity_input::CapacityFigures;
use findings::PlanSeverity;

use crate::arguments::plan::PlanArguments;
use crate::process::MISCONFIGURED;

/// Rises when a field of the document changes its meaning or goes away.
const SCHEMA: u32 = 1;

/// Prints a plan. Status 0: it fits. Status 1: a warning, or something to do. Status 2: it does not
/// fit, or the figures can't be used.
pub fn run_plan(arguments: &PlanArguments) -> ExitCode {
    match plan_capacity(arguments) {
        Ok(PlanSeverity::Fits) => ExitCode::SUCCESS,
        Ok(PlanSeverity::Warn | PlanSeverity::Act) => ExitCode::FAILURE,
        Ok(PlanSeverity::DoesNotFit) => ExitCode::from(MISCONFIGURED),
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::from(MISCONFIGURED)
        }
    }
}

fn plan_capacity(arguments: &PlanArguments) -> anyhow::Result<PlanSeverity> {
    let mut figures = arguments.figures.clone();
    if let Some(path) = &arguments.file {
        figures = figures.or_file(CapacityFigures::read_file(path)?);
    }
    let settings = RootSettings::default();
    let input = figures.complete_input(&settings)?;
    let plan = formulas::compute_plan(&input, &settings);
    let found = findings::judge_plan(&input, &settings, &plan);
    let worst = found.iter().map(|finding| finding.severity).max().unwrap_or(PlanSeverity::Fits);
    let printed = if arguments.json {
        let document = serde_json::json!({
            "schema": SCHEMA,
            "version": env!("CARGO_PKG_VERSION"),
            "verdict": worst,
            "input": input,
            "plan": plan,
            "findings": found,
        });
        format!("{document:#}\n")
    } else {
        table::render_plan(&input, &plan, &found)
    };
    // Whoever closed the pipe has read enough.
    let _ = std::io::stdout().write_all(printed.as_bytes());
    if let Some(path) = &arguments.write {
        let text =
            configuration_file::write_configuration(&input, &settings, &plan, &arguments.places);
        save_configuration(path, &text)?;
    }
    Ok(worst)
}

/// Writes a new file, and has it judged by what judges every configuration.
fn save_configuration(path: &Path, text: &str) -> anyhow::Result<()> {
    let shown = || format!("can't write {}", path.display());
    let mut file =
        std::fs::OpenOptions::new().write(true).create_new(true).open(path).with_context(shown)?;
    file.write_all(text.as_bytes()).with_context(shown)?;
    let layers = ConfigLayers { file: Some(path.to_owned()), ..ConfigLayers::default() };
    load_config(&layers, &[]).with_context(|| format!("{} is not to be used", path.display()))?;
    Ok(())
}
