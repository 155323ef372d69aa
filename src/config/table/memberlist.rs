//! Flags of the component "Gossip".

use super::super::flags::Group;
use super::flag;

pub(super) const FLAGS: Group = Group {
    heading: "Gossip",
    flags: &[
        flag(
            "memberlist.nodename",
            "memberlist.node_name",
            "What this member is called; empty takes the host's name.",
        ),
        flag(
            "memberlist.randomize-node-name",
            "memberlist.randomize_node_name",
            "Add something random to the name, so that a restart is a new member.",
        ),
        flag(
            "memberlist.stream-timeout",
            "memberlist.stream_timeout",
            "How long a stream to another member may take to connect, and to read and write.",
        ),
        flag(
            "memberlist.retransmit-factor",
            "memberlist.retransmit_factor",
            "A message is sent so many times the logarithm of the number of members.",
        ),
        flag(
            "memberlist.join",
            "memberlist.join_members",
            "Members to join: host:port, a host, dns+name:port, dnssrv+name or dnssrvnoa+name. May be given repeatedly.",
        ),
        flag(
            "memberlist.min-join-backoff",
            "memberlist.min_join_backoff",
            "Shortest wait between two tries to join.",
        ),
        flag(
            "memberlist.max-join-backoff",
            "memberlist.max_join_backoff",
            "Longest wait between two tries to join.",
        ),
        flag(
            "memberlist.max-join-retries",
            "memberlist.max_join_retries",
            "Most tries to join after the first.",
        ),
        flag(
            "memberlist.abort-if-join-fails",
            "memberlist.abort_if_cluster_join_fails",
            "End the process when no member can be joined.",
        ),
        flag(
            "memberlist.rejoin-interval",
            "memberlist.rejoin_interval",
            "How often the members to join are joined again, which heals a split; 0 is never.",
        ),
        flag(
            "memberlist.left-ingesters-timeout",
            "memberlist.left_ingesters_timeout",
            "How long an instance that has left stays in the ring, so that nobody brings it back.",
        ),
        flag(
            "memberlist.tombstone-timeout",
            "memberlist.tombstone_timeout",
            "How long a deleted key is remembered, so that nobody brings it back.",
        ),
        flag(
            "memberlist.leave-timeout",
            "memberlist.leave_timeout",
            "How long saying that we leave may take.",
        ),
        flag(
            "memberlist.gossip-interval",
            "memberlist.gossip_interval",
            "How often members are told what is new.",
        ),
        flag(
            "memberlist.gossip-nodes",
            "memberlist.gossip_nodes",
            "Members told at each interval.",
        ),
        flag(
            "memberlist.pullpush-interval",
            "memberlist.pull_push_interval",
            "How often everything is compared with another member.",
        ),
        flag(
            "memberlist.gossip-to-dead-nodes-time",
            "memberlist.gossip_to_dead_nodes_time",
            "How long dead members are told what is new, so that they can contradict.",
        ),
        flag(
            "memberlist.dead-node-reclaim-time",
            "memberlist.dead_node_reclaim_time",
            "After how long another address may take a dead member's name; 0 is never.",
        ),
        flag(
            "memberlist.message-history-buffer-bytes",
            "memberlist.message_history_buffer_bytes",
            "Room for messages that the page shows, of each direction; 0 keeps none.",
        ),
        flag(
            "memberlist.compression-enabled",
            "memberlist.compression_enabled",
            "Compress what is sent, where that makes it shorter.",
        ),
        flag(
            "memberlist.advertise-addr",
            "memberlist.advertise_addr",
            "IP address that other members are told; empty takes the one listened on.",
        ),
        flag(
            "memberlist.advertise-port",
            "memberlist.advertise_port",
            "Port that other members are told beside -memberlist.advertise-addr.",
        ),
        flag(
            "memberlist.cluster-label",
            "memberlist.cluster_label",
            "Label of the cluster, which members of another do not have; up to 255 bytes.",
        ),
        flag(
            "memberlist.cluster-label-verification-disabled",
            "memberlist.cluster_label_verification_disabled",
            "Take members of any label, while a cluster is given a new one.",
        ),
        flag(
            "memberlist.bind-addr",
            "memberlist.bind_addr",
            "IP addresses to listen on for other members; empty listens on all. May be given repeatedly.",
        ),
        flag(
            "memberlist.bind-port",
            "memberlist.bind_port",
            "Port to listen on for other members.",
        ),
        flag(
            "memberlist.packet-dial-timeout",
            "memberlist.packet_dial_timeout",
            "How long a packet's connection may take; 0 is a minute.",
        ),
        flag(
            "memberlist.packet-write-timeout",
            "memberlist.packet_write_timeout",
            "How long a packet may take to be written; 0 is a minute.",
        ),
        flag(
            "memberlist.packet-read-timeout",
            "memberlist.packet_read_timeout",
            "How long a packet may take to be read; 0 is a minute.",
        ),
        flag(
            "memberlist.max-packet-size",
            "memberlist.max_packet_size",
            "Longest packet that is taken, in bytes, its digest included; 0 is 20 MiB.",
        ),
        flag(
            "memberlist.max-concurrent-connections",
            "memberlist.max_concurrent_connections",
            "Most connections of other members at a time; 0 is 4096.",
        ),
        flag(
            "memberlist.transport-debug",
            "memberlist.transport_debug",
            "Log each packet, at level debug.",
        ),
        flag("memberlist.tls-enabled", "memberlist.tls_enabled", "Speak TLS with other members."),
        flag(
            "memberlist.tls-cert-path",
            "memberlist.tls_cert_path",
            "Certificate that we show to other members, a PEM file; needs the key. Changes are taken without a restart.",
        ),
        flag(
            "memberlist.tls-key-path",
            "memberlist.tls_key_path",
            "Key of that certificate, a PEM file.",
        ),
        flag(
            "memberlist.tls-ca-path",
            "memberlist.tls_ca_path",
            "Authorities that other members' certificates are checked against, a PEM file; empty takes the host's.",
        ),
        flag(
            "memberlist.tls-server-name",
            "memberlist.tls_server_name",
            "Name that each member's certificate has to be for; empty takes its address.",
        ),
        flag(
            "memberlist.tls-insecure-skip-verify",
            "memberlist.tls_insecure_skip_verify",
            "Take any certificate of the members that we call.",
        ),
        flag(
            "memberlist.tls-verify-peers",
            "memberlist.tls_verify_peers",
            "Ask members that call us for a certificate too, which Cortex does not; needs -memberlist.tls-ca-path.",
        ),
    ],
};
