//! The circle as a drawing of bounded size, whatever the number of tokens.
//!
//! A circle is cut into [`STEPS`] steps, each in the colour of the member that has most of its
//! keys ([`crate::ring::steps`]). Where the keys lie is worth seeing while a step is mostly one
//! member's. With hundreds of thousands of tokens it is noise: then each member has one arc, as
//! wide as its share, in the order of ids. Either way the drawing says for how many of the keys
//! its colours are true.

use std::collections::BTreeMap;
use std::f64::consts::TAU;

use serde::Serialize;

use super::{UNHEALTHY, shown_state};
use crate::ring::shares::{Circuit, Shares};
use crate::ring::steps::{Sector, Step, held_share, sectors, steps};
use crate::ring::{Member, MemberIndex, RingSnapshot};

/// Half a degree each: less than three pixels at the size that pages have.
const STEPS: u32 = 720;
/// Circles drawn inside one another, one per zone; a seventh would leave none of them the width
/// to be seen. Zones beyond are left out, which the page says.
const CIRCLES_MAX: usize = 6;
/// Part of the keys for which the colours must be true where nobody asks for one of the orders.
const TRUE_ENOUGH: f64 = 0.5;

/// Middle of the drawing, whose sides are twice as long.
const CENTRE: f64 = 200.0;
const OUTER_RADIUS: f64 = 196.0;
/// Inside is the text.
const INNER_RADIUS: f64 = 72.0;
/// What one circle gets of the radius at the most, so that a lone one is a ring and no disc.
const PITCH_MAX: f64 = 48.0;

/// What lies next to what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Order {
    /// Keys, clockwise from 0 at the top.
    Keys,
    /// Members by their ids, each with all its keys together.
    Members,
}

#[derive(Serialize)]
pub(super) struct Drawing {
    pub(super) order: Order,
    pub(super) steps: u32,
    /// From the outside in: one per zone with zone awareness, else the only one.
    pub(super) circles: Vec<DrawnCircle>,
    pub(super) circles_left_out: usize,
}

#[derive(Serialize)]
pub(super) struct DrawnCircle {
    /// `None` where zones do not matter.
    pub(super) zone: Option<String>,
    pub(super) tokens: usize,
    /// Part of the keys that are with the member in whose colour they are drawn.
    pub(super) true_percent: f64,
    sectors: Vec<NamedSector>,
    #[serde(skip)]
    pub(super) band: Band,
    #[serde(skip)]
    pub(super) shapes: Vec<Shape>,
}

#[derive(Serialize)]
struct NamedSector {
    member: String,
    first_step: u32,
    steps: u32,
}

/// Where a circle lies in the drawing.
#[derive(Clone, Copy)]
pub(super) struct Band {
    radius: f64,
    width: f64,
    mark_radius: f64,
    mark_width: f64,
}

/// All sectors of one member.
pub(super) struct Shape {
    pub(super) title: String,
    pub(super) color: String,
    pub(super) path: String,
    /// Outside of the band, for a member that is not fit.
    pub(super) mark: Option<(Mark, String)>,
}

/// How a state other than ACTIVE is drawn: by a pattern, since not everybody sees its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) state: &'static str,
    /// Lengths of dashes and gaps; `none` is a line without gaps.
    pub(super) dashes: &'static str,
    /// A variable of the style sheet.
    pub(super) color: &'static str,
}

impl Mark {
    pub(super) const ALL: [Self; 6] = [
        Self { state: UNHEALTHY, dashes: "none", color: "var(--bad)" },
        Self { state: "LEAVING", dashes: "8 3", color: "var(--warn)" },
        Self { state: "LEFT", dashes: "1 6", color: "var(--warn)" },
        Self { state: "JOINING", dashes: "4 4", color: "var(--warn)" },
        Self { state: "PENDING", dashes: "2 2", color: "var(--warn)" },
        Self { state: "READONLY", dashes: "8 2 2 2", color: "var(--warn)" },
    ];

    fn of(state: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mark| mark.state == state)
    }
}

impl Order {
    pub(super) fn from_name(name: &str) -> Option<Self> {
        match name {
            "keys" => Some(Self::Keys),
            "members" => Some(Self::Members),
            _ => None,
        }
    }
}

