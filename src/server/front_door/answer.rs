//! What a request that does not get in is told: that it came too often, and nothing else. Whether
//! a credential exists is in none of it.

use ::http::{HeaderMap, header};
use axum::response::Response;

use crate::front_door::config::Limiter;
use crate::front_door::{OverLimit, Refusal, RouteClass};
use crate::ratelimit::{BucketView, RateLimitHeaders, retry_after_secs};
use crate::server::read;
use crate::server::status::{ReadRefusal, http_error, tell_budget};

const BAD_REQUEST: u16 = 400;
const FORBIDDEN: u16 = 403;
const TOO_MANY_REQUESTS: u16 = 429;

/// What a refused sender reads, and the log names by its id in the catalogue of errors.
pub(super) struct Told {
    pub text: &'static str,
    pub error_id: &'static str,
}

pub(super) const DENIED: Told = Told { text: "forbidden", error_id: "front-door-denied" };
pub(super) const NO_ADDRESS: Told =
    Told { text: "the address of the sender is not known", error_id: "front-door-no-address" };

pub(super) fn told(limiter: Limiter) -> Told {
    match limiter {
        Limiter::Failures => Told {
            text: "too many failed requests from this address",
            error_id: "front-door-failures",
        },
        Limiter::Address => {
            Told { text: "too many requests from this address", error_id: "front-door-address" }
        }
        Limiter::Credential => Told {
            text: "too many requests with this credential",
            error_id: "front-door-credential",
        },
    }
}

/// The answer to a refused request.
pub(super) fn refused(class: RouteClass, refusal: &Refusal, headers: RateLimitHeaders) -> Response {
    let over = match refusal {
        Refusal::Denied => return error(class, FORBIDDEN, "forbidden", DENIED.text),
        Refusal::OverLimit(over) => over,
    };
    let mut response =
        error(class, TOO_MANY_REQUESTS, "too_many_requests", told(over.limiter).text);
    let wait_secs = retry_after_secs(over.wait_ns, 0.0);
    response.headers_mut().insert(header::RETRY_AFTER, wait_secs.into());
    tell(&mut response, headers, over);
    response
}

/// The answer to a request that has no address: there is no budget to put it on.
pub(super) fn no_address(class: RouteClass) -> Response {
    error(class, BAD_REQUEST, "bad_data", NO_ADDRESS.text)
}

/// Tells what is left, unless a limiter further in has told of its own budget.
pub(super) fn tell_left(
    response: &mut Response,
    form: RateLimitHeaders,
    limiter: Limiter,
    left: BucketView,
) {
    if !has_told(response.headers()) {
        tell_budget(response, form, limiter.as_str(), left);
    }
}

fn has_told(headers: &HeaderMap) -> bool {
    ["ratelimit", "x-ratelimit-limit"].iter().any(|name| headers.contains_key(*name))
}

fn tell(response: &mut Response, form: RateLimitHeaders, over: &OverLimit) {
    tell_budget(response, form, over.limiter.as_str(), over.left);
}

/// As the class' senders read errors: Prometheus' API in JSON, all else in plain text.
fn error(class: RouteClass, status: u16, kind: &'static str, text: &str) -> Response {
    match class {
        RouteClass::Query => {
            let text = text.to_owned();
            read::refusal(&ReadRefusal::new(status, kind, text))
        }
        RouteClass::Write | RouteClass::Admin => http_error(status, text),
    }
}
