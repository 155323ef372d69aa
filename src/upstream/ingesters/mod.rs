//! The ingesters of the ring: a client for each address, and requests spread over them.
//!
//! ```text
//! Ingesters::spread ─► Spread::add, once per batch ─► Spread::send ─► Awaited::verdict
//!                        message: signed, compressed, framed   │
//!                        client of the address                 ▼
//!                                       a task per batch: Client::push ─► Quorum::record
//! Ingesters::run ─► every cleanup period: clients that left the ring, health checks
//! ```
//!
//! A client is made at the first push to its address and dials then. It goes when its address
//! has left the ring or its health check fails; the next push dials anew.
//!
//! What is held in memory: messages as they go out, compressed, from [`Spread::add`] until their
//! answer or the deadline. All of them are bounded by [`BYTES_IN_FLIGHT_MAX`] and
//! [`CALLS_IN_FLIGHT_MAX`], those of one ingester by [`BYTES_PER_INGESTER_MAX`] and
//! [`CALLS_PER_INGESTER_MAX`]; over a bound a batch fails at once, which its quorum may well
//! outlive. So an ingester that does not answer costs its share and no more.

mod client;
pub mod config;
mod counters;
mod failure;
mod spread;
mod streams;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use super::Upstream;
use super::budget::Budget;
use crate::exposition::Families;
use crate::ring::{Failure, Quorum, RingSnapshot};
use crate::sync::{AtomicU64, Ordering};
use crate::tls::{self, ClientTls, TlsError};
use crate::trail::Trail;
use crate::wire::encoding::Encoding;
use client::Client;
use config::{IngesterClientConfig, IngesterClientConfigError};
use counters::Counters;
use streams::StreamOpener;

pub use spread::{Awaited, MessageScratch, Spread};
pub use streams::STREAMS_MAX;

/// Metadata that names the client of a push. Streams carry pushes of many and name nobody.
pub const CLIENT_METADATA: &str = "x-scope-clientid";
/// Bytes of messages to all ingesters, under way or late. Ten thousand batches of 40 kB, which is
/// what a thousand series are to each of their replicas: two seconds of silence of all ingesters
/// at five thousand such batches a second.
pub const BYTES_IN_FLIGHT_MAX: usize = 512 << 20;
/// Batches to all ingesters, under way or late; each is a task of a few kilobytes.
pub const CALLS_IN_FLIGHT_MAX: usize = 64 << 10;
/// Of these, what one ingester may have: a quarter, so that three that are slow leave room for
/// the others. It is eight of the longest messages.
pub const BYTES_PER_INGESTER_MAX: usize = 128 << 20;
/// Batches to one ingester, and open push streams. Ten times what its connections carry at once
/// at Go's usual bound of streams; the others wait for a stream until their deadline.
pub const CALLS_PER_INGESTER_MAX: usize = 8 << 10;
/// Connections to one ingester. At 100 streams each, Cortex's default, the first takes the push
/// streams and leaves the others for health checks and unary pushes.
pub const CONNECTIONS_PER_INGESTER_MAX: usize = 8;
/// Longest message that an ingester takes unless it is told otherwise, unpacked: the default of
/// Cortex's servers and of grpc-go's. A longer one would be refused for ever, so what is more is
/// sent in several messages.
pub const MESSAGE_BYTES_MAX: usize = 4 << 20;
/// Room in a message for what stands around its series (the tenant, some hundred bytes) and for
/// what a compression adds to bytes that it cannot compress (600 bytes to the longest).
const MESSAGE_BYTES_AROUND: usize = 4 << 10;
/// Health checks at once; each may take the remote timeout.
const CHECKS_AT_ONCE: usize = 64;

/// Settings beside those of the clients; the distributor's, in its own words.
#[derive(Clone, Debug)]
pub struct IngestersSettings {
    /// How long a push may take in all, and a health check.
    pub remote_timeout: Duration,
    /// Time between health checks.
    pub cleanup_period: Duration,
    pub health_check: bool,
    pub use_stream_push: bool,
    /// Sign unary pushes; and push streams, with the key, if there is one.
    pub sign_write_requests: bool,
    pub stream_key: Option<String>,
}

/// The clients of a distributor. Cheap to clone; all end with the last clone and its requests.
#[derive(Clone)]
pub struct Ingesters(Arc<Inner>);

