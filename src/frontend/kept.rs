//! A small cache of whole answers, seconds old at most; off unless asked for.
//!
//! It is for many people who look at one dashboard, not for history: what is kept is an answer of
//! 200 to a query that may be shared, without a word against keeping it on either side, and
//! without warnings, since those may be gone with the next try.

use std::io::Read as _;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use flate2::read::GzDecoder;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::asked::QueryKey;
use crate::upstream::queries::ReplyHead;

/// Longest answer that is kept, as it is sent. Dashboards' are shorter, and what is longer is
/// read too seldom to take the place of a hundred of those.
pub const ANSWER_BYTES_MAX: usize = 1 << 20;
/// Longest answer that is looked into for warnings, decompressed.
const LOOKED_INTO_BYTES_MAX: u64 = 16 << 20;
/// What an answer's head and its place take, about.
const HEAD_BYTES: u64 = 1 << 10;

/// See the head of the file.
pub struct Kept {
    age_max_ns: i64,
    answers: Cache<QueryKey, KeptAnswer, Weight>,
}

#[derive(Clone)]
pub struct KeptAnswer {
    pub head: Arc<ReplyHead>,
    pub body: Bytes,
    came_ns: i64,
}

/// Collects an answer that may be kept, as it goes by.
pub struct Keeping {
    key: QueryKey,
    head: Arc<ReplyHead>,
    body: BytesMut,
}

#[derive(Clone, Copy)]
struct Weight;

impl Weighter<QueryKey, KeptAnswer> for Weight {
    fn weight(&self, _: &QueryKey, answer: &KeptAnswer) -> u64 {
        answer.body.len() as u64 + HEAD_BYTES
    }
}

impl Kept {
    /// Answers up to `age_max_ns` old, of `bytes_max` together; `None` where nothing is kept.
    pub fn new(age_max_ns: i64, bytes_max: u64) -> Option<Self> {
        let items = usize::try_from(bytes_max / (16 * HEAD_BYTES)).unwrap_or(usize::MAX);
        (age_max_ns > 0).then(|| Self {
            age_max_ns,
            answers: Cache::with_weighter(items.max(16), bytes_max, Weight),
        })
    }

    /// An answer, and its age in seconds.
    pub fn get(&self, key: &QueryKey, now_ns: i64) -> Option<(KeptAnswer, u64)> {
        let answer = self.answers.get(key)?;
        let age_ns = now_ns.saturating_sub(answer.came_ns);
        if age_ns > self.age_max_ns {
            self.answers.remove(key);
            return None;
        }
        let age_secs = u64::try_from(age_ns).unwrap_or_default() / 1_000_000_000;
        Some((answer, age_secs))
    }

    /// Begins to collect an answer, if its head does not speak against it.
    pub fn begin(&self, key: QueryKey, head: &Arc<ReplyHead>) -> Option<Keeping> {
        let control = head.header("cache-control").unwrap_or_default().to_ascii_lowercase();
        let may_keep = head.status() == 200
            && !["no-store", "no-cache", "private"].iter().any(|word| control.contains(word))
            && is_json(head);
        may_keep.then(|| Keeping { key, head: Arc::clone(head), body: BytesMut::new() })
    }

    /// Keeps an answer that ended well, if it has no warnings.
    pub fn keep(&self, keeping: Keeping, now_ns: i64) {
        let Keeping { key, head, body } = keeping;
        let body = body.freeze();
        if is_clean(head.header("content-encoding"), &body) {
            self.answers.insert(key, KeptAnswer { head, body, came_ns: now_ns });
        }
    }
}

impl Keeping {
    /// Takes a piece; gives itself up when the answer gets too long.
    pub fn piece(mut self, piece: &Bytes) -> Option<Self> {
        if self.body.len() + piece.len() > ANSWER_BYTES_MAX {
            return None;
        }
        self.body.extend_from_slice(piece);
        Some(self)
    }
}

fn is_json(head: &ReplyHead) -> bool {
    let content_type = head.header("content-type").unwrap_or_default();
    content_type.split(';').next().is_some_and(|one| one.trim() == "application/json")
}

/// An answer of Prometheus' API, as far as it matters here.
#[derive(Deserialize)]
struct Envelope {
    status: String,
    #[serde(default)]
    warnings: Vec<IgnoredAny>,
    #[serde(default)]
    infos: Vec<IgnoredAny>,
}

/// Whether it says that it is whole and right. What cannot be read does not.
fn is_clean(encoding: Option<&str>, body: &[u8]) -> bool {
    let envelope: Option<Envelope> = match encoding {
        None | Some("identity") => serde_json::from_slice(body).ok(),
        Some("gzip") => {
            let mut plain = Vec::new();
            let reading = GzDecoder::new(body).take(LOOKED_INTO_BYTES_MAX).read_to_end(&mut plain);
            reading.ok().and_then(|_| serde_json::from_slice(&plain).ok())
        }
        Some(_) => None,
    };
    envelope.is_some_and(|one| {
        one.status == "success" && one.warnings.is_empty() && one.infos.is_empty()
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn an_answer_with_warnings_or_faults_is_not_clean() {
        let check = |body: &str, expect| assert_eq!(is_clean(None, body.as_bytes()), expect);
        check(r#"{"status":"success","data":{"result":[["warnings"]]}}"#, true);
        check(r#"{"status":"success","data":[],"warnings":[]}"#, true);
        check(r#"{"status":"success","data":[],"warnings":["partial"]}"#, false);
        check(r#"{"data":[],"infos":["info"],"status":"success"}"#, false);
        check(r#"{"status":"error","errorType":"internal"}"#, false);
        check(r#"{"status":"success","data":["#, false);
        check("", false);
    }

    #[test]
    fn a_compressed_answer_is_looked_into() {
        let gzip = |text: &str| {
            let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            writer.write_all(text.as_bytes()).expect("memory");
            writer.finish().expect("memory")
        };
        let clean = gzip(r#"{"status":"success","data":[]}"#);
        assert!(is_clean(Some("gzip"), &clean));
        assert!(!is_clean(Some("gzip"), &gzip(r#"{"status":"success","warnings":["x"]}"#)));
        assert!(!is_clean(Some("gzip"), &clean[..clean.len() / 2]));
        assert!(!is_clean(Some("zstd"), &clean), "what cannot be read is not kept");
    }
}
