//! `/memberlist` as JSON: Cortex's keys, which Go makes of its structures, and ours beside them.
//!
//! What Cortex has in unexported fields it tells as empty objects, and so do we.

use std::collections::BTreeMap;
use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;

use super::{MemberlistPage, MessageRow};
use crate::go_text::Rfc3339Ms;
use crate::gossip::message::PeerState;
use crate::ring::kv::memberlist::gossiping::PeerView;

/// Bytes of messages' values in one answer, before base64: some thousand heartbeats. The values of
/// later ones are left out; `viewMsg` shows each.
const VALUE_BYTES_MAX: usize = 16 << 20;

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Told<'a> {
    now: String,
    memberlist: Nothing,
    sorted_members: Vec<Node<'a>>,
    store: BTreeMap<&'a str, Nothing>,
    sent_messages: Option<Vec<Message<'a>>>,
    received_messages: Option<Vec<Message<'a>>>,
    /// Ours: states by name, the dead and those that left, keys with their versions.
    #[serde(flatten)]
    ours: &'a MemberlistPage,
}

#[derive(Serialize)]
struct Nothing {}

/// memberlist's `Node`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Node<'a> {
    name: &'a str,
    addr: IpAddr,
    port: u16,
    meta: Option<String>,
    /// 0 is alive, 1 suspect; others are not told.
    state: u8,
    p_min: u8,
    p_max: u8,
    p_cur: u8,
    d_min: u8,
    d_max: u8,
    d_cur: u8,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Message<'a> {
    #[serde(rename = "ID")]
    id: u64,
    time: &'a str,
    size: usize,
    pair: Pair<'a>,
    version: u64,
    changes: Option<&'a [String]>,
}

/// What protobuf calls `KeyValuePair`; Go leaves out what is empty.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Pair<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    key: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    #[serde(skip_serializing_if = "str::is_empty")]
    codec: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    deleted: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    updated_at: Option<i64>,
}

impl<'a> Told<'a> {
    pub fn new(page: &'a MemberlistPage) -> Self {
        let mut room = VALUE_BYTES_MAX;
        let live = page
            .peers
            .iter()
            .filter(|peer| matches!(peer.state, PeerState::Alive | PeerState::Suspect));
        Self {
            now: Rfc3339Ms(page.read_at_ms).to_string(),
            memberlist: Nothing {},
            sorted_members: live.map(node).collect(),
            store: page.keys.iter().map(|row| (row.key.key.as_str(), Nothing {})).collect(),
            sent_messages: messages(&page.sent, &mut room),
            received_messages: messages(&page.received, &mut room),
            ours: page,
        }
    }
}

fn node(peer: &PeerView) -> Node<'_> {
    let [p_min, p_max, p_cur, d_min, d_max, d_cur] = peer.versions;
    Node {
        name: &peer.name,
        addr: peer.address.ip(),
        port: peer.address.port(),
        meta: (!peer.meta.is_empty()).then(|| STANDARD.encode(&peer.meta)),
        state: peer.state as u8,
        p_min,
        p_max,
        p_cur,
        d_min,
        d_max,
        d_cur,
    }
}

/// `None` is Go's slice of nothing.
fn messages<'a>(rows: &'a [MessageRow], room: &mut usize) -> Option<Vec<Message<'a>>> {
    if rows.is_empty() {
        return None;
    }
    Some(rows.iter().map(|row| message(row, room)).collect())
}

