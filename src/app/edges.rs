//! What the edges are given: how calls are treated, and the services behind them as values.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use prometheus::Registry;

use super::shown;
use crate::clock::Clock;
use crate::config::Config;
use crate::distributor::{Distributor, Sink};
use crate::ingester::{ChargedBy, Ingester};
use crate::limits::Overrides;
use crate::ratelimit::LogLines;
use crate::server::client_header::ClientHeader;
use crate::server::grpc::Settings;
use crate::server::http::{RemoteWriteSettings, ShellCalls};
use crate::server::room::Room;
use crate::server::seam::{self, DistributorCalls, IngesterCalls, Work};
use crate::server::stream_auth::StreamKeys;
use crate::server::tenancy::Tenancy;
use crate::telemetry;
use crate::upstream::Upstream;

/// What the edges need of everything else.
pub(super) struct Edges<'a> {
    pub(super) config: &'a Arc<Config>,
    pub(super) ingester: &'a Arc<Ingester>,
    pub(super) upstream: &'a Option<Upstream>,
    pub(super) clock: Clock,
    pub(super) room: &'a Room,
}

impl Edges<'_> {
    pub(super) fn grpc_settings(&self) -> Settings {
        let distributor = &self.config.distributor;
        let keys = match distributor.sign_write_requests {
            true => distributor.sign_write_requests_keys.reveal(),
            false => "",
        };
        Settings {
            tenancy: Tenancy::from_auth_enabled(self.config.auth_enabled),
            clients: ClientHeader::of_grpc(&self.config.client_identity),
            stream_keys: StreamKeys::parse(keys),
            room: self.room.clone(),
            receive_message_bytes_max: self.config.server.grpc_server_max_recv_msg_size,
            send_message_bytes_max: self.config.server.grpc_server_max_send_msg_size,
            upstream: self.upstream.clone(),
            stream_answer_within: self.config.ingester.upstream.push_stream_timeout.as_duration(),
        }
    }

    pub(super) fn ingester_calls(&self) -> IngesterCalls {
        let clock = self.clock;
        let [push, judging, one, all] = std::array::from_fn(|_| Arc::clone(self.ingester));
        IngesterCalls {
            push: Arc::new(move |tenant, body: Bytes| Ok(push.push(tenant, &body, clock.now())?)),
            user_stats: Arc::new(move |tenant| one.user_stats(tenant)),
            all_user_stats: Arc::new(move || all.all_user_stats()),
            judge: Arc::new(move |tenant, body| {
                let mut judged = judging.judge(tenant, body, clock.now())?;
                Ok(seam::Judged {
                    forward: std::mem::replace(&mut judged.forward, seam::Forward::Whole),
                    settle: Box::new(move |told| Ok(judged.settle(told, clock.now())?)),
                })
            }),
        }
    }
}

/// How a gate treats gRPC calls, which are of other gates.
pub(super) fn gate_grpc_settings(config: &Arc<Config>, room: &Room) -> Settings {
    Settings {
        tenancy: Tenancy::from_auth_enabled(config.auth_enabled),
        clients: ClientHeader::default(),
        stream_keys: StreamKeys::parse(""),
        room: room.clone(),
        receive_message_bytes_max: config.server.grpc_server_max_recv_msg_size,
        send_message_bytes_max: config.server.grpc_server_max_send_msg_size,
        upstream: None,
        stream_answer_within: config.ingester.upstream.push_stream_timeout.as_duration(),
    }
}

/// Whether we are ready, and what an operator should know although we are.
pub(super) type Ready = Arc<dyn Fn() -> Result<Option<String>, String> + Send + Sync>;

/// How remote writes are treated.
pub(super) fn remote_write(config: &Config) -> RemoteWriteSettings {
    let distributor = &config.distributor;
    RemoteWriteSettings {
        v2_enabled: distributor.remote_writev2_enabled,
        accept_unknown_content_type: distributor.accept_unknown_remote_write_content_type,
        body_bytes_max: distributor.max_recv_msg_size,
        otlp_body_bytes_max: distributor.otlp_max_recv_msg_size,
        body_wait: config.server.http_server_read_timeout.as_duration(),
        ratelimit_headers: distributor.ratelimit_headers,
    }
}

/// The pages and numbers of the process itself.
pub(super) fn shell(
    config: &Arc<Config>,
    ready: Ready,
    registry: Registry,
    overrides: &Arc<Overrides>,
) -> ShellCalls {
    let (config, overrides) = (Arc::clone(config), Arc::clone(overrides));
    let (clock, failures) = (Clock::start(), Mutex::<LogLines>::default());
    ShellCalls {
        ready,
        metrics: Arc::new(move || match telemetry::metrics_text(&registry) {
            Ok(text) => text,
            Err(error) => {
                let mut lines = failures.lock().unwrap_or_else(PoisonError::into_inner);
                let taken = lines.take(clock.steady_ns());
                drop(lines);
                if let Some(untold) = taken {
                    tracing::error!(%error, untold, "no metrics");
                }
                String::new()
            }
        }),
        config: Arc::new(move |view| shown::config_yaml(&config, view)),
        runtime_config: Arc::new(move |view| shown::runtime_yaml(&overrides, view)),
    }
}

/// The distributor, as the HTTP edge sees it.
pub(super) fn distributor_calls(distributor: &Arc<Distributor>, clock: Clock) -> DistributorCalls {
    let [pushed, asked, counted] = std::array::from_fn(|_| Arc::clone(distributor));
    DistributorCalls {
        push: Arc::new(move |tenant, write| {
            let distributor = Arc::clone(&pushed);
            Box::pin(async move { distributor.push(&tenant, write, clock.now()).await })
        }),
        budget: Arc::new(move |tenant| asked.budget(tenant)),
        came: Arc::new(move |kind| counted.came(kind)),
    }
}

/// The ingester of this process, as the distributor before it sees it.
pub(super) fn local_sink(ingester: &Arc<Ingester>, clock: Clock, work: Work) -> Sink {
    let ingester = Arc::clone(ingester);
    Sink::Local(Arc::new(move |tenant, body| {
        let (ingester, work) = (Arc::clone(&ingester), work.clone());
        Box::pin(async move {
            let push =
                move || ingester.push_from(ChargedBy::Distributor, &tenant, &body, clock.now());
            work.run(push).await??;
            Ok(())
        })
    }))
}
