//! What each part of a process says of itself, made from what its room shows.
//!
//! Each says what is so, and where it is not well, what follows from that: an operator who reads
//! one line at night has to know whether to get up.

use super::role::{Role, lasting};
use super::words;
use crate::clients::gate::POLICIES;
use crate::clients::peers::Budgets;
use crate::clock::Now;
use crate::distributor::WayOn;
use crate::exposition::Used;
use crate::front_door::view::FrontDoorSummary;
use crate::frontend::CachedAreFree;
use crate::ingester::Ingester;
use crate::ingester::following::FollowStatus;
use crate::ingester::settings_check::Found;
use crate::limits::reload::ReloadStatus;
use crate::ring::kv::memberlist::gossiping::GossipView;
use crate::ring::lifecycler::Status;
use crate::ring::model::InstanceState;
use crate::ring::{OwnView, Ring, RingStatus};
use crate::tls::Standing;

/// Of a limit of the instance that is used more than this, somebody should know.
const NEAR: f64 = 0.8;
/// A certificate that ends within two weeks is to be looked at, as the alert says.
const CERTIFICATE_ENDS_SOON_S: i64 = 14 * 86_400;
/// Gates that a sentence names; the page of clients has them all.
const NAMED_MAX: usize = 5;

/// A ring that is followed; `expired` is what it comes to when it could not be read for too long.
pub fn ring(name: &'static str, ring: &Ring, expired: &str, now: Now) -> Role {
    let (members, healthy) = {
        let snapshot = ring.load();
        (snapshot.members().len(), snapshot.healthy_count())
    };
    let for_s = |since_ms: i64| seconds(now.unix_ms.saturating_sub(since_ms));
    match ring.status(now.unix_ms) {
        RingStatus::Unread(None) => Role::warn(name, "not read yet"),
        RingStatus::Unread(Some(failing)) => Role::bad(
            name,
            format!("not read since the start, {} ago: {}", for_s(failing.since_ms), failing.error),
        ),
        RingStatus::Fresh => {
            let age = seconds(ring.age_ms(now.unix_ms));
            let says = format!("read {age} ago; {healthy} of {members} members ACTIVE and healthy");
            match healthy {
                0 => Role::bad(name, says),
                healthy if healthy < members => Role::warn(name, says),
                _ => Role::good(name, says),
            }
        }
        RingStatus::Stale(failing) => Role::warn(
            name,
            format!(
                "not read for {}, the last good one is in force ({healthy} of {members} members): {}",
                for_s(failing.since_ms),
                failing.error
            ),
        ),
        RingStatus::Expired(failing) => Role::bad(
            name,
            format!("not read for {}, {expired}: {}", for_s(failing.since_ms), failing.error),
        ),
    }
}

/// Our own part in a ring.
pub fn member(name: &'static str, status: &Status) -> Role {
    let Status { id, state, tokens_count, readiness, .. } = status;
    if let Err(reason) = readiness {
        return Role::warn(name, format!("{id}, {state}, not ready: {reason}"));
    }
    let says = format!("{id}, {state}, {tokens_count} tokens");
    match state {
        InstanceState::Active => Role::good(name, says),
        InstanceState::ReadOnly => {
            Role::warn(name, format!("{says}: who writes by the ring goes elsewhere"))
        }
        InstanceState::Leaving
        | InstanceState::Pending
        | InstanceState::Joining
        | InstanceState::Left => Role::warn(name, says),
    }
}

/// Whether pushes are taken, and what their limits go by.
pub fn ingester(name: &'static str, ingester: &Ingester, now: Now) -> Role {
    let series = ingester.totals.count();
    let tenants = ingester.tenants.len();
    let counts = format!(
        "{} series in memory, {} owned, of {tenants} tenants",
        series.in_memory, series.owned
    );
    if ingester.is_stopped() {
        return Role::warn(name, format!("stopping; {counts}"));
    }
    if !ingester.is_running() {
        return Role::warn(name, "starting: the series that there were are being counted again");
    }
    if !ingester.is_counted() {
        let loading = "loading: limits go by what is known so far, and by what the ingester behind \
                       us said at the start";
        return Role::warn(name, format!("{loading}; {counts}"));
    }
    let basis = words::basis(ingester.basis());
    let mut says = format!("takes pushes; {counts}; limits act on the {basis} count");
    if ingester.is_active_count_loading(now) {
        says.push_str("; active counts are still filling up after the start");
    }
    Role::good(name, says)
}

