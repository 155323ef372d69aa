//! What gates say to each other about budgets, as `proto/budgets.proto` has it: the stream of
//! questions and replies here, the single calls in `calls`.
//!
//! What must hold: what is decoded keeps every bound of the protocol, so that whoever computes
//! with it need not look again; anything else is an error.

mod calls;

use std::sync::Arc;

use prost::Message as _;

use super::proto::budgets as proto;
use crate::clients::account::{LEASE_NS, Wish};
use crate::clients::exchange::{Answer, Answers, BATCH_ITEMS_MAX, Batch, Item, Refund};
use crate::clients::key::{Gates, Kind, OwnedKey};
use crate::tenant::TENANT_ID_BYTES_MAX;
use proto::answer::Answer as ProtoAnswer;
use proto::question::Question as ProtoQuestion;
use proto::reply::Reply as ProtoReply;

pub use calls::{
    LIST_LEN_MAX, ListRequest, Shown, decode_hand_over, decode_hand_over_reply, decode_list_reply,
    decode_list_request, decode_reset_reply, decode_reset_request, decode_show_reply,
    decode_show_request, encode_hand_over, encode_hand_over_reply, encode_list_reply,
    encode_list_request, encode_reset_reply, encode_reset_request, encode_show_reply,
    encode_show_request,
};

/// The version that is spoken here.
pub const VERSION: u32 = 1;
/// Longest message: a batch of the most items with the longest names is less than half of it.
pub const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// Longest id of a gate: a host's name has at most 253 bytes.
const ID_BYTES_MAX: usize = 256;
/// Longest name of a client.
const CLIENT_BYTES_MAX: usize = 256;
/// Most credits in one number: whole numbers up to there are exact as doubles, in which accounts
/// count, and a thousand of them fit one `u64`, so that sums cannot overflow.
const CREDITS_MAX: u64 = 1 << 53;
const LEASE_MS: u32 = (LEASE_NS / 1_000_000) as u32;

/// Opens a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    pub id: Arc<str>,
    pub incarnation: u64,
    pub version: u32,
    /// See the protocol.
    pub placement: u64,
    /// As what they ask.
    pub gates: Gates,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Welcome {
    pub id: Arc<str>,
    pub version: u32,
}

/// From the asker.
#[derive(Clone, Debug, PartialEq)]
pub enum Question {
    Hello(Hello),
    Batch(Batch),
}

/// From the owner.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    Welcome(Welcome),
    Answers(Answers),
}

