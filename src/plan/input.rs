//! What a plan is made from: the ring and the tenants' counts, from files or over HTTP.
//!
//! Everything read is bounded, and an error says what was expected in its place.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

use http::HeaderValue;
use serde::Deserialize;
use serde_json::Value;

use crate::ring::kv::ring_page;
use crate::ring::model::RingModel;
use crate::tenant::TenantId;
use crate::upstream::page::{PageBounds, PageError, PageServer};
use crate::wire::ring_desc;

/// Longest file or answer. 1000 members of 512 tokens are 6 MB as a page; a count of a tenant is
/// some hundred bytes.
const BYTES_MAX: usize = 64 << 20;
/// Tenants in one plan: ten times those of the largest instance we know of.
const TENANTS_MAX: usize = 100_000;
/// Pages of tenants that are fetched: as many as those tenants fill, 500 on each.
const PAGES_MAX: u64 = (TENANTS_MAX / 500) as u64;
/// Of one answer.
const BOUNDS: PageBounds =
    PageBounds { deadline: Duration::from_secs(30), body_bytes_max: BYTES_MAX };

#[derive(Debug, thiserror::Error)]
pub enum InputError {
    #[error("cannot read {source_name}")]
    Read { source_name: String, source: std::io::Error },
    #[error("{source_name} has more than {BYTES_MAX} bytes")]
    TooLong { source_name: String },
    #[error(transparent)]
    Page(#[from] PageError),
    /// A write gate, as a rule: it serves the ring perhaps, and counts no series.
    #[error("{page}; {hint}")]
    NoPage { page: PageError, hint: &'static str },

    #[error("{source_name} is neither a /ring page as JSON nor a stored ring: {as_page}")]
    Ring { source_name: String, as_page: String, source: ring_desc::RingDescError },
    #[error("{source_name}: no member of the ring has a token")]
    NoTokens { source_name: String },

    #[error("{source_name} cannot be read as counts: {reason}")]
    Counts { source_name: String, reason: String },
}

/// What to name where a server has no such page.
const RING_HINT: &str = "--ring wants the ring of the ingesters: any freehold that has it, a Cortex \
                         ingester or distributor, or a URL with the path of the page";
const COUNTS_HINT: &str = "--counts wants a freehold with an ingester (-target=all or ingester, a \
                           sidecar too; a write gate counts no series), or \
                           http://CORTEX-DISTRIBUTOR/distributor/all_user_stats";

/// A ring, and when it was seen.
pub(super) struct SeenRing {
    pub(super) model: RingModel,
    /// What heartbeats are judged by.
    pub(super) read_at_ms: i64,
}

/// What is known of a tenant.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TenantCount {
    pub(super) tenant: TenantId,
    /// Distinct series in the cluster, replicas counted once.
    pub(super) series: f64,
    /// In force where the counts come from; `None` leaves it to the configuration.
    pub(super) global_limit: Option<i64>,
    pub(super) local_limit: Option<i64>,
}

pub(super) async fn read_ring(
    from: &str,
    tls_ca: &Path,
    now_ms: i64,
) -> Result<SeenRing, InputError> {
    let bytes = match server(from, tls_ca)? {
        Some(server) => {
            let page = server.get(path_or(&server, "/ring"), BOUNDS).await;
            page.map_err(|error| page_error(error, RING_HINT))?
        }
        None => read_file(from)?.into(),
    };
    let ring = parse_ring(from, &bytes, now_ms)?;
    if ring.model.instances.values().all(|instance| instance.tokens.is_empty()) {
        return Err(InputError::NoTokens { source_name: from.to_owned() });
    }
    Ok(ring)
}

/// Reads counts; `replicas` divides counts that are sums over instances.
pub(super) async fn read_counts(
    from: &str,
    tls_ca: &Path,
    bearer: Option<HeaderValue>,
    replicas: usize,
) -> Result<Vec<TenantCount>, InputError> {
    let failed = |reason: String| InputError::Counts { source_name: from.to_owned(), reason };
    let mut counts = Vec::new();
    match server(from, tls_ca)? {
        None => {
            let bytes = read_file(from)?;
            let text = std::str::from_utf8(&bytes).map_err(|_| failed("not UTF-8".to_owned()))?;
            counts = parse_counts(text, replicas).map_err(failed)?.counts;
        }
        Some(server) => {
            let server = server.with_authorization(bearer);
            let path = path_or(&server, "/tenants");
            let mut page = 1;
            loop {
                let bytes = server.get(&on_page(path, page), BOUNDS).await;
                let bytes = bytes.map_err(|error| page_error(error, COUNTS_HINT))?;
                let text =
                    std::str::from_utf8(&bytes).map_err(|_| failed("not UTF-8".to_owned()))?;
                let read = parse_counts(text, replicas).map_err(failed)?;
                counts.extend(read.counts);
                if page >= read.pages.min(PAGES_MAX) {
                    break;
                }
                page += 1;
            }
        }
    }
    check_counts(&counts).map_err(failed)?;
    Ok(counts)
}

fn check_counts(counts: &[TenantCount]) -> Result<(), String> {
    if counts.is_empty() {
        return Err("there is no tenant in it".to_owned());
    }
    if counts.len() > TENANTS_MAX {
        return Err(format!("more than {TENANTS_MAX} tenants"));
    }
    let mut seen = BTreeSet::new();
    for count in counts {
        if !seen.insert(&count.tenant) {
            return Err(format!("tenant {} is listed twice", count.tenant));
        }
    }
    Ok(())
}

fn parse_ring(from: &str, bytes: &[u8], now_ms: i64) -> Result<SeenRing, InputError> {
    let mut as_page = "it does not start with {".to_owned();
    if ring_page::may_be_page(bytes) {
        match ring_page::parse(bytes) {
            Ok(page) => {
                let read_at_ms = page.stored_at_ms.unwrap_or(now_ms);
                return Ok(SeenRing { model: page.ring, read_at_ms });
            }
            Err(error) => as_page = error.to_string(),
        }
    }
    let model = ring_desc::decode(bytes).map_err(|source| InputError::Ring {
        source_name: from.to_owned(),
        as_page,
        source,
    })?;
    // A stored value does not say when it was read; its newest heartbeat is the best that is
    // known, and calls those unhealthy who were silent beside it.
    let newest_s = model.instances.values().map(|instance| instance.timestamp_s).max();
    Ok(SeenRing { read_at_ms: newest_s.unwrap_or_default().saturating_mul(1000), model })
}

/// Counts, and how many pages of them there are.
pub(super) struct ReadCounts {
    pub(super) counts: Vec<TenantCount>,
    pages: u64,
}

/// Our `/tenants` page.
#[derive(Deserialize)]
struct TenantsPage {
    tenants: Vec<TenantRow>,
    #[serde(default = "one")]
    pages: u64,
}

fn one() -> u64 {
    1
}

#[derive(Deserialize)]
struct TenantRow {
    tenant: String,
    owned: u64,
    share: f64,
    global_limit: i64,
    local_limit: i64,
    ownership_unknown: Option<String>,
}

/// Cortex's `/distributor/all_user_stats`.
#[derive(Deserialize)]
struct UserStats {
    #[serde(rename = "userID")]
    user_id: String,
    #[serde(rename = "numSeries")]
    num_series: u64,
    #[serde(default, rename = "queriedIngesters")]
    queried_ingesters: u64,
}

/// A row of a file made for this.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PlainRow {
    tenant: String,
    series: u64,
    global_limit: Option<i64>,
    local_limit: Option<i64>,
}