struct Inner {
    config: IngesterClientConfig,
    settings: IngestersSettings,
    encoding: Encoding,
    tls: Option<Arc<ClientTls>>,
    opener: Arc<StreamOpener>,
    clients: Mutex<HashMap<Arc<str>, Arc<Client>>>,
    budget: Arc<Budget>,
    counters: Counters,
    /// Batches under way, late ones included.
    in_flight: AtomicU64,
    timeouts: AtomicU64,
    tasks: Mutex<JoinSet<()>>,
}

/// Who pushes.
#[derive(Clone, Copy, Debug)]
pub struct Pushing<'a> {
    pub tenant: &'a str,
    /// What the tenant's own name for the writer is, for ingesters' logs.
    pub client: Option<&'a str>,
    /// What ingesters log of the request: names and values.
    pub request_metadata: &'a [(&'a str, &'a str)],
    /// Addresses that the request came through, where they are logged.
    pub source_ips: Option<&'a str>,
    /// What the request is called, and what its messages' spans belong to.
    pub trail: Option<&'a Trail>,
}

/// What a batch carries, for the counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    pub has_series: bool,
    pub has_metadata: bool,
}

/// Why there cannot be clients.
#[derive(Debug, thiserror::Error)]
pub enum IngestersStartError {
    #[error(transparent)]
    Config(#[from] IngesterClientConfigError),
    #[error("cannot prepare TLS to the ingesters")]
    Tls(#[from] TlsError),
}

/// One more batch under way; one less when dropped.
struct Counted(Ingesters);

impl Ingesters {
    /// Nothing is dialled here; certificates are read.
    pub fn new(
        config: &IngesterClientConfig,
        settings: IngestersSettings,
    ) -> Result<Self, IngestersStartError> {
        config.validate()?;
        let grpc = &config.grpc_client_config;
        let tls = match grpc.tls_enabled {
            false => None,
            true => Some(tls::client("ingester client", &grpc.tls(), &["h2"])?),
        };
        let encoding = grpc.encoding()?;
        let key = settings.stream_key.clone().filter(|_| settings.sign_write_requests);
        let budget = Budget::new("ingesters".into(), CALLS_IN_FLIGHT_MAX, BYTES_IN_FLIGHT_MAX);
        Ok(Self(Arc::new(Inner {
            opener: Arc::new(StreamOpener { encoding, key }),
            config: config.clone(),
            settings,
            encoding,
            tls,
            clients: Mutex::default(),
            budget: Arc::new(budget),
            counters: Counters::default(),
            in_flight: AtomicU64::new(0),
            timeouts: AtomicU64::new(0),
            tasks: Mutex::default(),
        })))
    }

    /// Begins a request whose batches `quorum` was made for; they are added in its order.
    pub fn spread<'a>(
        &'a self,
        pushing: &Pushing<'a>,
        quorum: Quorum,
        scratch: &'a mut MessageScratch,
    ) -> Spread<'a> {
        Spread::new(self, pushing, quorum, scratch)
    }

