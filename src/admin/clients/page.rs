//! What the pages about budgets show, and how it is come by.

use std::sync::Arc;

use axum::response::Response;
use serde::{Deserialize, Serialize};

use super::kind::{self, NO_TENANT_QUERIES, Words, words};
use super::{Name, unknown, with_causes};
use crate::admin::overview::role::lasting;
use crate::clients::peers::{Budgets, Reset};
use crate::clients::{AccountView, Gates, Kind, Terms};
use crate::distributor::shared;
use crate::exposition::RefusedCount;
use crate::frontend::shared as queries;
use crate::limits::{ClientBudget, IngestionRateStrategy, Limits, Overrides};
use crate::tenant::TenantId;

/// Most clients of one page: what an operator reads, and the poorest stand first.
pub const ROWS_MAX: usize = 100;

const CLIENTS_OFF: &str = "clients have no budgets here: start every gate with \
                           -client-identity.enabled=true";
const NOT_LEASED: &str = "the tenant's own rate is not kept over all distributors: start every \
                          gate with -distributor.ingestion-rate-limit-strategy=leased";
const TENANT_UNLIMITED: &str = "the tenant's own rate has no limit: set ingestion_rate";

/// Tells what this gate has refused of a tenant, since it came.
pub type TellRefusedOf = dyn Fn(&TenantId, &mut dyn FnMut(RefusedCount<'_>)) + Send + Sync;

/// What the pages are made from.
#[derive(Clone)]
pub struct ClientsSource {
    /// `None` where nothing is kept over all distributors.
    pub writes: Option<Budgets>,
    /// `None` where nothing is kept over all query gates.
    pub queries: Option<Budgets>,
    pub overrides: Arc<Overrides>,
    /// Requests are looked at for their client.
    pub are_clients_known: bool,
    /// Of the kind that the page is about.
    pub refused: Arc<TellRefusedOf>,
}

/// Who is at the limit.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct ClientsPage {
    pub enabled: bool,
    /// What the budgets are of.
    pub kind: String,
    /// What an operator should know of the numbers, or of why there are none.
    pub notes: Vec<String>,
    pub tenant: String,
    /// What each client may, by the limits that this gate knows.
    pub limit: Option<ClientLimit>,
    /// The tenant's own budget, where it is kept over all distributors.
    pub tenant_budget: Option<Row>,
    /// Those that owe anything, the poorest first, then those that were refused lately.
    pub clients: Vec<Row>,
    /// Gates that did not answer; what they own is missing.
    pub silent_gates: Vec<String>,
    /// What the gate that was asked has refused of the tenant, by reason.
    #[serde(default)]
    pub refused: Vec<Refused>,
    /// All gates that budgets are shared with, the one that was asked first.
    #[serde(default)]
    pub gates: Vec<GateRow>,
}

/// What was refused for one reason, at the gate that was asked.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    pub reason: String,
    /// What is counted: samples, queries.
    pub unit: String,
    /// Since the tenant came there.
    pub total: u64,
}

/// A gate of the ring.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateRow {
    pub id: String,
    /// Empty for the gate that was asked.
    pub address: String,
    /// It answers, as far as the gate that was asked knows.
    pub up: bool,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct ClientLimit {
    /// Items or queries per second.
    pub rate: f64,
    pub burst: u64,
    /// Of one owner.
    pub tracked_clients: u64,
    pub shadow: bool,
}

/// One budget.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct ClientPage {
    pub enabled: bool,
    /// What the budget is of.
    pub kind: String,
    pub notes: Vec<String>,
    pub tenant: String,
    /// Empty is the tenant's own budget.
    pub client: String,
    /// `None` where there is no limit.
    pub budget: Option<Row>,
    /// What the gate that was asked has refused of the tenant, by reason.
    #[serde(default)]
    pub refused: Vec<Refused>,
}

/// A budget at its owner.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Empty is the tenant's own budget.
    pub client: String,
    /// What the owner can give now; the whole burst while nothing is owed.
    pub credit: f64,
    pub burst: u64,
    /// Items or queries per second.
    pub rate: f64,
    /// The gate that keeps it.
    pub owner: String,
    /// Credit that other gates hold, and in how many leases.
    pub leased: u64,
    pub leases: usize,
    /// Since its owner refused a request of it, if that was within five minutes.
    #[serde(default)]
    pub refused_seconds_ago: Option<u64>,
}

/// What a reset did.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResetDone {
    pub was_owed: bool,
    /// Gates that did not answer: they may go on refusing the client for a second, and spend what
    /// they have leased.
    pub silent_gates: Vec<String>,
}

impl ClientsSource {
    /// The budgets of one kind.
    pub(super) fn of(&self, kind: Gates) -> Option<&Budgets> {
        match kind {
            Gates::Distributors => self.writes.as_ref(),
            Gates::QueryFrontends => self.queries.as_ref(),
        }
    }

