//! `/explain`: why a series is taken or refused, and what an error text means.
//!
//! The question is in the address, so that an answer can be sent to a colleague; texts that are
//! too long for one come by POST, which changes nothing either.

use std::sync::Arc;

use askama::Template;
use axum::Router;
use axum::extract::{DefaultBodyLimit, Query, Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use axum::routing::get;
use serde::{Deserialize, Serialize};

use super::answer;
use super::site::{Frame, Site};
use crate::clock::Clock;
use crate::explain::report::Explanation;
use crate::explain::{Asked, Explainer, TEXT_BYTES_MAX};
use crate::series::Kind;

/// Largest form: a text of the longest kind, each byte written as three, and the other fields.
const FORM_BYTES_MAX: usize = 3 * TEXT_BYTES_MAX + (4 << 10);

/// What the page tells as JSON, and the command reads.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Answer {
    /// `None` before something is asked, or where it cannot be told.
    pub explanation: Option<Explanation>,
    /// Why it cannot be told.
    pub error: Option<String>,
}

#[derive(Serialize, Template)]
#[template(path = "explain.html", config = "src/admin/askama.toml")]
struct ExplainPage {
    #[serde(skip)]
    frame: Frame,
    #[serde(flatten)]
    answer: Answer,
    #[serde(skip)]
    asked: Question,
}

/// The form.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Question {
    tenant: String,
    text: String,
    /// Anything but empty asks for a native histogram.
    histogram: String,
}

#[derive(Clone)]
struct Pages {
    explainer: Arc<Explainer>,
    clock: Clock,
    site: Site,
}

const PATH: &str = "/explain";

pub fn router(explainer: Arc<Explainer>, clock: Clock, site: &Site) -> Router {
    site.open(PATH);
    Router::new()
        .route(PATH, get(show).post(show_posted))
        .layer(DefaultBodyLimit::max(FORM_BYTES_MAX))
        .with_state(Pages { explainer, clock, site: site.clone() })
}

async fn show(
    State(pages): State<Pages>,
    Query(question): Query<Question>,
    headers: HeaderMap,
) -> Response {
    pages.answer(question, answer::wants_json(&headers)).await
}

async fn show_posted(State(pages): State<Pages>, request: Request) -> Response {
    if answer::is_from_other_site(&request) {
        return answer::refused_to_other_site();
    }
    let json = answer::wants_json(request.headers());
    match answer::form_pairs(request).await {
        Err(refusal) => refusal,
        Ok(pairs) => {
            let field = |name| answer::first(&pairs, name).unwrap_or_default();
            let [tenant, text, histogram] = ["tenant", "text", "histogram"].map(field);
            pages.answer(Question { tenant, text, histogram }, json).await
        }
    }
}

impl Pages {
    async fn answer(self, question: Question, json: bool) -> Response {
        let Self { explainer, clock, site } = self;
        answer::made(site.permits(), move || {
            let page = ExplainPage::new(site.frame(PATH), &explainer, clock, question);
            let mut response = answer::either(json, &page);
            if page.answer.error.is_some() {
                *response.status_mut() = StatusCode::BAD_REQUEST;
            }
            response
        })
        .await
    }
}

impl ExplainPage {
    fn new(frame: Frame, explainer: &Explainer, clock: Clock, asked: Question) -> Self {
        let kind = if asked.histogram.is_empty() { Kind::Float } else { Kind::NativeHistogram };
        if asked.text.trim().is_empty() && asked.tenant.trim().is_empty() {
            // The form alone.
            return Self { frame, answer: Answer::default(), asked };
        }
        let question = Asked { tenant: &asked.tenant, text: &asked.text, kind };
        let answer = match explainer.explain(question, clock.now()) {
            Ok(explanation) => Answer { explanation: Some(explanation), error: None },
            Err(error) => Answer { explanation: None, error: Some(error.to_string()) },
        };
        Self { frame, answer, asked }
    }

    fn explanation(&self) -> Option<&Explanation> {
        self.answer.explanation.as_ref()
    }
}
