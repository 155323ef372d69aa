//! The store as Cortex's `/memberlist` page shows it: keys, messages, and single values in the
//! forms that Go gives them.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use bytes::Bytes;
use serde::Serialize;

use super::GossipedStore;
use super::history::{Direction, Message};
use super::pairs::{Entry, Pairs};
use super::value::{Value, ValueKind};
use crate::ring::kv::reason;
use crate::ring::model::InstanceState;

/// The store's part of the page.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StoreView {
    pub keys: Vec<KeyView>,
    pub received: Vec<MessageView>,
    pub sent: Vec<MessageView>,
    /// By the store's clock, Unix milliseconds.
    pub read_at_ms: i64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KeyView {
    pub key: String,
    pub version: u64,
    pub codec: &'static str,
    pub deleted: bool,
    /// Unix milliseconds; 0 is unknown.
    pub updated_at_ms: i64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MessageView {
    pub id: u64,
    /// Unix milliseconds.
    pub at_ms: i64,
    /// Bytes of the whole message.
    pub size: usize,
    pub key: String,
    /// As it travelled; for who tells it in a form of its own.
    #[serde(skip)]
    pub value: Bytes,
    pub value_bytes: usize,
    pub codec: String,
    pub deleted: bool,
    /// Unix milliseconds; 0 is unknown.
    pub updated_at_ms: i64,
    /// 0: it changed nothing.
    pub version: u64,
    pub changes: Vec<String>,
}

/// How a value is shown, by the page's `format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Json,
    JsonPretty,
    Struct,
}

/// A key's value as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Download {
    /// What to call the file.
    pub filename: String,
    pub bytes: Bytes,
}

/// Why there is nothing to show. The texts are Cortex's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ViewError {
    #[error("value not found")]
    NoValue,
    #[error("message not found")]
    NoMessage,
    #[error("codec not found")]
    NoCodec,
    #[error("failed to decode: {0}")]
    Decode(String),
    #[error("failed to encode: {0}")]
    Encode(String),
}

impl Format {
    /// Whatever is not known is shown as a struct.
    pub fn from_name(name: &str) -> Self {
        match name {
            "json" => Self::Json,
            "json-pretty" => Self::JsonPretty,
            _ => Self::Struct,
        }
    }
}

impl KeyView {
    /// What Cortex's page says of a value.
    pub fn details(&self) -> String {
        format!("version: {}, codec: {}", self.version, self.codec)
    }
}

impl GossipedStore {
    pub fn view(&self) -> StoreView {
        let keys = key_views(&self.pairs());
        let history = self.history();
        let messages = |direction| history.messages(direction).map(message_view).collect();
        let (received, sent) = (messages(Direction::Received), messages(Direction::Sent));
        StoreView { keys, received, sent, read_at_ms: self.now_ms() }
    }

    pub fn view_key(&self, key: &str, format: Format) -> Result<String, ViewError> {
        let value = self.pairs().get(key).map(|entry| entry.value.clone());
        value.map(|value| formatted(&value, format)).ok_or(ViewError::NoValue)
    }

    pub fn view_message(&self, id: u64, format: Format) -> Result<String, ViewError> {
        let message = self.history().get(id).cloned().ok_or(ViewError::NoMessage)?;
        let kind = ValueKind::from_name(&message.codec).ok_or(ViewError::NoCodec)?;
        let value = kind.decode(&message.value);
        let (value, _) = value.map_err(|error| ViewError::Decode(reason(&error)))?;
        Ok(formatted(&value, format))
    }

    pub fn download(&self, key: &str) -> Result<Download, ViewError> {
        let held = self.pairs().get(key).map(|entry| (entry.value.clone(), entry.version));
        let (value, version) = held.ok_or(ViewError::NoValue)?;
        let bytes = value.encode().map_err(|error| ViewError::Encode(reason(&error)))?;
        Ok(Download { filename: format!("{version}-{key}"), bytes })
    }

    /// Drops the messages that are kept for the page.
    pub fn delete_messages(&self) {
        self.history().clear();
    }
}

fn key_views(pairs: &Pairs) -> Vec<KeyView> {
    let view = |(key, entry): (&String, &Entry)| KeyView {
        key: key.clone(),
        version: entry.version,
        codec: entry.value.kind().name(),
        deleted: entry.deleted,
        updated_at_ms: entry.updated_at_ms,
    };
    pairs.iter().map(view).collect()
}

