//! What the transport counts, under Cortex's names; and who is refused, under ours.

use prometheus::{Histogram, HistogramOpts, exponential_buckets};

use crate::exposition::Families;
use crate::sync::{AtomicU64, Ordering};

/// Numbers of one transport. They are statistics: nobody decides by them, so `Relaxed` will do.
pub struct TransportMetrics {
    counters: [AtomicU64; Count::ALL.len()],
    active_connections: AtomicU64,
    receive_seconds: Histogram,
    receive_bytes: Histogram,
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    IncomingStreams,
    OutgoingStreams,
    OutgoingStreamErrors,
    PacketsReceived,
    PacketsReceivedBytes,
    PacketsReceivedErrors,
    PacketsSent,
    PacketsSentBytes,
    PacketsSentErrors,
    UnknownConnections,
    RejectedConnections,
    /// Packets that found the queue of their receiver, or of all, full.
    PacketsDropped,
    RefusedLabel,
    RefusedCertificate,
    RefusedEncrypted,
    RefusedMalformed,
    RefusedCrowding,
    RefusedHeavy,
}

impl Count {
    const ALL: [Self; 18] = [
        Self::IncomingStreams,
        Self::OutgoingStreams,
        Self::OutgoingStreamErrors,
        Self::PacketsReceived,
        Self::PacketsReceivedBytes,
        Self::PacketsReceivedErrors,
        Self::PacketsSent,
        Self::PacketsSentBytes,
        Self::PacketsSentErrors,
        Self::UnknownConnections,
        Self::RejectedConnections,
        Self::PacketsDropped,
        Self::RefusedLabel,
        Self::RefusedCertificate,
        Self::RefusedEncrypted,
        Self::RefusedMalformed,
        Self::RefusedCrowding,
        Self::RefusedHeavy,
    ];
}

impl Default for TransportMetrics {
    fn default() -> Self {
        let histogram = |opts: HistogramOpts| {
            Histogram::with_opts(opts).expect("names and buckets are literals and fit")
        };
        let bytes = exponential_buckets(64.0, 4.0, 8).expect("a start, a factor and a count");
        Self {
            counters: Default::default(),
            active_connections: AtomicU64::default(),
            receive_seconds: histogram(HistogramOpts::new(
                "memberlist_tcp_transport_packet_receive_duration_seconds",
                "Duration (in seconds) of inbound packet-type message reads.",
            )),
            receive_bytes: histogram(
                HistogramOpts::new(
                    "memberlist_tcp_transport_packet_receive_bytes",
                    "Distribution of inbound packet sizes in bytes.",
                )
                .buckets(bytes),
            ),
        }
    }
}

impl TransportMetrics {
    pub fn add(&self, count: Count, number: u64) {
        self.counters[count as usize].fetch_add(number, Ordering::Relaxed);
    }

    pub fn value(&self, count: Count) -> u64 {
        self.counters[count as usize].load(Ordering::Relaxed)
    }

    /// A connection of somebody else's has begun.
    pub fn connected(&self) {
        self.active_connections.fetch_add(1, Ordering::Relaxed);
    }

    /// It has ended.
    pub fn disconnected(&self) {
        self.active_connections.fetch_sub(1, Ordering::Relaxed);
    }

    pub fn active_connections(&self) -> u64 {
        self.active_connections.load(Ordering::Relaxed)
    }

    pub fn received(&self, seconds: f64, bytes: usize) {
        self.receive_seconds.observe(seconds);
        self.receive_bytes.observe(bytes as f64);
    }

    pub fn read_metrics(&self, families: &mut Families) {
        for (count, name, help) in COUNTERS {
            families.counter(name, help, self.value(*count));
        }
        families.gauge(
            "memberlist_tcp_transport_active_connections",
            "Current number of active inbound TCP connections.",
            self.active_connections() as f64,
        );
        families.collected(&self.receive_seconds);
        families.collected(&self.receive_bytes);
        let mut refused = families.counters(
            "freehold_gossip_refused_total",
            "Packets, streams and connections that were not listened to, by what was wrong with them.",
        );
        for (count, reason) in [
            (Count::RefusedCertificate, "certificate"),
            (Count::RefusedCrowding, "crowding"),
            (Count::RefusedEncrypted, "encrypted"),
            (Count::RefusedHeavy, "heavy"),
            (Count::RefusedLabel, "label"),
            (Count::RefusedMalformed, "malformed"),
        ] {
            refused.sample([("reason", reason)], self.value(count) as f64);
        }
    }
}

const COUNTERS: &[(Count, &str, &str)] = &[
    (
        Count::IncomingStreams,
        "memberlist_tcp_transport_incoming_streams_total",
        "Number of incoming memberlist streams",
    ),
    (
        Count::OutgoingStreams,
        "memberlist_tcp_transport_outgoing_streams_total",
        "Number of outgoing streams",
    ),
    (
        Count::OutgoingStreamErrors,
        "memberlist_tcp_transport_outgoing_stream_errors_total",
        "Number of errors when opening memberlist stream to another node",
    ),
    (
        Count::PacketsReceived,
        "memberlist_tcp_transport_packets_received_total",
        "Number of received memberlist packets",
    ),
    (
        Count::PacketsReceivedBytes,
        "memberlist_tcp_transport_packets_received_bytes_total",
        "Total bytes received as packets",
    ),
    (
        Count::PacketsReceivedErrors,
        "memberlist_tcp_transport_packets_received_errors_total",
        "Number of errors when receiving memberlist packets",
    ),
    (
        Count::PacketsSent,
        "memberlist_tcp_transport_packets_sent_total",
        "Number of memberlist packets sent",
    ),
    (
        Count::PacketsSentBytes,
        "memberlist_tcp_transport_packets_sent_bytes_total",
        "Total bytes sent as packets",
    ),
    (
        Count::PacketsSentErrors,
        "memberlist_tcp_transport_packets_sent_errors_total",
        "Number of errors when sending memberlist packets",
    ),
    (
        Count::UnknownConnections,
        "memberlist_tcp_transport_unknown_connections_total",
        "Number of unknown TCP connections (not a packet or stream)",
    ),
    (
        Count::RejectedConnections,
        "memberlist_tcp_transport_rejected_connections_total",
        "Number of inbound TCP connections rejected because the concurrent connection limit was reached",
    ),
    (
        Count::PacketsDropped,
        "freehold_gossip_packets_dropped_total",
        "Packets that were not sent because too many were waiting.",
    ),
];
