//! One member: its ranges of keys, who is next to it, and where writes to its keys go.
//!
//! Ranges are those of its circuit (its zone's tokens with zone awareness), so that they sum to
//! its share; walks are those of the whole ring, as writes make them.

use std::collections::BTreeMap;

use askama::Template;
use axum::extract::{Query, State};
use axum::http::HeaderMap;
use axum::response::Response;
use serde::{Deserialize, Serialize};

use super::super::answer;
use super::super::site::Frame;
use super::RingPages;
use super::entry::Entry;
use crate::ring::neighbours::{self, Inheritance, OwnStretch, WriteSets};
use crate::ring::shares::{Circuit, Shares};
use crate::ring::{MemberIndex, RingSnapshot, Token};

/// Ranges to a page.
const RANGES_PER_PAGE: usize = 100;
/// Others listed in each table, those first with whom the member has most to do. The rest is
/// counted.
const OTHERS_MAX: usize = 25;
/// Tokens that are walked from: all of a member with eight times the usual number. Beyond it each
/// second or third, so that a member that claims a million does not hold up the page.
const WALKS_MAX: usize = 4_096;

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct MemberQuery {
    id: Option<String>,
    page: String,
    format: String,
}

#[derive(Serialize, Template)]
#[template(path = "ring_member.html", config = "src/admin/askama.toml")]
pub(super) struct MemberPage {
    #[serde(skip)]
    frame: Frame,
    #[serde(skip)]
    last_part: &'static str,
    #[serde(flatten)]
    entry: Entry,
    zone_awareness: bool,
    replication_factor: usize,
    /// Members with tokens, itself included, among which its share is meant to be divided.
    sharers: u32,
    /// Tokens that a member with a greater id claims too, and has.
    tokens_lost: usize,
    /// Part of all keys whose writes go to it, replicas included.
    replicated_percent: f64,
    neighbours: Vec<Neighbour>,
    #[serde(skip)]
    neighbours_left_out: usize,
    writes: Writes,
    ranges_total: usize,
    page: usize,
    pages: usize,
    /// Widest first.
    ranges: Vec<Range>,
    #[serde(skip)]
    can_forget: bool,
}

/// Keys, both ends included; a range may go on over key 0.
#[derive(Serialize)]
struct Range {
    first: u32,
    last: u32,
    keys: u64,
    percent: f64,
    /// Who takes it when the member leaves.
    heir: Option<String>,
}

#[derive(Serialize)]
pub(super) struct Neighbour {
    pub(super) id: String,
    /// Of all keys: what it takes when the member leaves.
    pub(super) takes_percent: f64,
    /// Of all keys: what the member takes when it leaves.
    gives_percent: f64,
}

#[derive(Serialize)]
struct Writes {
    walks: usize,
    /// One of so many tokens was walked from.
    every: usize,
    /// How many walks gave so many members.
    set_sizes: BTreeMap<usize, usize>,
    /// Walks whose members are too few for a write now.
    too_few_live: usize,
    partners: Vec<Partner>,
    #[serde(skip)]
    partners_left_out: usize,
}

#[derive(Serialize)]
struct Partner {
    id: String,
    zone: String,
    walks: usize,
    percent: f64,
}

pub(super) async fn show(
    State(pages): State<RingPages>,
    Query(query): Query<MemberQuery>,
    headers: HeaderMap,
) -> Response {
    let json = answer::wants_json(&headers) || query.format == "json";
    let Some(id) = query.id else {
        return unnamed();
    };
    let page = query.page.parse().unwrap_or(1);
    answer::made(pages.site.permits(), move || match MemberPage::new(&pages, &id, page) {
        Some(page) => answer::either(json, &page),
        None => unknown(&id),
    })
    .await
}

pub(super) fn unnamed() -> Response {
    answer::error(400, "name the member: ?id=")
}

/// The answer about a member that is not there.
pub(super) fn unknown(id: &str) -> Response {
    answer::error(404, &format!("the ring has no member {id:?}"))
}

