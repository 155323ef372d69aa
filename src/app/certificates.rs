//! Certificates of the process: read before anything listens, followed until the drain.

use std::sync::Arc;

use tokio::task::JoinSet;

use crate::config::Config;
use crate::exposition::Families;
use crate::server::drain::Drain;
use crate::tls::{self, ClientTls, RELOAD_PERIOD, ServerTls, Standing, TlsError, Watched};

/// What the HTTP listener speaks, the best first.
const HTTP_PROTOCOLS: &[&str] = &["h2", "http/1.1"];

/// One for each side that speaks TLS.
#[derive(Clone)]
pub struct Certificates {
    pub http: Option<Arc<ServerTls>>,
    pub grpc: Option<Arc<ServerTls>>,
    pub admin: Option<Arc<ServerTls>>,
    pub upstream: Option<Arc<ClientTls>>,
}

impl Certificates {
    /// `upstream` is for whom we forward to.
    pub fn load(config: &Config, upstream: Option<&Arc<ClientTls>>) -> Result<Self, TlsError> {
        let (server, admin) = (&config.server, &config.admin);
        let min = server.tls_min_version;
        Ok(Self {
            http: tls::server("server_http", &server.http_tls_config, min, HTTP_PROTOCOLS)?,
            grpc: tls::server("server_grpc", &server.grpc_tls_config, min, &["h2"])?,
            admin: tls::server("admin_http", &admin.http_tls_config, min, HTTP_PROTOCOLS)?,
            upstream: upstream.cloned(),
        })
    }

    pub fn follow(&self, tasks: &mut JoinSet<()>, drain: &Drain) {
        for listener in self.http.iter().chain(&self.grpc).chain(&self.admin) {
            follow(listener, tasks, drain);
        }
        if let Some(caller) = &self.upstream {
            follow(caller, tasks, drain);
        }
    }

    /// How it stands with each.
    pub fn standings(&self) -> Vec<Standing> {
        let listeners = self.http.iter().chain(&self.grpc).chain(&self.admin);
        let listeners = listeners.map(|listener| listener.standing());
        listeners.chain(self.upstream.iter().map(|caller| caller.standing())).collect()
    }

    pub fn read_metrics(&self, families: &mut Families) {
        for listener in self.http.iter().chain(&self.grpc).chain(&self.admin) {
            listener.read_metrics(families);
        }
        if let Some(caller) = &self.upstream {
            caller.read_metrics(families);
        }
    }
}

fn follow<T: Send + Sync + 'static>(
    watched: &Arc<Watched<T>>,
    tasks: &mut JoinSet<()>,
    drain: &Drain,
) {
    let (watched, mut drain) = (Arc::clone(watched), drain.clone());
    tasks.spawn(async move { watched.follow(RELOAD_PERIOD, drain.started()).await });
}