/// Which keys are ours, or why that is not known.
pub fn ownership(name: &'static str, ingester: &Ingester) -> Role {
    let enforces = ingester.config.owned_series_limit_enforcement_enabled;
    let comes_to = match enforces {
        true => "limits act on the in-memory count until it is known",
        false => "limits act on the in-memory count anyway",
    };
    if ingester.recounts.is_mismatch() {
        let cure = "compare replication factor, zones, sharding and extend-writes with the \
                    distributors'";
        let says = format!("series arrive that the ring does not assign to us: {cure}; {comes_to}");
        return Role::bad(name, says);
    }
    match ingester.ring.load().own() {
        OwnView::Known(owned) => {
            Role::good(name, format!("known: {:.2} % of all keys are ours", owned.share * 100.0))
        }
        OwnView::Unknown(reason) if enforces => {
            Role::bad(name, format!("unknown: {reason}; {comes_to}"))
        }
        OwnView::Unknown(reason) => Role::warn(name, format!("unknown: {reason}; {comes_to}")),
    }
}

/// How near the instance is to what it may bear.
pub fn instance_limits(name: &'static str, uses: &[Used]) -> Role {
    let limited: Vec<_> = uses.iter().filter(|one| one.max > 0.0).collect();
    let share = |one: &Used| one.used / one.max;
    let Some(worst) = limited.iter().copied().max_by(|a, b| share(a).total_cmp(&share(b))) else {
        return Role::good(name, "none is set");
    };
    let listed: Vec<String> = limited
        .iter()
        .map(|one| format!("{} {:.0} of {:.0}", one.limit, one.used, one.max))
        .collect();
    let says = listed.join("; ");
    match share(worst) {
        full if full >= 1.0 => {
            Role::bad(name, format!("{} is reached, for whoever comes: {says}", worst.limit))
        }
        near if near >= NEAR => Role::warn(name, says),
        _ => Role::good(name, says),
    }
}

pub fn store(name: &'static str, is_writable: bool) -> Role {
    match is_writable {
        true => Role::good(name, "takes writes"),
        false => Role::bad(name, "takes no writes: look at the log, and at the disk"),
    }
}

/// The ingester that we stand before, and what is known of its series.
pub fn upstream(name: &'static str, is_reachable: bool, followed: &FollowStatus) -> Role {
    if !is_reachable {
        return Role::bad(name, "cannot be reached: pushes are answered with an error");
    }
    if let Err(reason) = followed.readiness() {
        return Role::warn(name, format!("reached; {reason}"));
    }
    match followed.is_reached() {
        true => Role::good(name, "reached; its series are known"),
        false => Role::warn(name, "reached; its last poll of series was not answered"),
    }
}

/// Whether the distributor places series as we believe.
pub fn settings(name: &'static str, found: &Found) -> Role {
    let differences = found.differences();
    if !differences.is_empty() {
        let listed: Vec<_> = differences
            .iter()
            .map(|one| format!("{} is {} here and {} there", one.setting, one.ours, one.theirs))
            .collect();
        let says =
            format!("they differ, so series go elsewhere than we believe: {}", listed.join("; "));
        return Role::bad(name, says);
    }
    match found.is_failing() {
        true => Role::warn(name, "cannot be read now; they agreed when they could"),
        false => Role::good(name, "agree with ours where series are placed"),
    }
}