/// Reads our page, Cortex's statistics, rows or a map as JSON, or rows as CSV.
pub(super) fn parse_counts(text: &str, replicas: usize) -> Result<ReadCounts, String> {
    let one_page = |counts: Result<Vec<_>, String>| Ok(ReadCounts { counts: counts?, pages: 1 });
    let starts_with = |c| text.trim_start().starts_with(c);
    if !starts_with('{') && !starts_with('[') {
        return one_page(parse_csv(text));
    }
    let json: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    match &json {
        Value::Object(map) if map.contains_key("tenants") => {
            let page: TenantsPage =
                serde_json::from_value(json).map_err(|e| format!("as a /tenants page: {e}"))?;
            let counts = page.tenants.into_iter().map(TenantRow::count).collect();
            Ok(ReadCounts { counts: Result::from_iter::<Vec<_>>(counts)?, pages: page.pages })
        }
        Value::Object(map) => one_page(
            map.iter()
                .map(|(tenant, series)| match series.as_u64() {
                    Some(series) => plain(tenant, series, None, None),
                    None => Err(format!("the count of tenant {tenant} is {series}")),
                })
                .collect(),
        ),
        Value::Array(rows) if rows.iter().any(|row| row.get("userID").is_some()) => {
            let stats: Vec<UserStats> =
                serde_json::from_value(json).map_err(|e| format!("as all_user_stats: {e}"))?;
            one_page(stats.iter().map(|stats| stats.count(replicas)).collect())
        }
        _ => {
            let rows: Vec<PlainRow> =
                serde_json::from_value(json).map_err(|e| format!("as a list of tenants: {e}"))?;
            let count =
                |row: &PlainRow| plain(&row.tenant, row.series, row.global_limit, row.local_limit);
            one_page(rows.iter().map(count).collect())
        }
    }
}

