//! What `/` and `/services` are made from, gathered part by part while the process starts.
//!
//! Each part is a closure over a handle that the part keeps anyway; nothing here is asked before
//! a page is, but for one look every ten seconds, so that what is refused *now* can be told.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use super::certificates::Certificates;
use super::member::Member;
use super::pages::Pages;
use crate::admin::overview::refusals::{RefusalSource, SLOT_MS};
use crate::admin::overview::role::{ReadRole, Role};
use crate::admin::overview::{IngesterSource, Listed, Overview, Parts, roles};
use crate::admin::services::{self, ReadService, ServicesSource};
use crate::admin::{clients, front_door};
use crate::clients::Gates;
use crate::clients::peers::Budgets;
use crate::clock::{Clock, Now};
use crate::config::Config;
use crate::distributor::Distributor;
use crate::exposition::RefusedCount;
use crate::front_door::FrontDoor;
use crate::frontend::Frontend;
use crate::ingester::Ingester;
use crate::ingester::following::FollowStatus;
use crate::ingester::settings_check::Found;
use crate::limits::reload::ReloadStatusReader;
use crate::ring::Ring;
use crate::ring::kv::memberlist::gossiping::GossipView;
use crate::ring::lifecycler::LifecyclerHandle;
use crate::server::drain::Drain;
use crate::server::room::Room;
use crate::store::Store;
use crate::upstream::Upstream;
use crate::upstream::queries::Downstreams;

/// How often refusals and states are looked at.
const LOOK_PERIOD: Duration = Duration::from_millis(SLOT_MS.unsigned_abs());

/// Parts of a process that are known so far.
#[derive(Default)]
pub(super) struct Gathered {
    roles: Vec<Arc<ReadRole>>,
    /// What every process has; it comes last.
    of_process: Vec<Arc<ReadRole>>,
    refusals: Vec<RefusalSource>,
    pages: Vec<Listed>,
    services: Vec<(&'static str, Arc<ReadService>)>,
    ingester: Option<IngesterSource>,
}

/// What is said of the ring of some gates.
struct RingWords {
    ring: &'static str,
    place: &'static str,
    page: &'static str,
    shows: &'static str,
    /// What a ring comes to that was not read for too long.
    expired: &'static str,
}

fn ring_words(gates: Gates) -> RingWords {
    match gates {
        Gates::Distributors => RingWords {
            ring: "Distributors' ring",
            place: "Place among distributors",
            page: "/distributor/ring",
            shows: "members that share rates and budgets",
            expired: "rates are divided by a ring that is too old",
        },
        Gates::QueryFrontends => RingWords {
            ring: "Query gates' ring",
            place: "Place among query gates",
            page: "/query-frontend/ring",
            shows: "members that keep budgets of queries",
            expired: "budgets are kept by a ring that is too old",
        },
    }
}

impl Gathered {
    pub(super) fn new() -> Self {
        Self { services: vec![("server", services::running())], ..Self::default() }
    }

    /// Adds the pages; from now on the process is looked at until its end.
    pub(super) fn start(
        self,
        config: &Config,
        clock: Clock,
        into: &mut Pages,
        drain: &Drain,
        tasks: &mut JoinSet<()>,
    ) {
        let Self { mut roles, of_process, refusals, pages, services, ingester } = self;
        roles.extend(of_process);
        let overview = Overview::new(Parts {
            target: config.target.into(),
            version: env!("CARGO_PKG_VERSION"),
            roles,
            refusals,
            pages,
            ingester,
            clock,
        });
        into.add_ours(|site| overview.router(site));
        let services = Arc::new(ServicesSource { services, clock });
        into.add(|site| services::router(Arc::clone(&services), site));
        let mut drain = drain.clone();
        tasks.spawn(async move {
            let mut looks = tokio::time::interval(LOOK_PERIOD);
            looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                // Both arms only wait.
                tokio::select! {
                    () = drain.started() => return,
                    _ = looks.tick() => {}
                }
                let overview = overview.clone();
                // A look that panicked is the next one's to make.
                let _ = tokio::task::spawn_blocking(move || overview.look()).await;
            }
        });
    }

    pub(super) fn page(&mut self, path: &'static str, shows: &'static str) {
        self.pages.push((path, shows));
    }

