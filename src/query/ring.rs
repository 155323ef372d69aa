//! `freehold ring`: the members of a ring as its page tells them, and Forget.
//!
//! The page is Cortex's to the key, so `show` reads that of any Cortex too. Shares are worked out
//! here from the tokens, by the code that decides what is owned.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::Full;
use serde::{Deserialize, Serialize};

use super::instance::{Instance, InstanceError};
use crate::admin::CSRF_HEADER;
use crate::clock::Clock;
use crate::config::{Output, RingArgs, RingAsk};
use crate::output::{self, Cell, Column, Screen, Style, Table, Told};
use crate::ring::kv::ring_page::{self, RingPageError};
use crate::ring::model::RingModel;
use crate::ring::ownership::KeyRange;
use crate::ring::{RingSettings, RingSnapshot};

/// Of one answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// Longest page: 1000 members of 512 tokens are 6 MB.
const PAGE_BYTES_MAX: usize = 64 << 20;
/// Longest text that says why not.
const REFUSAL_BYTES_MAX: usize = 1 << 20;
/// What a page shows in place of the state of a member whose heartbeat is too old.
const UNHEALTHY: &str = "Unhealthy";
const ACTIVE: &str = "ACTIVE";
/// Keys of the whole ring.
const RING_WIDTH: f64 = 4_294_967_296.0;

/// Why there is no ring to show, or nobody was forgotten.
#[derive(Debug, thiserror::Error)]
pub enum RingError {
    #[error(transparent)]
    Instance(#[from] InstanceError),
    #[error(
        "{address}{path} answers 404: no ring is there; name a process that has one by --address, \
         or the ring's page: http://HOST:PORT/distributor/ring"
    )]
    NoPage { address: String, path: String },
    #[error("{address} refuses with status {status}: {text}")]
    Refused { address: String, status: u16, text: String },
    #[error("{address}{path} is no ring's page as JSON")]
    NoRing { address: String, path: String, source: RingPageError },
    #[error("{address}{path} is no ring's page as JSON")]
    NoStates { address: String, path: String, source: serde_json::Error },
    #[error("{path} is no path")]
    Path { path: String },
    #[error("the ring of {address} has no member {instance:?}; freehold ring show lists them")]
    NoMember { address: String, instance: String },
    #[error("nobody can be asked here: give --yes to forget {instance} without a question")]
    NobodyAsked { instance: String },
    #[error("not forgotten: the answer was no")]
    NotConfirmed,
    #[error("cannot write the ring as JSON")]
    Json(#[source] serde_json::Error),
}

/// A ring as it is shown.
#[derive(Debug, Serialize)]
struct Ring {
    members: Vec<Member>,
    zones: usize,
}

#[derive(Debug, Serialize)]
struct Member {
    id: String,
    state: String,
    zone: String,
    address: String,
    /// Seconds since the heartbeat, by the clock of who was asked.
    heartbeat_age_s: i64,
    tokens: usize,
    /// Part of the keys of its zone's ring, or of the ring without zones, that lead to it.
    share: f64,
    /// The same by an even one.
    share_of_even: f64,
}

#[derive(Serialize)]
struct Forgotten<'a> {
    forgotten: &'a str,
}

/// The words of the page that a ring's model has no place for.
#[derive(Deserialize)]
struct States {
    shards: Option<Vec<State>>,
}

#[derive(Deserialize)]
struct State {
    id: String,
    state: String,
}

/// Asks a running process, or has it forget a member.
pub async fn run(args: &RingArgs, screen: &Screen) -> Result<Told, RingError> {
    let asked = Asked { instance: Instance::new(&args.asked)? };
    let ring = asked.ring().await?;
    match &args.ask {
        RingAsk::Show => shown(&ring, args.output, screen),
        RingAsk::Forget { instance, yes } => {
            let member = ring.members.iter().find(|member| member.id == *instance);
            let member = member.ok_or_else(|| asked.no_member(instance))?;
            if !yes {
                confirm(member, asked.instance.address())?;
            }
            asked.forget(instance).await?;
            told_forgotten(instance, args.output)
        }
    }
}

struct Asked {
    instance: Instance,
}

impl Asked {
    fn path(&self) -> &str {
        self.instance.path_or("/ring")
    }

    fn address(&self) -> String {
        self.instance.address().trim_end_matches(self.path()).trim_end_matches('/').to_owned()
    }

    fn no_member(&self, instance: &str) -> RingError {
        RingError::NoMember { address: self.address(), instance: instance.to_owned() }
    }

