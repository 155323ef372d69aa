//! The alerts: what each asks of the metrics, what it says, and the cases that prove it.
//!
//! What must hold: an alert is about something that somebody has to do; a cause silences its
//! consequences (`unless`), so that one fault wakes one person once; names that Cortex exports too
//! count only where a Freehold exports them, by a join with `freehold_build_info`, whatever the
//! scrape jobs are called.
//!
//! Whether a process answers a scrape at all (`up`) is asked by everybody's own rules already.

mod gates;
mod process;
mod ring;
mod series;
mod upstream;

use super::rules;

/// How soon somebody has to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// Now: writes or queries are refused or unguarded that should not be.
    Critical,
    /// Today.
    Warning,
    /// Worth knowing; a limit does what it is for.
    Info,
}

pub struct Alert {
    pub name: &'static str,
    pub severity: Severity,
    /// `for:`, in minutes.
    pub hold_m: i64,
    pub expr: &'static str,
    pub summary: &'static str,
    /// What it means for whoever sends, asks or operates.
    pub means: &'static str,
    pub cases: &'static [Case],
}

/// One case of `promtool test rules`. In `series`, `expect` and nowhere else `$A` and `$B` stand
/// for the labels of two instances, `$C` for those of their cluster.
pub struct Case {
    pub what: &'static str,
    pub series: &'static [(&'static str, &'static str)],
    /// When is looked, in minutes after the start.
    pub at_m: u32,
    /// Alerts of this name that fire then; none is a case that has to be quiet.
    pub expect: &'static [Fired],
}

/// Labels without name and severity, and what the summary says.
pub struct Fired {
    pub labels: &'static str,
    pub summary: &'static str,
}

impl Severity {
    pub fn label(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::Warning => "warning",
            Self::Info => "info",
        }
    }
}

impl Alert {
    pub fn hold_ms(&self) -> i64 {
        self.hold_m * 60_000
    }

    /// The expression without recorded series, for data that were recorded without the rules.
    pub fn expanded(&self) -> String {
        rules::RECORDED.iter().fold(self.expr.to_owned(), |expr, rule| {
            expr.replace(rule.name, &format!("({})", rule.expr))
        })
    }
}

/// Groups as they stand in the file: a name, and its alerts.
pub const GROUPS: &[(&str, &[Alert])] = &[
    ("freehold-series", series::ALERTS),
    ("freehold-ring", ring::ALERTS),
    ("freehold-upstream", upstream::ALERTS),
    ("freehold-gates", gates::ALERTS),
    ("freehold-process", process::ALERTS),
];

pub fn all() -> Vec<&'static Alert> {
    GROUPS.iter().flat_map(|(_, alerts)| *alerts).collect()
}
