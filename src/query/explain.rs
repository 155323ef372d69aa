//! `freehold explain`: asks a running instance why a series is taken or refused, or what an error
//! text means.
//!
//! The instance answers by its page `/explain`, so command and page cannot disagree. The exit
//! code tells scripts the verdict.

use std::fmt::Write as _;
use std::time::Duration;

use http::{Request, StatusCode, header};
use http_body_util::Full;

use super::instance::{Instance, InstanceError};
use crate::admin::explain::Answer;
use crate::config::{ExplainArgs, Output};
use crate::explain::TEXT_BYTES_MAX;
use crate::explain::report::{ErrorFound, Explanation, Fact, Step, Verdict, WalkRow};
use crate::output::{self, Cell, Column, Screen, Style, Table, Told};

/// How long the instance may take: it waits for nobody else.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest answer: a text of the longest kind told back a few times, and the steps.
const ANSWER_BYTES_MAX: usize = 4 << 20;
/// Longest question that is asked by an address; others come as a form.
const QUERY_BYTES_MAX: usize = 4 << 10;

/// Why there is nothing to print.
#[derive(Debug, thiserror::Error)]
pub enum ExplainError {
    #[error("the text has {bytes} bytes, more than {TEXT_BYTES_MAX}")]
    TooLong { bytes: usize },
    #[error(transparent)]
    Instance(#[from] InstanceError),
    #[error("{addr} has no page /explain; name freehold's admin listener by --address")]
    NoPage { addr: String },
    #[error("{addr}: {text}")]
    Untold { addr: String, text: String },
    #[error("{addr} refuses with status {status}: {text}")]
    Refused { addr: String, status: u16, text: String },
    #[error("cannot read the answer of {addr}")]
    Answer { addr: String, source: serde_json::Error },
}

/// Asks a running instance. A series that would be refused is a finding, and so is one of which
/// the instance cannot tell.
pub async fn run(args: &ExplainArgs, screen: &Screen) -> Result<Told, ExplainError> {
    if args.text.len() > TEXT_BYTES_MAX {
        return Err(ExplainError::TooLong { bytes: args.text.len() });
    }
    let instance = Instance::new(&args.asked)?;
    let addr = || instance.address().to_owned();
    let answer = instance.ask(args.request(), ANSWER_BYTES_MAX, PATIENCE).await?;
    let (status, body) = (answer.status(), answer.into_body());
    let text = String::from_utf8_lossy(&body).trim_end().to_owned();
    match status {
        StatusCode::OK | StatusCode::BAD_REQUEST => {}
        StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => {
            return Err(ExplainError::NoPage { addr: addr() });
        }
        status => {
            let (status, text) = (status.as_u16(), output::clean(&text));
            return Err(ExplainError::Refused { addr: addr(), status, text });
        }
    }
    let answer: Answer = serde_json::from_slice(&body)
        .map_err(|source| ExplainError::Answer { addr: addr(), source })?;
    let Some(explanation) = answer.explanation else {
        let text = answer.error.unwrap_or_else(|| "there is no answer".to_owned());
        return Err(ExplainError::Untold { addr: addr(), text: output::clean(&text) });
    };
    let is_finding = match explanation.verdict {
        Verdict::Admitted | Verdict::Told => false,
        Verdict::Refused | Verdict::Unknown => true,
    };
    let text = match args.output {
        Output::Json => text + "\n",
        Output::Table => print(&explanation, screen),
    };
    Ok(Told { text, is_finding })
}

impl ExplainArgs {
    fn request(&self) -> Request<Full<bytes::Bytes>> {
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.append_pair("tenant", &self.tenant).append_pair("text", &self.text);
        if self.histogram {
            form.append_pair("histogram", "true");
        }
        let form = form.finish();
        let (request, body) = match form.len() <= QUERY_BYTES_MAX {
            true => (Request::get(format!("/explain?{form}")), String::new()),
            false => {
                let kind = "application/x-www-form-urlencoded";
                (Request::post("/explain").header(header::CONTENT_TYPE, kind), form)
            }
        };
        let request = request.header(header::ACCEPT, "application/json");
        request.body(Full::new(body.into())).expect("what is encoded fits an address")
    }
}

/// The verdict first: who asks is in a hurry.
fn print(told: &Explanation, screen: &Screen) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let style = match told.verdict {
        Verdict::Refused => Style::Bad,
        Verdict::Unknown => Style::Warn,
        Verdict::Admitted | Verdict::Told => Style::Plain,
    };
    let verdict = screen.paint(style, told.verdict.name());
    let _ = writeln!(out, "{verdict}: {}", output::clean(&told.says));
    if let Some(series) = &told.series {
        let _ = writeln!(out, "series  {}", output::clean(series));
    }
    if !told.tenant.is_empty() {
        let _ = writeln!(out, "tenant  {}", output::clean(&told.tenant));
    }
    for advice in &told.advice {
        let _ = writeln!(out, "  -> {}", output::clean(advice));
    }
    for error in &told.errors {
        print_error(&mut out, error);
    }
    for (number, step) in (1..).zip(&told.steps) {
        print_step(&mut out, number, step, screen);
    }
    out
}

fn print_error(out: &mut String, error: &ErrorFound) {
    let _ = writeln!(out, "\n{}  (status {})", error.id, error.status);
    let _ = writeln!(out, "  {}", output::clean(&error.text));
    for (name, text) in
        [("cause", &error.cause), ("consequence", &error.effect), ("what to do", &error.cure)]
    {
        let _ = writeln!(out, "  {name}: {text}");
    }
    if !error.metric.is_empty() {
        let _ = writeln!(out, "  counted by: {}", error.metric);
    }
    if !error.keys.is_empty() {
        let _ = writeln!(out, "  settings: {}", error.keys.join(", "));
    }
    print_facts(out, &error.facts);
}

fn print_step(out: &mut String, number: usize, step: &Step, screen: &Screen) {
    let _ = writeln!(out, "\n{number}. {} [{}]", step.title, step.outcome.name());
    let _ = writeln!(out, "  {}", output::clean(&step.says));
    print_facts(out, &step.facts);
    if step.walk.is_empty() {
        return;
    }
    let mut table = Table::new([
        Column::number("position"),
        Column::number("token"),
        Column::text("member"),
        Column::text("zone"),
        Column::word("state"),
        Column::word("heartbeat"),
        Column::text("why"),
    ]);
    for row in &step.walk {
        table.row(walk_row(row));
    }
    table.print(out, screen);
    if step.walk_left_out > 0 {
        let _ = writeln!(out, "  … and {} further tokens", step.walk_left_out);
    }
}

fn walk_row(row: &WalkRow) -> [Cell; 7] {
    let member = if row.is_own { format!("{} (asked)", row.member) } else { row.member.clone() };
    let heartbeat = if row.is_fresh { "fresh" } else { "too old" };
    [
        row.position.to_string(),
        row.token.to_string(),
        member,
        row.zone.clone(),
        row.state.clone(),
        heartbeat.to_owned(),
        row.why.clone(),
    ]
    .map(Cell::from)
}

fn print_facts(out: &mut String, facts: &[Fact]) {
    let width = facts.iter().map(|fact| fact.name.chars().count()).max().unwrap_or(0);
    for Fact { name, value } in facts {
        let pad = width - name.chars().count();
        let _ = writeln!(out, "  {name}{:pad$}  {}", "", output::clean(value));
    }
}
