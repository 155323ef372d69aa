//! The single calls: accounts handed over, listed, shown, reset.

use std::sync::Arc;

use prost::Message as _;

use super::{
    BudgetsError, Keys, at_most, credits, decode_kind, decode_tenant, encode_key, encode_kind,
    gate_id, is_client, proto,
};
use crate::clients::exchange::{HANDED_OVER_MAX, HandOver, HandedGrant, HandedOver};
use crate::clients::key::{Kind, OwnedKey};
use crate::clients::owner::AccountView;

/// Most accounts that one gate lists at a time: with the longest names a third of a message.
pub const LIST_LEN_MAX: usize = 1000;
/// From there on a message that hands accounts over is full. The next account is at most 72 kB:
/// its names, and the leases that an account has at most, at 270 bytes each.
const HAND_OVER_BYTES_FULL: usize = 512 << 10;
/// Most leases of an account; what an owner grants at once.
const GRANTS_MAX: usize = 256;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListRequest {
    pub kind: Kind,
    pub tenant: Arc<str>,
    pub len_max: usize,
}

/// What a gate says of a budget that it is asked to show.
#[derive(Clone, Debug, PartialEq)]
pub enum Shown {
    NotOwner,
    /// `None` while nothing is owed.
    Account(Option<AccountView>),
}

/// As many messages as it takes.
pub fn encode_hand_over(hand_over: &HandOver) -> Vec<Vec<u8>> {
    let mut messages = Vec::new();
    let mut message = proto::HandOverRequest::default();
    let mut len_bytes = 0;
    for account in &hand_over.accounts {
        let grant = |grant: &HandedGrant| proto::Grant {
            holder: grant.holder.to_string(),
            credits: grant.credits,
            left_ns: grant.left_ns,
        };
        let handed = proto::Handed {
            key: Some(encode_key(&account.key)),
            credit: account.credit,
            // An owner that was told of still more leases hands the rest over as spent.
            grants: account.grants.iter().take(GRANTS_MAX).map(grant).collect(),
        };
        len_bytes += handed.encoded_len();
        message.accounts.push(handed);
        if len_bytes >= HAND_OVER_BYTES_FULL || message.accounts.len() == HANDED_OVER_MAX {
            messages.push(message.encode_to_vec());
            message.accounts.clear();
            len_bytes = 0;
        }
    }
    if !message.accounts.is_empty() {
        messages.push(message.encode_to_vec());
    }
    messages
}

pub fn decode_hand_over(bytes: &[u8]) -> Result<HandOver, BudgetsError> {
    let proto::HandOverRequest { accounts } = proto::HandOverRequest::decode(bytes)?;
    at_most("accounts", accounts.len(), HANDED_OVER_MAX)?;
    let mut keys = Keys::default();
    let accounts = accounts.into_iter().map(|proto::Handed { key, credit, grants }| {
        at_most("leases", grants.len(), GRANTS_MAX)?;
        let grant = |proto::Grant { holder, credits: leased, left_ns }| {
            let leased = credits("a lease", leased)?;
            Ok(HandedGrant { holder: gate_id(&holder)?, credits: leased, left_ns })
        };
        Ok(HandedOver {
            key: keys.decode(key)?,
            credit: finite(credit)?,
            grants: grants.into_iter().map(grant).collect::<Result<_, BudgetsError>>()?,
        })
    });
    Ok(HandOver { accounts: accounts.collect::<Result<_, BudgetsError>>()? })
}

pub fn encode_hand_over_reply() -> Vec<u8> {
    proto::HandOverReply {}.encode_to_vec()
}

pub fn decode_hand_over_reply(bytes: &[u8]) -> Result<(), BudgetsError> {
    proto::HandOverReply::decode(bytes)?;
    Ok(())
}

