//! `freehold clients`: who of a tenant is at the limit, one budget, its reset.
//!
//! Asks the page of any gate, which asks the owners; so the answer is the same wherever it is
//! asked for.

use std::fmt::Write as _;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, StatusCode, header};
use http_body_util::Full;
use serde::de::DeserializeOwned;

use super::instance::{Instance, InstanceError};
use crate::admin::CSRF_HEADER;
use crate::admin::clients::{ClientPage, ClientsPage, ResetDone, Row, path, query_of};
use crate::clients::Gates;
use crate::config::{ClientsArgs, ClientsAsk};
use crate::output::{self, Cell, Column, Screen, Style, Table};

/// How long the instance may take: it waits two seconds for each gate, one after the other twice.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest answer: a hundred rows with the longest names are 60 KB.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Why there is nothing to print.
#[derive(Debug, thiserror::Error)]
pub enum ClientsError {
    #[error("--tenant or --client cannot be sent")]
    Names,
    #[error(transparent)]
    Instance(#[from] InstanceError),
    #[error(
        "{addr} has no page of budgets; name the admin listener of a freehold with a {gates} \
         (-target={gates} or all) by --address"
    )]
    NoPage { addr: String, gates: Gates },
    #[error("{addr} refuses with status {status}: {text}")]
    Refused { addr: String, status: u16, text: String },
    #[error("{addr}: {text}")]
    Off { addr: String, text: String },
    #[error("cannot read the answer of {addr}")]
    Answer { addr: String, source: serde_json::Error },
}

/// Asks a running instance and returns what to print where there is no terminal.
pub async fn run(args: &ClientsArgs) -> Result<String, ClientsError> {
    shown(args, &Screen::FILE).await
}

/// The same for a screen.
pub async fn shown(args: &ClientsArgs, screen: &Screen) -> Result<String, ClientsError> {
    if let Some(kind) = args.kind {
        return args.ask_for(kind, screen).await;
    }
    // Whoever has no page of writes has one of queries, or is no gate.
    match args.ask_for(Gates::Distributors, screen).await {
        Err(no_writes @ ClientsError::NoPage { .. }) => {
            match args.ask_for(Gates::QueryFrontends, screen).await {
                Err(ClientsError::NoPage { .. }) => Err(no_writes),
                asked => asked,
            }
        }
        asked => asked,
    }
}

impl ClientsArgs {
    async fn ask_for(&self, kind: Gates, screen: &Screen) -> Result<String, ClientsError> {
        let Self { tenant, json, .. } = self;
        match &self.ask {
            ClientsAsk::Top => {
                let query = query_of(kind, tenant, None);
                let (page, text): (ClientsPage, _) = self.get(kind, &query).await?;
                self.check_on(page.enabled, &page.notes)?;
                Ok(if *json { text } else { print_top(&page, screen) })
            }
            ClientsAsk::Show { client } => {
                let query = query_of(kind, tenant, Some(client));
                let (page, text): (ClientPage, _) = self.get(kind, &query).await?;
                self.check_on(page.enabled, &page.notes)?;
                Ok(if *json { text } else { print_one(&page, screen) })
            }
            ClientsAsk::Reset { client } => {
                let form = query_of(kind, tenant, Some(client));
                let mut request = Request::post(format!("{}/reset", path(kind)))
                    .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
                if let Some(token) = self.csrf_token().await? {
                    request = request.header(CSRF_HEADER, token);
                }
                let (done, text) = self.send(kind, request, form.into()).await?;
                Ok(if *json { text } else { print_reset(&done) })
            }
        }
    }

    async fn get<T: DeserializeOwned>(
        &self,
        kind: Gates,
        query: &str,
    ) -> Result<(T, String), ClientsError> {
        self.send(kind, Request::get(format!("{}?{query}", path(kind))), Bytes::new()).await
    }

    async fn csrf_token(&self) -> Result<Option<HeaderValue>, ClientsError> {
        Ok(Instance::new(&self.asked)?.csrf_token(PATIENCE).await?)
    }

    /// What the instance says, and the text of it.
    async fn send<T: DeserializeOwned>(
        &self,
        kind: Gates,
        request: http::request::Builder,
        body: Bytes,
    ) -> Result<(T, String), ClientsError> {
        let request = request.header(header::ACCEPT, "application/json").body(Full::new(body));
        let request = request.map_err(|_| ClientsError::Names)?;
        let instance = Instance::new(&self.asked)?;
        let answer = instance.ask(request, ANSWER_BYTES_MAX, PATIENCE).await?;
        let addr = self.asked.address.clone();
        let mut text = String::from_utf8_lossy(answer.body()).trim_end().to_owned();
        match answer.status() {
            StatusCode::OK => {}
            StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => {
                return Err(ClientsError::NoPage { addr, gates: kind });
            }
            status => {
                let (status, text) = (status.as_u16(), output::clean(&text));
                return Err(ClientsError::Refused { addr, status, text });
            }
        }
        let told = serde_json::from_str(&text);
        let told = told.map_err(|source| ClientsError::Answer { addr, source })?;
        text.push('\n');
        Ok((told, text))
    }

