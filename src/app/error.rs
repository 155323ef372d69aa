//! Why a process does not start.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use super::budgets::SecretError;
use super::front_door::SaltError;
use crate::admin::access::TokenError;
use crate::admin::config::AdminConfigError;
use crate::clients::Gates;
use crate::clients::config::ClientIdentityConfigError;
use crate::limits::reload::ReloadError;
use crate::ring::kv::KvSetupError;
use crate::ring::kv::memberlist::gossiping::{GossipError, JoinFailed};
use crate::server::config::ServerConfigError;
use crate::store::StoreError;
use crate::tls::TlsError;
use crate::upstream::UpstreamStartError;
use crate::upstream::config::UpstreamConfigError;
use crate::upstream::distributor::HttpUpstreamStartError;
use crate::upstream::ingesters::IngestersStartError;
use crate::upstream::page::PageError;
use crate::upstream::queries::DownstreamStartError;

/// Why the app did not start, or ended otherwise than asked.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    #[error("cannot open the store")]
    Store(#[from] StoreError),
    #[error("cannot load the runtime file")]
    RuntimeFile(#[from] ReloadError),
    #[error("cannot listen on {address}")]
    Listen { address: SocketAddr, source: std::io::Error },
    #[error(transparent)]
    Server(#[from] ServerConfigError),
    #[error(transparent)]
    Admin(#[from] AdminConfigError),
    #[error("cannot use -admin.bearer-token-file")]
    AdminToken(#[from] TokenError),
    #[error(transparent)]
    ClientIdentity(#[from] ClientIdentityConfigError),
    #[error("cannot use the ring's store")]
    RingStore(#[from] KvSetupError),
    #[error(transparent)]
    Upstream(#[from] UpstreamStartError),
    #[error("cannot use -ingester.distributor-address")]
    DistributorPage(#[from] PageError),
    #[error(transparent)]
    HttpUpstream(#[from] HttpUpstreamStartError),
    #[error(transparent)]
    Ingesters(#[from] IngestersStartError),
    #[error("cannot take part in the gossip of -memberlist.*")]
    Gossip(#[from] GossipError),
    #[error(transparent)]
    Join(Arc<JoinFailed>),
    #[error(
        "the {gates} ring needs a store that can be written: inmemory, etcd, consul or memberlist"
    )]
    GateRingReadOnly { gates: Gates },
    #[error(transparent)]
    Downstream(#[from] DownstreamStartError),
    #[error("cannot use -client-identity.secret-file {}", .path.display())]
    ClientSecret { path: PathBuf, source: SecretError },
    #[error("cannot use -front-door.salt-file {}", .path.display())]
    FrontDoorSalt { path: PathBuf, source: SaltError },
    #[error("cannot use -tracing.otel.otlp-endpoint")]
    Collector(#[source] UpstreamConfigError),
    #[error("cannot prepare TLS to the collector of -tracing.otel.otlp-endpoint")]
    CollectorTls(#[source] TlsError),
    #[error("cannot prepare TLS of a listener")]
    Tls(#[from] TlsError),
    #[error("cannot register metrics")]
    Metrics(#[from] prometheus::Error),
    #[error("cannot start a thread")]
    Thread(#[source] std::io::Error),
    #[error("a part of the start did not finish")]
    Lost(#[from] tokio::task::JoinError),
}
