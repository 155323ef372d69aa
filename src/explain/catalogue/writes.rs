//! Rates of tenants and clients, and whose samples of several replicas are taken.

use super::{Entry, Group};

pub(super) const RATES: Group = Group {
    title: "Rates",
    about: "A request over a rate is refused whole, costs nothing, and is told with \
            `Retry-After` when it would pass.",
    entries: &[
        Entry {
            id: "tenant-rate",
            texts: &[
                "ingestion rate limit ({rate#}) exceeded while adding {samples#} samples and \
                 {metadata#} metadata",
                "ingestion rate limit ({rate#}) exceeded while adding {samples#} samples and \
                 {metadata#} metadata; the rate is used up (local limit: {local#} global limit: \
                 {global#} actual local limit: {actual#} burst: {burst#}), please contact \
                 administrator to raise it",
                "ingestion rate limit ({rate#}) of tenant {tenant} exceeded while adding \
                 {samples#} samples and {metadata#} metadata; the rate is used up (limit over all \
                 distributors: {limit#} burst: {burst#} asked: {asked#}), please contact \
                 administrator to raise it",
            ],
            status: "429",
            cause: "The tenant has written more items per second than `ingestion_rate`, for \
                    longer than its burst lasts. `actual local limit` is what this instance may \
                    admit of it.",
            effect: "The request is refused whole and costs nothing. Prometheus repeats it only \
                     with `retry_on_http_429`, else its samples are lost.",
            cure: "Raise `ingestion_rate`, or see by `freehold clients top` which client of the \
                   tenant writes most. If one gate refuses and others are idle, writes are not \
                   spread evenly: use the strategy `leased`.",
            metric: "cortex_discarded_samples_total{reason=\"rate_limited\"}",
            keys: &["ingestion_rate", "ingestion_burst_size", "ingestion_rate_strategy"],
        },
        Entry {
            id: "tenant-burst",
            texts: &[
                "ingestion rate limit ({rate#}) exceeded while adding {samples#} samples and \
                 {metadata#} metadata; a request of {asked#} items is above the burst and can \
                 never be admitted (local limit: {local#} global limit: {global#} actual local \
                 limit: {actual#} burst: {burst#}), please send smaller requests or contact \
                 administrator to raise it",
                "ingestion rate limit ({rate#}) of tenant {tenant} exceeded while adding \
                 {samples#} samples and {metadata#} metadata; a request of {asked#} items is above \
                 the burst and can never be admitted (limit over all distributors: {limit#} \
                 burst: {burst#} asked: {again#}), please send smaller requests or contact \
                 administrator to raise it",
            ],
            status: "429, without `Retry-After`",
            cause: "One request has more items than the tenant's whole burst.",
            effect: "It can never be admitted, however often it is repeated.",
            cure: "Raise `ingestion_burst_size` above the largest request, or send smaller ones \
                   (`max_samples_per_send`).",
            metric: "cortex_discarded_samples_total{reason=\"burst_exceeded\"}",
            keys: &["ingestion_burst_size"],
        },
        Entry {
            id: "native-histogram-rate",
            texts: &[
                "native histogram ingestion rate limit ({rate#}) exceeded while adding {samples#} \
                 native histogram samples",
                "native histogram ingestion rate limit ({rate#}) exceeded while adding {samples#} \
                 native histogram samples; the rate is used up (local limit: {local#} global \
                 limit: {global#} actual local limit: {actual#} burst: {burst#}), please contact \
                 administrator to raise it",
            ],
            status: "429",
            cause: "The tenant has sent more native histograms per second than its rate for them.",
            effect: "Only the native histograms are left out; float samples are stored.",
            cure: "Raise `native_histogram_ingestion_rate` and its burst.",
            metric: "cortex_discarded_samples_total{reason=\"native_histogram_rate_limited\"}",
            keys: &["native_histogram_ingestion_rate", "native_histogram_ingestion_burst_size"],
        },
        Entry {
            id: "native-histogram-burst",
            texts: &["native histogram ingestion rate limit ({rate#}) exceeded while adding \
                      {samples#} native histogram samples; a request of {asked#} items is above \
                      the burst and can never be admitted (local limit: {local#} global limit: \
                      {global#} actual local limit: {actual#} burst: {burst#}), please send \
                      smaller requests or contact administrator to raise it"],
            status: "429, without `Retry-After`",
            cause: "One request has more native histograms than the whole burst for them, which \
                    is 0 unless set.",
            effect: "Only the native histograms are left out; float samples are stored.",
            cure: "Set `native_histogram_ingestion_burst_size` with the rate.",
            metric: "cortex_discarded_samples_total{reason=\"native_histogram_burst_exceeded\"}",
            keys: &["native_histogram_ingestion_burst_size"],
        },
        Entry {
            id: "client-rate",
            texts: &["ingestion rate limit ({rate#}) of client {client} of tenant {tenant} \
                      exceeded while adding {samples#} samples and {metadata#} metadata; the rate \
                      is used up (limit over all distributors: {limit#} burst: {burst#} asked: \
                      {asked#}), please contact administrator to raise it"],
            status: "429",
            cause: "One client of the tenant has written more than each client may, over all \
                    distributors together.",
            effect: "Its request is refused whole; the tenant's other clients are not touched, \
                     and the tenant gets its credit back.",
            cure: "`freehold clients show` tells what is owed. Raise \
                   `client_identity_ingestion_rate_limit`, reset the budget, or let the client \
                   send less.",
            metric: "cortex_discarded_samples_total{reason=\"client_rate_limited\"}",
            keys: &["client_identity_ingestion_rate_limit", "client_identity_ingestion_burst_size"],
        },
        Entry {
            id: "client-burst",
            texts: &["ingestion rate limit ({rate#}) of client {client} of tenant {tenant} \
                      exceeded while adding {samples#} samples and {metadata#} metadata; a request \
                      of {asked#} items is above the burst and can never be admitted (limit over \
                      all distributors: {limit#} burst: {burst#} asked: {again#}), please send \
                      smaller requests or contact administrator to raise it"],
            status: "429, without `Retry-After`",
            cause: "One request of the client has more items than a client's whole burst.",
            effect: "It can never be admitted, however often it is repeated.",
            cure: "Raise `client_identity_ingestion_burst_size` above the largest request.",
            metric: "cortex_discarded_samples_total{reason=\"client_rate_limited\"}",
            keys: &["client_identity_ingestion_burst_size"],
        },
        Entry {
            id: "budget-unknown",
            texts: &[
                "the ingestion budget of {whose} cannot be checked now: the distributor that \
                      keeps it does not answer, and what is set aside for that is used up; please \
                      try again (rate limit: {rate#} burst: {burst#} asked: {asked#})",
            ],
            status: "503",
            cause: "The gate that owns the budget does not answer, and `-client-identity.owner-lost` \
                    says not to admit without it.",
            effect: "The request is refused through no fault of its sender, and tried again.",
            cure: "Look at `/distributor/clients`, which names gates that do not answer, and at \
                   the network between the gates.",
            metric: "freehold_client_fallbacks_total",
            keys: &["client_identity.owner_lost"],
        },
        Entry {
            id: "distributor-in-flight",
            texts: &["too many inflight push requests in distributor"],
            status: "503",
            cause: "As many writes are under way as the distributor's \
                    `max_inflight_push_requests` allows.",
            effect: "The write is refused before it is read, and tried again.",
            cure: "Look why writes take long: `cortex_distributor_inflight_client_requests` and \
                   the ingesters' latency; add distributors.",
            metric: "freehold_distributor_requests_refused_total{limit=\"max_inflight_push_requests\"}",
            keys: &["distributor.instance_limits.max_inflight_push_requests"],
        },
        Entry {
            id: "distributor-rate",
            texts: &["distributor's samples push rate limit reached"],
            status: "503",
            cause: "The moving average of items per second is above the distributor's \
                    `max_ingestion_rate`.",
            effect: "Writes are refused until it has fallen; `Retry-After` says when.",
            cure: "Add distributors, or raise the limit.",
            metric: "freehold_distributor_requests_refused_total{limit=\"max_ingestion_rate\"}",
            keys: &["distributor.instance_limits.max_ingestion_rate"],
        },
        Entry {
            id: "distributor-client-requests",
            texts: &["too many inflight ingester client requests in distributor"],
            status: "503",
            cause: "As many requests to ingesters are under way as \
                    `max_inflight_client_requests` allows: an ingester is slow.",
            effect: "Writes are refused, and tried again.",
            cure: "Find the slow ingester: `cortex_ingester_client_inflight_push_requests`.",
            metric: "freehold_distributor_requests_refused_total{limit=\"max_inflight_client_requests\"}",
            keys: &["distributor.instance_limits.max_inflight_client_requests"],
        },
    ],
};

