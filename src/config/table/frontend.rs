//! Flags of the component "Query gate".

use super::super::flags::Group;
use super::flag;

pub(super) const FLAGS: Group = Group {
    heading: "Query gate",
    flags: &[
        flag(
            "frontend.http-prefixes",
            "frontend.http_prefixes",
            "Under which the query API is found, with /api/v1 behind each; several with commas between.",
        ),
        flag(
            "frontend.strip-http-prefix",
            "frontend.strip_http_prefix",
            "Take the prefix off a query that goes on, as a Prometheus wants it.",
        ),
        flag("frontend.max-body-size", "frontend.max_body_size", "Most bytes of a query's form."),
        flag(
            "frontend.max-inflight-requests-per-tenant",
            "frontend.max_inflight_requests_per_tenant",
            "Most queries of one tenant that are answered at a time.",
        ),
        flag(
            "frontend.max-inflight-requests-per-client",
            "frontend.max_inflight_requests_per_client",
            "Most queries of one client of a tenant that are answered at a time.",
        ),
        flag(
            "frontend.max-inflight-requests",
            "frontend.max_inflight_requests",
            "Most queries that are answered at a time.",
        ),
        flag(
            "frontend.log-queries-longer-than",
            "frontend.log_queries_longer_than",
            "Queries that take longer stand in the log; 0 tells of none.",
        ),
        flag(
            "frontend.share-identical-queries",
            "frontend.share_identical_queries",
            "Ask for identical queries in flight once.",
        ),
        flag(
            "frontend.cached-answers",
            "frontend.cached_answers",
            "What a client pays for an answer from the results cache: nothing once a canary has \
             verified that those are told apart (verified), nothing (trusted), or the same (charged).",
        ),
        flag(
            "frontend.canary-tenant",
            "frontend.canary_tenant",
            "Tenant whose data the canary asks for; empty asks for none.",
        ),
        flag("frontend.canary-query", "frontend.canary_query", "What the canary asks for."),
        flag(
            "frontend.canary-period",
            "frontend.canary_period",
            "How often a canary is asked for.",
        ),
        flag(
            "frontend.cache-ttl",
            "frontend.cache_ttl",
            "Oldest answer of our own cache, up to 30s; 0 keeps none.",
        ),
        flag(
            "frontend.cache-bytes-max",
            "frontend.cache_bytes_max",
            "What our own cache may take.",
        ),
    ],
};