impl Drawing {
    pub(super) fn new(snapshot: &RingSnapshot, shares: &Shares, asked: Option<Order>) -> Self {
        let circuits = shares.circuits().iter().enumerate();
        let with_tokens: Vec<(usize, &Circuit)> =
            circuits.filter(|(_, circuit)| !circuit.is_empty()).collect();
        let drawn = &with_tokens[..with_tokens.len().min(CIRCLES_MAX)];
        let members_len = snapshot.members().len();
        let by_keys = || -> Vec<Vec<Step>> {
            let cut =
                |(_, circuit): &(usize, &Circuit)| steps(circuit.pieces(), members_len, STEPS);
            drawn.iter().map(cut).collect()
        };
        let by_members = || -> Vec<Vec<Step>> {
            let cut =
                |(at, _): &(usize, &Circuit)| steps(shares.holders_of(*at), members_len, STEPS);
            drawn.iter().map(cut).collect()
        };
        let (order, cuts) = match asked {
            Some(Order::Members) => (Order::Members, by_members()),
            asked => {
                let cuts = by_keys();
                let is_true = cuts.iter().all(|cut| held_share(cut) >= TRUE_ENOUGH);
                match asked {
                    None if !is_true => (Order::Members, by_members()),
                    _ => (Order::Keys, cuts),
                }
            }
        };
        let pitch = ((OUTER_RADIUS - INNER_RADIUS) / drawn.len().max(1) as f64).min(PITCH_MAX);
        let circles = drawn.iter().zip(cuts).enumerate().map(|(number, ((at, circuit), cut))| {
            let band = Band::new(OUTER_RADIUS - pitch * number as f64, pitch);
            let sectors = sectors(&cut);
            DrawnCircle {
                zone: is_by_zone(snapshot).then(|| snapshot.zones()[*at].to_string()),
                tokens: circuit.len(),
                true_percent: held_share(&cut) * 100.0,
                shapes: shapes(snapshot, shares, &sectors, band),
                sectors: sectors.iter().map(|sector| named(snapshot, *sector)).collect(),
                band,
            }
        });
        Self {
            order,
            steps: STEPS,
            circles: circles.collect(),
            circles_left_out: with_tokens.len() - drawn.len(),
        }
    }

    pub(super) fn tokens(&self) -> usize {
        self.circles.iter().map(|circle| circle.tokens).sum()
    }

    /// The least of what the circles say.
    pub(super) fn true_percent(&self) -> f64 {
        self.circles.iter().map(|circle| circle.true_percent).fold(100.0, f64::min)
    }

    pub(super) fn is_by_keys(&self) -> bool {
        self.order == Order::Keys
    }

    /// The zones of the circles, from the outside in; empty where zones do not matter.
    pub(super) fn zones(&self) -> Vec<&str> {
        let zones = self.circles.iter().filter_map(|circle| circle.zone.as_deref());
        zones.map(|zone| if zone.is_empty() { "no zone" } else { zone }).collect()
    }
}

impl Band {
    /// A quarter of the pitch is for marks and the gap to the next circle outside.
    fn new(outer: f64, pitch: f64) -> Self {
        Self {
            mark_radius: outer - pitch * 0.1,
            mark_width: pitch * 0.12,
            radius: outer - pitch * 0.57,
            width: pitch * 0.7,
        }
    }

    pub(super) fn width(&self) -> String {
        format!("{:.1}", self.width)
    }

    pub(super) fn mark_width(&self) -> String {
        format!("{:.1}", self.mark_width)
    }
}

/// A colour of its own for each member. Hues go round by the golden angle, so that members whose
/// ids follow each other are far apart; the lightness reads on both backgrounds.
pub(super) fn color(member: MemberIndex) -> String {
    let hue = f64::from(member.0) * 137.508 % 360.0;
    let lightness = [46, 58, 38][member.index() % 3];
    format!("hsl({hue:.0}, 60%, {lightness}%)")
}

fn is_by_zone(snapshot: &RingSnapshot) -> bool {
    snapshot.settings().zone_awareness_enabled
}

