//! What an ingester says of samples, native histograms and exemplars.

use super::{Entry, Group};

pub(super) const GROUP: Group = Group {
    title: "Samples that an ingester does not take",
    about: "Each is about one sample; the rest of the push is stored. As a sidecar these are the \
            upstream's texts, passed on.",
    entries: &[
        Entry {
            id: "sample-out-of-bounds",
            texts: &[
                "err: out of bounds. timestamp={time}, tsdbHeadMaxTimestamp={head}, \
                 series={series}",
                "err: out of bounds. timestamp={time}, series={series}",
                "out of bounds",
            ],
            status: "400",
            cause: "The sample is older than what the head still takes, about an hour behind the \
                    tenant's newest sample, and out-of-order samples are not allowed.",
            effect: "The sample is lost: it can never be stored, and senders do not repeat it.",
            cure: "A sender that was cut off sends what it kept: let it pass, or set \
                   `out_of_order_time_window`. If it never ends, look at the sender's clock.",
            metric: "cortex_discarded_samples_total{reason=\"sample-out-of-bounds\"}",
            keys: &["out_of_order_time_window"],
        },
        Entry {
            id: "sample-out-of-order",
            texts: &[
                "err: out of order sample. timestamp={time}, series={series}",
                "out of order sample",
            ],
            status: "400",
            cause: "The series has a newer sample already: two senders write the same series, or \
                    one repeats what was stored.",
            effect: "The sample is lost; the rest is stored.",
            cure: "Give replicas of one Prometheus a cluster and a replica label and turn on HA \
                   tracking; give other senders labels that tell them apart; or allow lateness \
                   with `out_of_order_time_window`.",
            metric: "cortex_discarded_samples_total{reason=\"sample-out-of-order\"}",
            keys: &["out_of_order_time_window", "accept_ha_samples"],
        },
        Entry {
            id: "sample-too-old",
            texts: &[
                "err: too old sample. timestamp={time}, tsdbHeadMaxTimestamp={head}, \
                 series={series}",
                "err: too old sample. timestamp={time}, series={series}",
                "too old sample",
            ],
            status: "400",
            cause: "The sample is further behind the tenant's newest one than \
                    `out_of_order_time_window` allows.",
            effect: "The sample is lost; the rest is stored.",
            cure: "Widen `out_of_order_time_window`, or import old samples as blocks.",
            metric: "cortex_discarded_samples_total{reason=\"sample-too-old\"}",
            keys: &["out_of_order_time_window"],
        },
        Entry {
            id: "sample-too-new-at-ingester",
            texts: &["err: timestamp too new. timestamp={time}, series={series}"],
            status: "400",
            cause: "The sample is further ahead of our clock than `creation_grace_period`.",
            effect: "The sample is lost; the rest is stored.",
            cure: "Set the sender's clock.",
            metric: "cortex_discarded_samples_total{reason=\"too_far_in_future\"}",
            keys: &["creation_grace_period"],
        },
        Entry {
            id: "sample-duplicate",
            texts: &[
                "err: duplicate sample for timestamp {timestamp#}; overrides not allowed: \
                 existing {existing#}, new value {new#}. series={series}",
                "err: duplicate sample for timestamp {timestamp#}; overrides not allowed: \
                 existing is a histogram, new value {new#}. series={series}",
                "err: duplicate sample for timestamp. series={series}",
                "duplicate sample for timestamp",
                "duplicate sample for timestamp {timestamp#}; overrides not allowed: existing \
                 {existing#}, new value {new#}",
                "duplicate sample for timestamp {timestamp#}; overrides not allowed: existing is a \
                 histogram, new value {new#}",
            ],
            status: "400",
            cause: "The series has another value at that very time: two senders write the same \
                    series.",
            effect: "The first value stays. Sending the same value again is no error.",
            cure: "Give the senders labels that tell them apart, or turn on HA tracking for \
                   replicas.",
            metric: "cortex_discarded_samples_total{reason=\"new-value-for-timestamp\"}",
            keys: &["accept_ha_samples"],
        },
        Entry {
            id: "native-histogram-invalid",
            texts: &[
                "invalid native histogram, validation err: {error}, metric: {series\"}",
                "{found#} observations found in buckets, but the Count field is {count#}: \
                 histogram's observation count should be at least the number of observations \
                 found in the buckets",
                "{found#} observations found in buckets, but the Count field is {count#}: \
                 histogram's observation count should equal the number of observations found in \
                 the buckets (in absence of NaN)",
                "observation count is  {count#}: histogram's observation count is negative",
                "{side} side: bucket number {number#} has observation count of {count#}: \
                 histogram has a bucket whose observation count is negative",
                "zero bucket has observation count of {count#}: histogram has a bucket whose \
                 observation count is negative",
                "{side}: span number {number#} with offset {offset#}: histogram has a span whose \
                 offset is negative",
                "{side}: spans need {needed#} buckets, have {found#} buckets: histogram spans \
                 specify different number of buckets than provided",
                "custom buckets: only {bounds#} custom bounds defined which is insufficient to \
                 cover total span length of {needed#}: histogram custom bounds are too few",
                "custom buckets: previous bound is {previous#} and current is {current#}: \
                 histogram custom bounds must be in strictly increasing order",
                "custom buckets: last +Inf bound must not be explicitly defined: histogram custom \
                 bounds must be finite",
                "custom buckets: histogram custom bounds must not be NaN",
                "custom buckets: must have zero count of 0",
                "custom buckets: must have zero threshold of 0",
                "custom buckets: must not have negative spans",
                "custom buckets: must not have negative buckets",
                "histogram with exponential schema must not have custom bounds",
                "histogram has an invalid schema, which must be between {least#} and {most#} for \
                 exponential buckets, or {custom#} for custom buckets, got schema {schema#}",
            ],
            status: "400",
            cause: "A native histogram contradicts itself: its buckets, spans and count do not \
                    fit.",
            effect: "The histogram is left out; the rest is stored.",
            cure: "It is a fault of the client library or of what merged it on the way. Look \
                   which job sends the series.",
            metric: "cortex_discarded_samples_total{reason=\"native_histogram_invalid\"}",
            keys: &[],
        },
        Entry {
            id: "exemplar-without-series",
            texts: &["exemplars not ingested because series not already present"],
            status: "400",
            cause: "An exemplar came for a series that does not exist here, often one that was \
                    just refused.",
            effect: "The exemplars of that series are left out; samples are not touched.",
            cure: "Look why its series is not there: explain the series.",
            metric: "cortex_ingester_ingested_exemplars_failures_total",
            keys: &["max_exemplars"],
        },
        Entry {
            id: "exemplar-too-long-at-ingester",
            texts: &["label length for exemplar exceeds maximum of 128 UTF-8 characters"],
            status: "400",
            cause: "Names and values of an exemplar have more characters together than \
                    OpenMetrics allows.",
            effect: "The exemplar is left out; samples are not touched.",
            cure: "Keep a trace id in exemplars and nothing else.",
            metric: "cortex_ingester_ingested_exemplars_failures_total",
            keys: &[],
        },
    ],
};
