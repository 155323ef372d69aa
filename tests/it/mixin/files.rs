//! What a program can check of the mixin: the files are those of the tables, every name is one of
//! ours, every alert has its page and its cases, and `promtool` agrees.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use regex::Regex;

use super::{alerts, dashboards, healthy, rules, yaml};

pub fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs")
}

/// Every generated file by its path below `docs/mixin`.
fn generated() -> Vec<(String, String)> {
    let mut files = vec![
        ("alerts.yaml".to_owned(), yaml::alerts()),
        ("rules.yaml".to_owned(), yaml::rules()),
        ("tests.yaml".to_owned(), yaml::tests(healthy::SERIES)),
    ];
    for dashboard in dashboards::DASHBOARDS {
        files.push((format!("dashboards/{}.json", dashboard.name), dashboard.json()));
    }
    files
}

#[test]
fn the_files_of_the_mixin_are_those_of_the_tables() {
    let folder = docs().join("mixin");
    let is_blessed = std::env::var_os("FREEHOLD_BLESS").is_some();
    let mut wrong = Vec::new();
    for (name, expected) in generated() {
        let path = folder.join(&name);
        if is_blessed {
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            std::fs::write(&path, &expected).expect("written");
        }
        let found = std::fs::read_to_string(&path).unwrap_or_default();
        if found != expected {
            wrong.push(name);
        }
    }
    assert!(wrong.is_empty(), "old: {wrong:?}; FREEHOLD_BLESS=1 cargo test --test it mixin");
    let known: BTreeSet<_> = generated().into_iter().map(|(name, _)| name).collect();
    let found = std::fs::read_dir(folder.join("dashboards")).expect("dashboards");
    let strays: Vec<_> = found
        .flatten()
        .map(|file| format!("dashboards/{}", file.file_name().to_string_lossy()))
        .filter(|name| !known.contains(name))
        .collect();
    assert!(strays.is_empty(), "no table has {strays:?}");
}

#[test]
fn every_alert_has_cases_that_fire_and_cases_that_do_not() {
    for alert in alerts::all() {
        let name = alert.name;
        let fires = alert.cases.iter().filter(|case| !case.expect.is_empty()).count();
        assert!(fires > 0 && fires < alert.cases.len(), "{name}");
        assert!(alert.summary.ends_with('.') && alert.means.ends_with('.'), "{name}");
        // Else a summary says less than its labels.
        assert!(alert.summary.contains("{{ $"), "{name}");
    }
}