    /// The page of nobody, with a form that asks for the tenant.
    pub(super) fn unnamed(&self, kind: Gates) -> ClientsPage {
        ClientsPage {
            enabled: self.of(kind).is_some(),
            kind: kind::name(kind).to_owned(),
            notes: self.general_note(kind).map(str::to_owned).into_iter().collect(),
            gates: self.of(kind).map(gates).unwrap_or_default(),
            ..ClientsPage::default()
        }
    }

    pub(super) async fn list(&self, kind: Gates, tenant: &str) -> Result<ClientsPage, Response> {
        let name = Name::parse(kind, tenant, "")?;
        let refused = self.refused_of(&name.tenant);
        let mut page = ClientsPage { tenant: tenant.to_owned(), refused, ..self.unnamed(kind) };
        let Some(budgets) = self.of(kind) else { return Ok(page) };
        if let (Some(own), Ok(key)) = (self.own_terms(&name).ok().flatten(), name.key()) {
            match budgets.show(key).await {
                Ok(shown) => {
                    page.tenant_budget = Some(Row::new("", own, shown.owner, shown.account))
                }
                Err(error) => {
                    page.notes.push(format!("the tenant's own budget: {}", with_causes(&error)));
                }
            }
        }
        if !self.are_clients_known {
            return Ok(page);
        }
        let limits = Arc::clone(self.overrides.load().limits_of(tenant));
        let words = words(kind);
        let Some((terms, budget)) = client_limit(kind, &limits) else {
            page.notes.push(words.no_limit.to_owned());
            return Ok(page);
        };
        if budget.is_shadow {
            page.notes.push(words.shadow.to_owned());
        }
        page.limit = Some(ClientLimit {
            rate: budget.rate,
            burst: budget.burst,
            tracked_clients: budget.tracked_clients_max,
            shadow: budget.is_shadow,
        });
        let listed = match kind {
            Gates::Distributors => Kind::ClientWrites,
            Gates::QueryFrontends => Kind::ClientQueries,
        };
        let top = budgets.top(listed, tenant, ROWS_MAX).await;
        let rows = top.accounts.into_iter().map(|(owner, account)| {
            let client = account.client.clone();
            Row::new(&client, terms, owner, Some(account))
        });
        page.clients = rows.collect();
        page.silent_gates = top.silent.iter().map(|gate| gate.to_string()).collect();
        Ok(page)
    }

    pub(super) async fn one(
        &self,
        kind: Gates,
        tenant: &str,
        client: &str,
    ) -> Result<ClientPage, Response> {
        let name = Name::parse(kind, tenant, client)?;
        let mut page = ClientPage {
            enabled: self.of(kind).is_some(),
            kind: kind::name(kind).to_owned(),
            tenant: tenant.to_owned(),
            client: client.to_owned(),
            refused: self.refused_of(&name.tenant),
            ..ClientPage::default()
        };
        let Some(budgets) = self.of(kind) else {
            page.notes.push(words(kind).off.to_owned());
            return Ok(page);
        };
        let terms = match &name.client {
            None => self.own_terms(&name).and_then(|terms| terms.ok_or(TENANT_UNLIMITED)),
            Some(_) => self.client_terms(&name, &mut page.notes),
        };
        let terms = match terms {
            Ok(terms) => terms,
            Err(why) => {
                page.notes.push(why.to_owned());
                return Ok(page);
            }
        };
        let shown = budgets.show(name.key()?).await.map_err(|error| unknown(&error))?;
        page.budget = Some(Row::new(client, terms, shown.owner, shown.account));
        Ok(page)
    }

    fn refused_of(&self, tenant: &TenantId) -> Vec<Refused> {
        let mut rows = Vec::new();
        (self.refused)(tenant, &mut |told: RefusedCount<'_>| {
            if told.count > 0 {
                let (reason, unit) = (told.reason.to_owned(), told.unit.to_owned());
                rows.push(Refused { reason, unit, total: told.count });
            }
        });
        rows.sort_by(|a, b| b.total.cmp(&a.total).then_with(|| a.reason.cmp(&b.reason)));
        rows
    }

    fn general_note(&self, kind: Gates) -> Option<&'static str> {
        match (self.of(kind), self.are_clients_known) {
            (None, _) => Some(words(kind).off),
            (Some(_), false) => Some(CLIENTS_OFF),
            (Some(_), true) => None,
        }
    }

    /// What the tenant itself may, `None` without a limit; or why that is not kept here.
    fn own_terms(&self, name: &Name) -> Result<Option<Terms>, &'static str> {
        if name.kind == Gates::QueryFrontends {
            return Err(NO_TENANT_QUERIES);
        }
        let limits = self.overrides.load();
        match limits.ingestion_rate_strategy() {
            IngestionRateStrategy::Leased => Ok(shared::tenant_terms(limits.limits(&name.tenant))),
            IngestionRateStrategy::Local | IngestionRateStrategy::Global => Err(NOT_LEASED),
        }
    }

    /// What each client may, or why none is limited.
    fn client_terms(&self, name: &Name, notes: &mut Vec<String>) -> Result<Terms, &'static str> {
        if !self.are_clients_known {
            return Err(CLIENTS_OFF);
        }
        let limits = self.overrides.load();
        let words = words(name.kind);
        let limit = client_limit(name.kind, limits.limits(&name.tenant));
        let (terms, budget) = limit.ok_or(words.no_limit)?;
        if budget.is_shadow {
            notes.push(words.shadow.to_owned());
        }
        Ok(terms)
    }
}

