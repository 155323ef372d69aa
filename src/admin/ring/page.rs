//! The ring's page: drawn, by zone, and member by member.
//!
//! Members that need somebody come first, then those farthest from their expected share. What is
//! listed is bounded; JSON in Cortex's form names all members and tokens.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use askama::Template;
use serde::Serialize;

use super::super::answer;
use super::super::overview::words;
use super::super::site::Frame;
use super::RingPages;
use super::drawing::{Drawing, Mark, Order};
use super::entry::Entry;
use crate::go_text::Rfc3339Ms;
use crate::ring::shares::{self, Shares};
use crate::ring::{MemberIndex, RingSnapshot};

/// Members listed. A ring of this size is read by searching it; each row takes a kilobyte.
const MEMBERS_SHOWN_MAX: usize = 1_000;
/// Zones listed: clusters have three, and a broken one may have a zone per member.
const ZONES_SHOWN_MAX: usize = 50;
/// Tokens listed: some 200 KiB. Those of one member are on its page, all of them in the JSON.
const TOKENS_SHOWN_MAX: usize = 20_000;

/// What of the ring is asked for.
pub(super) struct Shown {
    pub(super) order: Option<Order>,
    pub(super) find: String,
    pub(super) tokens: bool,
}

#[derive(Serialize, Template)]
#[template(path = "ring.html", config = "src/admin/askama.toml")]
pub(super) struct RingPage {
    #[serde(skip)]
    frame: Frame,
    #[serde(skip)]
    title: &'static str,
    #[serde(skip)]
    last_part: &'static str,
    /// How far the ring in force can be trusted.
    status: String,
    read: String,
    now: String,
    replication_factor: usize,
    zone_awareness: bool,
    /// ACTIVE, and with a fresh heartbeat.
    healthy: usize,
    all: Counts,
    zones: Vec<Counts>,
    #[serde(skip)]
    zones_left_out: usize,
    drawing: Drawing,
    /// Members that match what is looked for, whether or not they are listed.
    matching: usize,
    members: Vec<Entry>,
    #[serde(skip)]
    find: String,
    #[serde(skip)]
    can_forget: bool,
    #[serde(skip)]
    has_own_pages: bool,
    #[serde(skip)]
    token_lists: Option<TokenLists>,
}

/// The members of the ring, or of one of its zones.
#[derive(Default, Serialize)]
struct Counts {
    zone: String,
    members: usize,
    tokens: usize,
    /// By the state that is shown: who is unhealthy is in none of the others.
    states: BTreeMap<&'static str, usize>,
    /// Of shares: actual by expected.
    evenness: Option<Evenness>,
    #[serde(skip)]
    ratios: Vec<f64>,
}

#[derive(Clone, Copy, Serialize)]
struct Evenness {
    least: f64,
    most: f64,
    standard_deviation: f64,
}

struct TokenLists {
    lists: Vec<TokenList>,
    left_out: usize,
}

struct TokenList {
    id: String,
    tokens: Vec<u32>,
}

impl RingPage {
    pub(super) fn new(pages: &RingPages, shown: Shown) -> Self {
        let now_ms = pages.source.clock.now().unix_ms;
        let snapshot = pages.source.ring.load();
        let shares = Shares::of(&snapshot);
        let indices = (0..snapshot.members().len() as u32).map(MemberIndex);
        let entries: Vec<Entry> =
            indices.map(|index| Entry::new(&snapshot, &shares, index, now_ms)).collect();
        let (all, mut zones) = counts(&snapshot, &entries);
        let zones_left_out = zones.len().saturating_sub(ZONES_SHOWN_MAX);
        zones.truncate(ZONES_SHOWN_MAX);
        let mut members: Vec<Entry> =
            entries.into_iter().filter(|entry| entry.contains(&shown.find)).collect();
        members.sort_by(worse_first);
        let matching = members.len();
        members.truncate(MEMBERS_SHOWN_MAX);
        Self {
            frame: pages.site.frame(pages.path),
            title: pages.whose.title(),
            last_part: pages.last_part(),
            status: words::ring_status(&pages.source.ring.status(now_ms)),
            read: match snapshot.read_at_ms() {
                0 => "never".to_owned(),
                read_at_ms => Rfc3339Ms(read_at_ms).to_string(),
            },
            now: Rfc3339Ms(now_ms).to_string(),
            replication_factor: snapshot.settings().replication_factor,
            zone_awareness: snapshot.settings().zone_awareness_enabled,
            healthy: snapshot.healthy_count(),
            all,
            zones,
            zones_left_out,
            drawing: Drawing::new(&snapshot, &shares, shown.order),
            matching,
            token_lists: shown.tokens.then(|| TokenLists::new(&snapshot, &members)),
            members,
            find: shown.find,
            can_forget: pages.source.lifecycler.is_some(),
            has_own_pages: pages.has_own_pages(),
        }
    }

