//! Limits on series and metadata, and those of the whole instance: what an ingester refuses.

use super::{Entry, Group};

pub(super) const GROUP: Group = Group {
    title: "Limits on series",
    about: "An ingester refuses a new series and takes the rest of the push: known series are \
            never refused by these. The number of the cluster is divided: `global limit` is the \
            configured one, `actual local limit` what this instance may keep of it.",
    entries: &[
        Entry {
            id: "series-limit-tenant",
            texts: &[
                "per-user series limit of {limit#} exceeded, {advice} (local limit: {local#} \
                 global limit: {global#} actual local limit: {actual#})",
                "per-user series limit of {limit#} exceeded, {advice} (local limit: {local#} \
                 global limit: {global#} actual local limit: {actual#}) (owned: {owned} in \
                 memory: {in_memory#} limit in force: {in_force})",
                "per-user series limit exceeded",
            ],
            status: "400",
            cause: "The tenant has as many series on this instance as its part of the limit \
                    allows. With enforcement the owned series count, else all in memory, those \
                    that have moved to other instances among them.",
            effect: "The new series is not stored by this replica; everything else of the push \
                     is. The sender does not repeat it.",
            cure: "See `/tenants` for the limit in force and its reason. Raise \
                   `max_global_series_per_user`, or find the metric that grows. If the instance \
                   owns far fewer series than it has in memory, the ring has just changed: turn \
                   on enforcement of owned series.",
            metric: "cortex_discarded_samples_total{reason=\"per_user_series_limit\"}",
            keys: &["max_global_series_per_user", "max_series_per_user"],
        },
        Entry {
            id: "series-limit-native-histograms",
            texts: &[
                "per-user native histogram series limit of {limit#} exceeded, {advice} (local \
                 limit: {local#} global limit: {global#} actual local limit: {actual#})",
                "per-user native histogram series limit of {limit#} exceeded, {advice} (local \
                 limit: {local#} global limit: {global#} actual local limit: {actual#}) (owned: \
                 {owned} in memory: {in_memory#} limit in force: {in_force})",
                "per-user native histogram series limit exceeded",
            ],
            status: "400",
            cause: "The tenant has as many series of native histograms on this instance as its \
                    part of that limit allows.",
            effect: "The new series, or the float series that would turn into a histogram, is \
                     not stored by this replica. With `-limits.parity` new float series are \
                     refused too, as in Cortex.",
            cure: "Raise `max_global_native_histogram_series_per_user`, or send fewer native \
                   histograms.",
            metric: "cortex_discarded_samples_total{reason=\"per_user_native_histogram_series_limit\"}",
            keys: &[
                "max_global_native_histogram_series_per_user",
                "max_native_histogram_series_per_user",
            ],
        },
        Entry {
            id: "series-limit-metric",
            texts: &[
                "per-metric series limit of {limit#} exceeded for metric {metric}, {advice} \
                 (local limit: {local#} global limit: {global#} actual local limit: {actual#}) \
                 for series {series}",
                "per-metric series limit of {limit#} exceeded for metric {metric}, {advice} \
                 (local limit: {local#} global limit: {global#} actual local limit: {actual#}) \
                 for series {series} (owned: {owned} in memory: {in_memory#} limit in force: \
                 {in_force})",
                "per-metric series limit exceeded",
            ],
            status: "400",
            cause: "One metric of the tenant has as many series on this instance as its part of \
                    the limit per metric allows: usually a label whose values never end.",
            effect: "The new series is not stored by this replica; everything else is.",
            cure: "Look which label of the metric grows and drop it at the sender, or raise \
                   `max_global_series_per_metric`.",
            metric: "cortex_discarded_samples_total{reason=\"per_metric_series_limit\"}",
            keys: &["max_global_series_per_metric", "max_series_per_metric"],
        },
        Entry {
            id: "series-limit-label-set",
            texts: &[
                "per-labelset series limit of {limit#} exceeded (labelSet: {set}, global limit: \
                 {global#} actual local limit: {actual#}) for series {series}",
                "per-labelset series limit of {limit#} exceeded (labelSet: {set}, global limit: \
                 {global#} actual local limit: {actual#}) for series {series} (owned: {owned} in \
                 memory: {in_memory#} limit in force: {in_force})",
                "per-labelset series limit exceeded",
            ],
            status: "400",
            cause: "The series belongs to a label set of the tenant that has a limit of its own, \
                    and that is reached. `{}` is the default partition: series that no other set \
                    holds.",
            effect: "The new series is not stored by this replica; everything else is.",
            cure: "Raise the set's `max_series` in `limits_per_label_set`, or find out who sends \
                   more series with these labels.",
            metric: "cortex_discarded_samples_per_labelset_total{reason=\"per_labelset_series_limit\"}",
            keys: &["limits_per_label_set"],
        },
        Entry {
            id: "metadata-limit-tenant",
            texts: &[
                "per-user metric metadata limit of {limit#} exceeded, {advice} (local limit: \
                 {local#} global limit: {global#} actual local limit: {actual#})",
                "per-user metric metadata limit exceeded",
            ],
            status: "none: told in logs and metrics alone",
            cause: "The tenant has metadata of as many metrics on this instance as it may.",
            effect: "Help, type and unit of the metric are not kept; its samples are.",
            cure: "Raise `max_global_metadata_per_user`.",
            metric: "cortex_discarded_metadata_total{reason=\"per_user_metadata_limit\"}",
            keys: &["max_global_metadata_per_user", "max_metadata_per_user"],
        },
        Entry {
            id: "metadata-limit-metric",
            texts: &[
                "per-metric metadata limit of {limit#} exceeded for metric {metric}, {advice} \
                 (local limit: {local#} global limit: {global#} actual local limit: {actual#}) \
                 for series {metadata}",
                "per-metric metadata limit exceeded",
            ],
            status: "none: told in logs and metrics alone",
            cause: "One metric has more differing help texts, types or units than it may: \
                    applications of several versions describe it.",
            effect: "The further description is not kept; samples are.",
            cure: "Raise `max_global_metadata_per_metric`, or agree on one description.",
            metric: "cortex_discarded_metadata_total{reason=\"per_metric_metadata_limit\"}",
            keys: &["max_global_metadata_per_metric", "max_metadata_per_metric"],
        },
        Entry {
            id: "series-still-listed",
            texts: &["at the tenant's series limit while its series are still being listed: try \
                      again"],
            status: "Unavailable over gRPC, which is tried again",
            cause: "After a start the series of the ingester behind are still being listed, and \
                    the tenant is at its limit: whether this series is a new one is not known \
                    yet.",
            effect: "The push is refused; senders repeat it.",
            cure: "Wait until `/ready` says so. If it stays, look why the listing does not end: \
                   `freehold_ingester_loading`.",
            metric: "freehold_ingester_loading",
            keys: &["ingester.upstream.address"],
        },
    ],
};