/// Budgets over all gates: whether their owners are in reach.
pub fn budgets(name: &'static str, budgets: &Budgets) -> Role {
    let (peers, counts) = (budgets.peers(), budgets.counts());
    let kept = format!(
        "{} budgets are owed of here, {} credits of others' leased",
        counts.owner.accounts, counts.held
    );
    let down: Vec<&str> = peers.iter().filter(|peer| !peer.is_up).map(|peer| &*peer.id).collect();
    if down.is_empty() {
        let says = match peers.len() {
            0 => format!("no other gate in the ring; {kept}"),
            others => format!("all {others} other gates answer; {kept}"),
        };
        return Role::good(name, says);
    }
    let lost = budgets.settings().owner_lost;
    let policy = POLICIES.iter().find(|(policy, _)| *policy == lost).map_or("", |(_, name)| name);
    let says = format!(
        "{} of {} other gates do not answer: {}; budgets they keep go by \
         -client-identity.owner-lost={policy}; {kept}",
        down.len(),
        peers.len(),
        named(&down)
    );
    match down.len() == peers.len() {
        true => Role::bad(name, says),
        false => Role::warn(name, says),
    }
}

/// Where a gate's admitted writes go.
pub fn way_on(name: &'static str, way_on: WayOn) -> Role {
    match way_on {
        WayOn::Here => Role::good(name, "the ingester of this process"),
        WayOn::Ring { clients } => {
            Role::good(name, format!("the ring's ingesters; ways to {clients} of them are open"))
        }
        WayOn::Upstream { is_reachable: true } => Role::good(name, "reached"),
        WayOn::Upstream { is_reachable: false } => {
            Role::bad(name, "cannot be reached: writes are answered 503, and senders try again")
        }
    }
}

/// Those who answer queries; `well` of `all` of their addresses.
pub fn downstreams(name: &'static str, (well, all): (usize, usize)) -> Role {
    let says = format!("{well} of {all} addresses are well");
    match well {
        0 => Role::bad(name, format!("{says}: queries are answered 503")),
        well if well < all => Role::warn(name, says),
        _ => Role::good(name, says),
    }
}

/// Whether answers from a results cache cost clients nothing.
pub fn cached_answers(name: &'static str, cached: CachedAreFree) -> Role {
    match cached {
        CachedAreFree::Configured { free: true } => Role::good(name, "free, as it is configured"),
        CachedAreFree::Configured { free: false } => {
            Role::good(name, "charged like others, as it is configured")
        }
        CachedAreFree::Proved => Role::good(name, "free: canaries show that they are told apart"),
        CachedAreFree::Unproved => Role::warn(
            name,
            "charged like others: no canary has come back yet (-frontend.canary-tenant)",
        ),
        CachedAreFree::Disproved => Role::warn(
            name,
            "charged like others: those behind us do not tell which answers were cached",
        ),
    }
}

/// The runtime file; `written_s` is how long ago it was written, where that is known.
pub fn runtime_file(name: &'static str, status: &ReloadStatus, written_s: Option<u64>) -> Role {
    let written = written_s.map(|age| format!(", written {} ago", lasting(age)));
    let written = written.unwrap_or_default();
    if let Some(failure) = &status.failure {
        let says = format!("the file in place cannot be used, the last good one stays: {failure}");
        return Role::bad(name, says);
    }
    match status.warnings {
        0 => Role::good(name, format!("in force{written}")),
        warnings => {
            Role::warn(name, format!("in force{written}; {warnings} warnings, the log has them"))
        }
    }
}