    /// The states that somebody is in, ACTIVE first.
    fn states(&self) -> impl Iterator<Item = &'static str> {
        self.all.states.keys().copied()
    }

    /// How members that are not ACTIVE are marked, as far as there are any.
    fn marks(&self) -> impl Iterator<Item = (Mark, usize)> {
        let marks = Mark::ALL.into_iter().map(|mark| (mark, self.all.of(mark.state)));
        marks.filter(|(_, members)| *members > 0)
    }

    /// This page with one of its parameters changed and the rest kept.
    fn with(&self, name: &str, value: &str) -> String {
        let tokens = if self.token_lists.is_some() { "true" } else { "" };
        let draw = if self.drawing.is_by_keys() { "keys" } else { "members" };
        let pairs = [("find", &*self.find), ("tokens", tokens), ("draw", draw)];
        let pairs = pairs.map(|(have, kept)| (have, if have == name { value } else { kept }));
        let texts = pairs.iter().filter(|(_, value)| !value.is_empty());
        let texts: Vec<_> =
            texts.map(|(name, value)| format!("{name}={}", answer::in_query(value))).collect();
        format!("?{}", texts.join("&"))
    }
}

/// The whole ring, and each of its zones in the order of their names.
fn counts(snapshot: &RingSnapshot, entries: &[Entry]) -> (Counts, Vec<Counts>) {
    let named = |zone: &Arc<str>| Counts { zone: zone.to_string(), ..Counts::default() };
    let mut zones: Vec<Counts> = snapshot.zones().iter().map(named).collect();
    let mut all = Counts::default();
    for entry in entries {
        let zone = snapshot.layout().seating(entry.index).zone as usize;
        all.add(entry);
        zones[zone].add(entry);
    }
    for counts in zones.iter_mut().chain([&mut all]) {
        counts.compare();
    }
    (all, zones)
}

/// Who needs somebody first, then who is farthest from its expected share; ids decide the rest,
/// since members come in their order.
fn worse_first(one: &Entry, other: &Entry) -> Ordering {
    let distance = |entry: &Entry| entry.share.ratio.map_or(1.0, |ratio| (ratio - 1.0).abs());
    one.is_fit().cmp(&other.is_fit()).then(distance(other).total_cmp(&distance(one)))
}

impl Counts {
    fn add(&mut self, entry: &Entry) {
        self.members += 1;
        self.tokens += entry.tokens;
        *self.states.entry(entry.shown_state).or_default() += 1;
        self.ratios.extend(entry.share.ratio);
    }

    fn compare(&mut self) {
        let evenness = shares::Evenness::of(self.ratios.iter().copied());
        self.evenness = evenness.map(|evenness| Evenness {
            least: evenness.least,
            most: evenness.most,
            standard_deviation: evenness.deviation,
        });
    }

    fn of(&self, state: &str) -> usize {
        self.states.get(state).copied().unwrap_or_default()
    }

    fn name(&self) -> &str {
        if self.zone.is_empty() { "no zone" } else { &self.zone }
    }
}

impl TokenLists {
    fn new(snapshot: &RingSnapshot, members: &[Entry]) -> Self {
        let mut room = TOKENS_SHOWN_MAX;
        let mut lists = Self { lists: Vec::new(), left_out: 0 };
        for member in members {
            let tokens = snapshot.tokens_of(member.index);
            let shown = tokens.len().min(room);
            room -= shown;
            lists.left_out += tokens.len() - shown;
            if shown > 0 {
                let tokens = tokens[..shown].iter().map(|token| token.0).collect();
                lists.lists.push(TokenList { id: member.id.clone(), tokens });
            }
        }
        lists
    }
}
