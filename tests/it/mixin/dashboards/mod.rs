//! The dashboards: what they show, and their JSON in Grafana's form.
//!
//! What must hold: every panel says what it shows and in which unit; every query goes by the
//! variables at the top; per-tenant queries are bounded by `topk` or go by recorded series, since
//! a large cluster has more tenants than a browser draws lines.

mod clients;
mod front_door;
mod queries;
mod resources;
mod scaling;
mod series;
mod writes;

use serde_json::{Value, json};

/// Grafana 10's; later ones read it.
const SCHEMA_VERSION: u32 = 39;
/// Grafana's grid.
const COLUMNS: u32 = 24;

pub struct Dashboard {
    /// The file's name, and what links name it by.
    pub name: &'static str,
    pub title: &'static str,
    pub about: &'static str,
    pub rows: &'static [Row],
}

pub struct Row {
    pub title: &'static str,
    pub panels: &'static [Panel],
}

#[derive(Clone, Copy)]
pub struct Panel {
    pub title: &'static str,
    pub about: &'static str,
    pub kind: Kind,
    /// In Grafana's words.
    pub unit: &'static str,
    pub queries: &'static [Query],
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Lines,
    Stacked,
    Number,
    Table,
}

/// `@I` stands for the labels of the instances that were chosen, `@T` for those and the tenant's;
/// `@J` and `@U` are the same for what is summed over instances; `@R` is the range of a rate.
#[derive(Clone, Copy)]
pub struct Query {
    pub expr: &'static str,
    pub legend: &'static str,
}

const fn q(expr: &'static str, legend: &'static str) -> Query {
    Query { expr, legend }
}

const fn lines(
    title: &'static str,
    about: &'static str,
    unit: &'static str,
    queries: &'static [Query],
) -> Panel {
    Panel { title, about, kind: Kind::Lines, unit, queries }
}

const fn stacked(
    title: &'static str,
    about: &'static str,
    unit: &'static str,
    queries: &'static [Query],
) -> Panel {
    Panel { title, about, kind: Kind::Stacked, unit, queries }
}

const fn number(
    title: &'static str,
    about: &'static str,
    unit: &'static str,
    queries: &'static [Query],
) -> Panel {
    Panel { title, about, kind: Kind::Number, unit, queries }
}

const fn table(
    title: &'static str,
    about: &'static str,
    unit: &'static str,
    queries: &'static [Query],
) -> Panel {
    Panel { title, about, kind: Kind::Table, unit, queries }
}

pub const DASHBOARDS: &[&Dashboard] = &[
    &writes::DASHBOARD,
    &series::DASHBOARD,
    &scaling::DASHBOARD,
    &clients::DASHBOARD,
    &queries::DASHBOARD,
    &front_door::DASHBOARD,
    &resources::DASHBOARD,
];

/// Units that panels may have.
pub const UNITS: &[&str] =
    &["Bps", "bytes", "dateTimeFromNow", "none", "percentunit", "reqps", "s", "short", "wps"];

impl Query {
    /// As Grafana is given it, with its variables.
    pub fn text(&self) -> String {
        self.with("$cluster", "$job", "$instance", "$tenant", "$__rate_interval")
    }

    /// As Grafana asks it with everything chosen, and this range of rates.
    pub fn of_everything(&self, range: &str) -> String {
        self.with(".*", ".*", ".*", ".*", range)
    }

    fn with(&self, cluster: &str, job: &str, instance: &str, tenant: &str, range: &str) -> String {
        let of_job = format!("cluster=~\"{cluster}\", job=~\"{job}\"");
        let of_instance = format!("{of_job}, instance=~\"{instance}\"");
        let of_tenant = format!("user=~\"{tenant}\"");
        self.expr
            .replace("@T", &format!("{of_instance}, {of_tenant}"))
            .replace("@I", &of_instance)
            .replace("@U", &format!("{of_job}, {of_tenant}"))
            .replace("@J", &of_job)
            .replace("@R", range)
    }
}

impl Dashboard {
    pub fn queries(&self) -> impl Iterator<Item = (&'static Panel, &'static Query)> {
        let panels = self.rows.iter().flat_map(|row| row.panels);
        panels.flat_map(|panel| panel.queries.iter().map(move |query| (panel, query)))
    }

    pub fn json(&self) -> String {
        let mut panels = Vec::new();
        let mut at = Place::default();
        for row in self.rows {
            at.next_line();
            let grid = at.take(COLUMNS, 1);
            panels.push(json!({
                "id": panels.len() + 1, "type": "row", "title": row.title, "collapsed": false,
                "gridPos": grid, "panels": [],
            }));
            let mut numbers = row.panels.iter().filter(|panel| panel.kind == Kind::Number).count();
            for panel in row.panels {
                let (width, height) = match panel.kind {
                    Kind::Number => (COLUMNS / numbers.clamp(1, 6) as u32, 4),
                    Kind::Lines | Kind::Stacked | Kind::Table => {
                        if numbers > 0 {
                            numbers = 0;
                            at.next_line();
                        }
                        (COLUMNS / 2, 8)
                    }
                };
                let id = panels.len() + 1;
                panels.push(panel.json(id, at.take(width, height)));
            }
        }
        let dashboard = json!({
            "uid": format!("freehold-{}", self.name),
            "title": format!("Freehold / {}", self.title),
            "description": self.about,
            "tags": ["freehold"],
            "schemaVersion": SCHEMA_VERSION,
            "version": 1,
            "editable": true,
            "graphTooltip": 1,
            "refresh": "30s",
            "time": {"from": "now-3h", "to": "now"},
            "timezone": "browser",
            "links": [{
                "type": "dashboards", "tags": ["freehold"], "title": "Freehold", "asDropdown": true,
                "includeVars": true, "keepTime": true,
            }],
            "annotations": {"list": []},
            "templating": {"list": variables()},
            "panels": panels,
        });
        format!("{dashboard:#}\n")
    }
}

