//! Flags of the component "Embedded store".

use super::super::flags::Group;
use super::flag;

pub(super) const FLAGS: Group = Group {
    heading: "Embedded store",
    flags: &[
        flag("store.enabled", "store.enabled", "Keep accepted samples."),
        flag("store.path", "store.path", "Directory of the store; made if it is missing."),
        flag(
            "store.retention",
            "store.retention",
            "Samples older than this are dropped, six hours of them at a time.",
        ),
        flag(
            "store.sync-interval",
            "store.sync_interval",
            "How often written samples are forced to the disk: what the loss of the machine may cost. The loss of the process costs nothing.",
        ),
        flag("store.cache-bytes", "store.cache_bytes", "Read cache, in bytes."),
        flag(
            "store.write-buffer-bytes",
            "store.write_buffer_bytes",
            "Samples kept in memory until they are sorted into a file, in bytes.",
        ),
        flag(
            "store.max-samples-per-query",
            "store.max_samples_per_query",
            "Most samples that one query may read.",
        ),
        flag(
            "store.max-series-per-query",
            "store.max_series_per_query",
            "Most series, names, values or metadata that one query may select.",
        ),
        flag(
            "store.max-bytes-per-query",
            "store.max_bytes_per_query",
            "Most bytes that one query may read.",
        ),
    ],
};
