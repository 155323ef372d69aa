//! A ring in Consul: its key-value API over HTTP.
//!
//! A swap is Consul's own check-and-set by a value's modify index. The watch is a blocking
//! query: it names the index that we have seen and is answered when a later one is there, or
//! after a while.
//!
//! Invariants: an index that goes back means that the store has started anew, so it is forgotten
//! and the next query answers at once; queries of a watch keep to the configured rate.

mod prefix;

use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::{HeaderValue, Method, Request, StatusCode, header};
use http_body_util::Full;
use serde::Deserialize;
use tokio::time::{Instant, sleep_until};

use super::dial::{DialError, Dialler, Protocol};
use super::exchange::{Answer, Bounds, exchange};
use super::requests::Requests;
use super::{KvError, KvSetupError, KvValue, VALUE_BYTES_MAX, reason};
use crate::ring::config::ConsulConfig;

pub use self::prefix::ConsulPrefixWatch;

/// Longest wait of a blocking query. Shorter than the time after which a quiet ring is read
/// again anyway, so that the query's end is that reading.
const WAIT_MAX: Duration = Duration::from_secs(8);
/// A value is a third longer in base64, and its pair has a few fields more.
const BODY_BYTES_MAX: usize = VALUE_BYTES_MAX / 3 * 4 + 4096;

const TOKEN_HEADER: &str = "x-consul-token";
const INDEX_HEADER: &str = "x-consul-index";

#[derive(Clone, Debug)]
pub struct ConsulKv {
    dialler: Dialler,
    token: Option<HeaderValue>,
    deadline: Duration,
    consistent_reads: bool,
    pace: Pace,
    pub(super) requests: Option<Requests>,
}

#[derive(Debug)]
pub struct ConsulWatch {
    kv: ConsulKv,
    key: String,
    /// What the next query waits to be passed; 0 is answered at once.
    index: u64,
    last_query_failed: bool,
}

/// How fresh a reading has to be, by Consul's query parameters.
#[derive(Clone, Copy, Debug)]
enum Consistency {
    /// By the leader, as far as it knows that it leads; for what a swap starts from.
    Default,
    /// By the leader, which asks the others first.
    Consistent,
    /// By whichever server is asked.
    Stale,
}

/// One pair of the store, as it is told.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Pair {
    modify_index: u64,
    /// Base64; `null` is the empty value.
    value: Option<String>,
}

impl ConsulKv {
    pub(super) fn new(
        config: &ConsulConfig,
        requests: Option<Requests>,
    ) -> Result<Self, KvSetupError> {
        let (address, is_tls) = config.address()?;
        let tls = is_tls.then_some(&config.tls);
        let dial_error = |source: DialError| KvSetupError::Dial { source };
        let dialler = Dialler::new(address, tls, Protocol::Http1).map_err(dial_error)?;
        let token = match config.acl_token.reveal() {
            "" => None,
            token => {
                let mut value = HeaderValue::from_str(token).map_err(|_| KvSetupError::Token)?;
                value.set_sensitive(true);
                Some(value)
            }
        };
        Ok(Self {
            dialler,
            token,
            deadline: config.http_client_timeout.as_duration(),
            consistent_reads: config.consistent_reads,
            pace: Pace::new(config.watch_rate_limit, config.watch_burst_size),
            requests,
        })
    }

    pub(super) async fn get(&self, key: &str) -> Result<KvValue, KvError> {
        let (value, _) = self.read(key, self.consistency(), None).await?;
        Ok(value)
    }

    /// For a swap: never from a server that may lag behind.
    pub(super) async fn get_fresh(&self, key: &str) -> Result<KvValue, KvError> {
        let (value, _) = self.read(key, Consistency::Default, None).await?;
        Ok(value)
    }

    pub(super) async fn swap(
        &self,
        key: &str,
        version: u64,
        bytes: Bytes,
    ) -> Result<bool, KvError> {
        // Index 0 asks that the key is not there yet.
        let request = self.request(Method::PUT, key, &format!("?cas={version}&flags=0"), bytes);
        let answer = self.ask(request).await?;
        match (answer.status, answer.body.trim_ascii()) {
            (StatusCode::OK, b"true") => Ok(true),
            (StatusCode::OK, b"false") => Ok(false),
            _ => Err(self.refused(&answer)),
        }
    }

