//! Follows the keys under a prefix of etcd: list them at one revision, then be told what changes
//! after it.
//!
//! As with a single key, whatever ends the stream is met by listing again: a list is whole, so
//! nothing has to be remembered over the gap.
//!
//! Invariant: all pages of a list are of one revision, and the stream starts with the next one.

use std::time::Duration;

use tokio::time::Instant;
use tonic::Streaming;

use super::{EtcdKv, value_of};
use crate::ring::kv::prefix::{PrefixReading, check_count};
use crate::ring::kv::{CALL_TIMEOUT, KvError, KvValue, one_line};
use crate::wire::proto::etcdserverpb::{
    KeyValue, RangeRequest, RangeResponse, WatchResponse, event::EventType,
};

/// Keys of one page: at a hundred bytes each well below what one answer may hold.
const PAGE_KEYS_MAX: i64 = 10_000;

/// As for a single key: the second stream in a row that ends sooner is an error.
const GOOD_STREAM_MIN: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct EtcdPrefixWatch {
    kv: EtcdKv,
    prefix: String,
    standing: Standing,
    last_was_short: bool,
}

#[derive(Debug)]
enum Standing {
    Unread,
    /// Listed at a revision, and nobody tells us what comes after it.
    Listed(i64),
    Following(Box<Follow>),
}

#[derive(Debug)]
struct Follow {
    stream: Streaming<WatchResponse>,
    after_revision: i64,
    opened_at: Instant,
}

impl EtcdPrefixWatch {
    pub(super) fn new(kv: EtcdKv, prefix: String) -> Self {
        Self { kv, prefix, standing: Standing::Unread, last_was_short: false }
    }

    /// Cancel-safe: the standing changes only behind what was waited for.
    pub(in crate::ring::kv) async fn next(&mut self) -> Result<PrefixReading, KvError> {
        loop {
            match self.step().await {
                Ok(None) => {}
                Ok(Some(reading)) => return Ok(reading),
                Err(error) => {
                    self.standing = Standing::Unread;
                    return Err(error);
                }
            }
        }
    }

    async fn step(&mut self) -> Result<Option<PrefixReading>, KvError> {
        match &mut self.standing {
            Standing::Unread => {
                let listing = list(&self.kv, &self.prefix);
                let listed = tokio::time::timeout(CALL_TIMEOUT, listing).await;
                let (pairs, revision) = listed.map_err(|_| KvError::Timeout(CALL_TIMEOUT))??;
                self.standing = Standing::Listed(revision);
                Ok(Some(PrefixReading { pairs, is_whole: true }))
            }
            Standing::Listed(revision) => {
                let after_revision = *revision;
                let (key, end) = range_of(&self.prefix);
                let stream = self.kv.open_watch_of(key, end, after_revision + 1).await?;
                let opened_at = Instant::now();
                let follow = Follow { stream, after_revision, opened_at };
                self.standing = Standing::Following(Box::new(follow));
                Ok(None)
            }
            Standing::Following(follow) => {
                let over = match follow.stream.message().await {
                    Ok(Some(response)) => match understand(response, follow.after_revision) {
                        Ok(pairs) if pairs.is_empty() => return Ok(None),
                        Ok(pairs) => {
                            self.last_was_short = false;
                            return Ok(Some(PrefixReading { pairs, is_whole: false }));
                        }
                        Err(why) => why,
                    },
                    Ok(None) => "the server ended the watch".to_owned(),
                    Err(status) => status.message().to_owned(),
                };
                let is_short = follow.opened_at.elapsed() < GOOD_STREAM_MIN;
                self.standing = Standing::Unread;
                let is_second = std::mem::replace(&mut self.last_was_short, is_short) && is_short;
                tracing::debug!(prefix = self.prefix, over, "the watch ended, listing again");
                if !is_second {
                    return Ok(None);
                }
                self.kv.start_over();
                Err(KvError::WatchEnds { key: self.prefix.clone(), reason: one_line(&over) })
            }
        }
    }
}