/// What each client of a tenant may write or ask; `None` without a limit.
fn client_limit(kind: Gates, limits: &Limits) -> Option<(Terms, ClientBudget)> {
    match kind {
        Gates::Distributors => shared::client_terms(limits).zip(limits.client_budget()),
        Gates::QueryFrontends => queries::client_terms(limits).zip(limits.query_client_budget()),
    }
}

impl ClientsPage {
    /// What a budget of this page counts.
    pub fn unit(&self) -> &'static str {
        self.words().unit
    }

    /// Who keep to it together.
    pub fn over(&self) -> &'static str {
        self.words().over
    }

    pub(super) fn words(&self) -> &'static Words {
        words(self.kind())
    }

    pub(super) fn kind(&self) -> Gates {
        kind::parse(&self.kind).unwrap_or_default()
    }
}

impl ClientPage {
    pub(super) fn words(&self) -> &'static Words {
        words(self.kind())
    }

    pub(super) fn kind(&self) -> Gates {
        kind::parse(&self.kind).unwrap_or_default()
    }
}

/// All gates of the ring; ours answers, or nobody would ask.
fn gates(budgets: &Budgets) -> Vec<GateRow> {
    let us = GateRow { id: budgets.us().to_string(), address: String::new(), up: true };
    let others = budgets.peers().into_iter().map(|peer| GateRow {
        id: peer.id.to_string(),
        address: peer.address.to_string(),
        up: peer.is_up,
    });
    std::iter::once(us).chain(others).collect()
}

impl Row {
    fn new(client: &str, terms: Terms, owner: Arc<str>, account: Option<AccountView>) -> Self {
        let burst = terms.budget.burst;
        let refused_ago_ms = account.as_ref().and_then(|account| account.refused_ago_ms);
        let (credit, leased, leases) = match account {
            None => (burst as f64, 0, 0),
            Some(account) => (account.credit, account.leased, account.leases),
        };
        Self {
            client: client.to_owned(),
            credit,
            burst,
            rate: terms.budget.rate,
            owner: owner.to_string(),
            leased,
            leases,
            refused_seconds_ago: refused_ago_ms.map(|ago_ms| ago_ms / 1000),
        }
    }

    /// When a request of it was refused last, in words.
    pub fn refused_ago(&self) -> String {
        self.refused_seconds_ago.map_or_else(String::new, |ago_s| format!("{} ago", lasting(ago_s)))
    }

    /// Nobody holds a credit of it.
    pub(super) fn is_used_up(&self) -> bool {
        self.credit < 1.0 && self.leased == 0
    }

    /// What the owner can give, as a part of the burst that a bar shows.
    pub(super) fn bar(&self) -> f64 {
        self.credit.clamp(0.0, self.burst as f64)
    }
}

impl ResetDone {
    /// A client may have more than one budget that is forgiven.
    pub(super) fn add(&mut self, reset: Reset) {
        self.was_owed |= reset.was_owed;
        self.silent_gates.extend(reset.silent.iter().map(|gate| gate.to_string()));
        self.silent_gates.sort_unstable();
        self.silent_gates.dedup();
    }
}

/// What a link or a form says of writes: `tenant=…&client=…`.
pub fn query(tenant: &str, client: Option<&str>) -> String {
    let mut pairs = form_urlencoded::Serializer::new(String::new());
    pairs.append_pair("tenant", tenant);
    if let Some(client) = client {
        pairs.append_pair("client", client);
    }
    pairs.finish()
}

/// The same of any kind.
pub fn query_of(gates: Gates, tenant: &str, client: Option<&str>) -> String {
    format!("{}&kind={}", query(tenant, client), kind::name(gates))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_survives_in_a_link() {
        assert_eq!(query("a-b", Some("CN=x y&é")), "tenant=a-b&client=CN%3Dx+y%26%C3%A9");
        assert_eq!(query("a", None), "tenant=a");
    }

    #[test]
    fn a_budget_that_nothing_is_owed_of_is_shown_full() {
        let budget = crate::ratelimit::Budget { rate: 2.5, burst: 7 };
        let terms = Terms { budget, tracked_max: 1 };
        let row = |account| Row::new("c", terms, "gate-1".into(), account);
        let full = row(None);
        assert_eq!((full.credit, full.burst, full.rate, full.leases), (7.0, 7, 2.5, 0));
        assert!(!full.is_used_up());
        let account = |credit, leased| {
            let client = "c".to_owned();
            let leases = usize::from(leased > 0);
            Some(AccountView { client, credit, leased, leases, refused_ago_ms: Some(61_999) })
        };
        assert!(row(account(0.5, 0)).is_used_up());
        assert!(!row(account(0.5, 3)).is_used_up(), "others still spend of it");
        assert_eq!(row(account(0.5, 3)).refused_ago(), "1 min 1 s ago");
        assert_eq!(full.refused_ago(), "");
    }
}
