//! What a check has found so far.

use std::error::Error;
use std::fmt::Display;
use std::path::Path;

use crate::problem::ConfigProblem;

/// Collects what is wrong; nothing is changed.
#[derive(Default)]
pub struct CheckFindings {
    pub problems: Vec<ConfigProblem>,
}

impl CheckFindings {
    pub fn add_error(&mut self, path: impl Into<String>, message: impl Into<String>) {
        self.problems.push(ConfigProblem::new_error(path, message));
    }

    /// Notes an error with all of its causes.
    pub fn add_failure(&mut self, path: impl Into<String>, error: &(dyn Error + 'static)) {
        let causes = std::iter::successors(error.source(), |cause| (**cause).source());
        let causes: String = causes.map(|cause| format!(": {cause}")).collect();
        self.add_error(path, format!("{error}{causes}"));
    }

    pub fn add_warning(&mut self, path: impl Into<String>, message: impl Into<String>) {
        self.problems.push(ConfigProblem::new_warning(path, message));
    }

    /// Notes an error where `value` is not between `min` and `max`, both included.
    pub fn check_range<T: PartialOrd + Display + Copy>(
        &mut self,
        path: impl Into<String>,
        value: T,
        min: T,
        max: T,
    ) {
        if !(min..=max).contains(&value) {
            self.add_error(path, format!("{value} is not between {min} and {max}"));
        }
    }

    pub fn check_readable(&mut self, path: impl Into<String>, file: &Path) {
        match std::fs::File::open(file).and_then(|file| file.metadata()) {
            Ok(metadata) if metadata.is_file() => {}
            Ok(_) => self.add_error(path, format!("{} is not a file", file.display())),
            Err(source) => self.add_error(path, format!("can't read {}: {source}", file.display())),
        }
    }
}
