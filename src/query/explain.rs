//! `freehold explain`: asks a running instance why a series is taken or refused, or what an error
//! text means.
//!
//! The instance answers by its page `/explain`, so command and page cannot disagree. The exit
//! code tells scripts the verdict.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::Full;

use super::instance::{self, InstanceError};
use crate::admin::explain::Answer;
use crate::config::{ExplainArgs, ExplainOutput};
use crate::explain::TEXT_BYTES_MAX;
use crate::explain::report::{ErrorFound, Explanation, Fact, Step, Verdict, WalkRow};
use crate::plan::write_columns;

/// How long the instance may take: it waits for nobody else.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest answer: a text of the longest kind told back a few times, and the steps.
const ANSWER_BYTES_MAX: usize = 4 << 20;
/// Longest question that is asked by an address; others come as a form.
const QUERY_BYTES_MAX: usize = 4 << 10;

/// Exit code where the series would be refused.
pub const EXIT_REFUSED: u8 = 2;

/// Why there is nothing to print.
#[derive(Debug, thiserror::Error)]
pub enum ExplainError {
    #[error("the text has {bytes} bytes, more than {TEXT_BYTES_MAX}")]
    TooLong { bytes: usize },
    #[error(transparent)]
    Instance(#[from] InstanceError),
    #[error("{addr} did not answer within {PATIENCE:?}")]
    TooSlow { addr: String },
    #[error("{addr} has no page /explain; name freehold's admin listener by --address")]
    NoPage { addr: String },
    #[error("{addr}: {text}")]
    Untold { addr: String, text: String },
    #[error("{addr} refuses with status {status}: {text}")]
    Refused { addr: String, status: u16, text: String },
    #[error("cannot read the file {path} with the token")]
    Token { path: String, source: std::io::Error },
    #[error("the question cannot be sent: the token is no text of a header")]
    Unsendable,
    #[error("cannot read the answer of {addr}")]
    Answer { addr: String, source: serde_json::Error },
}

/// What to print, and how the process ends.
#[derive(Debug)]
pub struct Told {
    pub text: String,
    pub verdict: Verdict,
}

impl Told {
    pub fn exit_code(&self) -> ExitCode {
        match self.verdict {
            Verdict::Admitted | Verdict::Told => ExitCode::SUCCESS,
            Verdict::Refused => ExitCode::from(EXIT_REFUSED),
            Verdict::Unknown => ExitCode::FAILURE,
        }
    }
}

/// Asks a running instance.
pub async fn run(args: &ExplainArgs) -> Result<Told, ExplainError> {
    if args.text.len() > TEXT_BYTES_MAX {
        return Err(ExplainError::TooLong { bytes: args.text.len() });
    }
    let addr = || args.address.clone();
    let asking = instance::exchange(&args.address, args.request()?, ANSWER_BYTES_MAX);
    let late = |_| ExplainError::TooSlow { addr: addr() };
    let answer = tokio::time::timeout(PATIENCE, asking).await.map_err(late)??;
    let (status, body) = (answer.status(), answer.into_body());
    let text = String::from_utf8_lossy(&body).trim_end().to_owned();
    match status {
        StatusCode::OK | StatusCode::BAD_REQUEST => {}
        StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => {
            return Err(ExplainError::NoPage { addr: addr() });
        }
        status => {
            let status = status.as_u16();
            return Err(ExplainError::Refused { addr: addr(), status, text });
        }
    }
    let answer: Answer = serde_json::from_slice(&body)
        .map_err(|source| ExplainError::Answer { addr: addr(), source })?;
    let Some(explanation) = answer.explanation else {
        let text = answer.error.unwrap_or_else(|| "there is no answer".to_owned());
        return Err(ExplainError::Untold { addr: addr(), text });
    };
    let verdict = explanation.verdict;
    let text = match args.output {
        ExplainOutput::Json => text + "\n",
        ExplainOutput::Table => print(&explanation),
    };
    Ok(Told { text, verdict })
}

impl ExplainArgs {
    fn request(&self) -> Result<Request<Full<Bytes>>, ExplainError> {
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.append_pair("tenant", &self.tenant).append_pair("text", &self.text);
        if self.histogram {
            form.append_pair("histogram", "true");
        }
        let form = form.finish();
        let request = match form.len() <= QUERY_BYTES_MAX {
            true => Request::get(format!("/explain?{form}")),
            false => Request::post("/explain")
                .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded"),
        };
        let request = match &self.bearer_token_file {
            None => request,
            Some(path) => {
                let read = std::fs::read_to_string(path);
                let path = path.display().to_string();
                let token = read.map_err(|source| ExplainError::Token { path, source })?;
                request.header(header::AUTHORIZATION, format!("Bearer {}", token.trim()))
            }
        };
        let body = if form.len() <= QUERY_BYTES_MAX { Bytes::new() } else { form.into() };
        let request = request.header(header::ACCEPT, "application/json").body(Full::new(body));
        request.map_err(|_| ExplainError::Unsendable)
    }
}

/// The verdict first: who asks is in a hurry.
fn print(told: &Explanation) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(out, "{}: {}", told.verdict.name(), told.says);
    if let Some(series) = &told.series {
        let _ = writeln!(out, "series  {series}");
    }
    if !told.tenant.is_empty() {
        let _ = writeln!(out, "tenant  {}", told.tenant);
    }
    for advice in &told.advice {
        let _ = writeln!(out, "  -> {advice}");
    }
    for error in &told.errors {
        print_error(&mut out, error);
    }
    for (number, step) in (1..).zip(&told.steps) {
        print_step(&mut out, number, step);
    }
    out
}

fn print_error(out: &mut String, error: &ErrorFound) {
    let _ = writeln!(out, "\n{}  (status {})", error.id, error.status);
    let _ = writeln!(out, "  {}", error.text);
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

fn print_step(out: &mut String, number: usize, step: &Step) {
    let _ = writeln!(out, "\n{number}. {} [{}]", step.title, step.outcome.name());
    let _ = writeln!(out, "  {}", step.says);
    print_facts(out, &step.facts);
    if step.walk.is_empty() {
        return;
    }
    let head = ["position", "token", "member", "zone", "state", "heartbeat", "why"];
    let rows = std::iter::once(head.map(str::to_owned)).chain(step.walk.iter().map(walk_row));
    let rows: Vec<Vec<String>> = rows.map(Vec::from).collect();
    write_columns(out, &rows);
    if step.walk_left_out > 0 {
        let _ = writeln!(out, "  … and {} further tokens", step.walk_left_out);
    }
}

fn walk_row(row: &WalkRow) -> [String; 7] {
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
}

fn print_facts(out: &mut String, facts: &[Fact]) {
    let width = facts.iter().map(|fact| fact.name.chars().count()).max().unwrap_or(0);
    for Fact { name, value } in facts {
        let pad = width - name.chars().count();
        let _ = writeln!(out, "  {name}{:pad$}  {value}", "");
    }
}
