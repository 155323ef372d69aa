//! What operators ask of all gates at once: who is at the limit, one budget, its reset.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use super::super::key::{Key, Kind, OwnedKey};
use super::super::owner::AccountView;
use super::member::Member;
use super::{Budgets, Id};
use crate::upstream::AskError;
use crate::wire::budgets::{
    self, BudgetsError, LIST_LEN_MAX, ListRequest, Shown, encode_list_request,
    encode_reset_request, encode_show_request,
};

const LIST: &str = "/freehold.budgets.v1.Budgets/List";
const SHOW: &str = "/freehold.budgets.v1.Budgets/Show";
const RESET: &str = "/freehold.budgets.v1.Budgets/Reset";

/// How long a gate may take to tell: an operator waits, and a gate that takes longer is missed
/// by requests too, and named.
const TELL_WITHIN: Duration = Duration::from_secs(2);

/// Accounts with the least credit, over all gates.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Top {
    /// With their owners, the poorest first.
    pub accounts: Vec<(Id, AccountView)>,
    /// Gates that did not answer; what they own is missing.
    pub silent: Vec<Id>,
}

/// One budget as its owner sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct ShownBudget {
    pub owner: Id,
    /// `None` while nothing is owed.
    pub account: Option<AccountView>,
}

/// A budget that was reset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reset {
    pub was_owed: bool,
    /// Gates that did not answer; they may go on refusing the client for a second, and spend what
    /// they have leased.
    pub silent: Vec<Id>,
}

/// Why nothing can be said of a budget.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    #[error("nobody owns the budget now")]
    Nobody,
    #[error("gate {owner} owns the budget and is not in reach")]
    Unreachable { owner: Id },
    /// By its own ring: two rings differ for a moment.
    #[error("gate {owner} does not own the budget")]
    NotOwner { owner: Id },
    #[error("gate {owner} does not answer")]
    Silent { owner: Id, source: AskError },
    #[error("gate {owner} answers strangely")]
    Strange { owner: Id, source: BudgetsError },
}

impl Budgets {
    /// The accounts of a tenant with the least credit, up to `len_max`.
    pub async fn top(&self, kind: Kind, tenant: &str, len_max: usize) -> Top {
        let len_max = len_max.min(LIST_LEN_MAX);
        let shared = &self.shared;
        let us = shared.gate.us();
        let own = shared.gate.poorest(kind, tenant, len_max, shared.now_ns());
        let mut top = Top::default();
        top.accounts.extend(own.into_iter().map(|account| (Id::clone(us), account)));
        let request = encode_list_request(&ListRequest { kind, tenant: tenant.into(), len_max });
        for (id, told) in self.ask_all(LIST, request, None).await {
            match told.ok().and_then(|reply| budgets::decode_list_reply(&reply).ok()) {
                Some(accounts) => {
                    top.accounts.extend(accounts.into_iter().map(|view| (Id::clone(&id), view)));
                }
                None => top.silent.push(id),
            }
        }
        top.accounts.sort_by(|(_, a), (_, b)| a.by_need(b));
        top.accounts.truncate(len_max);
        top.silent.sort_unstable();
        top
    }

    /// What the owner says of a budget.
    pub async fn show(&self, key: Key<'_>) -> Result<ShownBudget, InspectError> {
        let Some((owner, member)) = self.owner(key)? else {
            let account = self.shared.gate.view(key, self.shared.now_ns());
            return Ok(ShownBudget { owner: Id::clone(self.shared.gate.us()), account });
        };
        let request = encode_show_request(&key.to_owned());
        let reply = ask(&member, SHOW, &request).await?;
        match budgets::decode_show_reply(&reply) {
            Ok(Shown::Account(account)) => Ok(ShownBudget { owner, account }),
            Ok(Shown::NotOwner) => Err(InspectError::NotOwner { owner }),
            Err(source) => Err(InspectError::Strange { owner, source }),
        }
    }

    /// Forgives what is owed of a budget: at its owner first, then every gate forgets what it
    /// holds and believes of it.
    pub async fn reset(&self, key: Key<'_>) -> Result<Reset, InspectError> {
        let request = encode_reset_request(&key.to_owned());
        let mut reset = Reset { was_owed: self.reset_own(key), silent: Vec::new() };
        let mut asked = None;
        if let Some((owner, member)) = self.owner(key)? {
            let reply = ask(&member, RESET, &request).await?;
            let was_owed = budgets::decode_reset_reply(&reply);
            reset.was_owed |= was_owed
                .map_err(|source| InspectError::Strange { owner: Id::clone(&owner), source })?;
            // Before it, we may have learned again what the owner has forgotten since.
            self.reset_own(key);
            asked = Some(owner);
        }
        for (id, told) in self.ask_all(RESET, request, asked.as_ref()).await {
            match told.ok().and_then(|reply| budgets::decode_reset_reply(&reply).ok()) {
                Some(was_owed) => reset.was_owed |= was_owed,
                None => reset.silent.push(id),
            }
        }
        reset.silent.sort_unstable();
        Ok(reset)
    }

    /// The owner of a budget and the way to it; none where it is ours.
    fn owner(&self, key: Key<'_>) -> Result<Option<(Id, Arc<Member>)>, InspectError> {
        let owner = self.shared.gate.owner_of(key).ok_or(InspectError::Nobody)?;
        if owner == *self.shared.gate.us() {
            return Ok(None);
        }
        match self.shared.members.load().get(&owner) {
            Some(member) => Ok(Some((owner, Arc::clone(member)))),
            None => Err(InspectError::Unreachable { owner }),
        }
    }

    /// Asks every other gate but `except`, all at once.
    async fn ask_all(
        &self,
        method: &'static str,
        request: Vec<u8>,
        except: Option<&Id>,
    ) -> Vec<(Id, Result<bytes::Bytes, InspectError>)> {
        let request: Arc<[u8]> = request.into();
        let mut asking = JoinSet::new();
        for member in self.shared.members.load().values() {
            if Some(&member.id) == except {
                continue;
            }
            let (member, request) = (Arc::clone(member), Arc::clone(&request));
            asking.spawn(async move {
                let told = ask(&member, method, &request).await;
                (Id::clone(&member.id), told)
            });
        }
        asking.join_all().await
    }

    /// Our own part in a reset.
    pub fn reset_own(&self, key: Key<'_>) -> bool {
        let was_owed = self.shared.gate.reset(key);
        self.shared.gate.forget(key);
        was_owed
    }

    /// Our own part in a list.
    pub fn list_own(&self, request: &ListRequest) -> Vec<AccountView> {
        let ListRequest { kind, tenant, len_max } = request;
        let now_ns = self.shared.now_ns();
        self.shared.gate.poorest(*kind, tenant, (*len_max).min(LIST_LEN_MAX), now_ns)
    }

    /// A budget as we see it, if we own it.
    pub fn show_own(&self, key: &OwnedKey) -> Shown {
        let key = key.as_key();
        match self.shared.gate.owner_of(key) {
            Some(owner) if owner == *self.shared.gate.us() => {
                Shown::Account(self.shared.gate.view(key, self.shared.now_ns()))
            }
            _ => Shown::NotOwner,
        }
    }
}

async fn ask(
    member: &Member,
    method: &'static str,
    request: &[u8],
) -> Result<bytes::Bytes, InspectError> {
    let told = member.upstream().ask_encoded(method, request, TELL_WITHIN).await;
    told.map_err(|source| InspectError::Silent { owner: Id::clone(&member.id), source })
}
