//! What the edges are given: how calls are treated, and the services behind them as values.

use std::sync::Arc;

use bytes::Bytes;
use prometheus::Registry;

use super::{Readiness, shown};
use crate::clock::Clock;
use crate::config::{Config, Target};
use crate::distributor::prepare::{Replicas, Treatment};
use crate::distributor::{self, RemoteWrite};
use crate::ingester::Ingester;
use crate::labels::Placement;
use crate::limits::Overrides;
use crate::server::grpc::Settings;
use crate::server::http::{HttpEdge, RemoteWriteSettings, ShellCalls};
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

    /// Remote write, from its body to the ingester in this process.
    fn distributor_calls(&self) -> DistributorCalls {
        let (config, ingester, clock) = (self.config.clone(), self.ingester.clone(), self.clock);
        DistributorCalls {
            push: Arc::new(move |tenant, write: seam::RemoteWrite| {
                let snapshot = ingester.overrides.snapshot();
                let limits = snapshot.limits(tenant);
                let write = RemoteWrite {
                    headers: write.protocol.headers(),
                    body: &write.body,
                    type_and_unit_labels: limits.enable_type_and_unit_labels,
                    start_timestamp: limits.enable_start_timestamp,
                };
                let treatment = Treatment {
                    tenant: tenant.as_str(),
                    limits,
                    names: config.name_validation_scheme,
                    placement: match config.distributor.shard_by_all_labels {
                        true => Placement::ByAllLabels,
                        false => Placement::ByMetric,
                    },
                    replicas: Replicas::Kept,
                };
                let now = clock.now();
                Ok(distributor::push(
                    &config.distributor,
                    write,
                    &treatment,
                    now.unix_ms,
                    |body| ingester.push(tenant, body, now),
                )?)
            }),
        }
    }

    pub(super) fn http(
        &self,
        readiness: Readiness,
        registry: Registry,
        overrides: &Arc<Overrides>,
        work: Work,
    ) -> HttpEdge {
        let (config, overrides) = (self.config.clone(), Arc::clone(overrides));
        let distributor = &self.config.distributor;
        HttpEdge {
            tenancy: Tenancy::from_auth_enabled(self.config.auth_enabled),
            shell: ShellCalls {
                ready: Arc::new(move || readiness.check().map(|()| readiness.note())),
                metrics: Arc::new(move || match telemetry::metrics_text(&registry) {
                    Ok(text) => text,
                    Err(error) => {
                        tracing::error!(%error, "no metrics");
                        String::new()
                    }
                }),
                config: Arc::new(move |view| shown::config_yaml(&config, view)),
                runtime_config: Arc::new(move |view| shown::runtime_yaml(&overrides, view)),
            },
            // As in Cortex, an ingester alone takes pushes from distributors only.
            distributor: (self.config.target == Target::All).then(|| self.distributor_calls()),
            remote_write: RemoteWriteSettings {
                v2_enabled: distributor.remote_writev2_enabled,
                accept_unknown_content_type: distributor.accept_unknown_remote_write_content_type,
                body_bytes_max: distributor.max_recv_msg_size,
                body_wait: self.config.server.http_server_read_timeout.as_duration(),
            },
            room: self.room.clone(),
            work,
        }
    }
}