    async fn ring(&self) -> Result<Ring, RingError> {
        let path = || self.path().to_owned();
        let request = Request::get(self.path()).header(header::ACCEPT, "application/json");
        let request = request.body(Full::default());
        let request = request.map_err(|_| RingError::Path { path: path() })?;
        let answer = self.instance.ask(request, PAGE_BYTES_MAX, PATIENCE).await?;
        self.judge(answer.status(), answer.body())?;
        let body = answer.into_body();
        let page = ring_page::parse(&body);
        let page = page.map_err(|source| RingError::NoRing {
            address: self.address(),
            path: path(),
            source,
        })?;
        let states = serde_json::from_slice::<States>(&body);
        let states = states.map_err(|source| RingError::NoStates {
            address: self.address(),
            path: path(),
            source,
        })?;
        let seen_at_ms = page.stored_at_ms.unwrap_or_else(|| Clock::start().now().unix_ms);
        let states = states.shards.unwrap_or_default().into_iter();
        let states = states.map(|state| (state.id, state.state)).collect();
        Ok(Ring::new(&page.ring, &states, seen_at_ms))
    }

    async fn forget(&self, instance: &str) -> Result<(), RingError> {
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.append_pair("forget", instance);
        let path = self.path();
        let mut request = Request::post(path)
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .header(header::ACCEPT, "application/json");
        if let Some(token) = self.instance.csrf_token(PATIENCE).await? {
            request = request.header(CSRF_HEADER, token);
        }
        let request = request.body(Full::new(Bytes::from(form.finish())));
        let request = request.map_err(|_| RingError::Path { path: path.to_owned() })?;
        let answer = self.instance.ask(request, REFUSAL_BYTES_MAX, PATIENCE).await?;
        match answer.status() {
            // It leads back to the page, as a browser wants it.
            StatusCode::FOUND | StatusCode::SEE_OTHER => Ok(()),
            status => self.judge(status, answer.body()),
        }
    }

    fn judge(&self, status: StatusCode, body: &[u8]) -> Result<(), RingError> {
        let address = self.address();
        match status {
            status if status.is_success() => Ok(()),
            StatusCode::NOT_FOUND => {
                Err(RingError::NoPage { address, path: self.path().to_owned() })
            }
            status => {
                let text = output::clean(String::from_utf8_lossy(body).trim_end());
                Err(RingError::Refused { address, status: status.as_u16(), text })
            }
        }
    }
}

/// Asks the operator whether they mean it.
fn confirm(member: &Member, address: &str) -> Result<(), RingError> {
    let id = output::clean(&member.id);
    let question = format!(
        "Forget {id} ({}, heartbeat {} ago) in the ring of {address}?\nIts keys go to its \
         neighbours at once; if it lives, it comes back with its next heartbeat.",
        output::clean(&member.state),
        output::span(member.heartbeat_age_s.max(0).unsigned_abs()),
    );
    match output::is_confirmed(&question) {
        Some(true) => Ok(()),
        Some(false) => Err(RingError::NotConfirmed),
        None => Err(RingError::NobodyAsked { instance: id }),
    }
}

impl Ring {
    fn new(model: &RingModel, states: &BTreeMap<String, String>, seen_at_ms: i64) -> Self {
        let settings = RingSettings {
            replication_factor: 1,
            zone_awareness_enabled: false,
            // Health is what the page says it is.
            heartbeat_timeout_ms: 0,
            extend_writes: true,
            own_id: None,
        };
        let snapshot = RingSnapshot::build(model, seen_at_ms, Arc::new(settings), None);
        let ranges = snapshot.key_ranges();
        let mut in_zones: BTreeMap<&str, usize> = BTreeMap::new();
        for member in model.instances.values().filter(|member| !member.tokens.is_empty()) {
            *in_zones.entry(&member.zone).or_default() += 1;
        }
        let member = |(member, range): (&crate::ring::Member, KeyRange)| {
            let id = member.id.to_string();
            let share = range.width_in_zone as f64 / RING_WIDTH;
            let neighbours = in_zones.get(&*member.zone).copied().unwrap_or(0);
            Member {
                state: states.get(&id).cloned().unwrap_or_else(|| member.state.name().to_owned()),
                tokens: model.instances.get(&id).map_or(0, |instance| instance.tokens.len()),
                id,
                zone: member.zone.to_string(),
                address: member.addr.to_string(),
                heartbeat_age_s: (seen_at_ms / 1000).saturating_sub(member.timestamp_s),
                share,
                share_of_even: share * neighbours as f64,
            }
        };
        let mut members: Vec<_> = snapshot.members().iter().zip(ranges).map(member).collect();
        members.sort_by(|one, other| (&one.zone, &one.id).cmp(&(&other.zone, &other.id)));
        Self { members, zones: in_zones.len() }
    }

    /// A ring without members is as wrong as one with members that do not serve.
    fn is_finding(&self) -> bool {
        self.members.is_empty() || self.members.iter().any(|member| member.state != ACTIVE)
    }
}

