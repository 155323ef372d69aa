//! Follows a key of etcd: read it, then be told what changes after that reading.
//!
//! Only the newest value counts. So whatever ends the stream (a lost connection, a compaction
//! past what we have seen, a store that starts empty) is met in one way: read again, and watch
//! from there. Nothing is remembered that such an event could make wrong.
//!
//! Invariants: a change after the reading is in the stream, since the stream starts with the
//! very next revision; a stream of a store that has not got so far as our reading is of another
//! life of the store, and is not believed.

use std::time::Duration;

use tokio::time::Instant;
use tonic::Streaming;

use super::{EtcdKv, Reading, value_of};
use crate::ring::kv::{KvError, KvValue, one_line};
use crate::wire::proto::etcdserverpb::{WatchResponse, event::EventType};

/// A stream that ends sooner is no good: the second such one in a row is an error, so that the
/// caller's pauses apply.
const GOOD_STREAM_MIN: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct EtcdWatch {
    kv: EtcdKv,
    key: String,
    standing: Standing,
    /// What was told last; `None` after a failure, so that the next reading is news.
    told: Option<KvValue>,
    /// The last stream ended before its time.
    last_was_short: bool,
}

#[derive(Debug)]
enum Standing {
    /// The present value is not known.
    Unread,
    /// Read at a revision, and nobody tells us what comes after it.
    Read(i64),
    Following(Box<Follow>),
}

#[derive(Debug)]
struct Follow {
    stream: Streaming<WatchResponse>,
    /// The stream tells what comes after this revision.
    after_revision: i64,
    opened_at: Instant,
}

/// What a message of the stream means.
#[derive(Debug, PartialEq, Eq)]
enum Message {
    Nothing,
    Value(KvValue),
    /// Of no more use, with the reason.
    Over(String),
}

impl EtcdWatch {
    pub(super) fn new(kv: EtcdKv, key: String) -> Self {
        Self { kv, key, standing: Standing::Unread, told: None, last_was_short: false }
    }

    /// Cancel-safe: the standing changes only behind what was waited for.
    pub(in crate::ring::kv) async fn next(&mut self) -> Result<KvValue, KvError> {
        loop {
            match self.step().await {
                Ok(None) => {}
                Ok(Some(value)) if self.told.as_ref() == Some(&value) => {}
                Ok(Some(value)) => {
                    self.told = Some(value.clone());
                    return Ok(value);
                }
                Err(error) => {
                    self.standing = Standing::Unread;
                    self.told = None;
                    return Err(error);
                }
            }
        }
    }

    async fn step(&mut self) -> Result<Option<KvValue>, KvError> {
        match &mut self.standing {
            Standing::Unread => {
                let Reading { value, revision } = self.kv.read(&self.key).await?;
                self.standing = Standing::Read(revision);
                Ok(Some(value))
            }
            Standing::Read(revision) => {
                let after_revision = *revision;
                let stream = self.kv.open_watch(&self.key, after_revision + 1).await?;
                let opened_at = Instant::now();
                let follow = Follow { stream, after_revision, opened_at };
                self.standing = Standing::Following(Box::new(follow));
                Ok(None)
            }
            Standing::Following(follow) => {
                let message = match follow.stream.message().await {
                    Ok(Some(response)) => understand(response, follow.after_revision),
                    Ok(None) => Message::Over("the server ended the watch".to_owned()),
                    Err(status) => Message::Over(status.message().to_owned()),
                };
                match message {
                    Message::Nothing => Ok(None),
                    Message::Value(value) => {
                        self.last_was_short = false;
                        Ok(Some(value))
                    }
                    Message::Over(why) => {
                        let is_short = follow.opened_at.elapsed() < GOOD_STREAM_MIN;
                        self.standing = Standing::Unread;
                        self.over(is_short, &why)
                    }
                }
            }
        }
    }

    /// One stream that ends is everyday life; what matters is whether the store still answers.
    fn over(&mut self, is_short: bool, why: &str) -> Result<Option<KvValue>, KvError> {
        let is_second = std::mem::replace(&mut self.last_was_short, is_short) && is_short;
        tracing::debug!(key = self.key, why, "the watch ended, reading the ring again");
        if !is_second {
            return Ok(None);
        }
        self.kv.start_over();
        Err(KvError::WatchEnds { key: self.key.clone(), reason: one_line(why) })
    }
}

fn understand(response: WatchResponse, after_revision: i64) -> Message {
    if response.canceled {
        return Message::Over(match response.compact_revision {
            0 => format!("the server cancelled the watch: {}", response.cancel_reason),
            revision => format!("what came before revision {revision} was compacted"),
        });
    }
    let revision = response.header.map_or(0, |header| header.revision);
    if revision < after_revision {
        return Message::Over(format!("the store fell back to revision {revision}"));
    }
    // Events are in the order of their revisions; a later one makes the earlier ones history.
    let Some(event) = response.events.into_iter().next_back() else { return Message::Nothing };
    match event.kv {
        Some(pair) if event.r#type == i32::from(EventType::Put) => Message::Value(value_of(pair)),
        _ => Message::Value(KvValue::default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::proto::etcdserverpb::{Event, KeyValue, ResponseHeader};

    fn response(revision: i64, events: Vec<Event>) -> WatchResponse {
        let header = ResponseHeader { revision, ..ResponseHeader::default() };
        WatchResponse { header: Some(header), events, ..WatchResponse::default() }
    }

    fn event(kind: EventType, mod_revision: i64, value: &str) -> Event {
        let kv = KeyValue { mod_revision, value: value.into(), ..KeyValue::default() };
        Event { r#type: kind.into(), kv: Some(kv) }
    }

    #[test]
    fn the_last_of_several_events_counts() {
        let events = vec![event(EventType::Put, 8, "a"), event(EventType::Put, 9, "b")];
        let Message::Value(value) = understand(response(9, events), 7) else { panic!() };
        assert_eq!((value.bytes.as_deref(), value.version), (Some(&b"b"[..]), 9));
        let events = vec![event(EventType::Put, 8, "a"), event(EventType::Delete, 9, "")];
        let gone = Message::Value(KvValue::default());
        assert_eq!(understand(response(9, events), 7), gone, "deleted is not there");
        assert_eq!(understand(response(7, Vec::new()), 7), Message::Nothing);
    }

    #[test]
    fn a_cancelled_watch_and_a_store_that_fell_back_are_over() {
        let check = |response: WatchResponse, part: &str| {
            let Message::Over(why) = understand(response, 7) else { panic!("goes on") };
            assert!(why.contains(part), "{why}");
        };
        let events = || vec![event(EventType::Put, 3, "a")];
        check(response(3, events()), "fell back to revision 3");
        let cancelled = || WatchResponse { canceled: true, ..response(9, Vec::new()) };
        check(WatchResponse { compact_revision: 9, ..cancelled() }, "before revision 9");
        check(WatchResponse { cancel_reason: "no leader".into(), ..cancelled() }, "no leader");
    }
}
