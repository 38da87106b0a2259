//! What is wrong with a configuration, and where.

use std::fmt;

use crate::setting_origin::SettingOrigin;

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProblemSeverity {
    /// The process does not start.
    Error,
    /// It starts, and may not do what was meant.
    Warning,
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigProblem {
    pub severity: ProblemSeverity,
    /// TOML path of the setting, such as `mount[2].ufs`; empty where the whole file is meant.
    pub path: String,
    /// What is wrong, and what to do.
    pub message: String,
    /// Where the value came from, if not from the file.
    pub origin: Option<SettingOrigin>,
}

/// Everything that is wrong, at least one error among it.
#[derive(Debug, Clone, thiserror::Error)]
pub struct ConfigError(pub Vec<ConfigProblem>);

impl ConfigProblem {
    pub fn new_error(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            severity: ProblemSeverity::Error,
            path: path.into(),
            message: message.into(),
            origin: None,
        }
    }

    pub fn new_warning(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { severity: ProblemSeverity::Warning, ..Self::new_error(path, message) }
    }
}

impl fmt::Display for ConfigProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.severity == ProblemSeverity::Warning {
            f.write_str("warning: ")?;
        }
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)?;
        match &self.origin {
            Some(origin @ (SettingOrigin::Environment(_) | SettingOrigin::Flag(_))) => {
                write!(f, " ({origin})")
            }
            Some(SettingOrigin::File(_) | SettingOrigin::Default) | None => Ok(()),
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            problem.fmt(f)?;
        }
        Ok(())
    }
}

/// `; did you mean "x"?` for the closest candidate that is close at all, else nothing.
pub fn suggest_name<'a>(wrong: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    let score = |candidate: &str| strsim::damerau_levenshtein(wrong, candidate);
    candidates
        .into_iter()
        .filter(|candidate| !candidate.is_empty() && *candidate != wrong)
        .map(|candidate| (score(candidate), candidate))
        .min()
        // A third of the letters may be wrong: more is another word.
        .filter(|(distance, candidate)| *distance <= wrong.len().max(candidate.len()).div_ceil(3))
        .map(|(_, candidate)| format!("; did you mean {candidate:?}?"))
        .unwrap_or_default()
}
