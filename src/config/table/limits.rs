//! Flags of the component "Limits of tenants".

use super::super::flags::Group;
use super::flag;

pub(super) const FLAGS: Group = Group {
    heading: "Limits of tenants",
    flags: &[
        flag(
            "distributor.ingestion-rate-limit",
            "limits.ingestion_rate",
            "A tenant's samples, exemplars and metadata per second.",
        ),
        flag(
            "distributor.native-histogram-ingestion-rate-limit",
            "limits.native_histogram_ingestion_rate",
            "A tenant's native-histogram samples per second; the default is no limit.",
        ),
        flag(
            "distributor.ingestion-rate-limit-strategy",
            "limits.ingestion_rate_strategy",
            "Whether the rate is each distributor's (local), divided by their number (global), or one \
             for all of them however writes are spread (leased).",
        ),
        flag(
            "distributor.ingestion-burst-size",
            "limits.ingestion_burst_size",
            "Most samples that a tenant's bucket holds.",
        ),
        flag(
            "distributor.native-histogram-ingestion-burst-size",
            "limits.native_histogram_ingestion_burst_size",
            "Most native-histogram samples that a tenant's bucket holds.",
        ),
        flag(
            "distributor.client-identity-ingestion-rate-limit",
            "limits.client_identity_ingestion_rate_limit",
            "Samples, exemplars and metadata per second of each client of a tenant, over all \
             distributors; 0 is no limit. Needs -client-identity.enabled.",
        ),
        flag(
            "distributor.client-identity-ingestion-burst-size",
            "limits.client_identity_ingestion_burst_size",
            "Most samples that a client's bucket holds.",
        ),
        flag(
            "distributor.client-identity-ingestion-tracked-clients-limit",
            "limits.client_identity_ingestion_tracked_clients_limit",
            "Most clients of a tenant whose buckets one owner keeps, at least 1; beyond it the \
             least recently used go.",
        ),
        flag(
            "distributor.client-identity-ingestion-shadow",
            "limits.client_identity_ingestion_shadow",
            "Only count what the budgets of clients would refuse.",
        ),
        flag(
            "frontend.client-identity-query-rate-limit",
            "limits.client_identity_query_rate_limit",
            "Queries per second of each client of a tenant, over all query gates, or a share of \
             -frontend.query-capacity-per-second such as 5%; 0 is no limit. Needs \
             -client-identity.enabled.",
        ),
        flag(
            "frontend.client-identity-query-burst-size",
            "limits.client_identity_query_burst_size",
            "Most queries of a client at once.",
        ),
        flag(
            "frontend.client-identity-query-tracked-clients-limit",
            "limits.client_identity_query_tracked_clients_limit",
            "Most clients of a tenant whose buckets one owner keeps, at least 1; beyond it the \
             least recently used go.",
        ),
        flag(
            "frontend.client-identity-query-shadow",
            "limits.client_identity_query_shadow",
            "Only count what the budgets of clients would refuse.",
        ),
        flag(
            "frontend.query-capacity-per-second",
            "limits.query_capacity_per_second",
            "Queries per second that are answered for a tenant, which shares are of; 0 is not \
             known.",
        ),
        flag(
            "distributor.drop-label",
            "limits.drop_labels",
            "Comma-separated names of labels that distributors take off every series.",
        ),
        flag(
            "distributor.ha-tracker.enable-for-all-users",
            "limits.accept_ha_samples",
            "Take the samples of one replica of each cluster only, for all tenants.",
        ),
        flag(
            "experimental.distributor.ha-tracker.mixed-ha-samples",
            "limits.accept_mixed_ha_samples",
            "Look for the labels of cluster and replica in each series of a request, not in its \
             first one only.",
        ),
        flag(
            "distributor.ha-tracker.cluster",
            "limits.ha_cluster_label",
            "Label that names a cluster of replicas.",
        ),
        flag(
            "distributor.ha-tracker.replica",
            "limits.ha_replica_label",
            "Label that names a replica; it is taken off the samples that are kept.",
        ),
        flag(
            "distributor.ha-tracker.max-clusters",
            "limits.ha_max_clusters",
            "Most clusters that are tracked of one tenant; 0 is no limit.",
        ),
        flag(
            "distributor.ha-tracker.failover-timeout",
            "limits.ha_tracker_failover_timeout",
            "Silence of the elected replica after which another one is elected.",
        ),
        flag(
            "distributor.promote-resource-attributes",
            "limits.promote_resource_attributes",
            "Attributes of an OTLP resource that become labels of its metrics.",
        ),
        flag(
            "validation.max-length-label-name",
            "limits.max_label_name_length",
            "Longest label name, in bytes.",
        ),
        flag(
            "validation.max-length-label-value",
            "limits.max_label_value_length",
            "Longest label value, in bytes; the metric name's too.",
        ),
        flag(
            "validation.max-label-names-per-series",
            "limits.max_label_names_per_series",
            "Most labels of a series.",
        ),
        flag(
            "validation.max-labels-size-bytes",
            "limits.max_labels_size_bytes",
            "Most bytes of names and values of a series; 0 is no limit.",
        ),
        flag(
            "validation.max-native-histogram-sample-size-bytes",
            "limits.max_native_histogram_sample_size_bytes",
            "Longest native-histogram sample, in bytes; 0 is no limit.",
        ),
        flag(
            "validation.max-native-histogram-buckets",
            "limits.max_native_histogram_buckets",
            "Most buckets of a native histogram, whose resolution is reduced to fit; 0 is no limit.",
        ),
        flag(
            "validation.max-metadata-length",
            "limits.max_metadata_length",
            "Longest metric name, help text or unit of metadata, in bytes.",
        ),
        flag(
            "validation.reject-old-samples",
            "limits.reject_old_samples",
            "Refuse samples older than -validation.reject-old-samples.max-age.",
        ),
        flag(
            "validation.reject-old-samples.max-age",
            "limits.reject_old_samples_max_age",
            "Oldest sample accepted while -validation.reject-old-samples is on.",
        ),
        flag(
            "validation.create-grace-period",
            "limits.creation_grace_period",
            "How far in the future a sample may lie.",
        ),
        flag(
            "validation.enforce-metadata-metric-name",
            "limits.enforce_metadata_metric_name",
            "Refuse metadata without a metric name.",
        ),
        flag(
            "validation.enforce-metric-name",
            "limits.enforce_metric_name",
            "Refuse series without a metric name.",
        ),
        flag(
            "distributor.enable-type-and-unit-labels",
            "limits.enable_type_and_unit_labels",
            "Add the labels __type__ and __unit__ to series of remote write 2.0.",
        ),
        flag(
            "distributor.enable-start-timestamp",
            "limits.enable_start_timestamp",
            "Take over start timestamps of remote write 2.0.",
        ),
        flag(
            "distributor.ingestion-tenant-shard-size",
            "limits.ingestion_tenant_shard_size",
            "Instances of a tenant's subring under shuffle sharding; below 1 a share of all, 0 is all.",
        ),
        flag(
            "ingester.max-series-per-user",
            "limits.max_series_per_user",
            "Most series of a tenant on this instance; 0 is no limit.",
        ),
        flag(
            "ingester.max-series-per-metric",
            "limits.max_series_per_metric",
            "Most series of one metric of a tenant on this instance; 0 is no limit.",
        ),
        flag(
            "ingester.max-native-histogram-series-per-user",
            "limits.max_native_histogram_series_per_user",
            "Most native-histogram series of a tenant on this instance; 0 is no limit.",
        ),
        flag(
            "ingester.max-global-series-per-user",
            "limits.max_global_series_per_user",
            "Most series of a tenant in the cluster, before replication; 0 is no limit.",
        ),
        flag(
            "ingester.max-global-series-per-metric",
            "limits.max_global_series_per_metric",
            "Most series of one metric of a tenant in the cluster, before replication; 0 is no limit.",
        ),
        flag(
            "ingester.max-global-native-histogram-series-per-user",
            "limits.max_global_native_histogram_series_per_user",
            "Most native-histogram series of a tenant in the cluster, before replication; 0 is no limit.",
        ),
        flag(
            "blocks-storage.tsdb.enable-native-histograms",
            "limits.enable_native_histograms",
            "Accept native histograms.",
        ),
        flag(
            "ingester.max-metadata-per-user",
            "limits.max_metadata_per_user",
            "Most metrics with metadata of a tenant on this instance; 0 is no limit.",
        ),
        flag(
            "ingester.max-metadata-per-metric",
            "limits.max_metadata_per_metric",
            "Most metadata of one metric of a tenant on this instance; 0 is no limit.",
        ),
        flag(
            "ingester.max-global-metadata-per-user",
            "limits.max_global_metadata_per_user",
            "Most metrics with metadata of a tenant in the cluster; 0 is no limit.",
        ),
        flag(
            "ingester.max-global-metadata-per-metric",
            "limits.max_global_metadata_per_metric",
            "Most metadata of one metric of a tenant in the cluster; 0 is no limit.",
        ),
        flag(
            "ingester.out-of-order-time-window",
            "limits.out_of_order_time_window",
            "How much older than a series' newest sample another may be.",
        ),
        flag(
            "ingester.max-exemplars",
            "limits.max_exemplars",
            "Most exemplars kept of a tenant; 0 takes the store's own bound, below 0 keeps none.",
        ),
        flag(
            "runtime-config.file",
            "runtime_config.file",
            "Cortex's runtime file with the tenants' overrides; empty is none.",
        ),
        flag(
            "runtime-config.reload-period",
            "runtime_config.period",
            "How often the runtime file is read.",
        ),
    ],
};
