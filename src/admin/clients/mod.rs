//! `/distributor/clients` and `/query-frontend/clients`: who of a tenant is at the limit, one budget,
//! and its reset. Each shows its own kind, writes or queries, and the other where `kind=` says so.
//!
//! What is shown of a budget is what its owner says, whichever gate is asked: a gate that only
//! spends of it knows no more than its leases. Gates that do not answer are named, since what
//! they own is missing.

mod html;
pub mod kind;
mod page;

use std::error::Error;
use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Query, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use serde::Deserialize;

use super::site::Site;
use super::{FORM_BYTES_MAX, answer};
use crate::clients::peers::InspectError;
use crate::clients::{Gates, Key};
use crate::distributor::shared;
use crate::frontend::shared as queries;
use crate::tenant::{ClientId, ClientIdError, TenantId, TenantIdError};
use html::{ListHtml, OneHtml};
use kind::{NO_TENANT_QUERIES, words};

pub use page::{
    ClientLimit, ClientPage, ClientsPage, ClientsSource, GateRow, Refused, ResetDone, Row,
    TellRefusedOf, query, query_of,
};

#[derive(Clone)]
struct Pages {
    source: Arc<ClientsSource>,
    /// What is shown where `kind=` says nothing.
    kind: Gates,
    site: Site,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ClientsQuery {
    tenant: String,
    /// Absent asks for the list, empty for the tenant's own budget.
    client: Option<String>,
    /// `writes` or `queries`; empty is what the page is about.
    kind: String,
    format: String,
}

/// Names a budget as people do.
struct Name {
    kind: Gates,
    tenant: TenantId,
    /// `None` is the tenant's own.
    client: Option<ClientId>,
}

/// Why nobody is called that. The texts are those that senders get.
#[derive(Debug, thiserror::Error)]
enum NameError {
    #[error("name the tenant: ?tenant=")]
    NoTenant,
    #[error("there is no kind {given:?}; it is writes or queries")]
    Kind { given: String },
    #[error("{NO_TENANT_QUERIES}")]
    TenantQueries,
    #[error(transparent)]
    Tenant(#[from] TenantIdError),
    #[error(transparent)]
    Client(#[from] ClientIdError),
}

/// The pages' routes; `gates` are those whose budgets are meant where nothing else is said.
pub fn router(gates: Gates, source: ClientsSource, site: &Site) -> Router {
    let path = path(gates);
    site.open(path);
    Router::new()
        .route(path, get(show))
        .route(&format!("{path}/reset"), post(reset))
        .layer(DefaultBodyLimit::max(FORM_BYTES_MAX))
        .with_state(Pages { source: Arc::new(source), kind: gates, site: site.clone() })
}

/// Where these gates show their budgets.
pub fn path(gates: Gates) -> &'static str {
    match gates {
        Gates::Distributors => "/distributor/clients",
        Gates::QueryFrontends => "/query-frontend/clients",
    }
}

async fn show(
    State(pages): State<Pages>,
    Query(query): Query<ClientsQuery>,
    headers: HeaderMap,
) -> Response {
    // A page waits for all gates, and holds its place in line meanwhile.
    let Ok(_permit) = pages.site.permits().acquire_owned().await else {
        return answer::error(503, "stopping");
    };
    let json = answer::wants_json(&headers) || query.format == "json";
    let source = &pages.source;
    let kind = match pages.kind(&query.kind) {
        Ok(kind) => kind,
        Err(error) => return error.into(),
    };
    let frame = pages.site.frame(path(pages.kind));
    let made = match (&query.client, query.tenant.as_str()) {
        (Some(client), tenant) => source.one(kind, tenant, client).await.map(|page| match json {
            true => answer::told(answer::JSON, &page, ""),
            false => answer::shown(&OneHtml { frame, page }),
        }),
        // People are asked by a form.
        (None, "") if !json => Ok(answer::shown(&ListHtml { frame, page: source.unnamed(kind) })),
        (None, tenant) => source.list(kind, tenant).await.map(|page| match json {
            true => answer::told(answer::JSON, &page, ""),
            false => answer::shown(&ListHtml { frame, page }),
        }),
    };
    made.unwrap_or_else(|refusal| refusal)
}

/// Forgives what is owed, and leads back to the budget.
async fn reset(State(pages): State<Pages>, request: Request) -> Response {
    let Ok(_permit) = pages.site.permits().acquire_owned().await else {
        return answer::error(503, "stopping");
    };
    let json = answer::wants_json(request.headers());
    match forgiven(&pages, request).await {
        Ok((_, done)) if json => answer::told(answer::JSON, &done, ""),
        Ok((name, done)) if done.silent_gates.is_empty() => {
            // Relative, so that it holds behind a proxy's prefix.
            let back = [(header::LOCATION, format!("../clients?{}", name.query()))];
            (StatusCode::SEE_OTHER, back).into_response()
        }
        Ok((_, done)) => {
            let text = format!(
                "reset at the owner; no answer from {}: they may refuse for another second, and \
                 spend what they have leased\n",
                done.silent_gates.join(", ")
            );
            answer::with_type(StatusCode::OK, answer::TEXT, text)
        }
        Err(refusal) => refusal,
    }
}

async fn forgiven(pages: &Pages, request: Request) -> Result<(Name, ResetDone), Response> {
    let names = ["tenant", "client", "kind"];
    let ([tenant, client, kind], who) = pages.site.writes().form(request, names).await?;
    let (Some(tenant), Some(client)) = (tenant, client) else {
        let text = "name tenant and client in the form; an empty client is the tenant's own budget";
        return Err(answer::error(400, text));
    };
    let kind = pages.kind(&kind.unwrap_or_default())?;
    let name = Name::parse(kind, &tenant, &client)?;
    let keys = name.all_keys()?;
    let Some(budgets) = pages.source.of(kind) else {
        return Err(answer::error(409, words(kind).off));
    };
    let kind = kind::name(kind);
    let mut done = ResetDone::default();
    for key in keys.into_iter().flatten() {
        match budgets.reset(key).await {
            Ok(reset) => done.add(reset),
            Err(error) => {
                let error_text = with_causes(&error);
                tracing::warn!(%who, tenant, client, kind, error = error_text, "budget not reset");
                return Err(unknown(&error));
            }
        }
    }
    let silent = done.silent_gates.join(" ");
    tracing::info!(
        %who, tenant, client, kind, done.was_owed, silent, "budget reset by an operator"
    );
    Ok((name, done))
}

impl Pages {
    /// What `kind=` asks for.
    fn kind(&self, given: &str) -> Result<Gates, NameError> {
        match given {
            "" => Ok(self.kind),
            given => kind::parse(given).ok_or_else(|| NameError::Kind { given: given.to_owned() }),
        }
    }
}

impl Name {
    fn parse(kind: Gates, tenant: &str, client: &str) -> Result<Self, NameError> {
        if tenant.is_empty() {
            return Err(NameError::NoTenant);
        }
        let client = match client {
            "" => None,
            client => Some(ClientId::parse(client)?),
        };
        Ok(Self { kind, tenant: TenantId::parse(tenant)?, client })
    }