/// All pairs under a prefix, and the store's revision that they are of.
async fn list(kv: &EtcdKv, prefix: &str) -> Result<(Vec<(String, KvValue)>, i64), KvError> {
    let (mut key, range_end) = range_of(prefix);
    let mut pairs = Vec::new();
    let mut revision = 0;
    loop {
        let question =
            RangeRequest { key, range_end: range_end.clone(), limit: PAGE_KEYS_MAX, revision };
        let answer: RangeResponse = kv.calls.ask("/etcdserverpb.KV/Range", &question).await?;
        if revision == 0 {
            revision = answer.header.map_or(0, |header| header.revision);
        }
        let last = answer.kvs.last().map(|pair| pair.key.clone());
        pairs.extend(answer.kvs.into_iter().filter_map(named));
        check_count(prefix, pairs.len())?;
        match last {
            // The next page begins with the first key behind this one.
            Some(mut last) if answer.more => {
                last.push(0);
                key = last;
            }
            _ => return Ok((pairs, revision)),
        }
    }
}

/// A pair under its key; one that is not UTF-8 is nobody's that we know.
fn named(mut pair: KeyValue) -> Option<(String, KvValue)> {
    let key = String::from_utf8(std::mem::take(&mut pair.key)).ok()?;
    Some((key, value_of(pair)))
}

/// What a message of the stream says, or why the stream is of no more use.
fn understand(
    response: WatchResponse,
    after_revision: i64,
) -> Result<Vec<(String, KvValue)>, String> {
    if response.canceled {
        return Err(match response.compact_revision {
            0 => format!("the server cancelled the watch: {}", response.cancel_reason),
            revision => format!("what came before revision {revision} was compacted"),
        });
    }
    let revision = response.header.map_or(0, |header| header.revision);
    if revision < after_revision {
        return Err(format!("the store fell back to revision {revision}"));
    }
    let change = |pair: KeyValue, is_put: bool| match is_put {
        true => named(pair),
        false => String::from_utf8(pair.key).ok().map(|key| (key, KvValue::default())),
    };
    let events = response.events.into_iter();
    Ok(events
        .filter_map(|event| change(event.kv?, event.r#type == i32::from(EventType::Put)))
        .collect())
}

/// The first key of a prefix, and the first one behind all of its keys.
fn range_of(prefix: &str) -> (Vec<u8>, Vec<u8>) {
    let mut end = prefix.as_bytes().to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return (prefix.as_bytes().to_vec(), end);
        }
    }
    // No end: etcd's own words for all keys from the first on.
    (if prefix.is_empty() { vec![0] } else { prefix.as_bytes().to_vec() }, vec![0])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::proto::etcdserverpb::{Event, ResponseHeader};

    #[test]
    fn a_prefix_ends_before_the_first_key_that_lacks_it() {
        assert_eq!(range_of("ha/"), (b"ha/".to_vec(), b"ha0".to_vec()));
        assert_eq!(range_of(""), (vec![0], vec![0]));
    }

    #[test]
    fn puts_and_deletions_are_told_in_their_order() {
        let event = |kind: EventType, key: &str, value: &str| {
            let kv = KeyValue {
                key: key.into(),
                mod_revision: 9,
                value: value.into(),
                ..KeyValue::default()
            };
            Event { r#type: kind.into(), kv: Some(kv) }
        };
        let header = Some(ResponseHeader { revision: 9, ..ResponseHeader::default() });
        let events = vec![event(EventType::Put, "a", "1"), event(EventType::Delete, "b", "")];
        let response = WatchResponse { header, events, ..WatchResponse::default() };
        let told = understand(response.clone(), 8).expect("goes on");
        assert_eq!(told[0].0, "a");
        assert_eq!(told[0].1.bytes.as_deref(), Some(&b"1"[..]));
        assert_eq!(told[1], ("b".to_owned(), KvValue::default()));
        let fell_back = understand(response, 10).expect_err("of another life");
        assert!(fell_back.contains("fell back"), "{fell_back}");
    }
}