    /// Where budgets are off there is nothing to see, and the instance says how to change that.
    fn check_on(&self, is_on: bool, notes: &[String]) -> Result<(), ClientsError> {
        match is_on {
            true => Ok(()),
            false => {
                Err(ClientsError::Off { addr: self.asked.address.clone(), text: notes.join("; ") })
            }
        }
    }
}

fn print_top(page: &ClientsPage, screen: &Screen) -> String {
    let mut out = String::new();
    if let Some(limit) = &page.limit {
        let _ = writeln!(
            out,
            "Each client of {}: {} {} a second over all {}, {} at once",
            page.tenant,
            limit.rate,
            page.unit(),
            page.over(),
            limit.burst
        );
    }
    print_notes(&mut out, &page.notes);
    if !page.silent_gates.is_empty() {
        let gates = page.silent_gates.join(" ");
        let _ = writeln!(out, "no answer from {gates}: what they own is missing");
    }
    let rows: Vec<_> = page.tenant_budget.iter().chain(&page.clients).collect();
    print_rows(&mut out, &rows, screen);
    if page.limit.is_some() && page.clients.is_empty() {
        out.push_str("no client owes anything, and none was refused in the last five minutes\n");
    }
    out
}

fn print_one(page: &ClientPage, screen: &Screen) -> String {
    let mut out = String::new();
    print_notes(&mut out, &page.notes);
    print_rows(&mut out, &Vec::from_iter(&page.budget), screen);
    out
}

fn print_reset(done: &ResetDone) -> String {
    let mut out = match done.was_owed {
        true => "forgiven: the budget is full again\n".to_owned(),
        false => "nothing was owed\n".to_owned(),
    };
    if !done.silent_gates.is_empty() {
        let gates = done.silent_gates.join(" ");
        let _ = writeln!(
            out,
            "no answer from {gates}: they may refuse for another second, and spend what they have \
             leased"
        );
    }
    out
}

fn print_notes(out: &mut String, notes: &[String]) {
    for note in notes {
        let _ = writeln!(out, "{note}");
    }
}

fn print_rows(out: &mut String, rows: &[&Row], screen: &Screen) {
    let others =
        ["credit", "burst", "rate", "owner", "leased", "leases", "refused"].map(Column::word);
    let mut table = Table::new(std::iter::once(Column::text("client")).chain(others));
    for row in rows {
        let client = if row.client.is_empty() { "(the tenant itself)" } else { &row.client };
        table.row([
            Cell::from(client),
            // Below one the next request has to wait.
            Cell::new(
                if row.credit < 1.0 { Style::Bad } else { Style::Plain },
                format!("{:.1}", row.credit),
            ),
            Cell::from(row.burst.to_string()),
            Cell::from(row.rate.to_string()),
            Cell::from(&row.owner),
            Cell::from(row.leased.to_string()),
            Cell::from(row.leases.to_string()),
            Cell::from(row.refused_ago()),
        ]);
    }
    table.print(out, screen);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(client: &str, credit: f64) -> Row {
        let owner = "gate-1".to_owned();
        let refused_seconds_ago = (credit < 1.0).then_some(130);
        let (client, burst, rate) = (client.to_owned(), 20, 2.5);
        Row { client, credit, burst, rate, owner, leased: 4, leases: 1, refused_seconds_ago }
    }

    #[test]
    fn a_table_names_what_is_known_and_who_is_silent() {
        let page = ClientsPage {
            enabled: true,
            kind: "writes".to_owned(),
            notes: vec!["a note".to_owned()],
            tenant: "t".to_owned(),
            limit: None,
            tenant_budget: Some(row("", 20.0)),
            clients: vec![row("CN=a b", 0.25)],
            silent_gates: vec!["gate-2".to_owned(), "gate-3".to_owned()],
            ..ClientsPage::default()
        };
        let expect = "\
a note
no answer from gate-2 gate-3: what they own is missing
  client               credit  burst  rate  owner   leased  leases  refused
  (the tenant itself)  20.0    20     2.5   gate-1  4       1
  CN=a b               0.2     20     2.5   gate-1  4       1       2 min 10 s ago
";
        assert_eq!(print_top(&page, &Screen::FILE), expect);
    }

    #[test]
    fn a_reset_says_what_it_did() {
        let done = ResetDone { was_owed: false, silent_gates: Vec::new() };
        assert_eq!(print_reset(&done), "nothing was owed\n");
        let done = ResetDone { was_owed: true, silent_gates: vec!["gate-2".to_owned()] };
        let expect = "\
forgiven: the budget is full again
no answer from gate-2: they may refuse for another second, and spend what they have leased
";
        assert_eq!(print_reset(&done), expect);
    }
}
