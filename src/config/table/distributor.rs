//! Flags of the component "Remote write and sharding".

use super::super::flags::Group;
use super::flag;

pub(super) const FLAGS: Group = Group {
    heading: "Remote write and sharding",
    flags: &[
        flag(
            "distributor.max-recv-msg-size",
            "distributor.max_recv_msg_size",
            "Longest remote-write body in bytes, before and after decompression.",
        ),
        flag(
            "distributor.remote-writev2-enabled",
            "distributor.remote_writev2_enabled",
            "Accept remote write 2.0 next to 1.0.",
        ),
        flag(
            "distributor.accept-unknown-remote-write-content-type",
            "distributor.accept_unknown_remote_write_content_type",
            "Read a body of another content type as remote write 1.0.",
        ),
        flag(
            "distributor.sharding-strategy",
            "distributor.sharding_strategy",
            "Where a tenant's series may go: default (all of the ring) or shuffle-sharding.",
        ),
        flag(
            "distributor.shard-by-all-labels",
            "distributor.shard_by_all_labels",
            "Place series by all their labels; must be what the cluster's distributors use.",
        ),
        flag(
            "distributor.extend-writes",
            "distributor.extend_writes",
            "Write to one more instance for each that is not ACTIVE; must be what the cluster's \
             distributors use.",
        ),
        flag(
            "distributor.remote-timeout",
            "distributor.remote_timeout",
            "How long ingesters may take for a push.",
        ),
        flag(
            "distributor.use-stream-push",
            "distributor.use_stream_push",
            "Push to ingesters on long-lived streams instead of one call each.",
        ),
        flag(
            "distributor.client-cleanup-period",
            "distributor.pool.client_cleanup_period",
            "How often clients of ingesters that left the ring are removed, and the others checked.",
        ),
        flag(
            "distributor.health-check-ingesters",
            "distributor.pool.health_check_ingesters",
            "Check each ingester's health at every cleanup; the client of one that does not serve \
             is replaced.",
        ),
        flag(
            "distributor.sign-write-requests",
            "distributor.sign_write_requests",
            "Sign pushes to ingesters, and refuse push streams that are not signed.",
        ),
        flag(
            "distributor.sign-write-requests-keys",
            "distributor.sign_write_requests_keys",
            "Comma-separated HMAC keys of push streams; the first signs, all are accepted.",
        ),
    ],
};