    pub(super) fn ingester(
        &mut self,
        ingester: &Arc<Ingester>,
        lifecycler: &Option<LifecyclerHandle>,
    ) {
        let lifecycler = lifecycler.clone();
        for (path, shows) in [
            ("/tenants", "counts of each tenant, the limit in force, headroom, and why"),
            ("/ring", "members of the ring, their states and ranges"),
            ("/ingester/all_user_stats", "series and rates by tenant"),
            ("/services", "what runs in this process, under Cortex's names"),
        ] {
            self.page(path, shows);
        }
        let one = Arc::clone(ingester);
        self.role(move |now| roles::ingester("Ingester", &one, now).at("/tenants"));
        let expired = "what we own is unknown, and limits go by series in memory";
        self.ring("Ring", "/ring", &ingester.ring, expired);
        if let Some(handle) = lifecycler.clone() {
            self.role(move |_| roles::member("Place in the ring", &handle.status()).at("/ring"));
        }
        let one = Arc::clone(ingester);
        self.role(move |_| roles::ownership("Ownership", &one).at("/tenants"));
        let one = Arc::clone(ingester);
        self.role(move |_| roles::instance_limits("Limits of the ingester", &one.instance_use()));
        let one = Arc::clone(ingester);
        self.refuses("Ingester", Some("/tenants"), Some("/tenants/tenant?id="), move |tell| {
            one.tell_refused(tell);
        });
        self.services.push(("ingester-service", services::of_ingester(ingester)));
        self.services.push(("ring", services::of_ring(&ingester.ring)));
        self.ingester = Some(IngesterSource { ingester: Arc::clone(ingester), lifecycler });
    }

    /// What keeps an ingester's samples: the embedded store, or the ingester behind us.
    pub(super) fn behind(
        &mut self,
        store: &Option<Arc<Store>>,
        upstream: &Option<Upstream>,
        followed: &Option<FollowStatus>,
    ) {
        if let Some(store) = store.clone() {
            self.role(move |_| roles::store("Store", store.is_writable()));
        }
        let (Some(upstream), Some(followed)) = (upstream.clone(), followed.clone()) else { return };
        let name = "Ingester behind us";
        let told = upstream.clone();
        self.role(move |_| roles::upstream(name, upstream.is_reachable(), &followed));
        self.refuses("Way to the ingester", None, None, move |tell| told.tell_refused(tell));
    }

    /// What the distributor before us says of itself.
    pub(super) fn settings(&mut self, found: Option<Found>) {
        let Some(found) = found else { return };
        self.role(move |_| roles::settings("Distributor's settings", &found));
    }

    /// Ingesters' ring of a process that sends to it.
    pub(super) fn ingester_ring(&mut self, ring: &Arc<Ring>) {
        self.page("/ring", "the ingesters that writes go to");
        self.ring("Ring", "/ring", ring, "writes go by a ring that is too old");
    }

    /// A ring of gates, and our place in it.
    pub(super) fn member(&mut self, member: Option<&Member>) {
        let Some(member) = member else { return };
        let RingWords { ring, place, page, shows, expired } = ring_words(member.gates());
        self.page(page, shows);
        self.ring(ring, page, member.ring(), expired);
        let handle = member.handle();
        self.role(move |_| roles::member(place, &handle.status()).at(page));
    }

    pub(super) fn distributor(&mut self, distributor: &Arc<Distributor>) {
        let page = clients::path(Gates::Distributors);
        self.page(page, "who of a tenant is at the limit of its budget");
        self.page("/ha-tracker", "elected replicas of HA senders");
        let one = Arc::clone(distributor);
        self.role(move |_| roles::way_on("Writes go to", one.way_on()));
        let one = Arc::clone(distributor);
        self.role(move |_| {
            roles::instance_limits("Limits of the distributor", &one.instance_use())
        });
        let one = Arc::clone(distributor);
        let tenant_page = "/distributor/clients?tenant=";
        self.refuses("Distributor", Some(page), Some(tenant_page), move |tell| {
            one.tell_refused(tell);
        });
        self.services.push(("distributor-service", services::running()));
    }

    pub(super) fn frontend(&mut self, frontend: &Arc<Frontend>) {
        let page = clients::path(Gates::QueryFrontends);
        self.page(page, "who of a tenant is at the limit of its budget of queries");
        let one = Arc::clone(frontend);
        self.role(move |_| roles::cached_answers("Cached answers", one.cached_are_free()));
        let one = Arc::clone(frontend);
        let tenant_page = "/query-frontend/clients?tenant=";
        self.refuses("Query gate", Some(page), Some(tenant_page), move |tell| {
            one.tell_refused(tell);
        });
        self.services.push(("query-frontend", services::running()));
    }