/// Why bytes are no message about budgets.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum BudgetsError {
    #[error("cannot read the message")]
    Decode(#[from] prost::DecodeError),
    #[error("the message has no {what}")]
    Missing { what: &'static str },
    #[error("the kind of a budget is {kind}, which is unknown")]
    Kind { kind: i32 },
    #[error("gates of the sort {gates} are unknown")]
    Gates { gates: i32 },
    #[error("the name of a {what} is empty, too long, or has characters that none has")]
    Name { what: &'static str },
    #[error("{what} is beyond what it may be")]
    Number { what: &'static str },
    #[error("there are {len} {what}, more than {len_max}")]
    TooMany { what: &'static str, len: usize, len_max: usize },
}

pub fn encode_hello(hello: &Hello) -> Vec<u8> {
    let Hello { id, incarnation, version, placement, gates } = hello;
    let hello = proto::Hello {
        id: id.to_string(),
        incarnation: *incarnation,
        version: *version,
        placement: *placement,
        gates: encode_gates(*gates).into(),
    };
    proto::Question { question: Some(ProtoQuestion::Hello(hello)) }.encode_to_vec()
}

pub fn encode_batch(batch: &Batch) -> Vec<u8> {
    let item = |item: &Item| proto::Item {
        key: Some(encode_key(&item.key)),
        spend: item.wish.spend,
        want: item.wish.want,
        least: item.wish.least,
        holding: item.holding,
        refund: item.refund.map(|Refund { credits, age_ns }| proto::Refund {
            credits,
            age_ns: age_ns.unsigned_abs(),
        }),
        debt: item.debt,
    };
    let items = batch.items.iter().map(item).collect();
    let batch = proto::Batch { sequence: batch.sequence, items };
    proto::Question { question: Some(ProtoQuestion::Batch(batch)) }.encode_to_vec()
}

pub fn decode_question(bytes: &[u8]) -> Result<Question, BudgetsError> {
    let message = proto::Question::decode(bytes)?;
    match message.question.ok_or(BudgetsError::Missing { what: "question" })? {
        ProtoQuestion::Hello(proto::Hello { id, incarnation, version, placement, gates }) => {
            let (id, gates) = (gate_id(&id)?, decode_gates(gates)?);
            Ok(Question::Hello(Hello { id, incarnation, version, placement, gates }))
        }
        ProtoQuestion::Batch(proto::Batch { sequence, items }) => {
            at_most("items", items.len(), BATCH_ITEMS_MAX)?;
            if sequence == 0 {
                return Err(BudgetsError::Number { what: "the sequence of a batch" });
            }
            let mut keys = Keys::default();
            let items = items.into_iter().map(|item| decode_item(item, &mut keys));
            Ok(Question::Batch(Batch { sequence, items: items.collect::<Result<_, _>>()? }))
        }
    }
}

pub fn encode_reply(reply: &Reply) -> Vec<u8> {
    let reply = match reply {
        Reply::Welcome(Welcome { id, version }) => {
            ProtoReply::Welcome(proto::Welcome { id: id.to_string(), version: *version })
        }
        Reply::Answers(Answers { sequence, items }) => ProtoReply::Answers(proto::Answers {
            sequence: *sequence,
            items: items.iter().map(encode_answer).collect(),
        }),
    };
    proto::Reply { reply: Some(reply) }.encode_to_vec()
}

pub fn decode_reply(bytes: &[u8]) -> Result<Reply, BudgetsError> {
    let message = proto::Reply::decode(bytes)?;
    match message.reply.ok_or(BudgetsError::Missing { what: "reply" })? {
        ProtoReply::Welcome(proto::Welcome { id, version }) => {
            Ok(Reply::Welcome(Welcome { id: gate_id(&id)?, version }))
        }
        ProtoReply::Answers(proto::Answers { sequence, items }) => {
            at_most("answers", items.len(), BATCH_ITEMS_MAX)?;
            let items = items.into_iter().map(decode_answer).collect::<Result<_, _>>()?;
            Ok(Reply::Answers(Answers { sequence, items }))
        }
    }
}

fn decode_item(item: proto::Item, keys: &mut Keys) -> Result<Item, BudgetsError> {
    let proto::Item { key, spend, want, least, holding, refund, debt } = item;
    let wish = Wish {
        spend: credits("a spend", spend)?,
        want: credits("a wanted lease", want)?,
        least: credits("the least lease", least)?,
    };
    let holding = holding.map(|holding| credits("what is held", holding)).transpose()?;
    let refund = refund.map(|proto::Refund { credits: given, age_ns }| {
        let age_ns = i64::try_from(age_ns).unwrap_or(i64::MAX);
        credits("a refund", given).map(|credits| Refund { credits, age_ns })
    });
    let (key, refund, debt) = (keys.decode(key)?, refund.transpose()?, credits("a debt", debt)?);
    Ok(Item { key, wish, holding, refund, debt })
}

fn encode_answer(answer: &Answer) -> proto::Answer {
    let answer = match *answer {
        Answer::Granted { lease } => {
            let ttl_ms = if lease > 0 { LEASE_MS } else { 0 };
            ProtoAnswer::Granted(proto::Granted { lease, ttl_ms })
        }
        Answer::Denied { wait_ns } => ProtoAnswer::Denied(proto::Denied { wait_ns }),
        Answer::NotOwner => ProtoAnswer::NotOwner(proto::Nothing {}),
        Answer::NoLimit => ProtoAnswer::NoLimit(proto::Nothing {}),
    };
    proto::Answer { answer: Some(answer) }
}

fn decode_answer(answer: proto::Answer) -> Result<Answer, BudgetsError> {
    Ok(match answer.answer.ok_or(BudgetsError::Missing { what: "answer" })? {
        ProtoAnswer::Granted(proto::Granted { lease, ttl_ms }) => {
            let lease = credits("a lease", lease)?;
            // We count on our own life of leases: one that ends before is none to us.
            Answer::Granted { lease: if ttl_ms >= LEASE_MS { lease } else { 0 } }
        }
        ProtoAnswer::Denied(proto::Denied { wait_ns }) => Answer::Denied { wait_ns },
        ProtoAnswer::NotOwner(proto::Nothing {}) => Answer::NotOwner,
        ProtoAnswer::NoLimit(proto::Nothing {}) => Answer::NoLimit,
    })
}

/// Decodes the keys of one message. Neighbours are often of one tenant and share its name.
#[derive(Default)]
struct Keys {
    tenant: Option<Arc<str>>,
}

impl Keys {
    fn decode(&mut self, key: Option<proto::Key>) -> Result<OwnedKey, BudgetsError> {
        let proto::Key { kind, tenant, client } =
            key.ok_or(BudgetsError::Missing { what: "key" })?;
        let kind = decode_kind(kind)?;
        let is_named = match kind {
            Kind::TenantWrites => client.is_empty(),
            Kind::ClientWrites | Kind::ClientQueries | Kind::ClientQueryTries => is_client(&client),
        };
        if !is_named {
            return Err(BudgetsError::Name { what: "client" });
        }
        let tenant = match &self.tenant {
            Some(last) if **last == *tenant => Arc::clone(last),
            _ => Arc::clone(self.tenant.insert(decode_tenant(&tenant)?)),
        };
        Ok(OwnedKey { kind, tenant, client: client.into() })
    }
}

fn encode_key(key: &OwnedKey) -> proto::Key {
    let OwnedKey { kind, tenant, client } = key;
    proto::Key {
        kind: encode_kind(*kind).into(),
        tenant: tenant.to_string(),
        client: client.to_string(),
    }
}

fn encode_kind(kind: Kind) -> proto::Kind {
    match kind {
        Kind::TenantWrites => proto::Kind::TenantWrites,
        Kind::ClientWrites => proto::Kind::ClientWrites,
        Kind::ClientQueries => proto::Kind::ClientQueries,
        Kind::ClientQueryTries => proto::Kind::ClientQueryTries,
    }
}

fn decode_kind(kind: i32) -> Result<Kind, BudgetsError> {
    match proto::Kind::try_from(kind) {
        Ok(proto::Kind::TenantWrites) => Ok(Kind::TenantWrites),
        Ok(proto::Kind::ClientWrites) => Ok(Kind::ClientWrites),
        Ok(proto::Kind::ClientQueries) => Ok(Kind::ClientQueries),
        Ok(proto::Kind::ClientQueryTries) => Ok(Kind::ClientQueryTries),
        Ok(proto::Kind::Unspecified) | Err(_) => Err(BudgetsError::Kind { kind }),
    }
}

fn encode_gates(gates: Gates) -> proto::Gates {
    match gates {
        Gates::Distributors => proto::Gates::Distributors,
        Gates::QueryFrontends => proto::Gates::QueryFrontends,
    }
}

fn decode_gates(gates: i32) -> Result<Gates, BudgetsError> {
    match proto::Gates::try_from(gates) {
        Ok(proto::Gates::Distributors) => Ok(Gates::Distributors),
        Ok(proto::Gates::QueryFrontends) => Ok(Gates::QueryFrontends),
        Err(_) => Err(BudgetsError::Gates { gates }),
    }
}

fn decode_tenant(tenant: &str) -> Result<Arc<str>, BudgetsError> {
    let is_name = |byte: u8| byte.is_ascii_graphic();
    if !(1..=TENANT_ID_BYTES_MAX).contains(&tenant.len()) || !tenant.bytes().all(is_name) {
        return Err(BudgetsError::Name { what: "tenant" });
    }
    Ok(tenant.into())
}

fn is_client(client: &str) -> bool {
    let is_printable = |byte: u8| byte.is_ascii_graphic() || byte == b' ';
    (1..=CLIENT_BYTES_MAX).contains(&client.len()) && client.bytes().all(is_printable)
}

fn gate_id(id: &str) -> Result<Arc<str>, BudgetsError> {
    if !(1..=ID_BYTES_MAX).contains(&id.len()) || id.chars().any(char::is_control) {
        return Err(BudgetsError::Name { what: "gate" });
    }
    Ok(id.into())
}

fn credits(what: &'static str, credits: u64) -> Result<u64, BudgetsError> {
    if credits > CREDITS_MAX { Err(BudgetsError::Number { what }) } else { Ok(credits) }
}

fn at_most(what: &'static str, len: usize, len_max: usize) -> Result<(), BudgetsError> {
    if len > len_max { Err(BudgetsError::TooMany { what, len, len_max }) } else { Ok(()) }
}

#[cfg(test)]
mod tests;
