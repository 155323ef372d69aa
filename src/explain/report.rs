//! An answer of this room, as the page and the command show it.

use serde::{Deserialize, Serialize};

/// What became of a question.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// Empty where none is named.
    pub tenant: String,
    /// The series that was replayed, if the question has one.
    pub series: Option<String>,
    /// Errors that the text holds.
    pub errors: Vec<ErrorFound>,
    /// The decision, step by step.
    pub steps: Vec<Step>,
    pub verdict: Verdict,
    /// The verdict in a sentence.
    pub says: String,
    /// What to do about it; empty where nothing has to be done.
    pub advice: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The series would be taken now.
    Admitted,
    Refused,
    /// The text is told of; there was no series to replay.
    Told,
    /// This process cannot tell.
    #[default]
    Unknown,
}

/// An error of the catalogue that the text holds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ErrorFound {
    pub id: String,
    /// Its words, as far as they are the error's own.
    pub text: String,
    pub status: String,
    pub cause: String,
    pub effect: String,
    pub cure: String,
    pub metric: String,
    pub keys: Vec<String>,
    /// What the text fills in.
    pub facts: Vec<Fact>,
}

/// One step of a decision.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Stable, for scripts.
    pub id: String,
    pub title: String,
    pub outcome: Outcome,
    pub says: String,
    pub facts: Vec<Fact>,
    /// Members that a walk met, in its order.
    pub walk: Vec<WalkRow>,
    /// Further ones that it met.
    pub walk_left_out: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Passed,
    Refused,
    /// It decides nothing by itself.
    #[default]
    Noted,
    /// What it needs is not known, so that it decides nothing.
    Unknown,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Fact {
    pub name: String,
    pub value: String,
}

/// A member that a walk met.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WalkRow {
    pub position: u32,
    pub token: u32,
    pub member: String,
    pub zone: String,
    pub state: String,
    pub is_fresh: bool,
    pub is_own: bool,
    pub is_taken: bool,
    pub why: String,
}

impl Explanation {
    /// Adds a step; whether the decision goes on behind it.
    pub fn push(&mut self, step: Step) -> bool {
        let goes_on = step.outcome != Outcome::Refused;
        self.steps.push(step);
        goes_on
    }

    /// Ends with a refusal, in the words that its sender would read.
    pub fn refuse(&mut self, says: impl Into<String>) {
        self.verdict = Verdict::Refused;
        self.says = says.into();
    }

    pub fn advise(&mut self, advice: impl Into<String>) {
        let advice = advice.into();
        if !self.advice.contains(&advice) {
            self.advice.push(advice);
        }
    }
}

impl Step {
    pub fn new(id: &str, title: &str, outcome: Outcome, says: impl Into<String>) -> Self {
        Self {
            id: id.to_owned(),
            title: title.to_owned(),
            outcome,
            says: says.into(),
            ..Self::default()
        }
    }

    pub fn fact(mut self, name: &str, value: impl ToString) -> Self {
        self.facts.push(Fact { name: name.to_owned(), value: value.to_string() });
        self
    }
}

impl Verdict {
    pub fn name(self) -> &'static str {
        match self {
            Self::Admitted => "admitted",
            Self::Refused => "refused",
            Self::Told => "told",
            Self::Unknown => "unknown",
        }
    }

    /// How pages show it: a class of their style.
    pub fn class(self) -> &'static str {
        match self {
            Self::Admitted => "good",
            Self::Refused => "bad",
            Self::Told | Self::Unknown => "quiet",
        }
    }
}

impl Outcome {
    pub fn name(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Refused => "refused",
            Self::Noted => "noted",
            Self::Unknown => "unknown",
        }
    }

    /// As of a verdict.
    pub fn class(self) -> &'static str {
        match self {
            Self::Passed => "good",
            Self::Refused => "bad",
            Self::Noted => "quiet",
            Self::Unknown => "warn",
        }
    }
}