    /// Looks after the clients until it is dropped. `ring` gives the ring of the moment.
    pub async fn run(self, ring: impl Fn() -> Arc<RingSnapshot>) {
        let mut ticks = interval(self.0.settings.cleanup_period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The first is at once, when there is nothing to look after.
        ticks.tick().await;
        loop {
            ticks.tick().await;
            self.clean(&ring()).await;
        }
    }

    /// Drops clients of addresses that are not in the ring, and those whose health check fails.
    pub async fn clean(&self, ring: &RingSnapshot) {
        self.0.counters.retain_members_of(ring);
        let kept: Vec<_> = {
            let mut clients = self.lock();
            clients.retain(|address, _| {
                let is_there = ring.members().iter().any(|member| member.addr == *address);
                if !is_there {
                    tracing::info!(%address, "removing stale ingester client");
                }
                is_there
            });
            clients.iter().map(|(address, client)| (address.clone(), client.clone())).collect()
        };
        if !self.0.settings.health_check {
            return;
        }
        let within = self.0.settings.remote_timeout;
        let mut waiting = kept.into_iter();
        let mut checks = JoinSet::new();
        loop {
            while checks.len() < CHECKS_AT_ONCE
                && let Some((address, client)) = waiting.next()
            {
                checks.spawn(async move {
                    let outcome = client.check(within).await;
                    (address, client, outcome)
                });
            }
            let Some(checked) = checks.join_next().await else {
                return;
            };
            if let Ok((address, client, Err(failure))) = checked {
                tracing::warn!(%address, %failure, "removing ingester failing healthcheck");
                let mut clients = self.lock();
                // Somebody may have replaced it meanwhile.
                if clients.get(&address).is_some_and(|now| Arc::ptr_eq(now, &client)) {
                    clients.remove(&address);
                }
            }
        }
    }

    /// Waits for what is under way, late answers included: at the end of a process, once nothing
    /// new is sent. It takes the remote timeout at the longest; giving up ends what is left.
    pub async fn finish(&self) {
        let mut tasks =
            std::mem::take(&mut *self.0.tasks.lock().expect("no panic under this lock"));
        while tasks.join_next().await.is_some() {}
    }

    /// Batches under way to ingesters, those of answered requests included: what
    /// `-distributor.instance-limits.max-inflight-client-requests` bounds.
    pub fn in_flight(&self) -> u64 {
        self.0.in_flight.load(Ordering::Relaxed)
    }

    /// Most bytes of series and metadata that fit into one message to an ingester.
    pub fn request_bytes_max(&self) -> usize {
        let message = MESSAGE_BYTES_MAX.min(self.send_message_bytes_max());
        message.saturating_sub(MESSAGE_BYTES_AROUND)
    }

    /// The certificates, to be followed; none where ingesters are spoken to plainly.
    pub fn tls(&self) -> Option<&Arc<ClientTls>> {
        self.0.tls.as_ref()
    }

    /// Addresses that have a client.
    pub fn addresses(&self) -> Vec<Arc<str>> {
        self.lock().keys().cloned().collect()
    }

    pub fn read_metrics(&self, families: &mut Families) {
        let clients = self.lock();
        families.gauge(
            "cortex_distributor_ingester_clients",
            "The current number of ingester clients.",
            clients.len() as f64,
        );
        let mut in_flight: Vec<_> =
            clients.iter().map(|(address, client)| (address.clone(), client.in_flight())).collect();
        drop(clients);
        in_flight.sort_unstable();
        let mut family = families.gauges(
            "cortex_ingester_client_inflight_push_requests",
            "Number of Ingester client push requests.",
        );
        for (address, count) in in_flight {
            family.sample([("ingester", &address)], count as f64);
        }
        families.counter(
            "cortex_distributor_ingester_push_timeouts_total",
            "The total number of push requests to ingesters that were canceled due to timeout.",
            self.0.timeouts.load(Ordering::Relaxed),
        );
        self.0.counters.read_metrics(families);
    }

    fn client(&self, address: &Arc<str>) -> Result<Arc<Client>, Failure> {
        let mut clients = self.lock();
        if let Some(client) = clients.get(address) {
            return Ok(Arc::clone(client));
        }
        let config = self.0.config.grpc_client_config.upstream(address);
        let upstream = Upstream::with_tls(&config, self.0.tls.clone()).map_err(|_| {
            Failure::unsent(format!("the ring names an address that is not host:port: {address:?}"))
        })?;
        let opener = Arc::clone(&self.0.opener);
        let client =
            Arc::new(Client::new(upstream, opener, self.0.config.max_inflight_push_requests));
        clients.insert(Arc::clone(address), Arc::clone(&client));
        Ok(client)
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.0.tasks.lock().expect("no panic under this lock");
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }

    fn count_in_flight(&self) -> Counted {
        self.0.in_flight.fetch_add(1, Ordering::Relaxed);
        Counted(self.clone())
    }

    fn count_timeout(&self) {
        self.0.timeouts.fetch_add(1, Ordering::Relaxed);
    }

    fn counters(&self) -> &Counters {
        &self.0.counters
    }

    fn budget(&self) -> &Arc<Budget> {
        &self.0.budget
    }

    fn encoding(&self) -> Encoding {
        self.0.encoding
    }

    fn remote_timeout(&self) -> Duration {
        self.0.settings.remote_timeout
    }

    fn use_stream_push(&self) -> bool {
        self.0.settings.use_stream_push
    }

    fn sign_write_requests(&self) -> bool {
        self.0.settings.sign_write_requests
    }

    fn send_message_bytes_max(&self) -> usize {
        self.0.config.grpc_client_config.max_send_msg_size
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Arc<Client>>> {
        self.0.clients.lock().expect("no panic under this lock")
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}
