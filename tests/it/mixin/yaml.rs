//! The rules and their tests as YAML, from the tables.
//!
//! Texts are quoted as JSON strings, which YAML takes as they are; expressions stand in block
//! scalars, as people write them.

use std::fmt::Write as _;

use super::alerts::{Alert, Case, GROUPS};
use super::rules::RECORDED;

const HEAD: &str = "\
# Generated from the tables in tests/it/mixin: FREEHOLD_BLESS=1 cargo test --test it mixin
";
/// Where the pages of the runbooks are; change it by one `sed` where you keep a copy.
const RUNBOOKS: &str = "https://github.com/freehold/freehold/blob/main/docs/runbooks";
const INSTANCES: [(&str, &str); 3] = [
    ("$A", r#"cluster="east", job="freehold", instance="a""#),
    ("$B", r#"cluster="east", job="freehold", instance="b""#),
    ("$C", r#"cluster="east", job="freehold""#),
];

pub fn runbook(alert: &Alert) -> String {
    format!("{RUNBOOKS}/{}.md", alert.name)
}

/// `alerts.yaml`
pub fn alerts() -> String {
    let mut text = format!("{HEAD}groups:\n");
    for (group, alerts) in GROUPS {
        let _ = writeln!(text, "  - name: {group}\n    rules:");
        for alert in *alerts {
            let _ = writeln!(text, "      - alert: {}", alert.name);
            block(&mut text, "        ", "expr", alert.expr);
            if alert.hold_m > 0 {
                let _ = writeln!(text, "        for: {}m", alert.hold_m);
            }
            let severity = alert.severity.label();
            let _ = writeln!(text, "        labels:\n          severity: {severity}");
            let _ = writeln!(text, "        annotations:");
            annotations(&mut text, "          ", alert, alert.summary);
        }
    }
    text
}

/// `rules.yaml`
pub fn rules() -> String {
    let mut text = format!("{HEAD}groups:\n  - name: freehold-recorded\n    rules:\n");
    for rule in RECORDED {
        let _ = writeln!(text, "      - record: {}", rule.name);
        block(&mut text, "        ", "expr", rule.expr);
    }
    text
}

/// `tests.yaml`: every case of every alert, and health, of which nothing may come.
pub fn tests(healthy: &[(&str, &str)]) -> String {
    let mut text = format!(
        "{HEAD}rule_files:\n  - rules.yaml\n  - alerts.yaml\nevaluation_interval: 1m\n\
         # Recorded series come first, since alerts ask for them.\n\
         group_eval_order:\n  - freehold-recorded\n"
    );
    for (group, _) in GROUPS {
        let _ = writeln!(text, "  - {group}");
    }
    text += "tests:\n  # Everything at once, healthy: no alert fires or is about to.\n";
    input(&mut text, healthy);
    text += "    promql_expr_test:\n";
    for minutes in [5, 10, 30, 90] {
        let _ = writeln!(text, "      - expr: ALERTS\n        eval_time: {minutes}m");
    }
    for (_, alerts) in GROUPS {
        for alert in *alerts {
            for case in alert.cases {
                one(&mut text, alert, case);
            }
        }
    }
    text
}

fn one(text: &mut String, alert: &Alert, case: &Case) {
    let _ = writeln!(text, "  # {}, {}: {}", alert.name, alert.severity.label(), case.what);
    input(text, case.series);
    let minutes = case.at_m;
    let _ = writeln!(text, "    alert_rule_test:\n      - eval_time: {minutes}m");
    let _ = writeln!(text, "        alertname: {}", alert.name);
    if !case.expect.is_empty() {
        text.push_str("        exp_alerts:\n");
    }
    for fired in case.expect {
        let severity = format!("severity=\"{}\"", alert.severity.label());
        let _ = writeln!(text, "          - exp_labels:");
        for (name, value) in pairs(&[fired.labels, &severity].join(", ")) {
            let _ = writeln!(text, "              {name}: {}", quoted(&value));
        }
        let _ = writeln!(text, "            exp_annotations:");
        annotations(text, "              ", alert, fired.summary);
    }
    // Whatever else there is to be seen in the case, it fires nothing of another name.
    let _ = writeln!(
        text,
        "    promql_expr_test:\n      - expr: count by (alertname) (ALERTS{{alertstate=\"firing\"}})\
         \n        eval_time: {minutes}m"
    );
    if !case.expect.is_empty() {
        let (name, count) = (alert.name, case.expect.len());
        let _ = writeln!(
            text,
            "        exp_samples:\n          - labels: '{{alertname=\"{name}\"}}'\n            \
             value: {count}"
        );
    }
}

fn input(text: &mut String, series: &[(&str, &str)]) {
    text.push_str("  - interval: 1m\n    input_series:\n");
    let known = [("freehold_build_info{$A}", "1+0x100"), ("freehold_build_info{$B}", "1+0x100")];
    for (series, values) in known.iter().chain(series) {
        let series = quoted(&labelled(series));
        let _ = writeln!(text, "      - series: {series}\n        values: {}", quoted(values));
    }
}

fn annotations(text: &mut String, indent: &str, alert: &Alert, summary: &str) {
    let _ = writeln!(text, "{indent}summary: {}", quoted(summary));
    let _ = writeln!(text, "{indent}description: {}", quoted(alert.means));
    let _ = writeln!(text, "{indent}runbook_url: {}", runbook(alert));
}

fn block(text: &mut String, indent: &str, key: &str, value: &str) {
    let _ = writeln!(text, "{indent}{key}: |-");
    for line in value.lines() {
        let _ = writeln!(text, "{indent}  {line}");
    }
}

fn labelled(text: &str) -> String {
    INSTANCES.iter().fold(text.to_owned(), |text, (sign, labels)| text.replace(sign, labels))
}

/// The pairs of `a="b", c="d"`; no value of ours has a comma.
fn pairs(labels: &str) -> Vec<(String, String)> {
    let labels = labelled(labels);
    let pair = |pair: &str| {
        let (name, value) = pair.trim().split_once('=').expect("name=\"value\"");
        (name.to_owned(), value.trim_matches('"').to_owned())
    };
    labels.split(',').map(pair).collect()
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
