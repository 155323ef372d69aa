//! Why a series is taken or refused: a decision replayed step by step, and errors told.
//!
//! ```text
//! pasted text ─► input: a series, or errors of the catalogue with a series in them
//! series ─► gate: the distributor's inspection ─┐
//!                     walk of the ring, watched ├─► steps, verdict, advice
//!           here: the ingester's inspection ────┘
//! ```
//!
//! The room decides nothing. What is told comes from the inspections of the services, which ask
//! the code that decides, and from the ring's own walk, which is watched; so an explanation
//! cannot differ from the decision that it explains, but for the moment that lies between them.
//!
//! What must hold: nothing is changed by asking; a question costs a bounded time and answer.

pub mod catalogue;
mod gate;
mod here;
mod input;
pub mod report;
#[cfg(test)]
mod tests;
mod walking;

use std::sync::{Arc, OnceLock};

use crate::clock::Now;
use crate::distributor::Distributor;
use crate::ingester::Ingester;
use crate::labels::NameScheme;
use crate::limits::Overrides;
use crate::series::Kind;
use crate::tenant::{TenantId, TenantIdError};

use catalogue::{Catalogue, Recognised};
use input::{Series, SeriesError};
use report::{ErrorFound, Explanation, Fact, Outcome, Step, Verdict};

pub use input::TEXT_BYTES_MAX;

/// Where all errors are listed.
const ERRORS_DOC: &str = "docs/errors.md";

/// What can be asked: the services of this process.
pub struct Explainer {
    pub ingester: Option<Arc<Ingester>>,
    pub distributor: Option<Arc<Distributor>>,
    pub overrides: Arc<Overrides>,
    /// Which names labels may have.
    pub names: NameScheme,
    /// Made by the first question: most processes are never asked.
    catalogue: OnceLock<Catalogue>,
}

/// A question.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// May be empty where the text names one.
    pub tenant: &'a str,
    pub text: &'a str,
    /// What the series' sample would be.
    pub kind: Kind,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    #[error("paste a series, such as up{{job=\"a\"}}, or an error from a log")]
    Empty,
    #[error("the text has {bytes} bytes, more than {TEXT_BYTES_MAX}")]
    TooLong { bytes: usize },
    #[error("name the tenant whose series it is")]
    NoTenant,
    #[error(transparent)]
    Tenant(#[from] TenantIdError),
    #[error(
        "the text holds no error that is known ({ERRORS_DOC} lists them), and it is no series: {0}"
    )]
    Unreadable(SeriesError),
}

impl Explainer {
    pub fn new(
        ingester: Option<Arc<Ingester>>,
        distributor: Option<Arc<Distributor>>,
        overrides: Arc<Overrides>,
        names: NameScheme,
    ) -> Self {
        Self { ingester, distributor, overrides, names, catalogue: OnceLock::new() }
    }

    pub fn explain(&self, asked: Asked<'_>, now: Now) -> Result<Explanation, AskError> {
        let text = asked.text.trim();
        if text.is_empty() {
            return Err(AskError::Empty);
        }
        if asked.text.len() > TEXT_BYTES_MAX {
            return Err(AskError::TooLong { bytes: asked.text.len() });
        }
        let named = match asked.tenant.trim() {
            "" => None,
            tenant => Some(TenantId::parse(tenant)?),
        };
        let read = self.read(text)?;
        let mut told = Explanation {
            tenant: named
                .as_ref()
                .or(read.tenant.as_ref())
                .map(ToString::to_string)
                .unwrap_or_default(),
            errors: read.errors,
            ..Explanation::default()
        };
        match (read.series, named.or(read.tenant)) {
            (None, _) => tell(&mut told),
            (Some(_), None) => return Err(AskError::NoTenant),
            (Some(series), Some(tenant)) => {
                self.replay(&mut told, &tenant, &series, asked.kind, now);
            }
        }
        Ok(told)
    }

