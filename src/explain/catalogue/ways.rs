//! What becomes of an admitted write on its way: the ring's ingesters, or what stands behind.

use super::{Entry, Group};

pub(super) const GROUP: Group = Group {
    title: "On the way to ingesters",
    about: "The request was admitted. What it cost comes back where nothing of it can have been \
            stored.",
    entries: &[
        Entry {
            id: "quorum-failed",
            texts: &[
                "maxFailure (quorum) on a given error family, addr={address} state={state} \
                 zone={zone}, {failure}",
                "not enough remaining instances to try, addr={address} state={state} zone={zone}, \
                 {failure}",
            ],
            status: "that of the failure, else 500",
            cause: "So many replicas refused or failed that no quorum is left. What stands last \
                    is the error that decided.",
            effect: "With a 4xx the sender does not repeat it; with a 5xx it does.",
            cure: "Read the error behind it. The address is that of the replica that answered \
                   last, not always the one that failed first.",
            metric: "cortex_distributor_ingester_append_failures_total",
            keys: &["ingester.lifecycler.ring.replication_factor"],
        },
        Entry {
            id: "too-few-live-replicas",
            texts: &[
                "at least {needed#} live replicas required, could only find {live#}",
                "at least {needed#} live replicas required, could only find {live#} - unhealthy \
                 instances: {instances}",
                "at least {needed#} live replicas required across different availability zones, \
                 could only find {live#}",
                "at least {needed#} live replicas required across different availability zones, \
                 could only find {live#} - unhealthy instances: {instances}",
            ],
            status: "500",
            cause: "Of the members that hold the series too few are ACTIVE with a fresh heartbeat.",
            effect: "Nothing of the request is sent; it is tried again.",
            cure: "Look at `/ring`: restart or forget members that are gone, wait for those that \
                   start.",
            metric: "",
            keys: &[
                "ingester.lifecycler.ring.replication_factor",
                "ingester.lifecycler.ring.heartbeat_timeout",
            ],
        },
        Entry {
            id: "ring-empty",
            texts: &["empty ring", "DoBatch: InstancesCount <= 0"],
            status: "500",
            cause: "The ring has no members, or has not been read yet.",
            effect: "Nothing of the request is sent; it is tried again.",
            cure: "Look whether the ring's store and key are those of the ingesters \
                   (`-ring.store`, `-ring.prefix`).",
            metric: "",
            keys: &["ingester.lifecycler.ring.kvstore"],
        },
        Entry {
            id: "deadline-exceeded",
            texts: &["context deadline exceeded"],
            status: "500, or DeadlineExceeded over gRPC",
            cause: "Ingesters have not answered within the remote timeout.",
            effect: "The request may be stored by some; it is tried again, which is harmless.",
            cure: "Find the slow ingester by its latency and disk.",
            metric: "cortex_distributor_ingester_push_timeouts_total",
            keys: &["distributor.remote_timeout"],
        },
        Entry {
            id: "ingester-answers-strangely",
            texts: &[
                "the stream ended without an answer",
                "server closed the stream without sending trailers",
                "mismatched status codes {code#} and {inner#}: {message}",
                "unexpected HTTP status code received from server: {status}",
                "the ring names an address that is not host:port: {address\"}",
            ],
            status: "500",
            cause: "What answers at an ingester's address is no ingester, or something between \
                    changes its answers.",
            effect: "The replica counts as failed.",
            cure: "Look what listens at the address that the ring names; proxies between have to \
                   speak gRPC.",
            metric: "cortex_distributor_ingester_append_failures_total",
            keys: &[],
        },
        Entry {
            id: "upstream-ingester-unreachable",
            texts: &[
                "upstream {address} cannot be reached: {cause}",
                "the connection to upstream {address} broke: {cause}",
                "upstream {address} reset the call: {cause}",
            ],
            status: "Unavailable over gRPC",
            cause: "The ingester behind this sidecar is not there, or its connection broke.",
            effect: "Distributors count this replica as failed and write to the others.",
            cure: "Look at the ingester beside: it shares a pod or a host with this process.",
            metric: "freehold_upstream_refused_total",
            keys: &["ingester.upstream.address"],
        },
        Entry {
            id: "upstream-ingester-slow",
            texts: &[
                "upstream {address} has no free stream",
                "too much under way to upstream {address}: {bound} of {max#}",
                "upstream {address} has not answered within the deadline",
                "upstream {address} has not answered within {time}",
            ],
            status: "Unavailable or DeadlineExceeded over gRPC",
            cause: "The ingester behind this sidecar answers slower than calls come.",
            effect: "The call is not made, or given up; distributors write to the other replicas.",
            cure: "Look at the ingester beside; raise `-ingester.upstream.max-inflight-requests` \
                   only if it has room.",
            metric: "freehold_upstream_refused_total",
            keys: &["ingester.upstream.max_inflight_bytes"],
        },
        Entry {
            id: "upstream-ingester-broken-off",
            texts: &[
                "upstream {address} answers with more than {bytes#} bytes",
                "the call to upstream {address} was broken off by its sender",
                "the stream takes no message now",
            ],
            status: "Internal or Cancelled over gRPC",
            cause: "The answer is larger than any may be, or the caller has gone.",
            effect: "The call is given up.",
            cure: "Nothing for a caller that went; else ask for less at once.",
            metric: "",
            keys: &["server.grpc_server_max_send_msg_size"],
        },
        Entry {
            id: "distributor-behind-unreachable",
            texts: &[
                "the distributor behind this gate cannot be reached: {cause}",
                "the distributor behind this gate cannot be reached, and is not tried before \
                 {wait#} ms are over",
            ],
            status: "503",
            cause: "Nothing answers at `-distributor.upstream-url`.",
            effect: "Nothing was sent and nothing is charged; it is tried again.",
            cure: "Look at the distributors behind and at the address.",
            metric: "freehold_distributor_upstream_refused_total",
            keys: &["distributor.upstream.url"],
        },
        Entry {
            id: "distributor-behind-full",
            texts: &["too much under way to the distributor behind this gate: {bound}"],
            status: "503",
            cause: "As many requests or bytes are under way to the distributor behind as may be: \
                    it is slow.",
            effect: "Nothing was sent and nothing is charged; it is tried again.",
            cure: "Look at the distributors behind; add some.",
            metric: "freehold_distributor_upstream_refused_total",
            keys: &["distributor.upstream.max_inflight_requests"],
        },
        Entry {
            id: "distributor-behind-failed",
            texts: &[
                "the distributor behind this gate has not answered within {timeout#} ms",
                "the distributor behind this gate broke off: {cause}",
                "the distributor behind this gate answered with more than {bytes#} bytes",
                "the request cannot be sent on",
            ],
            status: "504, 502; 400 where it cannot be sent",
            cause: "The distributor behind did not answer, or not as HTTP.",
            effect: "Whether it was stored is not known; it is tried again, which is harmless.",
            cure: "Look at the distributors behind.",
            metric: "freehold_distributor_upstream_refused_total",
            keys: &["distributor.upstream.timeout"],
        },
        Entry {
            id: "work-lost",
            texts: &["the call did not finish"],
            status: "500",
            cause: "A fault of this process: what worked on the request ended early.",
            effect: "The request is tried again.",
            cure: "Look for a panic in the log and report it.",
            metric: "",
            keys: &[],
        },
    ],
};