pub(super) const REPLICAS: Group = Group {
    title: "Replicas of one sender",
    about: "Where HA tracking is on for a tenant, one replica of each cluster is elected and the \
            others' samples are dropped.",
    entries: &[
        Entry {
            id: "replica-not-elected",
            texts: &["replicas did not match, rejecting sample: replica={replica}, \
                      elected={elected}"],
            status: "202",
            cause: "The samples are those of a replica that is not elected. That is everyday \
                    life: every replica but one hears it.",
            effect: "Nothing is stored or charged, and the sender is content.",
            cure: "Nothing. If the elected one is gone, another is elected after \
                   `ha_tracker_failover_timeout`; see `/ha-tracker`.",
            metric: "cortex_distributor_deduped_samples_total",
            keys: &["accept_ha_samples", "ha_tracker_failover_timeout"],
        },
        Entry {
            id: "ha-too-many-clusters",
            texts: &["too many HA replicaGroups (limit: {limit#})"],
            status: "400",
            cause: "The tenant names more clusters of replicas than `ha_max_clusters`.",
            effect: "The request is refused whole.",
            cure: "Look whether the cluster label holds something that never ends; raise \
                   `ha_max_clusters`.",
            metric: "cortex_discarded_samples_total{reason=\"too_many_ha_clusters\"}",
            keys: &["ha_max_clusters", "ha_cluster_label"],
        },
        Entry {
            id: "ha-store-failed",
            texts: &[
                "the store of elected replicas cannot be asked: {cause}",
                "the store of elected replicas has not answered within {time}",
            ],
            status: "500",
            cause: "Which replica is elected is not known here, and the store of elections does \
                    not answer.",
            effect: "The request is refused and tried again.",
            cure: "Look at the store of `-distributor.ha-tracker.*`.",
            metric: "",
            keys: &["distributor.ha_tracker.kvstore"],
        },
    ],
};