fn named(snapshot: &RingSnapshot, sector: Sector) -> NamedSector {
    let member = snapshot.members()[sector.member.index()].id.to_string();
    NamedSector { member, first_step: sector.first_step, steps: sector.steps }
}

/// One shape for each member that has a sector.
fn shapes(snapshot: &RingSnapshot, shares: &Shares, sectors: &[Sector], band: Band) -> Vec<Shape> {
    let mut by_member: BTreeMap<MemberIndex, Vec<Sector>> = BTreeMap::new();
    for sector in sectors {
        by_member.entry(sector.member).or_default().push(*sector);
    }
    let health = snapshot.health();
    let shape = |(member, sectors): (MemberIndex, Vec<Sector>)| {
        let entry = &snapshot.members()[member.index()];
        let state = shown_state(health.is_fresh(entry.timestamp_s), entry.state);
        Shape {
            title: title(entry, state, shares, member),
            color: color(member),
            path: path(&sectors, band.radius),
            mark: Mark::of(state).map(|mark| (mark, path(&sectors, band.mark_radius))),
        }
    };
    by_member.into_iter().map(shape).collect()
}

fn title(entry: &Member, state: &str, shares: &Shares, member: MemberIndex) -> String {
    let zone = if entry.zone.is_empty() { String::new() } else { format!(", {}", entry.zone) };
    let percent = shares.actual(member) * 100.0;
    let ratio = shares.ratio(member).unwrap_or_default();
    format!("{}{zone}, {state}: {percent:.2} % of the keys, {ratio:.2} of an even share", entry.id)
}

/// The sectors as arcs of one path.
fn path(sectors: &[Sector], radius: f64) -> String {
    let point = |step: u32| {
        let angle = TAU * f64::from(step) / f64::from(STEPS);
        (CENTRE + radius * angle.sin(), CENTRE - radius * angle.cos())
    };
    let mut path = String::new();
    for sector in sectors {
        // An arc that ends where it begins is none, so each is drawn as two halves where it could.
        let middle = sector.first_step + sector.steps / 2;
        let end = sector.first_step + sector.steps;
        let (x, y) = point(sector.first_step);
        path.push_str(&format!("M{x:.1} {y:.1}"));
        let stops =
            if sector.steps > STEPS / 2 { [Some(middle), Some(end)] } else { [None, Some(end)] };
        for stop in stops.into_iter().flatten() {
            let (x, y) = point(stop);
            path.push_str(&format!("A{radius:.1} {radius:.1} 0 0 1 {x:.1} {y:.1}"));
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sector(first_step: u32, steps: u32) -> Sector {
        Sector { member: MemberIndex(0), first_step, steps }
    }

    #[test]
    fn sectors_are_arcs_and_a_whole_turn_is_two() {
        assert_eq!(path(&[sector(0, 180)], 100.0), "M200.0 100.0A100.0 100.0 0 0 1 300.0 200.0");
        assert_eq!(
            path(&[sector(180, 180), sector(540, 180)], 100.0),
            "M300.0 200.0A100.0 100.0 0 0 1 200.0 300.0M100.0 200.0A100.0 100.0 0 0 1 200.0 100.0"
        );
        assert_eq!(
            path(&[sector(0, STEPS)], 100.0),
            "M200.0 100.0A100.0 100.0 0 0 1 200.0 300.0A100.0 100.0 0 0 1 200.0 100.0"
        );
    }

    #[test]
    fn every_state_but_active_has_a_pattern_of_its_own() {
        for (at, mark) in Mark::ALL.iter().enumerate() {
            assert!(Mark::ALL[..at].iter().all(|other| other.dashes != mark.dashes), "{mark:?}");
        }
        for state in crate::ring::model::InstanceState::ALL {
            assert_eq!(Mark::of(state.name()).is_none(), state.name() == "ACTIVE", "{state}");
        }
        assert!(Mark::of(UNHEALTHY).is_some());
    }

    #[test]
    fn members_whose_ids_follow_each_other_have_different_colours() {
        let colors: Vec<_> = (0..600).map(|index| color(MemberIndex(index))).collect();
        assert!(colors.windows(4).all(|near| near[0] != near[1] && near[0] != near[3]));
        assert_eq!(colors[1], "hsl(138, 60%, 58%)");
    }
}
