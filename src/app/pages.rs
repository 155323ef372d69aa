//! Which pages are on which listener, and the listener that is for operators alone.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio::task::JoinSet;

use super::AppError;
use super::certificates::Certificates;
use super::overview::Gathered;
use super::traces;
use crate::admin;
use crate::admin::Site;
use crate::admin::access::{self, Access};
use crate::clock::Clock;
use crate::config::Config;
use crate::distributor::Distributor;
use crate::explain::Explainer;
use crate::ingester::Ingester;
use crate::limits::Overrides;
use crate::server::drain::Drain;
use crate::server::http::{self, ShellCalls};
use crate::server::listen::Listener;
use crate::server::shares::Sharing;
use crate::server::status::http_error;
use crate::units::Millis;

/// Connections of operators, their browsers and scripts.
const CONNECTIONS_MAX: usize = 64;
/// How long a place of these may be held without a request: three times what a page takes to ask
/// again by itself. So connections that come to nothing keep an operator waiting no longer.
const IDLE_MAX: Millis = Millis::from_secs(15);
/// How the places are shared: half of them may be one address's, behind which there may be all
/// operators of a site, and a connection is a minute old at the most, so that one that sends now
/// and then does not keep its place for good. A page is come by anew without being noticed.
const SHARING: Sharing =
    Sharing { of_one_address: CONNECTIONS_MAX / 2, age_max: Duration::from_secs(60) };

/// Pages as they are put together.
pub(super) struct Pages {
    http: Router,
    http_site: Site,
    admin: Router,
    admin_site: Site,
    /// What `/` and `/services` are made from.
    pub(super) shown: Gathered,
}

impl Pages {
    pub(super) fn new() -> Self {
        let (http_site, admin_site) = (Site::of_http(), Site::of_admin());
        let (http, admin) = (Router::new(), Router::new());
        Self { http, http_site, admin, admin_site, shown: Gathered::new() }
    }

    /// A page that Cortex has where it takes requests.
    pub(super) fn add(&mut self, make: impl Fn(&Site) -> Router) {
        self.add_to_http(make(&self.http_site));
        self.add_ours(make);
    }

    /// A page of our own, for operators alone.
    pub(super) fn add_ours(&mut self, make: impl FnOnce(&Site) -> Router) {
        let page = make(&self.admin_site);
        self.admin = std::mem::take(&mut self.admin).merge(page);
    }

    /// The page that replays decisions of the services that there are.
    pub(super) fn add_explain(
        &mut self,
        config: &Config,
        overrides: &Arc<Overrides>,
        (ingester, distributor): (Option<&Arc<Ingester>>, Option<&Arc<Distributor>>),
        clock: Clock,
    ) {
        let explainer = Arc::new(Explainer::new(
            ingester.cloned(),
            distributor.cloned(),
            Arc::clone(overrides),
            config.name_validation_scheme,
        ));
        self.add_ours(|site| admin::explain::router(explainer, clock, site));
    }

    /// What is no page.
    pub(super) fn add_to_http(&mut self, routes: Router) {
        self.http = std::mem::take(&mut self.http).merge(routes);
    }

    /// `/` of the HTTP listener.
    pub(super) fn add_landing(&mut self, config: &Config, admin_address: Option<SocketAddr>) {
        let target = config.target.into();
        self.add_to_http(admin::landing::router(target, admin_address, &self.http_site));
    }
}

/// The listener for operators; `None` where there is none, or where another process of this
/// machine has the address that nobody has chosen.
pub(super) async fn listen(
    config: &Config,
    certificates: &Certificates,
) -> Result<Option<Listener>, AppError> {
    let Some(address) = config.admin.address()? else { return Ok(None) };
    // Before anything is joined: a file that is missing is told at once.
    access::check(&config.admin)?;
    match Listener::bind(address, CONNECTIONS_MAX).await {
        Ok(listener) => {
            let listener = listener.with_sharing(SHARING);
            Ok(Some(listener.with_tls(certificates.admin.clone())))
        }
        Err(error)
            if config.admin.is_default_address() && error.kind() == io::ErrorKind::AddrInUse =>
        {
            tracing::warn!(
                %address, %error,
                "no pages for operators: another process has their address; give one in \
                 -admin.http-listen-address"
            );
            Ok(None)
        }
        Err(source) => Err(AppError::Listen { address, source }),
    }
}

pub(super) fn address(listener: &Listener) -> Result<SocketAddr, AppError> {
    let unknown = SocketAddr::from(([0, 0, 0, 0], 0));
    listener.local_address().map_err(|source| AppError::Listen { address: unknown, source })
}

/// What operators' pages are served with.
pub(super) struct Served<'a> {
    /// `None` where they are nowhere.
    pub(super) listener: Option<Listener>,
    pub(super) shell: &'a ShellCalls,
    pub(super) clock: Clock,
}

/// Serves operators, and gives the pages that belong on the HTTP listener.
pub(super) fn serve(
    mut pages: Pages,
    served: Served<'_>,
    config: &Arc<Config>,
    drain: &Drain,
    tasks: &mut JoinSet<()>,
) -> Result<Router, AppError> {
    let Served { listener, shell, clock } = served;
    let shown = std::mem::take(&mut pages.shown);
    shown.start(config, clock, &mut pages, drain, tasks);
    if let Some(listener) = listener {
        if let Some(warning) = config.admin.warning() {
            tracing::warn!(%warning, "admin");
        }
        let router = pages
            .admin
            .merge(http::shell_router(shell.clone()))
            .fallback(async || http_error(404, "404 page not found"));
        let router = Access::new(&config.admin, pages.admin_site, clock)?.before(router);
        let trails = traces::of_operators(config);
        let mut config = Config::clone(config);
        let idle = &mut config.server.http_server_idle_timeout;
        *idle = (*idle).min(IDLE_MAX);
        super::serve_http(&Arc::new(config), listener, router, trails, drain, tasks);
    }
    Ok(pages.http)
}