    pub(super) async fn delete(&self, key: &str) -> Result<(), KvError> {
        let answer = self.ask(self.request(Method::DELETE, key, "", Bytes::new())).await?;
        if answer.status == StatusCode::OK { Ok(()) } else { Err(self.refused(&answer)) }
    }

    pub(super) fn watch(&self, key: &str) -> ConsulWatch {
        ConsulWatch { kv: self.clone(), key: key.to_owned(), index: 0, last_query_failed: false }
    }

    pub(super) fn watch_prefix(&self, prefix: &str) -> ConsulPrefixWatch {
        // Consul's keys begin without a slash, and are told so.
        let prefix = prefix.trim_start_matches('/').to_owned();
        ConsulPrefixWatch::new(self.clone(), prefix)
    }

    fn consistency(&self) -> Consistency {
        if self.consistent_reads { Consistency::Consistent } else { Consistency::Stale }
    }

    /// The value, and the index to wait for the next one with. With `wait_index` the answer
    /// comes when that index is passed, or after a while.
    async fn read(
        &self,
        key: &str,
        consistency: Consistency,
        wait_index: Option<u64>,
    ) -> Result<(KvValue, u64), KvError> {
        let query = self.query(consistency, wait_index);
        let request = self.request(Method::GET, key, &query, Bytes::new());
        let answer = self.ask(request).await?;
        let index = index_of(&answer);
        match answer.status {
            StatusCode::OK => Ok((self.value(&answer)?, index)),
            StatusCode::NOT_FOUND => Ok((KvValue::default(), index)),
            _ => Err(self.refused(&answer)),
        }
    }

    fn query(&self, consistency: Consistency, wait_index: Option<u64>) -> String {
        let mut query = match consistency {
            Consistency::Default => "?".to_owned(),
            Consistency::Consistent => "?consistent=".to_owned(),
            Consistency::Stale => "?stale=".to_owned(),
        };
        if let Some(index) = wait_index.filter(|&index| index > 0) {
            // The server adds up to a sixteenth; the deadline has to outlast that too.
            let wait = WAIT_MAX.min(self.deadline / 2);
            query.push_str(&format!("&index={index}&wait={}ms", wait.as_millis()));
        }
        query
    }

    fn value(&self, answer: &Answer) -> Result<KvValue, KvError> {
        let pairs: Vec<Pair> = serde_json::from_slice(&answer.body)
            .map_err(|error| self.error(format!("the answer is no list of pairs: {error}")))?;
        let Some(pair) = pairs.into_iter().next() else {
            return Ok(KvValue::default());
        };
        self.stored(pair.value.unwrap_or_default(), pair.modify_index)
    }

    /// A pair's value, which is told as base64.
    fn stored(&self, base64: String, modify_index: u64) -> Result<KvValue, KvError> {
        let bytes = BASE64_STANDARD
            .decode(base64)
            .map_err(|error| self.error(format!("the value is not base64: {error}")))?;
        Ok(KvValue { bytes: Some(bytes.into()), version: modify_index, stored_at_ms: None })
    }

    async fn ask(&self, request: Request<Full<Bytes>>) -> Result<Answer, KvError> {
        let bounds = Bounds { deadline: self.deadline, body_bytes_max: BODY_BYTES_MAX };
        let answer = exchange(&self.dialler, request, bounds).await;
        answer.map_err(|error| self.error(reason(&error)))
    }

    fn request(&self, method: Method, key: &str, query: &str, body: Bytes) -> Request<Full<Bytes>> {
        let request = Request::builder()
            .method(method)
            .uri(format!("/v1/kv/{}{query}", escaped(key)))
            .header(header::HOST, self.dialler.address().authority());
        let request = match &self.token {
            Some(token) => request.header(TOKEN_HEADER, token),
            None => request,
        };
        request.body(Full::new(body)).expect("an escaped key and an address that was parsed")
    }

    fn refused(&self, answer: &Answer) -> KvError {
        self.error(format!("answered {}: {}", answer.status, answer.text()))
    }

    fn error(&self, reason: String) -> KvError {
        KvError::Call { store: "Consul", at: self.endpoint(), reason }
    }

    pub(super) fn endpoint(&self) -> String {
        self.dialler.address().authority()
    }
}

