//! `/distributor/clients`: who of a tenant is at the limit, one budget, and its reset.
//!
//! What is shown of a budget is what its owner says, whichever gate is asked: a gate that only
//! spends of it knows no more than its leases. Gates that do not answer are named, since what
//! they own is missing.

mod page;

use std::error::Error;
use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Query, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use serde::Deserialize;
use tokio::sync::Semaphore;

use super::{FORM_BYTES_MAX, PAGES_AT_ONCE_MAX, answer};
use crate::clients::Key;
use crate::clients::peers::InspectError;
use crate::distributor::shared;
use crate::tenant::{ClientId, ClientIdError, TenantId, TenantIdError};
use page::OFF;

pub use page::{ClientLimit, ClientPage, ClientsPage, ClientsSource, ResetDone, Row, query};

#[derive(Clone)]
struct Pages {
    source: Arc<ClientsSource>,
    permits: Arc<Semaphore>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ClientsQuery {
    tenant: String,
    /// Absent asks for the list, empty for the tenant's own budget.
    client: Option<String>,
    format: String,
}

/// Names a budget as people do.
struct Name {
    tenant: TenantId,
    /// `None` is the tenant's own.
    client: Option<ClientId>,
}

/// Why nobody is called that. The texts are those that senders get.
#[derive(Debug, thiserror::Error)]
enum NameError {
    #[error("name the tenant: ?tenant=")]
    NoTenant,
    #[error(transparent)]
    Tenant(#[from] TenantIdError),
    #[error(transparent)]
    Client(#[from] ClientIdError),
}

/// The pages' routes.
pub fn router(source: ClientsSource) -> Router {
    let permits = Arc::new(Semaphore::new(PAGES_AT_ONCE_MAX));
    Router::new()
        .route("/distributor/clients", get(show))
        .route("/distributor/clients/reset", post(reset))
        .layer(DefaultBodyLimit::max(FORM_BYTES_MAX))
        .with_state(Pages { source: Arc::new(source), permits })
}

async fn show(
    State(pages): State<Pages>,
    Query(query): Query<ClientsQuery>,
    headers: HeaderMap,
) -> Response {
    // A page waits for all gates, and holds its place in line meanwhile.
    let Ok(_permit) = pages.permits.acquire().await else {
        return answer::error(503, "stopping");
    };
    let json = answer::wants_json(&headers) || query.format == "json";
    let source = &pages.source;
    let made = match (&query.client, query.tenant.as_str()) {
        (Some(client), tenant) => {
            source.one(tenant, client).await.map(|page| answer::either(json, &page))
        }
        // People are asked by a form.
        (None, "") if !json => Ok(answer::shown(&source.unnamed())),
        (None, tenant) => source.list(tenant).await.map(|page| answer::either(json, &page)),
    };
    made.unwrap_or_else(|refusal| refusal)
}

/// Forgives what is owed, and leads back to the budget.
async fn reset(State(pages): State<Pages>, request: Request) -> Response {
    let Ok(_permit) = pages.permits.acquire().await else {
        return answer::error(503, "stopping");
    };
    let json = answer::wants_json(request.headers());
    match forgiven(&pages.source, request).await {
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

async fn forgiven(source: &ClientsSource, request: Request) -> Result<(Name, ResetDone), Response> {
    if answer::is_from_other_site(request.headers()) {
        return Err(answer::refused_to_other_site());
    }
    let [tenant, client] = answer::form_values(request, ["tenant", "client"]).await?;
    let (Some(tenant), Some(client)) = (tenant, client) else {
        let text = "name tenant and client in the form; an empty client is the tenant's own budget";
        return Err(answer::error(400, text));
    };
    let name = Name::parse(&tenant, &client)?;
    let Some(budgets) = &source.budgets else { return Err(answer::error(409, OFF)) };
    let done = match budgets.reset(name.key()).await {
        Ok(reset) => ResetDone::from(reset),
        Err(error) => {
            tracing::warn!(tenant, client, error = with_causes(&error), "budget not reset");
            return Err(unknown(&error));
        }
    };
    let silent = done.silent_gates.join(" ");
    tracing::info!(tenant, client, done.was_owed, silent, "budget reset by an operator");
    Ok((name, done))
}

impl Name {
    fn parse(tenant: &str, client: &str) -> Result<Self, NameError> {
        if tenant.is_empty() {
            return Err(NameError::NoTenant);
        }
        let client = match client {
            "" => None,
            client => Some(ClientId::parse(client)?),
        };
        Ok(Self { tenant: TenantId::parse(tenant)?, client })
    }

    fn key(&self) -> Key<'_> {
        match &self.client {
            None => shared::tenant_key(&self.tenant),
            Some(client) => shared::client_key(&self.tenant, client),
        }
    }

    fn query(&self) -> String {
        let client = self.client.as_ref().map_or("", ClientId::as_str);
        query(self.tenant.as_str(), Some(client))
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
