//! A write replayed in a distributor: validation, the tenant's rate, and where it goes.

use std::sync::Arc;

use super::input::Series;
use super::report::{Explanation, Outcome, Step, Verdict};
use super::walking::{Walked, walked};
use super::{Means, here};
use crate::distributor::Distributor;
use crate::distributor::fan_out::Place;
use crate::distributor::ha::HaRequest;
use crate::distributor::inspect::{GoesOn, Inspection, Prepared, Way};
use crate::go_text::Float;
use crate::ingester::ChargedBy;
use crate::labels::LabelSetText;
use crate::ratelimit::{RATE_UNLIMITED, Strategy};
use crate::ring::RingSnapshot;
use crate::wire::request_of_one;
use crate::wire::write_request::Sample;

/// Adds the distributor's steps, and those behind it that this process knows.
pub(super) fn replay(
    told: &mut Explanation,
    means: &Means<'_>,
    distributor: &Arc<Distributor>,
    series: &Series,
) {
    let sample = Sample { timestamp_ms: means.now.unix_ms, ..Sample::default() };
    let body = request_of_one(series.pairs(), sample);
    let found = distributor.inspect(means.tenant, &body, means.now);
    if !told.push(overload(&found)) || !told.push(replicas(&found)) {
        return end(told);
    }
    let prepared = match &found.prepared {
        Ok(prepared) => prepared,
        Err(error) => {
            let text = error.to_string();
            told.push(Step::new("validation", "Validation", Outcome::Refused, text.clone()));
            told.advise("the whole request is refused, so its other series are too");
            return end(told);
        }
    };
    if !told.push(validation(prepared)) {
        return end(told);
    }
    let Some(goes_on) = &prepared.goes_on else {
        told.verdict = Verdict::Refused;
        told.says = "nothing of the series goes on, without a word to its sender".to_owned();
        return;
    };
    if !told.push(rate(&found)) {
        return end(told);
    }
    if found.limits_clients {
        told.push(clients(means));
    }
    match &found.way {
        Way::Local => match &means.explainer.ingester {
            Some(ingester) => {
                let charged_by = ChargedBy::Distributor;
                here::replay(told, means, ingester, goes_on.labels.as_labels(), charged_by);
            }
            None => admitted(told, "it goes to the ingester of this process"),
        },
        Way::Upstream => {
            let says = "the distributor behind this gate decides which ingesters it goes to";
            told.push(Step::new("way", "Way on", Outcome::Noted, says));
            admitted(told, "this gate admits it and sends it to the distributor behind");
            told.advise("ask an ingester or its sidecar about limits on series");
        }
        Way::Ring { ring, place } => placed(told, goes_on, ring, place),
    }
}

/// Ends with the last step's words.
fn end(told: &mut Explanation) {
    let says = told.steps.last().map(|step| step.says.clone()).unwrap_or_default();
    told.refuse(says);
}

fn admitted(told: &mut Explanation, says: &str) {
    told.verdict = Verdict::Admitted;
    told.says = says.to_owned();
}

fn overload(found: &Inspection) -> Step {
    let title = "Limits of this distributor";
    match &found.overload {
        None => Step::new("distributor", title, Outcome::Passed, "none of them is reached"),
        Some(overload) => Step::new("distributor", title, Outcome::Refused, overload.to_string()),
    }
}

fn replicas(found: &Inspection) -> Step {
    let step = |outcome, says: String| Step::new("replicas", "Replicas", outcome, says);
    match &found.replicas {
        Ok(Some(HaRequest::Off)) if !found.limits.accept_ha_samples => {
            step(Outcome::Passed, "the tenant has no HA tracking (accept_ha_samples)".to_owned())
        }
        Ok(Some(HaRequest::Off | HaRequest::NonHa | HaRequest::Mixed(_))) => {
            let names = (&found.limits.ha_cluster_label, &found.limits.ha_replica_label);
            let says = format!("the series does not carry both {} and {}", names.0, names.1);
            step(Outcome::Passed, says)
        }
        Ok(Some(HaRequest::Strip)) => {
            let label = &found.limits.ha_replica_label;
            step(Outcome::Passed, format!("its replica is the elected one; {label} is taken off"))
        }
        Ok(Some(HaRequest::Deduped { refusal, .. })) => step(Outcome::Refused, refusal.to_string()),
        Ok(Some(HaRequest::TooMany(refusal))) => step(Outcome::Refused, refusal.to_string()),
        Ok(None) => {
            let says = "who is elected is not known here; the store of elections would be asked";
            step(Outcome::Unknown, says.to_owned())
        }
        Err(error) => step(Outcome::Refused, error.to_string()),
    }
}