pub(super) const INSTANCE: Group = Group {
    title: "Limits of an ingester, and its state",
    about: "They protect the process, not a tenant, so they refuse the push whole.",
    entries: &[
        Entry {
            id: "ingester-max-series",
            texts: &["cannot add series: ingesters's max series limit reached"],
            status: "500",
            cause: "The instance has as many series of all tenants as `max_series` allows.",
            effect: "The whole push is refused and nothing of it is kept; it is tried again. In \
                     Cortex the series before the failing one stay.",
            cure: "Add ingesters, or raise `max_series` if memory allows. One tenant that grows \
                   is found on `/tenants`, sorted by owned series.",
            metric: "freehold_ingester_pushes_refused_total{limit=\"max_series\"}",
            keys: &["ingester.instance_limits.max_series"],
        },
        Entry {
            id: "ingester-max-tenants",
            texts: &["cannot create TSDB: ingesters's max tenants limit reached"],
            status: "500",
            cause: "The instance has as many tenants as `max_tenants` allows.",
            effect: "Pushes of further tenants are refused whole and tried again.",
            cure: "Raise `max_tenants`, or give tenants a shard size so that fewer meet on each \
                   instance.",
            metric: "freehold_ingester_pushes_refused_total{limit=\"max_tenants\"}",
            keys: &["ingester.instance_limits.max_tenants", "ingestion_tenant_shard_size"],
        },
        Entry {
            id: "ingester-in-flight",
            texts: &["cannot push: too many inflight push requests in ingester"],
            status: "500",
            cause: "As many pushes are under way as `max_inflight_push_requests` allows: they \
                    come faster than they are stored.",
            effect: "The push is refused before it is read, and tried again.",
            cure: "Look at the disk and at CPU of this instance; add ingesters.",
            metric: "freehold_ingester_pushes_refused_total{limit=\"max_inflight_push_requests\"}",
            keys: &["ingester.instance_limits.max_inflight_push_requests"],
        },
        Entry {
            id: "ingester-in-flight-queries",
            texts: &["cannot push: too many inflight query requests in ingester"],
            status: "500",
            cause: "Cortex alone says this: as many queries are under way in the ingester as its \
                    limit allows.",
            effect: "The query fails on this replica.",
            cure: "Raise `-ingester.instance-limits.max-inflight-query-requests` of Cortex, or \
                   look which queries are slow.",
            metric: "",
            keys: &[],
        },
        Entry {
            id: "ingester-rate",
            texts: &["cannot push more samples: ingester's samples push rate limit reached"],
            status: "500",
            cause: "The moving average of items stored per second is above `max_ingestion_rate`.",
            effect: "Pushes are refused whole until the average has fallen; they are tried again.",
            cure: "Add ingesters, or raise `max_ingestion_rate`.",
            metric: "freehold_ingester_pushes_refused_total{limit=\"max_ingestion_rate\"}",
            keys: &["ingester.instance_limits.max_ingestion_rate"],
        },
        Entry {
            id: "ingester-stopping",
            texts: &["ingester stopping", "code = Unavailable desc = Stopping"],
            status: "500, or Unavailable over gRPC",
            cause: "The process has been asked to stop and takes no more pushes.",
            effect: "Distributors write to the other replicas; nothing is lost while a quorum of \
                     them answers.",
            cure: "Nothing, unless nobody stopped it: look at its last log lines.",
            metric: "",
            keys: &["ingester.drain_announce_period"],
        },
        Entry {
            id: "ingester-not-running",
            texts: &["code = Unavailable desc = New", "code = Unavailable desc = Starting"],
            status: "Unavailable over gRPC",
            cause: "The process is starting and still reads back what it holds.",
            effect: "Distributors write to the other replicas meanwhile.",
            cure: "Wait for `/ready`, which says what it waits for.",
            metric: "freehold_ingester_loading",
            keys: &[],
        },
        Entry {
            id: "ingester-not-active",
            texts: &[
                "cannot create a new TSDB while the ingester is not in active state (current \
                      state: {state})",
            ],
            status: "500",
            cause: "A tenant that this instance does not know yet is written while the instance \
                    is joining, leaving or read-only.",
            effect: "The push is refused here; the distributors' extended replica set has \
                     somebody who takes it.",
            cure: "Nothing while it joins or leaves. `READONLY` is an operator's: see \
                   `/ingester/mode`.",
            metric: "",
            keys: &[],
        },
        Entry {
            id: "tsdb-closing",
            texts: &["TSDB is closing", "TSDB is not active", "forced compaction in progress"],
            status: "503",
            cause: "Cortex alone says this: it is closing or compacting the tenant's head.",
            effect: "The push is refused by this replica and tried again.",
            cure: "Nothing, if it passes within a minute.",
            metric: "",
            keys: &[],
        },
        Entry {
            id: "labels-empty-at-ingester",
            texts: &["empty labelset: invalid sample"],
            status: "500",
            cause: "A series without any label reached the ingester, which no distributor sends.",
            effect: "The whole push is refused.",
            cure: "Find who writes to ingesters past the distributors.",
            metric: "",
            keys: &[],
        },
        Entry {
            id: "labels-out-of-order-at-ingester",
            texts: &["out-of-order label set found when push: {series}"],
            status: "500",
            cause: "A series whose labels are not sorted reached the ingester, which no \
                    distributor sends.",
            effect: "The whole push is refused.",
            cure: "Find who writes to ingesters past the distributors.",
            metric: "",
            keys: &[],
        },
        Entry {
            id: "metric-name-missing-whole",
            texts: &["no metric name label"],
            status: "500; 400 in remote write 2.0",
            cause: "A series without `__name__` has to be placed by its metric, or reached an \
                    ingester past the distributors.",
            effect: "The whole request is refused.",
            cure: "Send series with a name, or keep `enforce_metric_name` on, which refuses the \
                   series alone.",
            metric: "",
            keys: &["enforce_metric_name", "distributor.shard_by_all_labels"],
        },
        Entry {
            id: "store-failed",
            texts: &[
                "cannot store the push",
                "cannot write to the store",
                "the store takes no writes since one failed; free or repair the disk and restart",
                "cannot read from the store",
                "the store holds a {what} that it did not write",
                "the time {ms#} ms is too far from now for the store",
            ],
            status: "500; 503 to readers",
            cause: "The embedded store failed: mostly a disk that is full or broken.",
            effect: "Nothing of the push is kept; it is tried again. After a failed write the \
                     store takes no more until a restart.",
            cure: "Free or repair the disk under `-store.path`, then restart. The log has the \
                   cause.",
            metric: "",
            keys: &["store.path"],
        },
    ],
};
