//! The gossip, where a ring of this process is kept on it: one for all of them.

use std::sync::Arc;
use std::time::Duration;

use prometheus::Registry;

use super::pages::Pages;
use super::{App, AppError, edges};
use crate::admin;
use crate::clock::Clock;
use crate::config::{Config, Target};
use crate::distributor::ha::HaStoreKind;
use crate::exposition::{AtScrape, Families};
use crate::ring::config::KvStoreKind;
use crate::ring::kv::memberlist::Metrics;
use crate::ring::kv::memberlist::gossiping::{GossipView, Gossiping};
use crate::ring::kv::requests::RequestDurations;
use crate::ring::kv::stores::Stores;

/// The stores of this process, and the gossip under some of them.
pub(super) struct Gossip(Option<Gossiping>);

impl Gossip {
    /// Joins the gossip if one of our rings is on it.
    pub(super) async fn start(
        config: &Config,
        clock: Clock,
        registry: &Registry,
    ) -> Result<(Self, Stores), AppError> {
        let durations = RequestDurations::register(registry)?;
        if !is_wanted(config) {
            return Ok((Self(None), Stores::new(durations, None)));
        }
        let metrics = Metrics::register(registry)?;
        let wall_clock = Arc::new(move || clock.now().unix_ms);
        let gossiping = Gossiping::start(&config.memberlist, wall_clock, metrics).await?;
        let view = gossiping.view();
        let read = move |families: &mut Families| view.read_metrics(families);
        registry.register(Box::new(AtScrape::new("memberlist_families", read)))?;
        let stores = Stores::new(durations, Some(gossiping.store().clone()));
        Ok((Self(Some(gossiping)), stores))
    }

    pub(super) fn view(&self) -> Option<GossipView> {
        self.0.as_ref().map(Gossiping::view)
    }

    /// Cortex's page of it.
    pub(super) fn add_page(&self, pages: &mut Pages) {
        if let Some(view) = self.view() {
            pages.add(|site| admin::memberlist::router(view.clone(), site));
            pages.shown.gossip(&view);
        }
    }

    /// `ready`, which also tells while nobody of the gossip was reached. That is no reason not to
    /// be ready: the first member has nobody to reach, and others may reach us.
    pub(super) fn noted(&self, ready: edges::Ready) -> edges::Ready {
        let Some(view) = self.view() else { return ready };
        Arc::new(move || {
            let lines = |first: Option<String>| {
                let lines: Vec<_> = first.into_iter().chain(view.loneliness()).collect();
                (!lines.is_empty()).then(|| lines.join("\n"))
            };
            match ready() {
                Ok(note) => Ok(lines(note)),
                Err(reason) => Err(lines(Some(reason)).unwrap_or_default()),
            }
        })
    }

    /// Until `stop`, or until nobody was reached where that is to be the process' end.
    pub(super) async fn until(&self, stop: impl Future<Output = ()>) -> Result<(), AppError> {
        let Some(view) = self.view() else {
            stop.await;
            return Ok(());
        };
        // Both arms only wait.
        tokio::select! {
            () = stop => Ok(()),
            failed = view.join_failed() => {
                tracing::error!("ends, as -memberlist.abort-if-join-fails wants it");
                Err(AppError::Join(failed))
            }
        }
    }

    /// To be called last: our last words in the rings are told here.
    pub(super) async fn stop(self) {
        if let Some(gossiping) = self.0 {
            gossiping.stop().await;
        }
    }
}

impl App {
    /// Stops as ever, or at once where nobody of the gossip was reached: then nobody is to be told
    /// that we go, and waiting for them to notice keeps us from another try.
    pub(super) async fn stop_after(mut self, ended: Result<(), AppError>) -> Result<(), AppError> {
        if matches!(ended, Err(AppError::Join(_))) {
            self.announce = Duration::ZERO;
            if let Some(lifecycler) = &self.lifecycler {
                lifecycler.skip_final_sleep().await;
            }
        }
        self.stop().await.and(ended)
    }
}

/// Whether a store that this process uses is on the gossip.
fn is_wanted(config: &Config) -> bool {
    let on_gossip = |store: KvStoreKind| store == KvStoreKind::Memberlist;
    let ingesters = on_gossip(config.ingester.lifecycler.ring.kvstore.store);
    let distributors = on_gossip(config.distributor.ring.kvstore.store);
    let query_gates = on_gossip(config.frontend.ring.kvstore.store);
    let tracker = &config.distributor.ha_tracker;
    let elections = tracker.enable_ha_tracker && tracker.kvstore.store == HaStoreKind::Memberlist;
    match config.target {
        Target::All => ingesters || distributors || query_gates || elections,
        Target::Ingester => ingesters,
        Target::Distributor => ingesters || distributors || elections,
        Target::QueryFrontend => query_gates,
    }
}
