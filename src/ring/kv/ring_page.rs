//! Reads a ring from the JSON of Cortex's `/ring` page, saved or fresh.
//!
//! The page hides one thing: a member whose heartbeat is too old is shown as `Unhealthy` in
//! place of its state. Its true state is unknown. We take it for ACTIVE with the old heartbeat
//! that the page shows: ownership then stays where it was while the member is silent, and its
//! health is judged by age like everybody's.

use serde::Deserialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use time::macros::format_description;

use crate::ring::model::{Instance, InstanceState, RingModel, Token};

const UNHEALTHY: &str = "Unhealthy";

/// A ring as a page showed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingPage {
    pub ring: RingModel,
    /// When the page's server had read its store, Unix milliseconds; `None` if it did not say.
    pub stored_at_ms: Option<i64>,
}

#[derive(Debug, thiserror::Error)]
pub enum RingPageError {
    #[error("no JSON of a /ring page: {0}")]
    Json(serde_json::Error),
    #[error("instance {id:?} has the unknown state {state:?}")]
    State { id: String, state: String },
    #[error("instance {id:?} has no time: {text:?}")]
    Time { id: String, text: String },
    #[error("instance {id:?} is listed twice")]
    Twice { id: String },
    #[error("the page shows ACTIVE members and no tokens at all, so it hides them")]
    NoTokens,
}

/// Fields that we do not know are read past; a list that Go left empty is `null`.
#[derive(Deserialize)]
struct Page {
    shards: Option<Vec<Shard>>,
    #[serde(default)]
    now: String,
    #[serde(default, rename = "storageLastUpdated")]
    storage_last_updated: String,
}

#[derive(Deserialize)]
struct Shard {
    id: String,
    state: String,
    address: String,
    timestamp: String,
    #[serde(default)]
    registered_timestamp: String,
    #[serde(default)]
    zone: String,
    tokens: Option<Vec<u32>>,
}

pub fn parse(json: &[u8]) -> Result<RingPage, RingPageError> {
    let page: Page = serde_json::from_slice(json).map_err(RingPageError::Json)?;
    let mut ring = RingModel::default();
    for shard in page.shards.unwrap_or_default() {
        let id = shard.id.clone();
        if ring.instances.insert(id.clone(), instance(shard)?).is_some() {
            return Err(RingPageError::Twice { id });
        }
    }
    // Taken for true, a ring without tokens would say that no key is anybody's.
    let is_active = |instance: &Instance| instance.state == InstanceState::Active;
    let members = ring.instances.values();
    if members.clone().any(is_active) && members.clone().all(|member| member.tokens.is_empty()) {
        return Err(RingPageError::NoTokens);
    }
    let stored_at_ms = unix_ms(&page.storage_last_updated).or_else(|| unix_ms(&page.now));
    Ok(RingPage { ring, stored_at_ms })
}

/// Whether a stored value is worth trying as a page first.
///
/// A raw value may start with the page's `{` too (a snappy block of 123 bytes does), so the
/// first byte alone decides nothing: it only tells which reading to try first.
pub fn may_be_page(bytes: &[u8]) -> bool {
    bytes.trim_ascii_start().first() == Some(&b'{')
}

fn instance(shard: Shard) -> Result<Instance, RingPageError> {
    let Shard { id, state, address, timestamp, registered_timestamp, zone, tokens } = shard;
    let state = match InstanceState::from_name(&state) {
        Some(known) => known,
        None if state == UNHEALTHY => InstanceState::Active,
        None => return Err(RingPageError::State { id, state }),
    };
    let seconds = |text: &str| {
        unix_s(text).ok_or_else(|| RingPageError::Time { id: id.clone(), text: text.to_owned() })
    };
    Ok(Instance {
        addr: address,
        timestamp_s: seconds(&timestamp)?,
        state,
        tokens: tokens.unwrap_or_default().into_iter().map(Token).collect(),
        zone,
        // Left out where it is not known, which 0 says too.
        registered_timestamp_s: match registered_timestamp.as_str() {
            "" => 0,
            text => seconds(text)?,
        },
        unknown_fields: Vec::new(),
    })
}

/// Go's own form of a time: `2026-11-29 23:16:15 +0000 UTC`. The zone's name adds nothing.
fn unix_s(text: &str) -> Option<i64> {
    let form = format_description!(
        "[year]-[month]-[day] [hour]:[minute]:[second] [offset_hour sign:mandatory][offset_minute]"
    );
    let name_at = text.match_indices(' ').nth(2).map_or(text.len(), |(at, _)| at);
    Some(OffsetDateTime::parse(&text[..name_at], form).ok()?.unix_timestamp())
}