fn validation(prepared: &Prepared) -> Step {
    let step = |outcome, says: String| Step::new("validation", "Validation", outcome, says);
    if let Some(text) = &prepared.failure {
        let refused = step(Outcome::Refused, text.clone());
        return match prepared.discarded.samples.first() {
            Some((reason, _)) => refused.fact("reason", reason),
            None => refused,
        };
    }
    match &prepared.goes_on {
        Some(goes_on) => step(Outcome::Passed, "the series breaks no rule".to_owned())
            .fact("goes on as", LabelSetText(goes_on.labels.as_labels().iter())),
        None => step(Outcome::Refused, "the series is left out without an error".to_owned()),
    }
}

fn rate(found: &Inspection) -> Step {
    let title = "Rate of the tenant";
    let rate = &found.rate;
    if rate.configured == RATE_UNLIMITED || rate.strategy == Strategy::Infinite {
        return Step::new("rate", title, Outcome::Passed, "the tenant has no limit on its rate");
    }
    let configured = Float(rate.configured);
    if rate.is_leased {
        let says = format!(
            "one budget of {configured} items a second over all distributors; its owner tells \
             what is left of it on /distributor/clients"
        );
        return Step::new("rate", title, Outcome::Unknown, says);
    }
    // A bucket that nobody has taken from is full.
    let left = rate.bucket.map_or(rate.budget.burst as f64, |bucket| bucket.credits);
    let has_credit = left >= 1.0;
    let says = match has_credit {
        true => "a request of one sample passes at this moment".to_owned(),
        false if rate.budget.burst == 0 => "the burst is 0, so no request ever passes".to_owned(),
        false => "the rate is used up at this moment: a request is answered 429".to_owned(),
    };
    let outcome = if has_credit { Outcome::Passed } else { Outcome::Refused };
    let step = Step::new("rate", title, outcome, says)
        .fact("ingestion_rate", configured)
        .fact("items a second here", Float(rate.budget.rate))
        .fact("burst", rate.budget.burst)
        .fact("left of it", Float(left.floor()));
    match rate.strategy {
        Strategy::Global => step.fact("divided by healthy distributors", rate.healthy),
        Strategy::Local | Strategy::Infinite => step,
    }
}

fn clients(means: &Means<'_>) -> Step {
    let says = format!(
        "clients of the tenant have budgets of their own, and a series does not tell its client: \
         see /distributor/clients?tenant={}",
        means.tenant
    );
    Step::new("client", "Budget of the client", Outcome::Unknown, says)
}

/// The ring's ingesters that get the series.
fn placed(told: &mut Explanation, goes_on: &GoesOn, ring: &Arc<RingSnapshot>, place: &Place) {
    told.push(here::key_step(goes_on.ring_key, place.subring.as_deref()));
    let placement = place.placement(ring);
    let Walked { step, set, .. } = walked(ring, &placement, goes_on.ring_key, place.op);
    told.push(step);
    let live: Vec<&str> =
        set.iter().filter(|holder| holder.serves).map(|holder| holder.address.as_str()).collect();
    let title = "Ingesters";
    match placement.layout.errors_allowed(live.len()).filter(|_| !set.is_empty()) {
        Some(may_fail) => {
            let says = format!("it is sent to {}; {may_fail} of them may fail", live.join(", "));
            told.push(Step::new("ingesters", title, Outcome::Passed, says));
            admitted(told, "this gate admits it and sends it to the ring's ingesters");
            told.advise("ask those ingesters, or their sidecars, about limits on series");
        }
        None => {
            let looked_up = match &place.subring {
                Some(subring) => subring.get(goes_on.ring_key, place.op).err(),
                None => ring.get(goes_on.ring_key, place.op).err(),
            };
            let says = looked_up.map(|error| error.to_string()).unwrap_or_default();
            told.push(Step::new("ingesters", title, Outcome::Refused, says.clone()));
            told.refuse(says);
            told.advise("look at /ring: too few members that hold the series can serve");
        }
    }
}