    /// The budget that is meant.
    fn key(&self) -> Result<Key<'_>, NameError> {
        match (self.kind, &self.client) {
            (Gates::Distributors, None) => Ok(shared::tenant_key(&self.tenant)),
            (Gates::Distributors, Some(client)) => Ok(shared::client_key(&self.tenant, client)),
            (Gates::QueryFrontends, Some(client)) => Ok(queries::client_key(&self.tenant, client)),
            (Gates::QueryFrontends, None) => Err(NameError::TenantQueries),
        }
    }

    /// With what is owed of tries, which nobody is shown and which is forgiven together with it.
    fn all_keys(&self) -> Result<[Option<Key<'_>>; 2], NameError> {
        let tries = match (self.kind, &self.client) {
            (Gates::QueryFrontends, Some(client)) => Some(queries::tries_key(&self.tenant, client)),
            _ => None,
        };
        Ok([Some(self.key()?), tries])
    }

    fn query(&self) -> String {
        let client = self.client.as_ref().map_or("", ClientId::as_str);
        query_of(self.kind, self.tenant.as_str(), Some(client))
    }
}

impl From<NameError> for Response {
    fn from(error: NameError) -> Self {
        answer::error(400, &error.to_string())
    }
}

/// Nobody who knows the budget has told of it.
fn unknown(error: &InspectError) -> Response {
    let status = match error {
        InspectError::Strange { .. } => 502,
        InspectError::Nobody
        | InspectError::Unreachable { .. }
        | InspectError::NotOwner { .. }
        | InspectError::Silent { .. } => 503,
    };
    answer::error(status, &format!("cannot tell: {}", with_causes(error)))
}

fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