fn shown(ring: &Ring, form: Output, screen: &Screen) -> Result<Told, RingError> {
    let text = match form {
        Output::Table => ring.print(screen),
        Output::Json => output::json(ring).map_err(RingError::Json)?,
    };
    Ok(Told { text, is_finding: ring.is_finding() })
}

fn told_forgotten(instance: &str, form: Output) -> Result<Told, RingError> {
    Ok(Told::plain(match form {
        Output::Table => format!("{} is forgotten\n", output::clean(instance)),
        Output::Json => {
            output::json(&Forgotten { forgotten: instance }).map_err(RingError::Json)?
        }
    }))
}

impl Ring {
    fn print(&self, screen: &Screen) -> String {
        if self.members.is_empty() {
            return "the ring has no member\n".to_owned();
        }
        let share = if self.zones > 1 { "share of zone" } else { "share" };
        let mut table = Table::new([
            Column::text("instance"),
            Column::word("state"),
            Column::text("zone"),
            Column::text("address"),
            Column::number("heartbeat"),
            Column::number("tokens"),
            Column::number(share),
            Column::number("of even"),
        ]);
        let mut states: BTreeMap<&str, usize> = BTreeMap::new();
        for member in &self.members {
            *states.entry(&member.state).or_default() += 1;
            let style = match member.state.as_str() {
                ACTIVE => Style::Good,
                UNHEALTHY => Style::Bad,
                _ => Style::Warn,
            };
            table.row([
                Cell::from(&member.id),
                Cell::new(style, &member.state),
                Cell::from(&member.zone),
                Cell::from(&member.address),
                Cell::from(output::span(member.heartbeat_age_s.max(0).unsigned_abs())),
                Cell::from(member.tokens.to_string()),
                Cell::from(format!("{:.2} %", member.share * 100.0)),
                Cell::from(format!("{:.2}", member.share_of_even)),
            ]);
        }
        let mut out = String::new();
        table.print(&mut out, screen);
        let states = states.into_iter().map(|(state, members)| format!("{members} {state}"));
        let states = output::clean(&states.collect::<Vec<_>>().join(", "));
        out.push_str(&format!("members: {states}\n"));
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::model::{Instance as Entry, InstanceState, Token};

    fn model(members: &[(&str, &str, &[u32])]) -> RingModel {
        let mut model = RingModel::default();
        for (id, zone, tokens) in members {
            let entry = Entry {
                addr: format!("{id}:9095"),
                timestamp_s: 990,
                state: InstanceState::Active,
                tokens: tokens.iter().copied().map(Token).collect(),
                zone: (*zone).to_owned(),
                registered_timestamp_s: 0,
                unknown_fields: Vec::new(),
            };
            model.instances.insert((*id).to_owned(), entry);
        }
        model
    }

    #[test]
    fn shares_are_of_a_zone_and_beside_an_even_one() {
        let half = 1 << 31;
        let quarter = 1 << 30;
        let model = model(&[("a", "z1", &[quarter]), ("b", "z1", &[half]), ("c", "z2", &[7])]);
        let states = [("b".to_owned(), UNHEALTHY.to_owned())].into();
        let ring = Ring::new(&model, &states, 1_000_000);
        let shares: Vec<_> =
            ring.members.iter().map(|member| (member.share, member.share_of_even)).collect();
        assert_eq!(shares, [(0.75, 1.5), (0.25, 0.5), (1.0, 1.0)]);
        assert!(ring.is_finding());
        let expect = "
  instance  state      zone  address  heartbeat  tokens  share of zone  of even
  a         ACTIVE     z1    a:9095         10s       1        75.00 %     1.50
  b         Unhealthy  z1    b:9095         10s       1        25.00 %     0.50
  c         ACTIVE     z2    c:9095         10s       1       100.00 %     1.00
members: 2 ACTIVE, 1 Unhealthy
";
        assert_eq!(format!("\n{}", ring.print(&Screen::FILE)), expect);
    }

    #[test]
    fn an_empty_ring_is_a_finding() {
        let ring = Ring::new(&RingModel::default(), &BTreeMap::new(), 1000);
        assert!(ring.is_finding());
        assert_eq!(ring.print(&Screen::FILE), "the ring has no member\n");
    }

    #[test]
    fn hostile_names_are_shown_and_not_obeyed() {
        let ring = Ring::new(&model(&[("a\x1b[2J", "z\u{202e}", &[1])]), &BTreeMap::new(), 1000);
        let text = ring.print(&Screen::FILE);
        assert!(text.contains("a\\u{1b}[2J") && !text.contains('\x1b'), "{text}");
    }
}