/// RFC 3339; Go's zero time, the year 1, stands for "never".
fn unix_ms(text: &str) -> Option<i64> {
    let time = OffsetDateTime::parse(text, &Rfc3339).ok()?;
    i64::try_from(time.unix_timestamp_nanos() / 1_000_000).ok().filter(|&ms| ms > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = r#"{"shards":[
        {"id":"a","state":"ACTIVE","address":"10.0.0.1:9095",
         "timestamp":"2026-11-29 23:16:15 +0000 UTC",
         "registered_timestamp":"2026-11-29 23:13:10 +0000 UTC",
         "zone":"z1","tokens":[3,1],"token_count":128},
        {"id":"b","state":"Unhealthy","address":"10.0.0.2:9095",
         "timestamp":"2026-11-30 00:16:19 +0100 CET","registered_timestamp":"",
         "zone":"","tokens":null}],
        "now":"2026-11-29T23:16:33.442333495Z",
        "storageLastUpdated":"2026-11-29T23:16:33.442086068Z"}"#;

    #[test]
    fn a_page_gives_back_the_ring_it_shows() {
        let page = parse(PAGE.as_bytes()).unwrap();
        assert_eq!(page.stored_at_ms, Some(1_795_994_193_442));
        let a = &page.ring.instances["a"];
        assert_eq!((a.timestamp_s, a.registered_timestamp_s), (1_795_994_175, 1_795_993_990));
        assert_eq!(a.tokens, [Token(3), Token(1)], "in the page's order");
        assert_eq!((a.addr.as_str(), a.zone.as_str()), ("10.0.0.1:9095", "z1"));
    }

    #[test]
    fn an_unhealthy_member_is_active_with_its_old_heartbeat() {
        let page = parse(PAGE.as_bytes()).unwrap();
        let b = &page.ring.instances["b"];
        assert_eq!(b.state, InstanceState::Active);
        assert_eq!((b.timestamp_s, b.registered_timestamp_s), (1_795_994_179, 0));
        assert!(b.tokens.is_empty());
    }

    #[test]
    fn an_empty_page_and_the_time_never_are_read() {
        let page = parse(
            br#"{"shards":null,"now":"2026-11-29T23:16:33Z","storageLastUpdated":"0001-01-01T00:00:00Z"}"#,
        )
        .unwrap();
        assert_eq!(page.ring, RingModel::default());
        assert_eq!(page.stored_at_ms, Some(1_795_994_193_000), "the page's own time instead");
    }

    #[test]
    fn what_is_no_page_says_why() {
        let check = |from: &str, to: &str, part: &str| {
            let text = PAGE.replace(from, to);
            assert_ne!(text, PAGE);
            let error = parse(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        };
        check("ACTIVE", "active", "unknown state \"active\"");
        check("2026-11-29 23:16:15 +0000 UTC", "yesterday", "has no time: \"yesterday\"");
        check("\"id\":\"b\"", "\"id\":\"a\"", "\"a\" is listed twice");
        check("[3,1]", "[4294967296]", "no JSON of a /ring page");
        check("[3,1]", "null", "hides them");
        check("]", "", "no JSON of a /ring page");
    }

    #[test]
    fn what_may_be_a_page_starts_like_one() {
        let check = |bytes: &[u8], expect: bool| assert_eq!(may_be_page(bytes), expect);
        check(PAGE.as_bytes(), true);
        check(format!("\n  {PAGE}\n").as_bytes(), true);
        check(b"\x7b\x02raw", true);
        check(b"\x02raw", false);
        check(b"", false);
    }

    #[test]
    fn cortexs_own_pages_are_read() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/vectors/http_behaviour.json.zst");
        let json = zstd::decode_all(std::fs::File::open(path).unwrap()).unwrap();
        let vectors: serde_json::Value = serde_json::from_slice(&json).unwrap();
        let records = vectors["records"].as_array().unwrap();
        let mut pages = 0;
        for record in records.iter().filter(|record| record["request"]["path"] == "/ring") {
            let response = &record["response"];
            let is_page = response["headers"]["Content-Type"] == "application/json";
            // The recorder cut some bodies; they are no pages any more.
            if !is_page || !response["body_truncated_from"].is_null() {
                continue;
            }
            let body = response["body"].as_str().unwrap();
            let shown: serde_json::Value = serde_json::from_str(body).unwrap();
            let page = parse(body.as_bytes()).unwrap();
            for shard in shown["shards"].as_array().unwrap() {
                let entry = &page.ring.instances[shard["id"].as_str().unwrap()];
                assert_eq!(entry.addr, shard["address"].as_str().unwrap());
                assert_eq!(entry.tokens.len(), shard["tokens"].as_array().unwrap().len());
                let age_s = page.stored_at_ms.unwrap() / 1000 - entry.timestamp_s;
                // The recorder's timeout was 10 s.
                assert_eq!(age_s > 10, shard["state"] == "Unhealthy", "{shard}");
            }
            pages += 1;
        }
        assert!(pages >= 3, "{pages}");
    }
}
