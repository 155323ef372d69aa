//! Log lines of refused and of slow queries, which are themselves limited.
//!
//! A line names who asks, the dashboard and panel that Grafana says the query is of, and the query
//! itself, cut at [`QUERY_BYTES_MAX`]. A client stands here and in no metric.

use std::sync::PoisonError;
use std::time::Duration;

use super::asked::{Told, Words};
use crate::ratelimit::LogLines;
use crate::sync::Mutex;
use crate::tenant::{ClientId, TenantId};

/// Longest query in a line, in bytes, and longest of its other words: what is longer was written
/// by a machine, and its beginning tells which.
pub const QUERY_BYTES_MAX: usize = 1024;
const WORD_BYTES_MAX: usize = 128;

/// See the head of the file.
#[derive(Default)]
pub struct QueryLog {
    refused: Mutex<LogLines>,
    slow: Mutex<LogLines>,
}

/// Whose query a line is about.
#[derive(Clone, Copy)]
pub struct Line<'a> {
    pub tenant: &'a TenantId,
    pub client: Option<&'a ClientId>,
    pub words: &'a Words,
    pub took: Duration,
}

impl QueryLog {
    /// Tells of a refused query, if there is a line left.
    pub fn refused(&self, line: Line<'_>, reason: &str, error: &str, now_ns: i64) {
        let Some(untold) = take(&self.refused, now_ns) else { return };
        let told = line.words.told();
        tracing::warn!(
            tenant = line.tenant.as_str(),
            client = line.client.map(ClientId::as_str),
            reason,
            error = LogLines::cut(error),
            dashboard = line.words.dashboard().map(word),
            panel = line.words.panel().map(word),
            path = word(line.words.path()),
            query = query(&told),
            start = word(&told.start),
            end = word(&told.end),
            time = word(&told.time),
            step = word(&told.step),
            took_ms = millis(line.took),
            untold,
            "query refused"
        );
    }

    /// Tells of a slow query; `wall_ms` is how long queriers say that they worked for it.
    pub fn slow(&self, line: Line<'_>, status: u16, wall_ms: Option<f64>, now_ns: i64) {
        let Some(untold) = take(&self.slow, now_ns) else { return };
        let told = line.words.told();
        tracing::warn!(
            tenant = line.tenant.as_str(),
            client = line.client.map(ClientId::as_str),
            status,
            dashboard = line.words.dashboard().map(word),
            panel = line.words.panel().map(word),
            path = word(line.words.path()),
            query = query(&told),
            start = word(&told.start),
            end = word(&told.end),
            time = word(&told.time),
            step = word(&told.step),
            took_ms = millis(line.took),
            wall_ms,
            untold,
            "slow query"
        );
    }
}

fn take(lines: &Mutex<LogLines>, now_ns: i64) -> Option<u64> {
    lines.lock().unwrap_or_else(PoisonError::into_inner).take(now_ns)
}

fn query(told: &Told) -> &str {
    &told.query[..told.query.floor_char_boundary(QUERY_BYTES_MAX)]
}

fn word(text: &str) -> &str {
    &text[..text.floor_char_boundary(WORD_BYTES_MAX)]
}

fn millis(took: Duration) -> u64 {
    u64::try_from(took.as_millis()).unwrap_or(u64::MAX)
}
