//! Reads fields out of a TOML table and keeps every problem with its path, instead of ending at the
//! first.
//!
//! Owns names, kinds and ranges. `scenario` knows what fields mean together.

use std::cell::RefCell;
use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use toml::{Table, Value};

use crate::units;

/// Problem of a document, with its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScenarioProblem {
    /// Path such as `access.range_bytes`; empty for the document itself.
    pub path: String,
    pub what: String,
}

impl fmt::Display for ScenarioProblem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            out.write_str(&self.what)
        } else {
            write!(out, "{}: {}", self.path, self.what)
        }
    }
}

/// All problems of one document.
#[derive(Debug, Default)]
pub struct ScenarioProblemList(RefCell<Vec<ScenarioProblem>>);

impl ScenarioProblemList {
    /// Adds a problem; an empty `path` means the document itself.
    pub fn add_problem(&self, path: impl Into<String>, what: impl Into<String>) {
        self.0.borrow_mut().push(ScenarioProblem { path: path.into(), what: what.into() });
    }

    /// Returns all problems in the order in which they were found.
    pub fn into_inner(self) -> Vec<ScenarioProblem> {
        self.0.into_inner()
    }
}

/// One table. Reading takes fields out of it; what is left at the end is unknown.
pub struct ScenarioFields<'a> {
    path: String,
    table: Table,
    known: Vec<&'static str>,
    problems: &'a ScenarioProblemList,
}

impl<'a> ScenarioFields<'a> {
    /// Creates the fields of the document's root table.
    pub fn new(table: Table, problems: &'a ScenarioProblemList) -> Self {
        Self { path: String::new(), table, known: Vec::new(), problems }
    }

