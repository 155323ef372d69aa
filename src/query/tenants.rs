//! `freehold tenants`: who has how many series, and what is left of the limit.
//!
//! The page of a running process sorts and filters; here its pages are put together. What it
//! tells of a tenant beyond the table goes into the JSON as it came.

use std::time::Duration;

use http::{Request, StatusCode, header};
use http_body_util::Full;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::instance::{Instance, InstanceError};
use crate::config::{Output, TenantsArgs};
use crate::output::{self, Cell, Column, Screen, Style, Table, Told};

/// Of one page.
const PATIENCE: Duration = Duration::from_secs(30);
/// Longest page: 500 tenants of some 1 KB.
const PAGE_BYTES_MAX: usize = 16 << 20;
/// Pages that are fetched: those of 100,000 tenants, more than any instance we know of has.
const PAGES_MAX: u64 = 200;
/// From this part of the limit on a tenant is shown as near to it.
const NEAR: f64 = 0.9;

#[derive(Debug, thiserror::Error)]
pub enum TenantsError {
    #[error(transparent)]
    Instance(#[from] InstanceError),
    #[error(
        "{address} has no page of tenants; name the admin listener of an ingester, of a sidecar \
         or of -target=all by --address (gates count no series)"
    )]
    NoPage { address: String },
    #[error("{address} refuses with status {status}: {text}")]
    Refused { address: String, status: u16, text: String },
    #[error("{address} tells no tenants")]
    NoTenants { address: String, source: serde_json::Error },
    #[error("{path} is no path")]
    Path { path: String },
    #[error("cannot write the tenants as JSON")]
    Json(#[source] serde_json::Error),
}

/// What is read of a page.
#[derive(Deserialize)]
struct Page {
    tenants: Vec<Value>,
    matching: u64,
    total: u64,
    pages: u64,
    limited_by: String,
}

/// All pages, as far as they were asked for.
#[derive(Debug, Serialize)]
struct Tenants {
    /// In memory.
    total: u64,
    /// Of those with the filter's text.
    matching: u64,
    limited_by: String,
    tenants: Vec<Value>,
}

/// What the table shows of a tenant.
#[derive(Deserialize)]
struct Row {
    tenant: String,
    in_memory: u64,
    active: u64,
    owned: u64,
    limit: Option<u64>,
    headroom: Option<i64>,
    in_force: String,
    refused_samples_total: u64,
    /// A process that keeps no history tells none.
    time_to_limit: Option<TimeToLimit>,
}

/// When the limit is met at the present slope, in words.
#[derive(Deserialize)]
struct TimeToLimit {
    text: String,
}

pub async fn run(args: &TenantsArgs, screen: &Screen) -> Result<Told, TenantsError> {
    let instance = Instance::new(&args.asked)?;
    let failed = |source| TenantsError::NoTenants { address: args.asked.address.clone(), source };
    let mut tenants: Option<Tenants> = None;
    let most = args.top.unwrap_or(usize::MAX);
    for number in 1..=PAGES_MAX {
        let page: Page =
            serde_json::from_slice(&fetch(&instance, args, number).await?).map_err(failed)?;
        let pages = page.pages;
        let tenants = tenants.get_or_insert_with(|| Tenants {
            total: page.total,
            matching: page.matching,
            limited_by: page.limited_by,
            tenants: Vec::new(),
        });
        tenants.tenants.extend(page.tenants);
        if number >= pages || tenants.tenants.len() >= most {
            break;
        }
    }
    let mut tenants = tenants.expect("there is a first page");
    tenants.tenants.truncate(most);
    let rows: Result<Vec<Row>, _> = tenants.tenants.iter().map(Row::deserialize).collect();
    let rows = rows.map_err(failed)?;
    let text = match args.output {
        Output::Table => tenants.print(&rows, screen),
        Output::Json => output::json(&tenants).map_err(TenantsError::Json)?,
    };
    Ok(Told { text, is_finding: rows.iter().any(Row::is_full) })
}

async fn fetch(
    instance: &Instance,
    args: &TenantsArgs,
    page: u64,
) -> Result<bytes::Bytes, TenantsError> {
    let query = form_urlencoded::Serializer::new(String::new())
        .append_pair("tenant", &args.filter)
        .append_pair("sort", &args.sort)
        .append_pair("page", &page.to_string())
        .finish();
    let path = format!("{}?{query}", instance.path_or("/tenants"));
    let request = Request::get(&path).header(header::ACCEPT, "application/json");
    let request = request.body(Full::default()).map_err(|_| TenantsError::Path { path })?;
    let (head, body) = instance.ask(request, PAGE_BYTES_MAX, PATIENCE).await?.into_parts();
    let address = || args.asked.address.clone();
    match head.status {
        StatusCode::OK => Ok(body),
        StatusCode::NOT_FOUND => Err(TenantsError::NoPage { address: address() }),
        status => {
            let text = output::clean(String::from_utf8_lossy(&body).trim_end());
            Err(TenantsError::Refused { address: address(), status: status.as_u16(), text })
        }
    }
}