fn message<'a>(row: &'a MessageRow, room: &mut usize) -> Message<'a> {
    let MessageRow { at, message } = row;
    let is_told = !message.value.is_empty() && message.value.len() <= *room;
    let value = is_told.then(|| {
        *room -= message.value.len();
        STANDARD.encode(&message.value)
    });
    Message {
        id: message.id,
        time: at,
        size: message.size,
        pair: Pair {
            key: &message.key,
            value,
            codec: &message.codec,
            deleted: message.deleted.then_some(true),
            updated_at: (message.updated_at_ms != 0).then_some(message.updated_at_ms),
        },
        version: message.version,
        changes: (!message.changes.is_empty()).then_some(&*message.changes),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use serde_json::{Value, json};

    use super::super::{KeyRow, MemberRow, Site};
    use super::*;
    use crate::ring::kv::memberlist::page::{KeyView, MessageView};

    fn peer(name: &str, state: PeerState) -> PeerView {
        PeerView {
            name: name.to_owned(),
            address: "10.0.0.1:7946".parse().expect("an address"),
            state,
            meta: Bytes::new(),
            versions: [1, 5, 2, 0, 0, 0],
        }
    }

    fn message(value: &'static [u8]) -> MessageRow {
        let message = MessageView {
            id: 7,
            at_ms: 0,
            size: 40,
            key: "collectors/ring".to_owned(),
            value: Bytes::from_static(value),
            value_bytes: value.len(),
            codec: "ringDesc".to_owned(),
            deleted: false,
            updated_at_ms: 5,
            version: 3,
            changes: vec!["a".to_owned()],
        };
        MessageRow { at: "2026-11-30T00:00:00.000Z".to_owned(), message }
    }

    fn page() -> MemberlistPage {
        let key = KeyView {
            key: "collectors/ring".to_owned(),
            version: 3,
            codec: "ringDesc",
            deleted: false,
            updated_at_ms: 0,
        };
        let row = |name: &str, state: &'static str| MemberRow {
            name: name.to_owned(),
            address: "10.0.0.1:7946".to_owned(),
            state,
        };
        MemberlistPage {
            frame: Site::of_http().frame("/memberlist"),
            health_score: 0,
            members: vec![row("a", "alive"), row("b", "dead")],
            keys: vec![KeyRow::new(key)],
            received: vec![message(b"x")],
            sent: Vec::new(),
            hidden: 0,
            peers: vec![peer("a", PeerState::Suspect), peer("b", PeerState::Dead)],
            read_at_ms: 1_764_000_000_000,
        }
    }

    /// The keys are those that Go's `json.Marshal` makes of Cortex's `pageData`.
    #[test]
    fn scripts_for_cortexs_page_find_its_keys() {
        let page = page();
        let told = serde_json::to_value(Told::new(&page)).expect("sound");
        assert_eq!(told["Memberlist"], json!({}));
        assert_eq!(told["Store"], json!({"collectors/ring": {}}));
        assert_eq!(told["SentMessages"], Value::Null);
        assert!(told["Now"].as_str().is_some_and(|now| now.starts_with("2025-11-24T")));
        let node = json!({
            "Name": "a", "Addr": "10.0.0.1", "Port": 7946, "Meta": null, "State": 1,
            "PMin": 1, "PMax": 5, "PCur": 2, "DMin": 0, "DMax": 0, "DCur": 0,
        });
        assert_eq!(told["SortedMembers"], json!([node]), "alive or suspect");
        let message = json!({
            "ID": 7, "Time": "2026-11-30T00:00:00.000Z", "Size": 40, "Version": 3,
            "Changes": ["a"],
            "Pair": {
                "key": "collectors/ring", "value": "eA==", "codec": "ringDesc", "updatedAt": 5,
            },
        });
        assert_eq!(told["ReceivedMessages"], json!([message]));
        // And ours beside them.
        assert_eq!(told["members"][1]["state"], "dead");
        assert_eq!(told["keys"][0]["version"], 3);
        assert_eq!((&told["health_score"], &told["received"][0]["id"]), (&json!(0), &json!(7)));
    }

    #[test]
    fn values_without_end_are_left_out() {
        let large: &'static [u8] = vec![0; VALUE_BYTES_MAX / 2 + 1].leak();
        let mut page = page();
        page.received = vec![message(large), message(large), message(b"x")];
        let told = serde_json::to_value(Told::new(&page)).expect("sound");
        let has_value = |at: usize| told["ReceivedMessages"][at]["Pair"].get("value").is_some();
        assert_eq!([0, 1, 2].map(has_value), [true, false, true]);
    }
}
