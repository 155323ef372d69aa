//! What a write of one new sample would meet here, without making it: for those who ask why.
//!
//! Every answer is given by what decides in [`Distributor::push`]: the same admission, replicas,
//! preparation, budgets and placement, asked and not acted upon. Nothing is charged, counted or
//! sent, and no store is asked.

use std::sync::Arc;

use super::admission::Overload;
use super::fan_out::Place;
use super::ha::{HaError, HaRequest};
use super::prepare::{PrepareError, Scratch, prepare};
use super::rates::{Account, RateView};
use super::{Discarded, Distributor, Sink};
use crate::clock::Now;
use crate::keys::RingKey;
use crate::labels::LabelsBuf;
use crate::limits::Limits;
use crate::ring::RingSnapshot;
use crate::tenant::TenantId;
use crate::units::shard_size;
use crate::wire::write_request::WriteRequest;

/// See the head of the file.
pub struct Inspection {
    pub overload: Option<Overload>,
    pub limits: Arc<Limits>,
    /// What elections say of the series' replica; `None` where the store would have to be asked.
    pub replicas: Result<Option<HaRequest>, HaError>,
    /// What preparation makes of the series.
    pub prepared: Result<Prepared, PrepareError>,
    pub rate: RateView,
    /// Clients of the tenant have budgets here, which a series does not tell.
    pub limits_clients: bool,
    pub way: Way,
}

/// A series after preparation.
pub struct Prepared {
    /// Why it is left out, in the sender's words.
    pub failure: Option<String>,
    pub discarded: Discarded,
    /// Its labels as they go on, with its key on the ring of ingesters; `None` if it does not.
    pub goes_on: Option<GoesOn>,
}

pub struct GoesOn {
    pub labels: LabelsBuf,
    pub ring_key: RingKey,
}

/// Where the write goes on to.
pub enum Way {
    /// The ingester of this process.
    Local,
    /// The distributor behind.
    Upstream,
    /// The ring's ingesters: all of it, or the tenant's part.
    Ring { ring: Arc<RingSnapshot>, place: Place },
}

impl Distributor {
    /// `body` is an encoded `WriteRequest` of one series.
    pub fn inspect(&self, tenant: &TenantId, body: &[u8], now: Now) -> Inspection {
        let overrides = self.overrides.snapshot();
        let account = Account::new(tenant, &overrides, now);
        let limits = overrides.limits(tenant);
        let replicas = self.ha.look(tenant, limits, body, now.unix_ms);
        let request = match &replicas {
            Ok(Some(request)) => request.clone(),
            Ok(None) | Err(_) => HaRequest::Off,
        };
        let way = match &self.sink {
            Sink::Local(_) => Way::Local,
            Sink::Upstream(_) => Way::Upstream,
            Sink::Ring(sink) => {
                let ring = sink.ring.load();
                let size = limits.ingestion_tenant_shard_size;
                let size = shard_size(size, ring.members().len());
                Way::Ring { place: sink.fan_out.place(&ring, tenant.as_str(), size), ring }
            }
        };
        Inspection {
            overload: self.admission.overload(self.sink.requests_in_flight()),
            prepared: self.look_at(account, &request, body),
            rate: self.rates.of(account),
            limits_clients: self.rates.limits_clients(account),
            limits: Arc::clone(limits),
            replicas,
            way,
        }
    }

    fn look_at(
        &self,
        account: Account<'_>,
        request: &HaRequest,
        body: &[u8],
    ) -> Result<Prepared, PrepareError> {
        // One series is judged as a whole request, so nobody is asked about each.
        let judge = |_: super::prepare::HaSeries<'_>| super::prepare::Verdict::Unknown;
        let replicas = request.replicas(account.limits, &judge);
        let treatment = super::Treatment { is_placed: true, ..self.treatment(account, replicas) };
        let mut scratch = Scratch::default();
        let mut prepared = prepare(body, &treatment, &mut scratch, account.now.unix_ms)?;
        let mut arena = Vec::new();
        let mut left = WriteRequest::new(&prepared.body, &mut arena)?;
        let series = left.next_series()?;
        let labels = series.map(|series| LabelsBuf::from_pairs(left.labels(&series)));
        let item = prepared.items.first();
        let goes_on = item.zip(labels).map(|(item, labels)| GoesOn { labels, ring_key: item.key });
        let failure = prepared.failure.take();
        Ok(Prepared { failure, discarded: prepared.discarded, goes_on })
    }
}
