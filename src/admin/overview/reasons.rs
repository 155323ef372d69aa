//! What the reasons of refusals mean, for who reads them at night: the cause, and what to do.

/// What is said of a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    pub means: &'static str,
    /// Where more is written.
    pub docs: &'static str,
}

const CLIENTS: &str = "docs/client-budgets.md";
const DOOR: &str = "docs/front-door.md";
const OPERATING: &str = "docs/operating.md";
const QUERIES: &str = "docs/query-gate.md";
const METRICS: &str = "docs/metrics.md";

const RATE: &str = "The tenant writes more than its rate: raise ingestion_rate or its burst, or \
                    find the writer that grew.";
const BURST: &str = "A request has more than a full bucket holds, so it never passes however long its \
                     sender waits: raise the burst above the largest request.";
const SERIES: &str = "The tenant has as many series as it may; those that are known go on. Look at \
                      its page for the limit in force and why.";
const INSTANCE: &str = "This instance has what it can bear, whoever asks: add instances, or raise \
                        the limit if it has room.";
const BEHIND: &str = "What lies behind this process cannot take it: look at its health above.";
const INVALID: &str = "Series or samples that no ingester could take; the rest of their request \
                       went on. The log names tenant and series.";
const CLOCKS: &str = "Samples older or newer than what is taken: a clock that is wrong, or a sender \
                      that catches up after a break.";
const FAILURES: &str = "Addresses that failed too often, by guessed or outdated credentials; who \
                        was right lately still gets in.";
const PER_ADDRESS: &str = "Addresses that send more than they may: if these are proxies of yours, \
                           name them in -front-door.trusted-proxies.";
const PER_CREDENTIAL: &str = "Credentials that are used more often than they may be.";

/// By reason; every one that a room tells is here or is explained as the last resort has it.
const TOLD: &[(&str, &str, &str)] = &[
    ("rate_limited", RATE, OPERATING),
    ("burst_exceeded", BURST, OPERATING),
    ("native_histogram_burst_exceeded", BURST, OPERATING),
    (
        "native_histogram_rate_limited",
        "The tenant writes more native histograms than native_histogram_ingestion_rate; its float \
         samples went on.",
        OPERATING,
    ),
    (
        "client_rate_limited",
        "A writer or reader below the tenant is over its own budget; the tenant's others are not \
         touched. The page of clients says who.",
        CLIENTS,
    ),
    ("per_user_series_limit", SERIES, OPERATING),
    ("per_user_native_histogram_series_limit", SERIES, OPERATING),
    (
        "per_metric_series_limit",
        "A metric of the tenant has as many series as one may: a label with too many values, most \
         often.",
        OPERATING,
    ),
    ("per_labelset_series_limit", "A label set that has a limit of its own is full.", OPERATING),
    ("max_series", INSTANCE, OPERATING),
    ("max_tenants", INSTANCE, OPERATING),
    ("max_ingestion_rate", INSTANCE, OPERATING),
    ("max_inflight_push_requests", INSTANCE, OPERATING),
    ("max_inflight_client_requests", INSTANCE, OPERATING),
    ("too_many_inflight_requests", "More queries at once than may be asked.", QUERIES),
    ("no room", "More bytes of requests at once than -server.max-inflight-bytes.", OPERATING),
    ("bytes", BEHIND, METRICS),
    ("requests", BEHIND, METRICS),
    ("down", BEHIND, METRICS),
    (
        "loop",
        "Queries that came back to the gate that had sent them on: its address behind is \
              itself.",
        QUERIES,
    ),
    (
        "owner lost",
        "The gate that keeps a budget did not answer, and what was set aside for that is used up.",
        CLIENTS,
    ),
    ("denied", "Addresses on -front-door.deny.", DOOR),
    ("write failures", FAILURES, DOOR),
    ("query failures", FAILURES, DOOR),
    ("admin failures", FAILURES, DOOR),
    ("write address", PER_ADDRESS, DOOR),
    ("query address", PER_ADDRESS, DOOR),
    ("admin address", PER_ADDRESS, DOOR),
    ("write credential", PER_CREDENTIAL, DOOR),
    ("query credential", PER_CREDENTIAL, DOOR),
    ("admin credential", PER_CREDENTIAL, DOOR),
    (
        "in shadow",
        "Admitted, and only counted: it would have been refused without the tenant's shadow mode.",
        CLIENTS,
    ),
    (
        "sample-out-of-order",
        "Samples older than the last one of their series: two senders of the same series, most \
         often.",
        OPERATING,
    ),
    (
        "new-value-for-timestamp",
        "Two values of one series at one time: two senders of the same series.",
        OPERATING,
    ),
    ("sample-out-of-bounds", CLOCKS, OPERATING),
    ("sample-too-old", CLOCKS, OPERATING),
    ("too_far_in_future", CLOCKS, OPERATING),
    ("greater_than_max_sample_age", CLOCKS, OPERATING),
    (
        "native-histogram-sample",
        "Native histograms of a tenant that has them turned off.",
        OPERATING,
    ),
    (
        "per_user_metadata_limit",
        "The tenant has as many metrics with metadata as it may.",
        OPERATING,
    ),
    ("per_metric_metadata_limit", "A metric has as many metadata as one may.", OPERATING),
];

/// What is said of `reason`. Reasons of validation name the rule, so one text does for all.
pub fn of(reason: &str) -> Told {
    let told = TOLD.iter().find(|(known, ..)| *known == reason);
    told.map_or(Told { means: INVALID, docs: METRICS }, |&(_, means, docs)| Told { means, docs })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ingester::counters::{DiscardReason, MetadataReason};

    /// Validation's are explained together, as is `rate_limited` of all that is written.
    #[test]
    fn every_reason_of_an_ingester_is_explained_by_itself() {
        let samples = DiscardReason::ALL.iter().map(|reason| reason.label());
        for reason in samples.chain(MetadataReason::ALL.iter().map(|reason| reason.label())) {
            assert_ne!(of(reason).means, INVALID, "{reason}");
        }
        assert_eq!(of("labels_not_sorted").means, INVALID);
    }

    #[test]
    fn what_is_referred_to_is_there_and_no_reason_is_told_twice() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        for (at, (reason, means, docs)) in TOLD.iter().enumerate() {
            assert!(root.join(docs).is_file(), "{reason}: {docs}");
            assert!(means.ends_with('.'), "{reason}");
            assert!(TOLD[..at].iter().all(|(known, ..)| known != reason), "{reason} twice");
        }
    }
}