    /// What the text is: a series by itself, or errors.
    fn read(&self, text: &str) -> Result<Read, AskError> {
        let catalogue = self.catalogue.get_or_init(Catalogue::new);
        let series = Series::parse(text);
        let errors = catalogue.recognise(text);
        // One word is a metric's name and may be an error's whole text, such as `forbidden`; a line
        // of a log in JSON is an object of texts, as labels are.
        let has_name = |series: &Series| series.0.iter().any(|(name, _)| name == "__name__");
        let is_bare = !text.contains(['{', '"']) || !series.as_ref().is_ok_and(has_name);
        let is_error = !errors.is_empty() && is_bare;
        if let (Ok(series), false) = (&series, is_error) {
            return Ok(Read { errors: Vec::new(), series: Some(series.clone()), tenant: None });
        }
        let plain = Read::of(text, &errors);
        let unescaped = input::without_escapes(text);
        let read = match unescaped.filter(|_| plain.series.is_none()) {
            None => plain,
            // The line of a log has escaped what the error quotes.
            Some(unescaped) => match Read::of(&unescaped, &catalogue.recognise(&unescaped)) {
                read if read.errors.is_empty() => plain,
                read => read,
            },
        };
        match series {
            Err(error) if read.errors.is_empty() => Err(AskError::Unreadable(error)),
            _ => Ok(read),
        }
    }

    fn replay(
        &self,
        told: &mut Explanation,
        tenant: &TenantId,
        series: &Series,
        kind: Kind,
        now: Now,
    ) {
        told.series = Some(here::text_of(series.pairs()));
        told.push(parsed(series));
        let means = Means { explainer: self, tenant, kind, now };
        match &self.distributor {
            Some(distributor) => gate::replay(told, &means, distributor, series),
            None => match &self.ingester {
                Some(ingester) => here::replay_received(told, &means, ingester, series),
                None => {
                    told.verdict = Verdict::Unknown;
                    told.says = "this process neither takes writes nor keeps series: ask a write \
                                 gate or an ingester"
                        .to_owned();
                }
            },
        }
    }
}

/// What a replay is made with.
struct Means<'a> {
    explainer: &'a Explainer,
    tenant: &'a TenantId,
    kind: Kind,
    now: Now,
}

/// A text that was read.
struct Read {
    errors: Vec<ErrorFound>,
    series: Option<Series>,
    tenant: Option<TenantId>,
}

impl Read {
    fn of(text: &str, errors: &[Recognised]) -> Self {
        Self {
            errors: errors.iter().filter_map(|error| found(text, error)).collect(),
            series: errors.iter().find_map(|error| input::series_of(text, error)),
            tenant: input::tenant_of(text, errors),
        }
    }
}

fn found(text: &str, error: &Recognised) -> Option<ErrorFound> {
    let entry = catalogue::entry(error.entry)?;
    let facts = error.holes.iter().filter_map(|(name, place)| {
        let value = input::shortened(text.get(place.clone())?);
        Some(Fact { name: name.replace('_', " "), value })
    });
    Some(ErrorFound {
        id: entry.id.to_owned(),
        text: input::shortened(text.get(error.place.clone())?),
        status: entry.status.to_owned(),
        cause: entry.cause.to_owned(),
        effect: entry.effect.to_owned(),
        cure: entry.cure.to_owned(),
        metric: entry.metric.to_owned(),
        keys: entry.keys.iter().map(|key| (*key).to_owned()).collect(),
        facts: facts.collect(),
    })
}

/// Errors alone, without a series to replay.
fn tell(told: &mut Explanation) {
    told.verdict = Verdict::Told;
    told.says = match told.errors.as_slice() {
        [] => "nothing is known of this".to_owned(),
        errors => {
            let ids: Vec<&str> = errors.iter().map(|error| error.id.as_str()).collect();
            format!("{}; the text names no series that could be replayed", ids.join(", "))
        }
    };
    for at in 0..told.errors.len() {
        told.advise(told.errors[at].cure.clone());
    }
}

fn parsed(series: &Series) -> Step {
    let count = series.0.len();
    let labels = if count == 1 { "label" } else { "labels" };
    let says = format!("the series has {count} {labels}");
    series
        .0
        .iter()
        .fold(Step::new("series", "Series", Outcome::Noted, says), |step, (name, value)| {
            step.fact(name, input::shortened(value))
        })
}