pub fn encode_list_request(request: &ListRequest) -> Vec<u8> {
    let ListRequest { kind, tenant, len_max } = request;
    proto::ListRequest {
        kind: encode_kind(*kind).into(),
        tenant: tenant.to_string(),
        limit: (*len_max).min(LIST_LEN_MAX) as u32,
    }
    .encode_to_vec()
}

pub fn decode_list_request(bytes: &[u8]) -> Result<ListRequest, BudgetsError> {
    let proto::ListRequest { kind, tenant, limit } = proto::ListRequest::decode(bytes)?;
    let len_max = usize::try_from(limit).unwrap_or(usize::MAX).min(LIST_LEN_MAX);
    Ok(ListRequest { kind: decode_kind(kind)?, tenant: decode_tenant(&tenant)?, len_max })
}

pub fn encode_list_reply(accounts: &[AccountView]) -> Vec<u8> {
    let accounts = accounts.iter().take(LIST_LEN_MAX).map(encode_account).collect();
    proto::ListReply { accounts }.encode_to_vec()
}

pub fn decode_list_reply(bytes: &[u8]) -> Result<Vec<AccountView>, BudgetsError> {
    let proto::ListReply { accounts } = proto::ListReply::decode(bytes)?;
    at_most("accounts", accounts.len(), LIST_LEN_MAX)?;
    accounts.into_iter().map(decode_account).collect()
}

pub fn encode_show_request(key: &OwnedKey) -> Vec<u8> {
    proto::ShowRequest { key: Some(encode_key(key)) }.encode_to_vec()
}

pub fn decode_show_request(bytes: &[u8]) -> Result<OwnedKey, BudgetsError> {
    Keys::default().decode(proto::ShowRequest::decode(bytes)?.key)
}

pub fn encode_show_reply(shown: &Shown) -> Vec<u8> {
    let reply = match shown {
        Shown::NotOwner => proto::ShowReply::default(),
        Shown::Account(account) => {
            proto::ShowReply { is_owner: true, account: account.as_ref().map(encode_account) }
        }
    };
    reply.encode_to_vec()
}

pub fn decode_show_reply(bytes: &[u8]) -> Result<Shown, BudgetsError> {
    let proto::ShowReply { is_owner, account } = proto::ShowReply::decode(bytes)?;
    match is_owner {
        true => Ok(Shown::Account(account.map(decode_account).transpose()?)),
        false => Ok(Shown::NotOwner),
    }
}

pub fn encode_reset_request(key: &OwnedKey) -> Vec<u8> {
    proto::ResetRequest { key: Some(encode_key(key)) }.encode_to_vec()
}

pub fn decode_reset_request(bytes: &[u8]) -> Result<OwnedKey, BudgetsError> {
    Keys::default().decode(proto::ResetRequest::decode(bytes)?.key)
}

pub fn encode_reset_reply(was_owed: bool) -> Vec<u8> {
    proto::ResetReply { was_owed }.encode_to_vec()
}

pub fn decode_reset_reply(bytes: &[u8]) -> Result<bool, BudgetsError> {
    Ok(proto::ResetReply::decode(bytes)?.was_owed)
}

fn encode_account(account: &AccountView) -> proto::Account {
    proto::Account {
        client: account.client.clone(),
        credit: account.credit,
        leased: account.leased,
        leases: account.leases as u64,
        refused_ago_ms: account.refused_ago_ms,
    }
}

fn decode_account(account: proto::Account) -> Result<AccountView, BudgetsError> {
    let proto::Account { client, credit, leased, leases, refused_ago_ms } = account;
    if !client.is_empty() && !is_client(&client) {
        return Err(BudgetsError::Name { what: "client" });
    }
    Ok(AccountView {
        client,
        credit: finite(credit)?,
        leased,
        leases: usize::try_from(leases).unwrap_or(usize::MAX),
        refused_ago_ms,
    })
}

fn finite(credit: f64) -> Result<f64, BudgetsError> {
    if credit.is_finite() { Ok(credit) } else { Err(BudgetsError::Number { what: "a credit" }) }
}
