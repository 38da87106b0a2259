//! One step of an acceptance run: what was done, what came of it, what was expected, and the verdict.
//! Pure. Every step has a verdict; one that was not run says why.

use serde_json::{Value, json};

/// How a step ended. A later one is worse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum StepVerdict {
    NotRun,
    /// Measured, and there is no figure to hold it against.
    Recorded,
    AsExpected,
    Below,
    /// Begun, and it gave no figure.
    Failed,
}

/// The bound that a figure must keep.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FigureLimit {
    AtLeast(f64),
    AtMost(f64),
}

/// What is expected of a figure, and who says so.
#[derive(Debug, Clone, PartialEq)]
pub struct FigureExpectation {
    pub limit: FigureLimit,
    /// Where the bound comes from: a document, or a step of the same run.
    pub source: String,
}

/// One figure of a step.
#[derive(Debug, Clone, PartialEq)]
pub struct StepFigure {
    pub what: String,
    pub value: f64,
    pub unit: &'static str,
    pub expected: Option<FigureExpectation>,
}

/// What came of a step.
#[derive(Debug, Clone, PartialEq)]
pub enum StepOutcome {
    Measured(Vec<StepFigure>),
    NotRun(StepReason),
    Failed(StepReason),
}

/// Why a step has no figure, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepReason {
    pub seen: String,
    pub remedy: String,
}

/// A step before it has an outcome.
#[derive(Debug, Clone)]
pub struct StepTitle {
    pub name: &'static str,
    /// The host, or the rail.
    pub subject: String,
    /// What does the same by hand.
    pub command: String,
}

/// One step.
#[derive(Debug, Clone)]
pub struct AcceptanceStep {
    pub title: StepTitle,
    pub outcome: StepOutcome,
    /// What the step's own tool gave, whole.
    pub record: Option<Value>,
}

impl StepVerdict {
    /// Returns the name in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotRun => "not_run",
            Self::Recorded => "recorded",
            Self::AsExpected => "as_expected",
            Self::Below => "below",
            Self::Failed => "failed",
        }
    }
}

impl StepReason {
    /// Joins a reason and its remedy.
    pub fn new(seen: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { seen: seen.into(), remedy: remedy.into() }
    }
}

impl StepTitle {
    /// Names a step.
    pub fn new(name: &'static str, subject: impl Into<String>, command: impl Into<String>) -> Self {
        Self { name, subject: subject.into(), command: command.into() }
    }

    /// Ends the step before anything of it was begun.
    pub fn not_run(self, because: StepReason) -> AcceptanceStep {
        AcceptanceStep { title: self, outcome: StepOutcome::NotRun(because), record: None }
    }

    /// Ends the step that was begun and gave nothing.
    pub fn failed(self, because: StepReason) -> AcceptanceStep {
        AcceptanceStep { title: self, outcome: StepOutcome::Failed(because), record: None }
    }

    /// Ends the step with figures.
    pub fn measured(self, figures: Vec<StepFigure>) -> AcceptanceStep {
        AcceptanceStep { title: self, outcome: StepOutcome::Measured(figures), record: None }
    }
}

impl StepFigure {
    /// A figure that is only written down.
    pub fn recorded(what: impl Into<String>, value: f64, unit: &'static str) -> Self {
        Self { what: what.into(), value, unit, expected: None }
    }

    /// Adds what is expected.
    pub fn with_limit(self, limit: FigureLimit, source: impl Into<String>) -> Self {
        Self { expected: Some(FigureExpectation { limit, source: source.into() }), ..self }
    }

    /// Judges the figure. What is no number keeps no bound.
    pub fn verdict(&self) -> StepVerdict {
        let kept = match self.expected.as_ref().map(|expected| expected.limit) {
            None => return StepVerdict::Recorded,
            Some(FigureLimit::AtLeast(bound)) => self.value >= bound,
            Some(FigureLimit::AtMost(bound)) => self.value <= bound,
        };
        if kept { StepVerdict::AsExpected } else { StepVerdict::Below }
    }

    fn to_json(&self) -> Value {
        let expected = self.expected.as_ref().map(|expected| match expected.limit {
            FigureLimit::AtLeast(bound) => json!({"at_least": bound, "source": expected.source}),
            FigureLimit::AtMost(bound) => json!({"at_most": bound, "source": expected.source}),
        });
        json!({
            "what": self.what,
            "value": self.value,
            "unit": self.unit,
            "expected": expected,
            "verdict": self.verdict().as_str(),
        })
    }
}

impl AcceptanceStep {
    /// Judges the step by its worst figure. A step without a figure has failed.
    pub fn verdict(&self) -> StepVerdict {
        match &self.outcome {
            StepOutcome::NotRun(_) => StepVerdict::NotRun,
            StepOutcome::Failed(_) => StepVerdict::Failed,
            StepOutcome::Measured(figures) => {
                figures.iter().map(StepFigure::verdict).max().unwrap_or(StepVerdict::Failed)
            }
        }
    }

    /// Returns the step as the file has it.
    pub fn to_json(&self) -> Value {
        let (figures, because) = match &self.outcome {
            StepOutcome::Measured(figures) => (figures.as_slice(), None),
            StepOutcome::NotRun(because) | StepOutcome::Failed(because) => (&[][..], Some(because)),
        };
        json!({
            "step": self.title.name,
            "subject": self.title.subject,
            "command": self.title.command,
            "verdict": self.verdict().as_str(),
            "figures": figures.iter().map(StepFigure::to_json).collect::<Vec<_>>(),
            "reason": because.map(|because| &because.seen),
            "remedy": because.map(|because| &because.remedy),
            "record": self.record,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(figures: Vec<StepFigure>) -> AcceptanceStep {
        StepTitle::new("tcp", "host", "true").measured(figures)
    }

    #[test]
    fn the_worst_figure_is_the_verdict_and_none_is_a_failure() {
        let fine = StepFigure::recorded("a", 2.0, "x").with_limit(FigureLimit::AtLeast(2.0), "s");
        let slow = StepFigure::recorded("a", 2.1, "x").with_limit(FigureLimit::AtMost(2.0), "s");
        let only = StepFigure::recorded("a", 2.0, "x");
        for (figures, verdict) in [
            (vec![], StepVerdict::Failed),
            (vec![only.clone()], StepVerdict::Recorded),
            (vec![only.clone(), fine.clone()], StepVerdict::AsExpected),
            (vec![fine, slow, only], StepVerdict::Below),
        ] {
            assert_eq!(step(figures).verdict(), verdict);
        }
    }

    #[test]
    fn what_is_no_number_is_below() {
        let figure =
            StepFigure::recorded("a", f64::NAN, "x").with_limit(FigureLimit::AtLeast(0.0), "s");
        assert_eq!(figure.verdict(), StepVerdict::Below);
    }
}