/// Where the next panel goes.
#[derive(Default)]
struct Place {
    x: u32,
    y: u32,
    line_height: u32,
}

impl Place {
    fn take(&mut self, width: u32, height: u32) -> Value {
        if self.x + width > COLUMNS {
            self.next_line();
        }
        let grid = json!({"x": self.x, "y": self.y, "w": width, "h": height});
        self.x += width;
        self.line_height = self.line_height.max(height);
        grid
    }

    fn next_line(&mut self) {
        self.x = 0;
        self.y += self.line_height;
        self.line_height = 0;
    }
}

impl Panel {
    fn json(&self, id: usize, grid: Value) -> Value {
        let is_instant = matches!(self.kind, Kind::Number | Kind::Table);
        let targets: Vec<Value> = self
            .queries
            .iter()
            .zip('A'..)
            .map(|(query, letter)| {
                json!({
                    "refId": letter.to_string(),
                    "datasource": datasource(),
                    "expr": query.text(),
                    "legendFormat": query.legend,
                    "instant": is_instant,
                    "range": !is_instant,
                    "format": if self.kind == Kind::Table { "table" } else { "time_series" },
                })
            })
            .collect();
        let last = json!({"calcs": ["lastNotNull"], "fields": "", "values": false});
        let stacking = if self.kind == Kind::Stacked { "normal" } else { "none" };
        let (kind, custom, options) = match self.kind {
            Kind::Lines | Kind::Stacked => (
                "timeseries",
                json!({
                    "drawStyle": "line", "lineWidth": 1, "showPoints": "never",
                    "fillOpacity": if self.kind == Kind::Stacked { 40 } else { 10 },
                    "stacking": {"group": "A", "mode": stacking},
                }),
                json!({
                    "legend": {
                        "calcs": ["lastNotNull", "max"], "displayMode": "table",
                        "placement": "bottom", "showLegend": true,
                    },
                    "tooltip": {"mode": "multi", "sort": "desc"},
                }),
            ),
            Kind::Number => (
                "stat",
                json!({}),
                json!({
                    "colorMode": "value", "graphMode": "none", "justifyMode": "auto",
                    "textMode": "auto", "reduceOptions": last,
                }),
            ),
            Kind::Table => ("table", json!({}), json!({"showHeader": true, "cellHeight": "sm"})),
        };
        let mut panel = json!({
            "id": id, "type": kind, "title": self.title, "description": self.about,
            "datasource": datasource(), "gridPos": grid, "targets": targets, "options": options,
            "fieldConfig": {
                "defaults": {"unit": self.unit, "custom": custom},
                "overrides": [],
            },
        });
        if self.kind == Kind::Table {
            let hidden = json!({"excludeByName": {"Time": true, "__name__": true}});
            panel["transformations"] = json!([{"id": "organize", "options": hidden}]);
        }
        panel
    }
}

fn datasource() -> Value {
    json!({"type": "prometheus", "uid": "${datasource}"})
}

/// A tenant is written, not chosen: a large cluster has more than a list can hold.
fn variables() -> Vec<Value> {
    let chosen = |name: &str, label: &str, query: &str| {
        json!({
            "name": name, "label": label, "type": "query", "datasource": datasource(),
            "definition": query, "query": {"query": query, "refId": name},
            "includeAll": true, "multi": true, "allValue": ".*",
            "current": {"selected": true, "text": ["All"], "value": ["$__all"]},
            "refresh": 2, "sort": 1, "hide": 0, "regex": "", "options": [],
        })
    };
    let instances =
        "label_values(freehold_build_info{cluster=~\"$cluster\", job=~\"$job\"}, instance)";
    vec![
        json!({
            "name": "datasource", "label": "Data source", "type": "datasource",
            "query": "prometheus", "current": {}, "hide": 0, "includeAll": false, "multi": false,
            "refresh": 1, "regex": "", "options": [],
        }),
        chosen("cluster", "Cluster", "label_values(freehold_build_info, cluster)"),
        chosen("job", "Job", "label_values(freehold_build_info{cluster=~\"$cluster\"}, job)"),
        chosen("instance", "Instance", instances),
        json!({
            "name": "tenant", "label": "Tenant (regular expression)", "type": "textbox",
            "query": ".*", "current": {"selected": true, "text": ".*", "value": ".*"},
            "hide": 0, "options": [{"selected": true, "text": ".*", "value": ".*"}],
        }),
    ]
}
