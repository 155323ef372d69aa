//! `/ingester/mode`: between ACTIVE and READONLY, with Cortex's requests and texts.
//!
//! A GET switches too, since Cortex's does and operators' scripts rely on it.

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;

use super::{Pages, answer};
use crate::ring::model::InstanceState;

pub(super) async fn switch(State(pages): State<Pages>, request: Request) -> Response {
    switched(&pages, request).await.unwrap_or_else(|refusal| refusal)
}

/// A look at the head alone changes nothing, and Cortex has no such route.
pub(super) async fn refuse() -> StatusCode {
    StatusCode::METHOD_NOT_ALLOWED
}

async fn switched(pages: &Pages, request: Request) -> Result<Response, Response> {
    let ([mode], who) = pages.site.writes().form(request, ["mode"]).await?;
    let mode = mode.unwrap_or_default().to_uppercase();
    let state = match mode.as_str() {
        "READONLY" => InstanceState::ReadOnly,
        "ACTIVE" => InstanceState::Active,
        _ => return Err(refused(format!("invalid mode input: {}", escaped(&mode)))),
    };
    let Some(lifecycler) = &pages.sources.lifecycler else {
        let text = "failed to change state: this process does not write the ring (its store is \
                    read-only, or an ingester behind it registers itself): ask that ingester";
        return Err(refused(text.to_owned()));
    };
    if let Err(error) = lifecycler.set_state(state).await {
        return Err(refused(format!("failed to change state: {error}")));
    }
    let text = format!("Ingester mode {}", lifecycler.status().state);
    tracing::info!(%who, text, "mode set by an operator");
    Ok(answer::with_type(StatusCode::OK, answer::TEXT, text))
}

fn refused(text: String) -> Response {
    answer::with_type(StatusCode::BAD_REQUEST, answer::TEXT, text)
}

/// As Go's `html.EscapeString`, which Cortex puts the echo through.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '\'' => escaped.push_str("&#39;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&#34;"),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_echo_is_escaped_as_go_does() {
        assert_eq!(escaped("<A B='1'>\"&\""), "&lt;A B=&#39;1&#39;&gt;&#34;&amp;&#34;");
    }
}
