//! One other gate: where it is, and the way there.

use crate::sync::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

use super::{Id, lock};
use crate::tls::ClientTls;
use crate::units::Millis;
use crate::upstream::Upstream;
use crate::upstream::config::{UpstreamConfig, UpstreamConfigError};
use crate::wire::budgets::MESSAGE_BYTES_MAX;

/// Why there is no way to an address.
pub type PeerConnectError = UpstreamConfigError;

/// Makes the way to a peer.
pub type Connector = Arc<dyn Fn(&str) -> Result<Upstream, PeerConnectError> + Send + Sync>;

/// Connections to one peer: the second serves while the first is shutting down.
const CONNECTIONS_MAX: usize = 2;
/// Calls to one peer: the stream, hand-overs one after the other, and what operators ask.
const CALLS_MAX: usize = 64;
/// Wait before the pool dials anew. The link's own waits are longer, and rule.
const DIAL_AGAIN_MS: u64 = 50;
/// Time between pings, so that a peer which is gone without a word is noticed while all is idle;
/// Go's servers hang up on those who ask oftener.
const KEEPALIVE: Millis = Millis::from_secs(20);

pub struct Member {
    pub id: Id,
    pub address: Arc<str>,
    /// Of the link: it differs from that of any other link to the same gate.
    pub incarnation: u64,
    pub wake: Arc<Notify>,
    upstream: Mutex<Upstream>,
    /// While the gate's link of that id is this one. Held for calls of the gate only.
    is_open: Mutex<bool>,
    /// The log has been told that the peer's limits are others than ours.
    is_difference_told: AtomicBool,
}

/// Ways to peers by their settings: `template` is what they share, but for the address, and for
/// its bounds, which are set here.
pub fn connector(template: UpstreamConfig, tls: Option<Arc<ClientTls>>) -> Connector {
    Arc::new(move |address| {
        let config = UpstreamConfig {
            address: address.to_owned(),
            connect_backoff_base_delay: Millis(DIAL_AGAIN_MS),
            connect_backoff_max_delay: Millis(DIAL_AGAIN_MS),
            max_connections: CONNECTIONS_MAX,
            max_inflight_requests: CALLS_MAX,
            max_inflight_bytes: CALLS_MAX * MESSAGE_BYTES_MAX,
            max_recv_msg_size: MESSAGE_BYTES_MAX,
            keepalive_time: KEEPALIVE,
            ..template.clone()
        };
        Upstream::with_tls(&config, tls.clone())
    })
}

impl Member {
    pub fn new(id: Id, address: Arc<str>, incarnation: u64, upstream: Upstream) -> Self {
        Self {
            id,
            address,
            incarnation,
            wake: Arc::new(Notify::new()),
            upstream: Mutex::new(upstream),
            is_open: Mutex::new(true),
            is_difference_told: AtomicBool::new(false),
        }
    }

    /// Tells the link's task that there is something to send.
    pub fn waker(&self) -> Box<dyn Fn() + Send + Sync> {
        let wake = Arc::clone(&self.wake);
        Box::new(move || wake.notify_one())
    }

    pub fn upstream(&self) -> Upstream {
        lock(&self.upstream).clone()
    }

    /// The next call takes another connection; what is under way goes on.
    pub fn replace_upstream(&self, upstream: Upstream) {
        *lock(&self.upstream) = upstream;
    }

    /// Calls the gate in the name of this link, unless another has taken its place.
    pub fn as_link<T>(&self, call: impl FnOnce() -> T) -> Option<T> {
        let is_open = lock(&self.is_open);
        is_open.then(call)
    }

    /// Whether the peer has known a limit for all that it was asked, until now.
    pub fn is_first_without_limit(&self) -> bool {
        !self.is_difference_told.swap(true, Ordering::Relaxed)
    }

    pub fn close(&self) {
        *lock(&self.is_open) = false;
    }
}