fn message_view(message: &Message) -> MessageView {
    MessageView {
        id: message.id,
        at_ms: message.at_ms,
        size: message.size,
        key: message.key.clone(),
        value: message.value.clone(),
        value_bytes: message.value.len(),
        codec: message.codec.clone(),
        deleted: message.deleted,
        updated_at_ms: message.updated_at_ms,
        version: message.version,
        changes: message.changes.clone(),
    }
}

/// A ring as Go's JSON of its protobuf type.
#[derive(Serialize)]
struct RingJson<'a> {
    ingesters: BTreeMap<&'a str, InstanceJson<'a>>,
}

#[derive(Serialize)]
struct InstanceJson<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    addr: &'a str,
    #[serde(skip_serializing_if = "is_zero")]
    timestamp: i64,
    /// The first state is zero to Go, and left out.
    #[serde(skip_serializing_if = "is_active")]
    state: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tokens: Vec<u32>,
    #[serde(skip_serializing_if = "str::is_empty")]
    zone: &'a str,
    #[serde(skip_serializing_if = "is_zero")]
    registered_timestamp: i64,
}

#[derive(Serialize)]
struct ReplicaJson<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    replica: &'a str,
    #[serde(skip_serializing_if = "is_zero")]
    received_at: i64,
    #[serde(skip_serializing_if = "is_zero")]
    deleted_at: i64,
}

fn is_active(state: &&'static str) -> bool {
    *state == InstanceState::Active.name()
}

fn is_zero(number: &i64) -> bool {
    *number == 0
}

fn formatted(value: &Value, format: Format) -> String {
    let json = match (format, value) {
        (Format::Struct, value) => return go_struct(value),
        (Format::Json | Format::JsonPretty, Value::Ring(ring)) => {
            let ingesters = ring.instances.iter().map(|(id, entry)| {
                let json = InstanceJson {
                    addr: &entry.addr,
                    timestamp: entry.timestamp_s,
                    state: entry.state.name(),
                    tokens: entry.tokens.iter().map(|token| token.0).collect(),
                    zone: &entry.zone,
                    registered_timestamp: entry.registered_timestamp_s,
                };
                (id.as_str(), json)
            });
            json(&RingJson { ingesters: ingesters.collect() }, format)
        }
        (Format::Json | Format::JsonPretty, Value::Replica(elected)) => {
            let replica = ReplicaJson {
                replica: &elected.replica,
                received_at: elected.received_at_ms,
                deleted_at: elected.deleted_at_ms,
            };
            json(&replica, format)
        }
    };
    json + "\n"
}

fn json(value: &impl Serialize, format: Format) -> String {
    const SOUND: &str = "texts and numbers are JSON";
    if format == Format::Json {
        return serde_json::to_string(value).expect(SOUND);
    }
    let mut bytes = Vec::new();
    let indent = serde_json::ser::PrettyFormatter::with_indent(b"    ");
    let mut serializer = serde_json::Serializer::with_formatter(&mut bytes, indent);
    value.serialize(&mut serializer).expect(SOUND);
    String::from_utf8(bytes).expect("JSON is UTF-8")
}

/// Go's `%#v` of the protobuf types.
fn go_struct(value: &Value) -> String {
    let mut text = String::new();
    // Writing to a text cannot fail.
    let _ = match value {
        Value::Ring(ring) => {
            text.push_str("&ring.Desc{Ingesters: map[string]InstanceDesc{");
            for (id, entry) in &ring.instances {
                let _ = write!(
                    text,
                    "{id:?}: ring.InstanceDesc{{Addr:{:?}, Timestamp:{}, State:{}, Tokens:",
                    entry.addr, entry.timestamp_s, entry.state as i32,
                );
                if entry.tokens.is_empty() {
                    text.push_str("[]uint32(nil)");
                } else {
                    let tokens: Vec<String> =
                        entry.tokens.iter().map(|token| format!("{:#x}", token.0)).collect();
                    let _ = write!(text, "[]uint32{{{}}}", tokens.join(", "));
                }
                let _ = write!(
                    text,
                    ", Zone:{:?}, RegisteredTimestamp:{}}},",
                    entry.zone, entry.registered_timestamp_s,
                );
            }
            write!(text, "}},\n}}")
        }
        Value::Replica(elected) => write!(
            text,
            "&ha.ReplicaDesc{{Replica: {:?},\nReceivedAt: {},\nDeletedAt: {},\n}}",
            elected.replica, elected.received_at_ms, elected.deleted_at_ms,
        ),
    };
    text
}
