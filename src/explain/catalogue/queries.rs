//! What readers are told: by the query gate, and by the read API of this process.

use super::{Entry, Group};

pub(super) const GATE: Group = Group {
    title: "The query gate",
    about: "Told as Prometheus' API tells errors, in JSON.",
    entries: &[
        Entry {
            id: "client-queries",
            texts: &[
                "query rate limit of client {client} of tenant {tenant} exceeded: {rate#} queries \
                 per second over all query gates (burst: {burst#}), please query less often or \
                 contact administrator to raise it",
                "query rate limit of client {client} of tenant {tenant} exceeded: {rate#} queries \
                 per second over all query gates (burst: {burst#}), its burst admits no query at \
                 all, please contact administrator to raise it",
            ],
            status: "429",
            cause: "The client asks more often than its budget of queries allows. Answers from \
                    the cache cost nothing.",
            effect: "The query is refused; `Retry-After` says when to come back.",
            cure: "Let dashboards refresh less often or by the same steps, so that caches serve \
                   them; raise `client_identity_query_rate_limit`.",
            metric: "cortex_rejected_queries_total{reason=\"client_rate_limited\"}",
            keys: &["client_identity_query_rate_limit", "client_identity_query_burst_size"],
        },
        Entry {
            id: "client-query-tries",
            texts: &[
                "limit of all queries, cached ones among them, of client {client} of tenant \
                 {tenant} exceeded: {rate#} queries per second over all query gates (burst: \
                 {burst#}), please query less often or contact administrator to raise it",
                "limit of all queries, cached ones among them, of client {client} of tenant \
                 {tenant} exceeded: {rate#} queries per second over all query gates (burst: \
                 {burst#}), its burst admits no query at all, please contact administrator to \
                 raise it",
            ],
            status: "429",
            cause: "The client asks more than ten times as often as its budget, though answers \
                    come from the cache.",
            effect: "The query is refused; `Retry-After` says when to come back.",
            cure: "Let it refresh less often: it is a loop, mostly.",
            metric: "cortex_rejected_queries_total{reason=\"client_rate_limited\"}",
            keys: &["client_identity_query_rate_limit"],
        },
        Entry {
            id: "query-budget-unknown",
            texts: &["the query budget of client {client} of tenant {tenant} cannot be checked \
                      now: the query gate that keeps it does not answer, and what is set aside \
                      for that is used up; please try again (rate limit: {rate#} burst: {burst#})"],
            status: "503",
            cause: "The gate that owns the budget does not answer.",
            effect: "The query is refused through no fault of its sender.",
            cure: "Look at `/query-frontend/clients`, which names gates that do not answer.",
            metric: "freehold_client_fallbacks_total",
            keys: &["client_identity.owner_lost"],
        },
        Entry {
            id: "queries-in-flight",
            texts: &[
                "too many requests of this tenant are being answered ({limit#}), please try again \
                 later or contact administrator to raise -frontend.max-inflight-requests-per-tenant",
                "too many requests of this client are being answered ({limit#}), please try again \
                 later or contact administrator to raise -frontend.max-inflight-requests-per-client",
                "too many requests are being answered ({limit#}), please try again later or \
                 contact administrator to raise -frontend.max-inflight-requests",
            ],
            status: "429; 503 for all together",
            cause: "As many queries are being answered at once as may be.",
            effect: "The query is refused and may be tried again.",
            cure: "Look which queries take long; raise the bound the text names.",
            metric: "cortex_rejected_queries_total{reason=\"too_many_inflight_requests\"}",
            keys: &["frontend.max_inflight_requests"],
        },
        Entry {
            id: "query-downstream-unreachable",
            texts: &[
                "nobody who answers queries can be reached: {failures}",
                "nobody who answers queries can be reached, and {names} is not tried before \
                 {wait#} ms are over",
                "too many queries under way to {names}",
            ],
            status: "503",
            cause: "None of `-frontend.downstream-url` takes the query.",
            effect: "Nothing was sent; it may be tried again.",
            cure: "Look at the query-frontends or queriers behind.",
            metric: "freehold_query_downstream_refused_total",
            keys: &["frontend.downstream.url"],
        },
        Entry {
            id: "query-downstream-failed",
            texts: &[
                "{address} has not answered within {timeout#} ms",
                "{address} broke off: {cause}",
                "{address} broke off its answer: {cause}",
                "{address} did not go on with its answer within {timeout#} ms",
                "the answer broke off",
                "the answer was read too slowly",
                "the query was given up before it was answered",
            ],
            status: "504 or 502; an answer under way is cut",
            cause: "Those behind did not answer in time, or broke off; or the reader was too slow.",
            effect: "The query has no answer, and is not charged where it was given up.",
            cure: "Look at the query: its time range, and the queriers' log.",
            metric: "",
            keys: &["frontend.downstream.response_timeout"],
        },
        Entry {
            id: "query-unproxied",
            texts: &[
                "the method cannot be sent on",
                "the path has a segment of dots",
                "the target is no path",
                "the body of the request is malformed",
                "the request has been here before: -frontend.downstream-url leads back to this \
                 gate",
            ],
            status: "400, 405 or 508",
            cause: "The request is none that a gate may send on, or those behind lead back to us.",
            effect: "The request is refused.",
            cure: "For 508 set `-frontend.downstream-url` to those who answer, not to gates.",
            metric: "freehold_query_downstream_refused_total",
            keys: &["frontend.downstream.url"],
        },
    ],
};

