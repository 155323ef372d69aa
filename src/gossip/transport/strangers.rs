//! Who is not listened to, and how often the log hears of it.
//!
//! A cluster with another label next door sends as often as it gossips, for as long as somebody's
//! settings are wrong. Each is counted; of each kind the log gets one line in a while.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::super::metrics::{Count, TransportMetrics};
use super::super::wire::PacketError;
use super::super::wire::stream::StreamError;

/// Between two lines about the same: an operator who looks at a log of an hour sees it.
pub const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Lets one line through in an interval.
#[derive(Debug, Default)]
pub(super) struct Seldom(Mutex<Option<Instant>>);

impl Seldom {
    pub fn is_due(&self) -> bool {
        let now = Instant::now();
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = last.is_none_or(|last| now.duration_since(last) >= LOG_INTERVAL);
        if is_due {
            *last = Some(now);
        }
        is_due
    }
}

/// What is wrong with a packet or stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Of another cluster.
    Label,
    /// No certificate that we trust, or no TLS at all.
    Certificate,
    Encrypted,
    Malformed,
    /// One of too many connections of one address.
    Crowding,
    /// More work than a packet may make.
    Heavy,
}

impl Refusal {
    pub fn of_packet(error: &PacketError) -> Self {
        match error {
            PacketError::Label(_) => Self::Label,
            PacketError::Encrypted => Self::Encrypted,
            _ => Self::Malformed,
        }
    }

    pub fn of_stream(error: &StreamError) -> Self {
        match error {
            StreamError::Label(_) => Self::Label,
            StreamError::Encrypted => Self::Encrypted,
            _ => Self::Malformed,
        }
    }

    /// Value of the `reason` label.
    pub fn name(self) -> &'static str {
        match self {
            Self::Label => "label",
            Self::Certificate => "certificate",
            Self::Encrypted => "encrypted",
            Self::Malformed => "malformed",
            Self::Crowding => "crowding",
            Self::Heavy => "heavy",
        }
    }

    fn count(self) -> Count {
        match self {
            Self::Label => Count::RefusedLabel,
            Self::Certificate => Count::RefusedCertificate,
            Self::Encrypted => Count::RefusedEncrypted,
            Self::Malformed => Count::RefusedMalformed,
            Self::Crowding => Count::RefusedCrowding,
            Self::Heavy => Count::RefusedHeavy,
        }
    }
}

/// Counts refusals and tells the log now and then.
pub struct Strangers {
    metrics: Arc<TransportMetrics>,
    lines: [Seldom; 6],
}

impl Strangers {
    pub(super) fn new(metrics: Arc<TransportMetrics>) -> Self {
        Self { metrics, lines: Default::default() }
    }

    pub fn refuse(&self, refusal: Refusal, from: SocketAddr, error: &dyn std::error::Error) {
        self.metrics.add(refusal.count(), 1);
        if self.lines[refusal as usize].is_due() {
            let cause = error.source().map(tracing::field::display);
            let reason = refusal.name();
            tracing::warn!(%from, %error, cause, reason, "gossip that is not listened to");
        }
    }
}