impl MemberPage {
    /// `None` without a member of that id; `page` counts from 1.
    pub(super) fn new(pages: &RingPages, id: &str, page: usize) -> Option<Self> {
        let snapshot = pages.source.ring.load();
        let member = snapshot.member_index(id)?;
        let shares = Shares::of(&snapshot);
        let circuit = shares.circuit_of(member);
        let mut ranges = circuit.stretches_of(member);
        // Stable, so that equal widths stay in the order of their keys.
        ranges.sort_by_key(|own| std::cmp::Reverse(own.stretch.width));
        let pages_len = ranges.len().div_ceil(RANGES_PER_PAGE).max(1);
        let page = page.clamp(1, pages_len);
        let on_page = ranges.iter().skip((page - 1) * RANGES_PER_PAGE).take(RANGES_PER_PAGE);
        let (neighbours, neighbours_left_out) = neighbours(&snapshot, circuit, member);
        let op = snapshot.settings().write_operation();
        let now_ms = pages.source.clock.now().unix_ms;
        Some(Self {
            frame: pages.site.frame(pages.path),
            last_part: pages.last_part(),
            entry: Entry::new(&snapshot, &shares, member, now_ms),
            zone_awareness: snapshot.settings().zone_awareness_enabled,
            replication_factor: snapshot.settings().replication_factor,
            sharers: shares.sharers_with(member),
            tokens_lost: tokens_lost(&snapshot, member),
            replicated_percent: neighbours::replicated_share(&snapshot, member, op) * 100.0,
            neighbours,
            neighbours_left_out,
            writes: Writes::new(&snapshot, neighbours::write_sets(&snapshot, member, WALKS_MAX)),
            ranges_total: ranges.len(),
            page,
            pages: pages_len,
            ranges: on_page.map(|own| Range::new(&snapshot, own)).collect(),
            can_forget: pages.source.lifecycler.is_some(),
        })
    }

    fn previous(&self) -> Option<String> {
        (self.page > 1).then(|| self.at(self.page - 1))
    }

    fn next(&self) -> Option<String> {
        (self.page < self.pages).then(|| self.at(self.page + 1))
    }

    fn at(&self, page: usize) -> String {
        format!("?id={}&page={page}", self.entry.parameter())
    }
}

/// Those who take most of the member's keys first, and how many are not listed.
pub(super) fn neighbours(
    snapshot: &RingSnapshot,
    circuit: &Circuit,
    member: MemberIndex,
) -> (Vec<Neighbour>, usize) {
    let mut found: Vec<_> = circuit.neighbours_of(member).into_iter().collect();
    found.sort_by_key(|(_, passed)| std::cmp::Reverse((passed.given, passed.taken)));
    let neighbour = |&(other, passed): &(MemberIndex, Inheritance)| Neighbour {
        id: id(snapshot, other),
        takes_percent: neighbours::part(passed.given) * 100.0,
        gives_percent: neighbours::part(passed.taken) * 100.0,
    };
    let shown = found.iter().take(OTHERS_MAX).map(neighbour).collect();
    (shown, found.len().saturating_sub(OTHERS_MAX))
}

fn tokens_lost(snapshot: &RingSnapshot, member: MemberIndex) -> usize {
    let contested = snapshot.circle().contested();
    let is_lost = |token: &&Token| {
        let found = contested.binary_search_by_key(*token, |(contested, _)| *contested);
        found.is_ok_and(|at| contested[at].1 != member)
    };
    snapshot.tokens_of(member).iter().filter(is_lost).count()
}

fn id(snapshot: &RingSnapshot, member: MemberIndex) -> String {
    snapshot.members()[member.index()].id.to_string()
}

impl Range {
    fn new(snapshot: &RingSnapshot, own: &OwnStretch) -> Self {
        let stretch = own.stretch;
        Self {
            first: stretch.start.0,
            last: stretch.end.0.wrapping_sub(1),
            keys: stretch.width,
            percent: neighbours::part(stretch.width) * 100.0,
            heir: own.heir.map(|heir| id(snapshot, heir)),
        }
    }

    fn goes_over_zero(&self) -> bool {
        self.first > self.last
    }
}

impl Neighbour {
    pub(super) fn parameter(&self) -> String {
        answer::in_query(&self.id)
    }
}

impl Writes {
    fn new(snapshot: &RingSnapshot, sets: WriteSets) -> Self {
        let partner = |&(member, walks): &(MemberIndex, usize)| Partner {
            id: id(snapshot, member),
            zone: snapshot.members()[member.index()].zone.to_string(),
            walks,
            percent: walks as f64 / sets.walks.max(1) as f64 * 100.0,
        };
        Self {
            walks: sets.walks,
            every: sets.every,
            too_few_live: sets.too_few_live,
            partners: sets.partners.iter().take(OTHERS_MAX).map(partner).collect(),
            partners_left_out: sets.partners.len().saturating_sub(OTHERS_MAX),
            set_sizes: sets.by_len,
        }
    }
}

impl Partner {
    fn parameter(&self) -> String {
        answer::in_query(&self.id)
    }
}
