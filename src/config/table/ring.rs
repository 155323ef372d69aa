//! Flags of the component "Ring".

use super::super::flags::Group;
use super::flag;

pub(super) const FLAGS: Group = Group {
    heading: "Ring",
    flags: &[
        flag(
            "ring.store",
            "ingester.lifecycler.ring.kvstore.store",
            "Where the ring is kept: inmemory (this process), etcd, consul, memberlist, or read only: file, http.",
        ),
        flag(
            "ring.prefix",
            "ingester.lifecycler.ring.kvstore.prefix",
            "Put before each key in the store.",
        ),
        flag(
            "ring.file.path",
            "ingester.lifecycler.ring.kvstore.file.path",
            "The raw ring value or saved /ring page that the store file follows.",
        ),
        flag(
            "ring.file.poll-interval",
            "ingester.lifecycler.ring.kvstore.file.poll_interval",
            "How often the store file looks for a change.",
        ),
        flag(
            "ring.heartbeat-timeout",
            "ingester.lifecycler.ring.heartbeat_timeout",
            "An instance whose last heartbeat is older is not healthy; 0 never calls one so.",
        ),
        flag(
            "distributor.replication-factor",
            "ingester.lifecycler.ring.replication_factor",
            "Instances that hold each series; must be what the cluster's distributors use.",
        ),
        flag(
            "distributor.zone-awareness-enabled",
            "ingester.lifecycler.ring.zone_awareness_enabled",
            "Spread a series' replicas over zones; must be what the cluster's distributors use.",
        ),
        flag(
            "ingester.num-tokens",
            "ingester.lifecycler.num_tokens",
            "Tokens that a new entry claims.",
        ),
        flag(
            "ingester.heartbeat-period",
            "ingester.lifecycler.heartbeat_period",
            "Time between our heartbeats; 0 sends none.",
        ),
        flag(
            "ingester.observe-period",
            "ingester.lifecycler.observe_period",
            "How long new tokens are watched for conflicts before we go ACTIVE; 0 skips it.",
        ),
        flag(
            "ingester.join-after",
            "ingester.lifecycler.join_after",
            "How long we wait before we join.",
        ),
        flag(
            "ingester.min-ready-duration",
            "ingester.lifecycler.min_ready_duration",
            "How long everything must have been fine before /ready says so.",
        ),
        flag(
            "ingester.final-sleep",
            "ingester.lifecycler.final_sleep",
            "How long we stay LEAVING before the end, so that the last metrics are scraped.",
        ),
        flag(
            "ingester.tokens-file-path",
            "ingester.lifecycler.tokens_file_path",
            "File where our tokens survive a loss of the ring; empty is none.",
        ),
        flag("ingester.availability-zone", "ingester.lifecycler.availability_zone", "Our zone."),
        flag(
            "ingester.unregister-on-shutdown",
            "ingester.lifecycler.unregister_on_shutdown",
            "Leave the ring at the end.",
        ),
        flag(
            "ingester.readiness-check-ring-health",
            "ingester.lifecycler.readiness_check_ring_health",
            "Be ready only while every instance of the ring is ACTIVE and healthy.",
        ),
        flag(
            "ingester.auto-forget-delay",
            "ingester.lifecycler.auto_forget_delay",
            "Take members out of the ring that were silent for so long; 0 never does.",
        ),
        flag(
            "ingester.lifecycler.addr",
            "ingester.lifecycler.address",
            "Address we advertise; empty takes the one the default route leaves from.",
        ),
        flag(
            "ingester.lifecycler.port",
            "ingester.lifecycler.port",
            "Port we advertise; 0 takes the gRPC listener's.",
        ),
        flag(
            "ingester.lifecycler.ID",
            "ingester.lifecycler.id",
            "Our id in the ring; empty takes the host's name.",
        ),
    ],
};
