//! Log lines of refused and of slow queries, which are themselves limited.
//!
//! A line names who asks, the dashboard and panel that Grafana says the query is of, and the query
//! itself, cut at [`QUERY_BYTES_MAX`]. A client stands here and in no metric.

use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::time::Duration;

use super::asked::{Told, Words};
use crate::ratelimit::LogLines;
use crate::sync::Mutex;
use crate::tenant::{ClientId, TenantId};
use crate::trail::Trail;

/// Longest query in a line, in bytes, and longest of its other words: what is longer was written
/// by a machine, and its beginning tells which.
pub const QUERY_BYTES_MAX: usize = 1024;
const WORD_BYTES_MAX: usize = 128;

/// See the head of the file.
#[derive(Default)]
pub struct QueryLog {
    /// By reason, so that a flood of one hides no other. There are a few.
    refused: Mutex<BTreeMap<&'static str, LogLines>>,
    slow: Mutex<LogLines>,
}

/// Whose query a line is about.
#[derive(Clone, Copy)]
pub struct Line<'a> {
    pub tenant: &'a TenantId,
    pub client: Option<&'a ClientId>,
    pub words: &'a Words,
    pub took: Duration,
    pub trail: &'a Trail,
}

impl QueryLog {
    /// Tells of a refused query, if there is a line left.
    pub fn refused(&self, line: Line<'_>, reason: &'static str, error: &str, now_ns: i64) {
        let mut lines = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = lines.entry(reason).or_default().take(now_ns);
        drop(lines);
        let Some(untold) = taken else { return };
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
            request_id = line.trail.id(),
            trace_id = line.trail.trace_id().map(tracing::field::display),
            untold,
            "query refused"
        );
    }

    /// Tells of a slow query; `wall_ms` is how long queriers say that they worked for it.
    pub fn slow(&self, line: Line<'_>, status: u16, wall_ms: Option<f64>, now_ns: i64) {
        let taken = self.slow.lock().unwrap_or_else(PoisonError::into_inner).take(now_ns);
        let Some(untold) = taken else { return };
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
            request_id = line.trail.id(),
            trace_id = line.trail.trace_id().map(tracing::field::display),
            untold,
            "slow query"
        );
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::testing::logged;
    use crate::trail::RequestId;

    #[test]
    fn a_flood_of_one_reason_hides_no_other_and_lines_name_the_request() {
        let tenant = TenantId::parse("a").expect("a tenant");
        let trail = Trail { request_id: RequestId::parse(b"r-1"), ..Trail::default() };
        let (words, took) = (Words::default(), Duration::from_millis(5));
        let line = Line { tenant: &tenant, client: None, words: &words, took, trail: &trail };
        let log = QueryLog::default();
        let lines = logged(|| {
            (0..1000).for_each(|_| log.refused(line, "one", "text", 1_000_000_000));
            log.refused(line, "other", "text", 1_000_000_000);
        });
        let of = |reason: &str| lines.iter().filter(|line| line["reason"] == reason).count();
        assert_eq!((of("one"), of("other")), (10, 1));
        assert!(lines.iter().all(|line| line["request_id"] == "r-1"), "{lines:?}");
        assert!(lines.iter().all(|line| line.get("error_id").is_none()), "{lines:?}");
        let text = "query rate limit of client c of tenant a exceeded: 5 queries per second over all \
                    query gates (burst: 7), please query less often or contact administrator to \
                    raise it";
        let lines = logged(|| log.refused(line, "third", text, 1_000_000_000));
        assert_eq!(lines[0]["error_id"], "client-queries", "{lines:?}");
    }
}
