//! A push that another ingester stores: judged here, settled by what that one answers.
//!
//! Between the two a series that the push created is pending. Stored, it exists; refused with the
//! whole push, it is gone; where the answer leaves it open, it stays and counts, until a later
//! push or a listing tells.
//!
//! Invariant: whatever becomes of the caller, what a push held is settled once.

use std::sync::Arc;

use crate::clock::Now;
use crate::ingester::admission::Permit;
use crate::ingester::push::{Request, Scratch, Tally};
use crate::ingester::rates::{ChargedBy, Charges};
use crate::ingester::tenants::Visit;
use crate::ingester::{Ingester, PushError, Pushed, texts};
use crate::labels::Identity;
use crate::limits::InstanceLimits;
use crate::tenant::TenantId;
use crate::wire::rewrite::{Edit, rewrite};

/// What of a push goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Forward {
    /// All of it, byte for byte.
    Whole,
    /// This request: what is left when the refused has been taken out.
    Rest(Vec<u8>),
    Nothing,
}

/// What the one that stores has answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    Stored,
    /// Nothing is stored.
    Refused,
    /// Something was refused, and the rest may be stored: a refusal names one failure only.
    Partly,
    /// No answer came, or none that says.
    Unknown,
}

/// A push that is judged and not settled. Dropped, it was never answered.
pub struct Judged {
    pub forward: Forward,
    source: i32,
    held: Vec<Identity>,
    tally: Tally,
    failure: Option<String>,
    rate_limited: bool,
    /// Series were refused that may well be there: the tenant's are still being listed.
    refused_unheard: bool,
    charges: Charges,
    tenant: Visit,
    ingester: Arc<Ingester>,
    _in_flight: Permit,
}

impl Ingester {
    /// Judges one push, as [`Ingester::push`] does, and stores nothing of it.
    ///
    /// Synchronous, and over before a thread could be woken.
    pub fn judge(
        self: &Arc<Self>,
        id: &TenantId,
        body: &[u8],
        now: Now,
    ) -> Result<Judged, PushError> {
        self.admitted(|instance, scratch, in_flight| {
            self.judge_admitted(id, body, instance, scratch, in_flight, now)
        })
    }

    fn judge_admitted(
        self: &Arc<Self>,
        id: &TenantId,
        body: &[u8],
        instance: &InstanceLimits,
        scratch: &mut Scratch,
        in_flight: Permit,
        now: Now,
    ) -> Result<Judged, PushError> {
        let (request, tenant) = self.read_and_enter(id, body, instance, scratch, now)?;
        let standing = tenant.standing.load();
        let (mut push, charges) =
            self.begin(ChargedBy::Nobody, &tenant, &standing, &request, instance, now)?;
        let rate_limited = push.has_failed();
        let admitted = push.admit(scratch);
        let strips_histograms = standing.limits.enable_native_histograms && !push.takes_histograms;
        let (tally, failure) = push.into_outcome();
        if let Err(error) = admitted {
            tenant.series.release(&scratch.held);
            self.give_back(id, charges, now);
            return Err(error);
        }
        let forward = forward(&request, scratch, strips_histograms);
        drop(standing);
        Ok(Judged {
            forward,
            source: request.summary.source,
            held: std::mem::take(&mut scratch.held),
            tally,
            failure,
            rate_limited,
            refused_unheard: !scratch.refused.is_empty() && tenant.series.is_loading(),
            charges,
            tenant,
            ingester: Arc::clone(self),
            _in_flight: in_flight,
        })
    }
}

impl Judged {
    /// Settles the push. What we ourselves have to say of it: an error when we refused a part.
    pub fn settle(mut self, told: Told, now: Now) -> Result<Pushed, PushError> {
        let held = std::mem::take(&mut self.held);
        let series = &self.tenant.series;
        match told {
            Told::Stored => series.confirm(&held),
            Told::Refused => {
                series.release(&held);
                let charges = std::mem::take(&mut self.charges);
                self.ingester.give_back(&self.tenant.id, charges, now);
            }
            Told::Partly | Told::Unknown => series.abandon(&held),
        }
        if told == Told::Stored {
            // Metadata is the upstream's to judge and to count.
            self.ingester.count(&self.tenant, self.source, &self.tally, 0, now);
        }
        if self.refused_unheard {
            // A refusal for good would lose samples of a series that exists.
            return Err(PushError::NotRunning { state: texts::STILL_LISTED });
        }
        self.tally.answer(&self.tenant.id, self.failure.take(), self.rate_limited)
    }

    /// Series that wait for the answer.
    pub fn pending(&self) -> usize {
        self.held.len()
    }
}

impl Drop for Judged {
    fn drop(&mut self) {
        // Settled pushes hold nothing any more.
        self.tenant.series.abandon(&self.held);
    }
}

/// What goes on of a request whose series have been judged.
fn forward(request: &Request<'_>, scratch: &Scratch, strips_histograms: bool) -> Forward {
    let rows = &scratch.rows;
    let strips = |at: usize| strips_histograms && rows[at].series.has_histogram();
    if scratch.refused.is_empty() && !(0..rows.len()).any(strips) {
        return Forward::Whole;
    }
    let mut refused = scratch.refused.iter().map(|&at| at as usize).peekable();
    let mut left = request.summary.metadata;
    let rest = rewrite(request.body, |at| {
        let series = &rows[at].series;
        let edit = if refused.next_if_eq(&at).is_some() {
            Edit::Drop
        } else if !strips(at) {
            Edit::Keep
        } else if series.sample_count + series.exemplar_count > 0 {
            Edit::WithoutHistograms
        } else {
            Edit::Drop
        };
        left += u64::from(!matches!(edit, Edit::Drop));
        edit
    });
    if left > 0 { Forward::Rest(rest) } else { Forward::Nothing }
}