    /// Returns a field's path from the document's root: `access.range_bytes`.
    pub fn field_path(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    /// Adds a problem with a field of this table.
    pub fn report_problem(&self, name: &str, what: impl Into<String>) {
        self.problems.add_problem(self.field_path(name), what);
    }

    fn take_field(&mut self, name: &'static str) -> Option<Value> {
        self.known.push(name);
        self.table.remove(name)
    }

    /// Takes a table within this one; an absent table is empty.
    pub fn take_section(&mut self, name: &'static str) -> ScenarioFields<'a> {
        let table = match self.take_field(name) {
            Some(Value::Table(table)) => table,
            Some(_) => {
                self.report_problem(name, format!("must be a table: [{name}]"));
                Table::new()
            }
            None => Table::new(),
        };
        ScenarioFields {
            path: self.field_path(name),
            table,
            known: Vec::new(),
            problems: self.problems,
        }
    }

    /// Reads a field with `read`. If it is wrong or missing, keeps the problem and returns
    /// `fallback`.
    fn read_field<T>(
        &mut self,
        name: &'static str,
        default: Option<T>,
        fallback: T,
        read: impl FnOnce(&Value) -> Result<T, String>,
    ) -> T {
        match (self.take_field(name).map(|value| read(&value)), default) {
            (Some(Ok(value)), _) => value,
            (Some(Err(what)), _) => {
                self.report_problem(name, what);
                fallback
            }
            (None, Some(default)) => default,
            (None, None) => {
                self.report_problem(name, "is missing");
                fallback
            }
        }
    }

    /// Reads a text. Without a default, a missing field is a problem.
    pub fn read_text(&mut self, name: &'static str, default: Option<&str>) -> String {
        self.read_field(name, default.map(str::to_owned), String::new(), |value| {
            value.as_str().map(str::to_owned).ok_or_else(|| "must be text".to_owned())
        })
    }

    /// Reads `true` or `false`; an absent field is `default`.
    pub fn read_flag(&mut self, name: &'static str, default: bool) -> bool {
        self.read_field(name, Some(default), default, |value| {
            value.as_bool().ok_or_else(|| "must be true or false".into())
        })
    }

    /// Reads a whole number within `range`. Without a default, a missing field is a problem.
    pub fn read_count(
        &mut self,
        name: &'static str,
        default: Option<u64>,
        range: RangeInclusive<u64>,
    ) -> u64 {
        let fallback = *range.start();
        self.read_field(name, default, fallback, |value| {
            let number = value.as_integer().and_then(|number| u64::try_from(number).ok());
            number.filter(|number| range.contains(number)).ok_or_else(|| {
                format!("must be a whole number from {} to {}", range.start(), range.end())
            })
        })
    }

    /// Reads a number within `range`, whole or not. Without a default, a missing field is a
    /// problem.
    pub fn read_number(
        &mut self,
        name: &'static str,
        default: Option<f64>,
        range: RangeInclusive<f64>,
    ) -> f64 {
        let fallback = *range.end();
        self.read_field(name, default, fallback, |value| {
            let number =
                value.as_float().or_else(|| value.as_integer().map(|number| number as f64));
            number.filter(|number| range.contains(number)).ok_or_else(|| {
                format!("must be a number from {} to {}", range.start(), range.end())
            })
        })
    }

    /// Reads a time like `5s`, from 0 to `max`. Without a default, a missing field is a problem.
    pub fn read_time(
        &mut self,
        name: &'static str,
        default: Option<Duration>,
        max: Duration,
    ) -> Duration {
        self.read_field(name, default, Duration::ZERO, |value| {
            let text = value.as_str().ok_or_else(|| "must be a time like \"5s\"".to_owned())?;
            let time = units::parse_time(text)?;
            if time <= max {
                Ok(time)
            } else {
                Err(format!("must be at most {}", units::show_time(max)))
            }
        })
    }

    /// Reads one of `choices`; a wrong value becomes the first one.
    pub fn read_choice(
        &mut self,
        name: &'static str,
        default: Option<&'static str>,
        choices: &[&'static str],
    ) -> &'static str {
        let listed = || choices.join(", ");
        self.read_field(name, default, choices[0], |value| {
            let text = value.as_str().ok_or_else(|| format!("must be one of {}", listed()))?;
            let found = choices.iter().find(|choice| **choice == text);
            found.copied().ok_or_else(|| format!("{text:?} is not one of {}", listed()))
        })
    }

    /// Reads a length within `range` in bytes: `4KiB` or a whole number. Without a default, a
    /// missing field is a problem.
    pub fn read_length(
        &mut self,
        name: &'static str,
        default: Option<u64>,
        range: RangeInclusive<u64>,
    ) -> u64 {
        let fallback = *range.start();
        self.read_field(name, default, fallback, |value| parse_length(value, &range))
    }

    /// Reads a length; `None` if it is absent.
    pub fn optional_length(
        &mut self,
        name: &'static str,
        range: RangeInclusive<u64>,
    ) -> Option<u64> {
        self.read_field(name, Some(None), None, |value| parse_length(value, &range).map(Some))
    }

    /// Reads a whole number within `range`; `None` if it is absent.
    pub fn optional_count(
        &mut self,
        name: &'static str,
        range: RangeInclusive<u64>,
    ) -> Option<u64> {
        if self.table.contains_key(name) {
            Some(self.read_count(name, None, range))
        } else {
            self.mark_known(name)
        }
    }

    fn mark_known<T>(&mut self, name: &'static str) -> Option<T> {
        self.known.push(name);
        None
    }

    /// Reads one length, or `{ from = …, to = … }`.
    pub fn read_length_range(
        &mut self,
        name: &'static str,
        range: RangeInclusive<u64>,
    ) -> (u64, u64) {
        if self.table.get(name).is_some_and(Value::is_table) {
            let mut both = self.take_section(name);
            let from = both.read_length("from", None, range.clone());
            let to = both.read_length("to", None, range);
            if from > to {
                both.report_problem("from", "must not be above `to`");
            }
            both.reject_unknown();
            return (from, to.max(from));
        }
        let one = self.read_length(name, None, range);
        (one, one)
    }

    /// Reports all fields that were not taken.
    pub fn reject_unknown(self) {
        for name in self.table.keys() {
            let near =
                self.known.iter().find(|known| strsim::damerau_levenshtein(known, name) <= 2);
            let what = match near {
                Some(near) => format!("unknown field; did you mean `{near}`?"),
                None => format!("unknown field; there are {}", self.known.join(", ")),
            };
            self.report_problem(name, what);
        }
    }
}

fn parse_length(value: &Value, range: &RangeInclusive<u64>) -> Result<u64, String> {
    let bytes = match value {
        Value::String(text) => units::parse_bytes(text)?,
        Value::Integer(number) => {
            u64::try_from(*number).map_err(|_| "must be a length".to_owned())?
        }
        _ => return Err("must be a length like \"4KiB\"".to_owned()),
    };
    let shown = || {
        format!(
            "must be from {} to {}",
            units::show_bytes(*range.start()),
            units::show_bytes(*range.end())
        )
    };
    if range.contains(&bytes) { Ok(bytes) } else { Err(shown()) }
}