/// Certificates: whether those in place are used, and when the first of them ends.
pub fn certificates(name: &'static str, sides: &[Standing], now_s: i64) -> Role {
    let mut failing = Vec::new();
    let mut ending: Vec<(i64, &str)> = Vec::new();
    for Standing { name: side, failure, expires_s } in sides {
        failing.extend(failure.as_ref().map(|why| format!("{side}: {why}")));
        ending.extend(expires_s.map(|end_s| (end_s.saturating_sub(now_s), *side)));
    }
    ending.sort_unstable();
    let soon = ending.iter().filter(|(left_s, _)| *left_s < CERTIFICATE_ENDS_SOON_S);
    let mut says: Vec<String> = soon.map(|(left_s, side)| ends(side, *left_s)).collect();
    if !failing.is_empty() {
        let failing = failing.join("; ");
        says.push(format!("the files in place cannot be used, the old ones stay: {failing}"));
    }
    let has_ended = ending.first().is_some_and(|(left_s, _)| *left_s <= 0);
    match (says.is_empty(), has_ended) {
        (false, true) => Role::bad(name, says.join("; ")),
        (false, false) => Role::warn(name, says.join("; ")),
        (true, _) => {
            let names: Vec<_> = sides.iter().map(|side| side.name).collect();
            let first =
                ending.first().map(|(left_s, side)| format!("; first {}", ends(side, *left_s)));
            Role::good(name, format!("in force: {}{}", names.join(", "), first.unwrap_or_default()))
        }
    }
}

fn ends(side: &str, left_s: i64) -> String {
    match u64::try_from(left_s) {
        Ok(left_s) if left_s > 0 => format!("{side} ends in {}", lasting(left_s)),
        _ => {
            format!("{side} ended {} ago, so nobody connects by it", lasting(left_s.unsigned_abs()))
        }
    }
}

pub fn gossip(name: &'static str, view: &GossipView) -> Role {
    if let Some(why) = view.loneliness() {
        return Role::warn(name, why);
    }
    let (members, score) = (view.peers().len(), view.health_score());
    let says = format!("{members} members known");
    match score {
        0 => Role::good(name, says),
        score => Role::warn(name, format!("{says}; our own answers are late (score {score})")),
    }
}

pub fn front_door(name: &'static str, summary: &FrontDoorSummary) -> Role {
    let FrontDoorSummary { limiters, in_shadow, evicted_in_debt, is_full } = summary;
    let shadow = match in_shadow {
        0 => String::new(),
        in_shadow => format!(", {in_shadow} of them in shadow"),
    };
    let says = format!("{limiters} limiters on{shadow}");
    match (evicted_in_debt, is_full) {
        (1.., true) => Role::warn(
            name,
            format!("{says}; a table is full, and {evicted_in_debt} entries that owed had to go"),
        ),
        _ => Role::good(name, says),
    }
}

/// Bytes of requests under way, and requests that wait for room.
pub fn under_way(name: &'static str, bytes: usize, bytes_max: usize, waiting: usize) -> Role {
    let says = format!("{} of {} MiB", bytes >> 20, bytes_max >> 20);
    match waiting {
        0 => Role::good(name, says),
        waiting => Role::warn(name, format!("{says}; {waiting} requests wait for room")),
    }
}

fn seconds(ms: i64) -> String {
    lasting(ms.max(0).unsigned_abs() / 1000)
}