pub(super) const API: Group = Group {
    title: "The read API of this process",
    about: "Remote read and the labels and series calls, where the embedded store answers.",
    entries: &[
        Entry {
            id: "selector",
            texts: &[
                "parse error: expected {wanted}, found {found}",
                "parse error: unterminated quoted string",
                "parse error: invalid escape in a quoted string",
                "parse error: the quoted string is not UTF-8",
                "parse error: metric name must not be set twice: {first\"} or {second\"}",
                "the selector has more than {limit#} matchers",
                "the selector has {bytes#} bytes, more than {limit#}",
                "the regular expression has {bytes#} bytes, more than {limit#}",
                "invalid regular expression {text\"}",
                "the regular expression is not UTF-8",
                "match[] must contain at least one non-empty matcher",
                "no match[] parameter provided",
                "more than {limit#} match[] parameters",
            ],
            status: "400",
            cause: "The selector cannot be read, or would select everything.",
            effect: "The query is refused.",
            cure: "Write it as PromQL does: `up{job=\"node\"}`.",
            metric: "",
            keys: &[],
        },
        Entry {
            id: "query-parameter",
            texts: &[
                "invalid parameter {name\"}: {text}",
                "cannot parse {text\"} to a valid timestamp",
                "{text\"} is no count",
                "no query parameter provided",
            ],
            status: "400",
            cause: "A parameter of the query cannot be read.",
            effect: "The query is refused.",
            cure: "Times are RFC 3339 or Unix seconds.",
            metric: "",
            keys: &[],
        },
        Entry {
            id: "query-too-large",
            texts: &[
                "the query selects more than {limit#} series; narrow it or raise \
                 -store.max-series-per-query",
                "the query selects more than {limit#} samples; narrow it or raise \
                 -store.max-samples-per-query",
                "the query selects more than {limit#} bytes; narrow it or raise \
                 -store.max-bytes-per-query",
                "the answer has more than {limit#} bytes; ask for fewer series or less time",
                "results truncated due to limit",
            ],
            status: "422; the last is a warning of a good answer",
            cause: "The query selects more than one may.",
            effect: "It has no answer, or a cut one.",
            cure: "Narrow the selector or the time, or raise the bound the text names.",
            metric: "",
            keys: &["store.max_series_per_query"],
        },
        Entry {
            id: "remote-read",
            texts: &[
                "the message is no snappy block",
                "the message has {bytes#} bytes, more than {limit#}",
                "the message is not what remote read sends",
                "the request has {queries#} queries, more than {limit#}",
                "unknown matcher type {number#}",
                "only the response type SAMPLES is supported",
            ],
            status: "400",
            cause: "The body is no request of remote read that is spoken here.",
            effect: "The query is refused.",
            cure: "Set the reader to answers of samples; look what it sends.",
            metric: "",
            keys: &[],
        },
        Entry {
            id: "no-samples-here",
            texts: &["this instance keeps no samples, since store.enabled is false"],
            status: "501",
            cause: "The process has no store: it is a gate or a sidecar.",
            effect: "The query is refused.",
            cure: "Ask Cortex, or turn the store on where `-target=all`.",
            metric: "",
            keys: &["store.enabled"],
        },
    ],
};