    pub(super) fn downstreams(&mut self, downstreams: &Downstreams) {
        let (shown, told) = (downstreams.clone(), downstreams.clone());
        self.role(move |_| roles::downstreams("Queries go to", shown.well()));
        self.refuses("Way to those who answer", None, None, move |tell| told.tell_refused(tell));
    }

    /// Budgets that are kept over all gates of a ring.
    pub(super) fn budgets(&mut self, budgets: &Option<Budgets>) {
        let Some(budgets) = budgets.clone() else { return };
        let (name, by, page) = match budgets.gates() {
            Gates::Distributors => {
                ("Budgets of writes", "Budgets of writes", clients::path(Gates::Distributors))
            }
            Gates::QueryFrontends => {
                ("Budgets of queries", "Budgets of queries", clients::path(Gates::QueryFrontends))
            }
        };
        let told = budgets.clone();
        self.role(move |_| roles::budgets(name, &budgets).at(page));
        self.refuses(by, Some(page), None, move |tell| told.tell_refused(tell));
    }

    /// What every process has.
    pub(super) fn process(
        &mut self,
        config: &Config,
        reloads: &Option<ReloadStatusReader>,
        certificates: &Certificates,
        room: &Room,
    ) {
        let (shown, told) = (room.clone(), room.clone());
        self.of_process(move |_| {
            let (held, bytes_max) = (shown.bytes_held(), shown.bytes_max());
            roles::under_way("Requests under way", held, bytes_max, shown.waiting())
        });
        self.refuses("Listener", None, None, move |tell| told.tell_refused(tell));
        if let Some(reloads) = reloads.clone() {
            let path = PathBuf::from(&config.runtime_config.file);
            let page = "/runtime_config?mode=diff";
            self.of_process(move |now| {
                let written_s = written_s_ago(&path, now);
                roles::runtime_file("Runtime file", &reloads.get(), written_s).at(page)
            });
        }
        let certificates = certificates.clone();
        if !certificates.standings().is_empty() {
            self.of_process(move |now| {
                let now_s = now.unix_ms / 1000;
                roles::certificates("Certificates", &certificates.standings(), now_s).at("/metrics")
            });
        }
    }

    pub(super) fn gossip(&mut self, view: &GossipView) {
        let view = view.clone();
        self.page("/memberlist", "members, keys and messages of the gossip");
        self.of_process(move |_| roles::gossip("Gossip", &view).at("/memberlist"));
    }

    pub(super) fn front_door(&mut self, door: &Option<Arc<FrontDoor>>) {
        self.page(front_door::PATH, "busiest senders, failures, proven pairs, lists");
        let Some(door) = door.clone() else { return };
        let told = Arc::clone(&door);
        let page = front_door::PATH;
        self.of_process(move |_| roles::front_door("Front door", &door.summary()).at(page));
        let page = Some(front_door::PATH);
        self.refuses("Front door", page, None, move |tell| told.tell_refused(tell));
    }

    fn ring(
        &mut self,
        name: &'static str,
        page: &'static str,
        ring: &Arc<Ring>,
        expired: &'static str,
    ) {
        let ring = Arc::clone(ring);
        self.role(move |now| roles::ring(name, &ring, expired, now).at(page));
    }

    fn role(&mut self, read: impl Fn(Now) -> Role + Send + Sync + 'static) {
        self.roles.push(Arc::new(read));
    }

    fn of_process(&mut self, read: impl Fn(Now) -> Role + Send + Sync + 'static) {
        self.of_process.push(Arc::new(read));
    }

    fn refuses(
        &mut self,
        by: &'static str,
        page: Option<&'static str>,
        tenant_page: Option<&'static str>,
        tell: impl Fn(&mut dyn FnMut(RefusedCount<'_>)) + Send + Sync + 'static,
    ) {
        self.refusals.push(RefusalSource { by, page, tenant_page, tell: Arc::new(tell) });
    }
}

/// How long ago the file was written; `None` where that cannot be told.
fn written_s_ago(path: &std::path::Path, now: Now) -> Option<u64> {
    let written = std::fs::metadata(path).and_then(|file| file.modified()).ok()?;
    let since_epoch = written.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    let now_s = u64::try_from(now.unix_ms / 1000).ok()?;
    Some(now_s.saturating_sub(since_epoch.as_secs()))
}