impl Row {
    /// Its next new series is refused.
    fn is_full(&self) -> bool {
        self.headroom.is_some_and(|headroom| headroom <= 0)
    }

    /// Part of the limit that is used.
    fn used(&self) -> Option<f64> {
        let (limit, headroom) = (self.limit?, self.headroom?);
        let used = limit as f64 - headroom as f64;
        Some(if limit == 0 { f64::INFINITY } else { used / limit as f64 })
    }

    fn style(&self) -> Style {
        match self.used() {
            _ if self.is_full() => Style::Bad,
            Some(used) if used >= NEAR => Style::Warn,
            _ => Style::Plain,
        }
    }
}

impl Tenants {
    fn print(&self, rows: &[Row], screen: &Screen) -> String {
        let columns = [
            Column::text("tenant"),
            Column::number("owned"),
            Column::number("in memory"),
            Column::number("active"),
            Column::number("limit"),
            Column::number("left"),
            Column::number("used"),
            Column::word("by"),
            Column::number("refused"),
        ];
        let has_time = rows.iter().any(|row| row.time_to_limit.is_some());
        let time = has_time.then_some(Column::text("at the limit"));
        let mut table = Table::new(columns.into_iter().chain(time));
        for row in rows {
            let style = row.style();
            let limit = row.limit.map_or("none".to_owned(), |limit| limit.to_string());
            let left = row.headroom.map_or("-".to_owned(), |headroom| headroom.to_string());
            let used = match row.used() {
                Some(used) if used.is_finite() => format!("{:.0} %", (used * 100.0).floor()),
                _ => "-".to_owned(),
            };
            let time = row.time_to_limit.as_ref().map_or("", |time| &time.text);
            let cells = [
                Cell::from(&row.tenant),
                Cell::from(row.owned.to_string()),
                Cell::from(row.in_memory.to_string()),
                Cell::from(row.active.to_string()),
                Cell::from(limit),
                Cell::new(style, left),
                Cell::new(style, used),
                Cell::from(&row.in_force),
                Cell::from(row.refused_samples_total.to_string()),
            ];
            table.row(cells.into_iter().chain(has_time.then(|| Cell::new(style, time))));
        }
        let mut out = String::new();
        table.print(&mut out, screen);
        let shown = rows.len() as u64;
        let of = match (shown == self.matching, self.matching == self.total) {
            (true, true) => format!("tenants: {}", self.total),
            (true, false) => format!("tenants that match: {} of {}", self.matching, self.total),
            (false, _) => {
                format!("tenants shown: {shown} of {} (--top 0 prints all)", self.matching)
            }
        };
        let by = output::clean(&self.limited_by);
        out.push_str(&format!("{of}; limits act on what is {by}\n"));
        out
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tenant(name: &str, limit: Option<u64>, headroom: Option<i64>) -> Value {
        json!({
            "tenant": name, "in_memory": 120, "active": 90, "owned": 100, "limit": limit,
            "headroom": headroom, "in_force": "flat", "refused_samples_total": 3, "new": true,
        })
    }

    fn printed(tenants: Vec<Value>, matching: u64, total: u64) -> (String, bool) {
        let tenants = Tenants { total, matching, limited_by: "owned".to_owned(), tenants };
        let rows: Vec<Row> =
            tenants.tenants.iter().map(|row| Row::deserialize(row).expect("a row")).collect();
        (tenants.print(&rows, &Screen::FILE), rows.iter().any(Row::is_full))
    }

    #[test]
    fn a_tenant_without_headroom_is_a_finding() {
        let tenants = vec![tenant("a", Some(100), Some(0)), tenant("b", None, None)];
        let expect = "
  tenant  owned  in memory  active  limit  left   used  by    refused
  a         100        120      90    100     0  100 %  flat        3
  b         100        120      90   none     -      -  flat        3
tenants that match: 2 of 9; limits act on what is owned
";
        let (text, is_finding) = printed(tenants, 2, 9);
        assert_eq!((format!("\n{text}").as_str(), is_finding), (expect, true));
        let (text, is_finding) = printed(vec![tenant("a", Some(1000), Some(1))], 7, 9);
        assert!(text.contains("99 %") && text.contains("shown: 1 of 7 (--top 0"), "{text}");
        assert!(!is_finding, "one more is taken");
    }
}