impl TenantRow {
    /// What an instance owns is its share of the tenant's distinct series.
    fn count(self) -> Result<TenantCount, String> {
        if let Some(reason) = self.ownership_unknown {
            return Err(format!("the instance does not know what it owns: {reason}"));
        }
        let tenant = tenant(&self.tenant)?;
        if self.share <= 0.0 {
            return Err(format!(
                "the instance holds nothing of tenant {tenant}'s keys; ask one of its shard"
            ));
        }
        Ok(TenantCount {
            tenant,
            series: self.owned as f64 / self.share,
            global_limit: Some(self.global_limit),
            local_limit: Some(self.local_limit),
        })
    }
}

impl UserStats {
    fn count(&self, replicas: usize) -> Result<TenantCount, String> {
        if self.queried_ingesters == 0 {
            let text = "these are one ingester's statistics; take /distributor/all_user_stats";
            return Err(text.to_owned());
        }
        let series = self.num_series as f64 / replicas as f64;
        Ok(TenantCount {
            tenant: tenant(&self.user_id)?,
            series,
            global_limit: None,
            local_limit: None,
        })
    }
}

/// `tenant,series[,global_limit[,local_limit]]`, a heading allowed.
fn parse_csv(text: &str) -> Result<Vec<TenantCount>, String> {
    let mut counts = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let is_heading = number == 1 && fields.first() == Some(&"tenant");
        if line.trim().is_empty() || is_heading {
            continue;
        }
        let wrong =
            || format!("line {number} is not tenant,series[,global_limit[,local_limit]]: {line:?}");
        let limit = |at: usize| match fields.get(at) {
            None | Some(&"") => Ok(None),
            Some(text) => text.parse().map(Some).map_err(|_| wrong()),
        };
        let &[name, series, ..] = fields.as_slice() else { return Err(wrong()) };
        if fields.len() > 4 {
            return Err(wrong());
        }
        let series = series.parse().map_err(|_| wrong())?;
        counts.push(plain(name, series, limit(2)?, limit(3)?)?);
    }
    Ok(counts)
}

fn plain(
    name: &str,
    series: u64,
    global_limit: Option<i64>,
    local_limit: Option<i64>,
) -> Result<TenantCount, String> {
    Ok(TenantCount { tenant: tenant(name)?, series: series as f64, global_limit, local_limit })
}

fn tenant(name: &str) -> Result<TenantId, String> {
    TenantId::parse(name).map_err(|error| format!("{name:?} is no tenant: {error}"))
}

fn read_file(path: &str) -> Result<Vec<u8>, InputError> {
    let failed = |source| InputError::Read { source_name: path.to_owned(), source };
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(failed)?;
    file.take(BYTES_MAX as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() > BYTES_MAX {
        return Err(InputError::TooLong { source_name: path.to_owned() });
    }
    Ok(bytes)
}

/// The server of the URL that `from` is; `None` for a file.
fn server(from: &str, tls_ca: &Path) -> Result<Option<PageServer>, InputError> {
    let is_url = ["http://", "https://"].iter().any(|scheme| from.starts_with(scheme));
    Ok(if is_url { Some(PageServer::new(from, tls_ca)?) } else { None })
}

/// Who serves no such page is told whom to ask.
fn page_error(page: PageError, hint: &'static str) -> InputError {
    match page {
        // That there is no page is said already.
        PageError::Status { origin, path, status: 404, .. } => {
            let page = PageError::Status { origin, path, status: 404, said: String::new() };
            InputError::NoPage { page, hint }
        }
        page => page.into(),
    }
}

/// The URL's path, or `path` for one without.
fn path_or<'a>(server: &'a PageServer, path: &'a str) -> &'a str {
    if server.path() == "/" { path } else { server.path() }
}

fn on_page(path: &str, page: u64) -> String {
    let joint = if path.contains('?') { '&' } else { '?' };
    format!("{path}{joint}page={page}")
}