impl ConsulWatch {
    /// Repeats the last value when a query has waited in vain: it is known to be in force still.
    pub(super) async fn next(&mut self) -> Result<KvValue, KvError> {
        self.kv.pace.turn().await;
        // After a failure the present value is wanted, changed or not.
        let wait_index = if self.last_query_failed { 0 } else { self.index };
        let consistency = self.kv.consistency();
        let outcome = self.kv.read(&self.key, consistency, Some(wait_index)).await;
        self.last_query_failed = outcome.is_err();
        let (value, index) = outcome?;
        self.index = next_index(self.index, index);
        Ok(value)
    }
}

/// The index of an answer; 0 where it tells none.
fn index_of(answer: &Answer) -> u64 {
    let index = answer.headers.get(INDEX_HEADER).and_then(|index| index.to_str().ok());
    index.and_then(|index| index.parse().ok()).unwrap_or(0)
}

/// The index to wait with after an answer that carried `answered`; Consul's rules for clients.
fn next_index(waited: u64, answered: u64) -> u64 {
    match answered {
        // 0 would not block, so a server that says nothing of use would be asked in a loop.
        0 => 1,
        // The store has lost what it knew: any later value may be news.
        answered if answered < waited => 0,
        answered => answered,
    }
}

/// The key as a path: slashes stay, all that is not plain is escaped.
fn escaped(key: &str) -> String {
    let mut path = String::with_capacity(key.len());
    for byte in key.trim_start_matches('/').bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                path.push(char::from(byte));
            }
            _ => path.push_str(&format!("%{byte:02X}")),
        }
    }
    path
}

/// Spaces out the queries of a watch: a rate, and how many may come at once after a quiet time.
#[derive(Clone, Debug)]
struct Pace {
    /// Zero is no limit.
    interval: Duration,
    /// How far ahead of the rate one may be.
    ahead_max: Duration,
    /// When the next turn would be due, were the rate kept exactly.
    due_at: Instant,
}

impl Pace {
    fn new(rate_per_s: f64, burst: i64) -> Self {
        // One turn a day is as good as none; it keeps the arithmetic within range.
        const RATE_PER_S_MIN: f64 = 1.0 / 86_400.0;
        const BURST_MAX: i64 = 1000;
        let interval = match rate_per_s {
            0.0 => Duration::ZERO,
            rate => Duration::from_secs_f64(1.0 / rate.max(RATE_PER_S_MIN)),
        };
        let ahead = u32::try_from(burst.clamp(1, BURST_MAX) - 1).expect("clamped");
        Self { interval, ahead_max: interval * ahead, due_at: Instant::now() }
    }

    /// Waits for the next turn. Cancel-safe: the turn is taken at the end.
    async fn turn(&mut self) {
        if let Some(earliest) = self.due_at.checked_sub(self.ahead_max) {
            sleep_until(earliest).await;
        }
        self.due_at = self.due_at.max(Instant::now()) + self.interval;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_follows_consuls_rules() {
        let check = |waited, answered, expect| {
            assert_eq!(next_index(waited, answered), expect, "{waited} {answered}");
        };
        check(0, 7, 7);
        check(7, 7, 7);
        check(7, 9, 9);
        check(9, 7, 0);
        check(0, 0, 1);
        check(9, 0, 1);
    }

    #[test]
    fn keys_are_escaped_but_for_their_slashes() {
        let check = |key: &str, expect: &str| assert_eq!(escaped(key), expect);
        check("collectors/ring", "collectors/ring");
        check("/collectors/ring", "collectors/ring");
        check("a b?c#d%", "a%20b%3Fc%23d%25");
    }

    #[tokio::test(start_paused = true)]
    async fn a_pace_keeps_its_rate_and_its_burst() {
        let start = Instant::now();
        let mut pace = Pace::new(2.0, 3);
        let mut at_ms = Vec::new();
        for _ in 0..6 {
            pace.turn().await;
            at_ms.push(start.elapsed().as_millis());
        }
        assert_eq!(at_ms, [0, 0, 0, 500, 1000, 1500]);
        let mut pace = Pace::new(0.0, 1);
        for _ in 0..1000 {
            pace.turn().await;
        }
        assert_eq!(start.elapsed().as_millis(), 1500, "no rate, no wait");
    }
}