/// The first of them, and how many more there are.
fn named(names: &[&str]) -> String {
    let mut text = names[..names.len().min(NAMED_MAX)].join(", ");
    if let Some(more @ 1..) = names.len().checked_sub(NAMED_MAX) {
        text.push_str(&format!(" and {more} more"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::overview::role::State;
    use crate::ring::RingSettings;

    fn now(s: i64) -> Now {
        Now { unix_ms: s * 1000, steady_ns: s * 1_000_000_000 }
    }

    #[test]
    fn limits_of_the_instance_warn_when_near_and_are_bad_when_reached() {
        let check = |used: f64, max: f64, state: State| {
            let other = Used { limit: "max_tenants", used: 1.0, max: 100.0 };
            let role = instance_limits("Limits", &[Used { limit: "max_series", used, max }, other]);
            assert_eq!(role.state, state, "{used} of {max}: {}", role.says);
        };
        check(79.0, 100.0, State::Good);
        check(80.0, 100.0, State::Warn);
        check(99.0, 100.0, State::Warn);
        check(100.0, 100.0, State::Bad);
        check(1e9, 0.0, State::Good);
        assert_eq!(instance_limits("Limits", &[]).says, "none is set");
    }

    #[test]
    fn certificates_are_told_before_they_end_and_when_files_cannot_be_used() {
        const DAY: i64 = 86_400;
        let check = |sides: &[(&'static str, Option<&str>, Option<i64>)], state, says: &str| {
            let sides: Vec<_> = sides
                .iter()
                .map(|(name, failure, expires_s)| Standing {
                    name,
                    failure: failure.map(str::to_owned),
                    expires_s: *expires_s,
                })
                .collect();
            let role = certificates("Certificates", &sides, 1000 * DAY);
            assert_eq!((role.state, role.says.as_str()), (state, says));
        };
        let far = ("server_http", None, Some(1090 * DAY));
        check(
            &[far, ("upstream", None, None)],
            State::Good,
            "in force: server_http, upstream; first server_http ends in 90 d 0 h",
        );
        check(&[("upstream", None, None)], State::Good, "in force: upstream");
        check(
            &[far, ("server_grpc", None, Some(1014 * DAY))],
            State::Good,
            "in force: \
               server_http, server_grpc; first server_grpc ends in 14 d 0 h",
        );
        let soon = ("server_grpc", None, Some(1013 * DAY));
        check(&[far, soon], State::Warn, "server_grpc ends in 13 d 0 h");
        let failing = ("server_http", Some("no key"), Some(1090 * DAY));
        check(
            &[failing, soon],
            State::Warn,
            "server_grpc ends in 13 d 0 h; the files in place cannot be used, the old ones stay: \
             server_http: no key",
        );
        let over = ("server_grpc", None, Some(1000 * DAY - 3600));
        check(&[over], State::Bad, "server_grpc ended 1 h 0 min ago, so nobody connects by it");
    }

    #[test]
    fn a_ring_that_was_never_read_says_so_and_why() {
        let settings = RingSettings {
            replication_factor: 3,
            zone_awareness_enabled: false,
            heartbeat_timeout_ms: 60_000,
            extend_writes: true,
            own_id: None,
        };
        let read = Ring::new(settings, 600_000);
        assert_eq!(ring("Ring", &read, "expired", now(10)).state, State::Warn);
        read.read_failed(10_000, "connection refused");
        let role = ring("Ring", &read, "expired", now(75));
        assert_eq!(role.state, State::Bad);
        assert_eq!(role.says, "not read since the start, 1 min 5 s ago: connection refused");
    }

    #[test]
    fn a_runtime_file_that_cannot_be_used_is_bad_and_its_age_is_told() {
        let mut status = ReloadStatus { last_successful: true, ..ReloadStatus::default() };
        let role = runtime_file("Runtime file", &status, Some(7200));
        assert_eq!(
            (role.state, role.says.as_str()),
            (State::Good, "in force, written 2 h 0 min ago")
        );
        status.warnings = 2;
        assert_eq!(runtime_file("Runtime file", &status, None).state, State::Warn);
        status.failure = Some("not UTF-8".to_owned());
        let role = runtime_file("Runtime file", &status, None);
        assert!(
            role.state == State::Bad && role.says.ends_with("stays: not UTF-8"),
            "{}",
            role.says
        );
    }

    #[test]
    fn long_lists_are_cut_and_counted() {
        assert_eq!(named(&["a", "b"]), "a, b");
        assert_eq!(named(&["a", "b", "c", "d", "e"]), "a, b, c, d, e");
        assert_eq!(named(&["a", "b", "c", "d", "e", "f", "g"]), "a, b, c, d, e and 2 more");
    }

    #[test]
    fn nobody_behind_us_is_worse_than_one_of_two() {
        let state = |well| downstreams("Behind", well).state;
        assert_eq!(
            [state((0, 2)), state((1, 2)), state((2, 2))],
            [State::Bad, State::Warn, State::Good]
        );
        let reached = |is_reachable| way_on("Behind", WayOn::Upstream { is_reachable }).state;
        assert_eq!([reached(true), reached(false)], [State::Good, State::Bad]);
        assert_eq!(cached_answers("Cached", CachedAreFree::Disproved).state, State::Warn);
    }
}