#[test]
fn every_alert_has_a_runbook_and_every_runbook_an_alert() {
    let folder = docs().join("runbooks");
    let mut wrong = Vec::new();
    let names: BTreeSet<&str> = alerts::all().iter().map(|alert| alert.name).collect();
    for name in &names {
        let text = std::fs::read_to_string(folder.join(format!("{name}.md"))).unwrap_or_default();
        let parts = [format!("# {name}\n"), "\n## Cause\n".into(), "\n## Look here\n".into()];
        for part in parts.iter().chain(&["\n## Do this\n".to_owned()]) {
            if !text.contains(part.as_str()) {
                wrong.push(format!("{name} lacks {part:?}"));
            }
        }
        for link in links(&text) {
            if !folder.join(&link).exists() {
                wrong.push(format!("{name} links to {link}"));
            }
        }
    }
    for file in std::fs::read_dir(&folder).expect("docs/runbooks").flatten() {
        let file = file.file_name().to_string_lossy().into_owned();
        let name = file.trim_end_matches(".md");
        if name != "README" && !names.contains(name) {
            wrong.push(format!("{name} is no alert"));
        }
    }
    let index = std::fs::read_to_string(folder.join("README.md")).unwrap_or_default();
    for name in names {
        if !index.contains(&format!("]({name}.md)")) {
            wrong.push(format!("README.md does not list {name}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Files that a page links to, without places in them.
fn links(text: &str) -> Vec<String> {
    let link = Regex::new(r"\]\(([^)#:]+)(#[^)]*)?\)").expect("a pattern");
    link.captures_iter(text).map(|found| found[1].to_owned()).collect()
}

/// A misspelt metric would make an alert that never fires, and a panel that is always empty.
#[test]
fn every_metric_that_is_asked_for_is_one_of_ours() {
    let docs = std::fs::read_to_string(docs().join("metrics.md")).expect("docs/metrics.md");
    let row = Regex::new(r"(?m)^\| `([a-z0-9_]+)`").expect("a pattern");
    let known: BTreeSet<&str> =
        row.captures_iter(&docs).map(|found| found.get(1).expect("a name").as_str()).collect();
    let recorded: BTreeSet<&str> = rules::RECORDED.iter().map(|rule| rule.name).collect();
    let name = Regex::new(r"[a-z_:0-9]*(?:freehold|cortex|memberlist|process)_[a-z0-9_:]+")
        .expect("a pattern");
    let mut wrong = BTreeSet::new();
    let mut check = |place: &str, expr: &str| {
        for found in name.find_iter(expr) {
            let found = found.as_str();
            let plain = ["_bucket", "_count", "_sum"].iter().find_map(|end| {
                let base = found.strip_suffix(end)?;
                known.contains(base).then_some(base)
            });
            if !known.contains(plain.unwrap_or(found)) && !recorded.contains(found) {
                wrong.insert(format!("{place}: {found}"));
            }
        }
    };
    for alert in alerts::all() {
        check(alert.name, alert.expr);
        for (series, _) in alert.cases.iter().flat_map(|case| case.series) {
            check(alert.name, series.split('{').next().expect("a name"));
        }
    }
    for rule in rules::RECORDED {
        check(rule.name, rule.expr);
    }
    for dashboard in dashboards::DASHBOARDS {
        for (panel, query) in dashboard.queries() {
            check(panel.title, query.expr);
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Health has to hold everything that an alert asks for, else it proves nothing.
#[test]
fn health_leaves_out_no_metric_of_an_alert() {
    let name =
        Regex::new(r"\b(?:freehold|cortex|memberlist|process)_[a-z0-9_]+").expect("a pattern");
    let known: BTreeSet<&str> =
        healthy::SERIES.iter().filter_map(|(series, _)| series.split('{').next()).collect();
    let mut missing = BTreeSet::new();
    for alert in alerts::all() {
        let expr = alert.expanded();
        for found in name.find_iter(&expr).map(|found| found.as_str()) {
            // Only settings that differ have a series.
            let is_absent_when_well = found == "freehold_ingester_settings_differ";
            if !known.contains(found) && found != "freehold_build_info" && !is_absent_when_well {
                missing.insert(found.to_owned());
            }
        }
    }
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn every_panel_says_what_it_shows_and_in_which_unit() {
    let mut names = BTreeSet::new();
    for dashboard in dashboards::DASHBOARDS {
        assert!(names.insert(dashboard.name), "{}", dashboard.name);
        assert!(dashboard.about.ends_with('.'), "{}", dashboard.name);
        let panels = dashboard.rows.iter().flat_map(|row| row.panels);
        for panel in panels {
            let place = format!("{}: {}", dashboard.name, panel.title);
            assert!(panel.about.ends_with('.'), "{place}");
            assert!(dashboards::UNITS.contains(&panel.unit), "{place}: {}", panel.unit);
            assert!(!panel.queries.is_empty(), "{place}");
            for query in panel.queries {
                // What is recorded is chosen by its job; a rate by the range of the screen.
                let chosen = ["@I", "@T", "@J", "@U"];
                assert!(chosen.iter().any(|sign| query.expr.contains(sign)), "{place}");
                assert!(!query.text().contains('@'), "{place}: {}", query.text());
                let is_rate = query.expr.contains("rate(") || query.expr.contains("increase(");
                assert_eq!(is_rate, query.expr.contains("[@R]"), "{place}");
            }
        }
        let json: serde_json::Value = serde_json::from_str(&dashboard.json()).expect("JSON");
        let mut taken = BTreeSet::new();
        for panel in json["panels"].as_array().expect("panels") {
            let grid = |key: &str| panel["gridPos"][key].as_u64().expect("a number");
            for x in grid("x")..grid("x") + grid("w") {
                for y in grid("y")..grid("y") + grid("h") {
                    assert!(
                        x < 24 && taken.insert((x, y)),
                        "{} {}",
                        dashboard.name,
                        panel["title"]
                    );
                }
            }
        }
    }
}

/// Debian's `promtool` on the committed files; its output where it finds fault.
#[test]
fn promtool_finds_the_rules_right_and_every_case_as_it_is_written() {
    let is_installed = Command::new("promtool").arg("--version").output().is_ok();
    if !is_installed {
        println!("skipped: no promtool on PATH (apt-get install prometheus)");
        return;
    }
    let folder = docs().join("mixin");
    for args in
        [&["check", "rules", "rules.yaml", "alerts.yaml"][..], &["test", "rules", "tests.yaml"]]
    {
        let output = Command::new("promtool").args(args).current_dir(&folder).output();
        let output = output.expect("promtool runs");
        let text = [output.stdout, output.stderr].concat();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&text));
    }
}
