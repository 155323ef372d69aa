//! Cortex's rules for labels, times and what a series carries, as a distributor checks them.

use super::{Entry, Group};

pub(super) const GROUP: Group = Group {
    title: "Validation",
    about: "A distributor leaves out the series that breaks a rule and takes the others; the \
            first failure is the answer. Senders do not repeat what is answered with 400.",
    entries: &[
        Entry {
            id: "metric-name-missing",
            texts: &["sample missing metric name"],
            status: "400",
            cause: "The series has no label `__name__`.",
            effect: "It is left out.",
            cure: "Name it at the sender: a relabelling rule may have dropped the name.",
            metric: "cortex_discarded_samples_total{reason=\"missing_metric_name\"}",
            keys: &["enforce_metric_name"],
        },
        Entry {
            id: "metric-name-invalid",
            texts: &["sample invalid metric name: {metric\"}"],
            status: "400",
            cause: "The metric's name has characters that the scheme does not allow.",
            effect: "The series is left out.",
            cure: "Rename it at the sender, or allow UTF-8 with `-name-validation-scheme=utf8` \
                   once all readers know it.",
            metric: "cortex_discarded_samples_total{reason=\"metric_name_invalid\"}",
            keys: &["name_validation_scheme"],
        },
        Entry {
            id: "too-many-labels",
            texts: &["series has too many labels (actual: {actual#}, limit: {limit#}) series: \
                      '{plain_series}'"],
            status: "400",
            cause: "The series has more labels than `max_label_names_per_series`.",
            effect: "It is left out.",
            cure: "Drop labels at the sender (`labeldrop`), or raise the limit.",
            metric: "cortex_discarded_samples_total{reason=\"max_label_names_per_series\"}",
            keys: &["max_label_names_per_series", "drop_labels"],
        },
        Entry {
            id: "label-name-invalid",
            texts: &["sample invalid label: {label\"} metric {series\"}"],
            status: "400",
            cause: "A label's name has characters that the scheme does not allow.",
            effect: "The series is left out.",
            cure: "Rename the label at the sender, or allow UTF-8 with \
                   `-name-validation-scheme=utf8`.",
            metric: "cortex_discarded_samples_total{reason=\"label_invalid\"}",
            keys: &["name_validation_scheme"],
        },
        Entry {
            id: "label-name-too-long",
            texts: &[
                "label name too long for metric (actual: {actual#}, limit: {limit#}) metric: \
                      {series\"} label name: {label\"}",
            ],
            status: "400",
            cause: "A label's name has more bytes than `max_label_name_length`.",
            effect: "The series is left out.",
            cure: "Shorten it at the sender, or raise the limit.",
            metric: "cortex_discarded_samples_total{reason=\"label_name_too_long\"}",
            keys: &["max_label_name_length"],
        },
        Entry {
            id: "label-value-too-long",
            texts: &["label value too long for metric (actual: {actual#}, limit: {limit#}) \
                      metric: {series\"} label name: {label\"} label value: {value\"}"],
            status: "400",
            cause: "A label's value has more bytes than `max_label_value_length`: a query or a \
                    stack trace in a label, mostly.",
            effect: "The series is left out.",
            cure: "Drop or shorten the label at the sender, or raise the limit.",
            metric: "cortex_discarded_samples_total{reason=\"label_value_too_long\"}",
            keys: &["max_label_value_length"],
        },
        Entry {
            id: "label-duplicate",
            texts: &["duplicate label name: {label\"} metric {series\"}"],
            status: "400",
            cause: "The series has two labels of one name.",
            effect: "It is left out.",
            cure: "It is a fault of the sender, or of what relabels on the way.",
            metric: "cortex_discarded_samples_total{reason=\"duplicate_label_names\"}",
            keys: &[],
        },
        Entry {
            id: "labels-not-sorted",
            texts: &["labels not sorted: {label\"} metric {series\"}"],
            status: "400",
            cause: "Labels are in no order. Distributors sort them, so Cortex says this only \
                    where its own sort was overtaken.",
            effect: "The series is left out.",
            cure: "It is a fault of the sender.",
            metric: "cortex_discarded_samples_total{reason=\"labels_not_sorted\"}",
            keys: &[],
        },
        Entry {
            id: "labels-too-large",
            texts: &["labels size bytes exceeded for metric (actual: {actual#}, limit: {limit#}) \
                      metric: {series\"}"],
            status: "400",
            cause: "All labels of the series have more bytes together than \
                    `max_labels_size_bytes`.",
            effect: "It is left out.",
            cure: "Drop labels at the sender, or raise the limit.",
            metric: "cortex_discarded_samples_total{reason=\"labels_size_bytes_exceeded\"}",
            keys: &["max_labels_size_bytes"],
        },
        Entry {
            id: "timestamp-too-old",
            texts: &["timestamp too old: {timestamp#} metric: {metric\"}"],
            status: "400",
            cause: "`reject_old_samples` is on and the sample is older than \
                    `reject_old_samples_max_age`.",
            effect: "The series is left out of this request.",
            cure: "Let the sender's backlog pass, or raise the age.",
            metric: "cortex_discarded_samples_total{reason=\"greater_than_max_sample_age\"}",
            keys: &["reject_old_samples", "reject_old_samples_max_age"],
        },
        Entry {
            id: "timestamp-too-new",
            texts: &["timestamp too new: {timestamp#} metric: {metric\"}", "timestamp too new"],
            status: "400",
            cause: "The sample is further ahead of our clock than `creation_grace_period`.",
            effect: "The series is left out of this request.",
            cure: "Set the sender's clock, and look at ours.",
            metric: "cortex_discarded_samples_total{reason=\"too_far_in_future\"}",
            keys: &["creation_grace_period"],
        },
        Entry {
            id: "exemplar-labels-missing",
            texts: &[
                "exemplar missing labels, timestamp: {timestamp#} series: {series} labels: {}",
            ],
            status: "400",
            cause: "An exemplar has no labels.",
            effect: "Its series is left out of this request.",
            cure: "It is a fault of the client library.",
            metric: "cortex_discarded_exemplars_total{reason=\"exemplar_labels_missing\"}",
            keys: &[],
        },
        Entry {
            id: "exemplar-timestamp-missing",
            texts: &["exemplar missing timestamp, timestamp: 0 series: {series} labels: {labels}"],
            status: "400",
            cause: "An exemplar has no time.",
            effect: "Its series is left out of this request.",
            cure: "It is a fault of the client library.",
            metric: "cortex_discarded_exemplars_total{reason=\"exemplar_timestamp_invalid\"}",
            keys: &[],
        },
        Entry {
            id: "exemplar-labels-too-long",
            texts: &["exemplar combined labelset exceeds {limit#} characters, timestamp: \
                      {timestamp#} series: {series} labels: {labels}"],
            status: "400",
            cause: "Names and values of an exemplar have more characters than OpenMetrics allows.",
            effect: "Its series is left out of this request.",
            cure: "Keep a trace id in exemplars and nothing else.",
            metric: "cortex_discarded_exemplars_total{reason=\"exemplar_labels_too_long\"}",
            keys: &[],
        },
        Entry {
            id: "native-histogram-too-large",
            texts: &[
                "native histogram sample size bytes exceeded for metric (actual: {actual#}, \
                 limit: {limit#}) metric: {series\"}",
                "native histogram size {bytes#} bytes exceeds limit {limit#} bytes",
                "a native histogram of {metric} exceeds limit {limit#} bytes",
            ],
            status: "400",
            cause: "A native histogram has more bytes than it may.",
            effect: "Its series is left out; where the last bound of all is passed, the request.",
            cure: "Lower the resolution at the sender \
                   (`native_histogram_bucket_limit`), or raise \
                   `max_native_histogram_sample_size_bytes`.",
            metric: "cortex_discarded_samples_total{reason=\"native_histogram_sample_size_bytes_exceeded\"}",
            keys: &["max_native_histogram_sample_size_bytes"],
        },
        Entry {
            id: "native-histogram-schema",
            texts: &[
                "invalid native histogram schema {schema#} for metric: {series\"}. supported \
                      schema from {least#} to {most#}",
            ],
            status: "400",
            cause: "A native histogram is of a resolution that nobody knows.",
            effect: "Its series is left out.",
            cure: "It is a fault of the client library, or a newer format.",
            metric: "cortex_discarded_samples_total{reason=\"native_histogram_invalid_schema\"}",
            keys: &[],
        },
        Entry {
            id: "native-histogram-buckets",
            texts: &[
                "native histogram bucket count exceeded for metric (limit: {limit#}) metric: \
                      {series\"}",
            ],
            status: "400",
            cause: "A native histogram has more buckets than `max_native_histogram_buckets`, and \
                    they cannot be merged: bounds of its own, or the least resolution.",
            effect: "Its series is left out. Others are reduced and kept.",
            cure: "Use fewer buckets, or raise the limit.",
            metric: "cortex_discarded_samples_total{reason=\"native_histogram_buckets_exceeded\"}",
            keys: &["max_native_histogram_buckets"],
        },
        Entry {
            id: "metadata-name-missing",
            texts: &["metadata missing metric name"],
            status: "400",
            cause: "A metric's description names no metric.",
            effect: "It is left out; series are not touched.",
            cure: "It is a fault of the sender.",
            metric: "cortex_discarded_metadata_total{reason=\"missing_metric_name\"}",
            keys: &["enforce_metadata_metric_name"],
        },
        Entry {
            id: "metadata-too-long",
            texts: &["metadata '{part}' value too long: {value\"} metric {metric\"}"],
            status: "400",
            cause: "A metric's name, help or unit has more bytes than `max_metadata_length`.",
            effect: "The description is left out; series are not touched.",
            cure: "Shorten the help text, or raise the limit.",
            metric: "cortex_discarded_metadata_total{reason=\"help_too_long\"}",
            keys: &["max_metadata_length"],
        },
        Entry {
            id: "labels-empty",
            texts: &["empty labels found"],
            status: "400",
            cause: "A series has no labels at all.",
            effect: "The whole request is refused.",
            cure: "It is a fault of the sender.",
            metric: "",
            keys: &[],
        },
        Entry {
            id: "too-many-items",
            texts: &["request has too many series and metadata (limit: {limit#})"],
            status: "400",
            cause: "One request has more series and metadata than any sound one could have.",
            effect: "The whole request is refused.",
            cure: "Send smaller requests.",
            metric: "",
            keys: &[],
        },
    ],
};
