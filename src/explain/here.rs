//! A push replayed in the ingester of this process: its state, the ring, the limits on series.

use std::sync::Arc;

use super::Means;
use super::input::Series;
use super::report::{Explanation, Outcome, Step, Verdict};
use super::walking::{Walked, walked};
use crate::distributor::validation::{LabelRules, check_labels, check_metric_name};
use crate::go_text::Float;
use crate::ingester::inspect::{Inspection, Question};
use crate::ingester::{ChargedBy, Ingester};
use crate::keys::RingKey;
use crate::labels::{LabelSetText, Labels, LabelsBuf, METRIC_NAME, prepare};
use crate::limits::{Limits, NO_LIMIT};
use crate::ring::{ShardRule, Subring};
use crate::series::{Basis, Check, Decided, InForce, LimitName, Refusal, UNLIMITED};
use crate::units::shard_size;

/// Labels in Prometheus' notation.
pub(super) fn text_of<'a>(pairs: impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone) -> String {
    LabelSetText(pairs).to_string()
}

/// Adds the steps of an ingester that stands behind distributors: what they would have made of
/// the series is asked of the same rules first.
pub(super) fn replay_received(
    told: &mut Explanation,
    means: &Means<'_>,
    ingester: &Arc<Ingester>,
    series: &Series,
) {
    let mut pairs: Vec<_> = series.pairs().collect();
    let metric = pairs.iter().find(|(name, _)| *name == METRIC_NAME).map(|(_, value)| *value);
    prepare(&mut pairs);
    let snapshot = means.explainer.overrides.snapshot();
    let limits = snapshot.limits(means.tenant);
    let rules = LabelRules { limits, names: means.explainer.names, names_are_checked: false };
    let labels = || pairs.iter().copied();
    let broken = check_metric_name(metric, &rules)
        .and_then(|()| check_labels(labels(), &rules).map(|_| ()))
        .err();
    let title = "Validation";
    if let Some(violation) = broken {
        let says = violation.text(labels());
        let step = Step::new("validation", title, Outcome::Refused, says.clone());
        told.push(step.fact("reason", violation.reason()));
        told.refuse(says);
        told.advise(
            "distributors with the tenant's limits leave the series out, so that it \
                     never comes here",
        );
        return;
    }
    let says = "a distributor with the tenant's limits here would find no fault";
    let step = Step::new("validation", title, Outcome::Passed, says);
    told.push(step.fact("comes as", text_of(labels())));
    let canonical = LabelsBuf::from_pairs(pairs.iter().copied());
    replay(told, means, ingester, canonical.as_labels(), ChargedBy::Nobody);
}

/// Adds the ingester's steps and the verdict.
pub(super) fn replay(
    told: &mut Explanation,
    means: &Means<'_>,
    ingester: &Arc<Ingester>,
    labels: Labels<'_>,
    charged_by: ChargedBy,
) {
    let question = Question { tenant: means.tenant, labels, kind: means.kind, charged_by };
    let found = ingester.inspect(question, means.now);
    let goes_on = told.push(state(&found))
        && told.push(tenant(means, &found))
        && told.push(rate(&found))
        && told.push(label_check(&found));
    if !goes_on {
        let says = told.steps.last().map(|step| step.says.clone()).unwrap_or_default();
        return told.refuse(says);
    }
    ring(told, means, &found);
    told.push(known(&found));
    limits(told, means, &found);
    verdict(told, &found);
}

fn state(found: &Inspection) -> Step {
    let title = "Limits of this ingester";
    let refused = found.closed.clone().or(found.overload.map(|overload| overload.to_string()));
    let step = match refused {
        Some(says) => Step::new("ingester", title, Outcome::Refused, says),
        None => Step::new("ingester", title, Outcome::Passed, "pushes are taken"),
    };
    let none_or = |max: f64| if max > 0.0 { Float(max).to_string() } else { "none".to_owned() };
    step.fact("pushes under way", found.in_flight)
        .fact("most at once", none_or(found.instance.max_inflight_push_requests as f64))
        .fact("items a second", Float(found.rate))
        .fact("most a second", none_or(found.instance.max_ingestion_rate))
}

fn tenant(means: &Means<'_>, found: &Inspection) -> Step {
    let step = |outcome, says: String| Step::new("tenant", "Tenant", outcome, says);
    match (&found.no_tenant, found.has_tenant) {
        (_, true) => step(Outcome::Passed, format!("{} has series here", means.tenant)),
        (None, false) => {
            let says = format!("{} is not in memory; its first push makes it", means.tenant);
            step(Outcome::Passed, says)
        }
        (Some(text), false) => step(Outcome::Refused, text.clone()),
    }
}

fn rate(found: &Inspection) -> Step {
    let title = "Rate of the tenant at this ingester";
    let Some(rate) = found.tenant_rate else {
        let says = "not checked here: the distributors have done so";
        return Step::new("ingester-rate", title, Outcome::Passed, says);
    };
    let left = rate.bucket.map_or(rate.budget.burst as f64, |bucket| bucket.credits);
    let (outcome, says) = match left >= 1.0 || rate.budget.rate == f64::MAX {
        true => (Outcome::Passed, "a push of one sample passes at this moment"),
        false => (Outcome::Refused, "the rate is used up at this moment"),
    };
    Step::new("ingester-rate", title, outcome, says)
        .fact("items a second", Float(rate.budget.rate))
        .fact("burst", rate.budget.burst)
        .fact("left of it", Float(left.floor()))
}

fn label_check(found: &Inspection) -> Step {
    let title = "Labels";
    match found.bad_labels {
        None => Step::new("labels", title, Outcome::Passed, "sorted, and with a metric's name"),
        Some(text) => Step::new("labels", title, Outcome::Refused, text),
    }
}

/// The ring key: how it comes to be, and which part of the ring it is looked up in.
pub(super) fn key_step(key: RingKey, subring: Option<&Subring>) -> Step {
    let says = "FNV-1 (32 bits) over the tenant, then each label's name and value in order";
    let step = Step::new("ring-key", "Ring key", Outcome::Noted, says)
        .fact("key", key.0)
        .fact("hexadecimal", format!("{:08x}", key.0))
        .fact("of the key space", format!("{:.4} %", f64::from(key.0) / 4_294_967_296.0 * 100.0));
    match subring {
        None => step.fact("looked up in", "the whole ring"),
        Some(subring) => {
            let members = subring.members().len();
            step.fact("looked up in", format!("the tenant's part of the ring, {members} members"))
        }
    }
}

/// Key, walk and ownership.
fn ring(told: &mut Explanation, means: &Means<'_>, found: &Inspection) {
    let ring = &found.ring;
    let standing = &found.standing;
    let size = shard_size(standing.shape.shard_size, ring.members().len());
    let subring = ring.subring(means.tenant.as_str(), size, ShardRule::Balanced);
    told.push(key_step(found.ring_key, subring.as_ref()));
    let placement = match &subring {
        Some(subring) => subring.placement(),
        None => ring.placement(),
    };
    let op = ring.settings().write_operation();
    let Walked { step, is_ours, set } = walked(ring, &placement, found.ring_key, op);
    told.push(step);

    let title = "Ownership";
    let others: Vec<&str> = set.iter().map(|holder| holder.id.as_str()).collect();
    let (outcome, says) = match &standing.unknown {
        Some(unknown) => (
            Outcome::Unknown,
            format!("not known ({unknown}), so every series counts as owned, as in Cortex"),
        ),
        None if is_ours => {
            (Outcome::Passed, "this instance is among those that hold it".to_owned())
        }
        None if others.is_empty() => (Outcome::Noted, "nobody holds it".to_owned()),
        None => (
            Outcome::Noted,
            format!(
                "it belongs to {}, not to this instance: distributors that see this ring do not \
                 send it here, and it would not count as owned",
                others.join(", ")
            ),
        ),
    };
    let mut step = Step::new("ownership", title, outcome, says)
        .fact("counted as owned", if found.series.is_owned { "yes" } else { "no" })
        .fact("our share of the tenant's keys", format!("{:.4}", standing.share));
    if found.series.epoch != standing.epoch || found.series.is_recounting {
        step = step.fact("recount", "due: counts still follow the ring before its last change");
    }
    told.push(step);
    if standing.unknown.is_some() {
        told.advise("see /ring for why ownership is not known");
    } else if !found.series.is_owned {
        told.advise(
            "what is decided here matters little, since distributors do not send the \
                     series here: explain it on one of its owners",
        );
    }
}

fn known(found: &Inspection) -> Step {
    let title = "Is the series known";
    let step = match found.series.is_known {
        true => Step::new(
            "known",
            title,
            Outcome::Passed,
            "it is in memory: its samples are taken, and no limit on new series is asked",
        ),
        false => Step::new("known", title, Outcome::Noted, "it is not in memory: it would be new"),
    };
    let count = found.series.series;
    let step = step
        .fact("series of the tenant in memory", count.in_memory)
        .fact("of them owned", count.owned);
    match found.series.is_loading {
        true => step.fact("loading", "series are still being listed after a start"),
        false => step,
    }
}

/// Every limit in its order, those behind a refusal too.
fn limits(told: &mut Explanation, means: &Means<'_>, found: &Inspection) {
    let instance = found.series.instance;
    let step = decided("limit-instance", "Series of this instance", instance, found);
    told.push(step.fact("comes from", "max_series of the instance's limits"));
    for check in &found.series.checks {
        told.push(check_step(means, found, check));
    }
    let is_named = |name: LimitName| found.series.checks.iter().any(|check| check.name == name);
    if found.metric_exempt {
        let says = "the metric is on -ingester.ignore-series-limit-for-metric-names";
        let title = "Series of the metric";
        told.push(Step::new("limit-metric", title, Outcome::Passed, says));
    } else if found.series.are_labels_unknown && !is_named(LimitName::PerMetric) {
        let says = "counts by metric and label set are not known yet, so they refuse nothing";
        let title = "Series of metric and label sets";
        told.push(Step::new("limit-labels", title, Outcome::Unknown, says));
    } else if !is_named(LimitName::PerMetric) {
        let says = "there is no limit per metric";
        let title = "Series of the metric";
        told.push(Step::new("limit-metric", title, Outcome::Passed, says));
    }
}

fn check_step(means: &Means<'_>, found: &Inspection, check: &Check) -> Step {
    let limits = &found.standing.limits;
    let set = |index| limits.limits_per_label_set.get(index).map_or("", |set| &set.id);
    let (id, title) = match check.name {
        LimitName::Series => ("limit-tenant", "Series of the tenant".to_owned()),
        LimitName::NativeHistogramSeries => {
            ("limit-native-histograms", "Native histogram series of the tenant".to_owned())
        }
        LimitName::PerMetric => ("limit-metric", "Series of the metric".to_owned()),
        LimitName::LabelSet(index) => {
            ("limit-label-set", format!("Series of label set {}", set(index)))
        }
    };
    let snapshot = means.explainer.overrides.snapshot();
    let is_named = snapshot.tenants().any(|(tenant, _)| tenant == means.tenant);
    let mut step = decided(id, &title, check.decided, found);
    let [global, local] = configured(limits, check.name);
    for (set, default) in
        [global, local].into_iter().zip(configured(snapshot.defaults(), check.name))
    {
        if set.value == 0 {
            continue;
        }
        let origin = match is_named {
            false => "the default; the runtime file does not name the tenant",
            true if set == default => "the default, or an override that says the same",
            true => "the tenant's override in the runtime file",
        };
        step = step.fact(set.name, format!("{}: {origin}", set.value));
    }
    if !is_none(check.decided.limit.max) {
        step = step.fact("comes from", why(found, check.decided, global.value, local.value));
    }
    step
}

/// A limit as it is configured, 0 for none.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Configured {
    name: &'static str,
    value: i64,
}

/// For the cluster, and for each instance.
fn configured(limits: &Limits, name: LimitName) -> [Configured; 2] {
    let [global, local] = match name {
        LimitName::Series => [
            ("max_global_series_per_user", limits.max_global_series_per_user),
            ("max_series_per_user", limits.max_series_per_user),
        ],
        LimitName::NativeHistogramSeries => [
            (
                "max_global_native_histogram_series_per_user",
                limits.max_global_native_histogram_series_per_user,
            ),
            ("max_native_histogram_series_per_user", limits.max_native_histogram_series_per_user),
        ],
        LimitName::PerMetric => [
            ("max_global_series_per_metric", limits.max_global_series_per_metric),
            ("max_series_per_metric", limits.max_series_per_metric),
        ],
        LimitName::LabelSet(index) => {
            let set = limits.limits_per_label_set.get(index);
            [("limits_per_label_set", set.map_or(0, |set| set.max_series)), ("", 0)]
        }
    };
    [global, local].map(|(name, value)| Configured { name, value })
}

/// How the number came about.
fn why(found: &Inspection, decided: Decided, global: i64, local: i64) -> String {
    let shape = &found.standing.shape;
    match decided.limit.in_force {
        InForce::Held => {
            "held from before the ring changed, until the series are counted again".to_owned()
        }
        _ if local > 0 && decided.limit.max == local.unsigned_abs() => {
            "set for each instance by itself".to_owned()
        }
        InForce::Share => {
            format!("{global} for the cluster, of which {:.4} is ours", found.standing.share)
        }
        InForce::Flat => format!(
            "{global} for the cluster / {} instances x {} replicas",
            shape.instances_of_tenant(),
            shape.replication_factor
        ),
    }
}

/// One limit with its count.
fn decided(id: &str, title: &str, decided: Decided, found: &Inspection) -> Step {
    let Decided { count, basis, limit } = decided;
    let used = count.by(basis);
    let by = match basis {
        Basis::Owned => "owned series, since enforcement is on",
        Basis::InMemory => "all series in memory, as in Cortex: enforcement is off",
    };
    if is_none(limit.max) {
        return Step::new(id, title, Outcome::Passed, "there is no limit").fact("count", used);
    }
    let is_known = found.series.is_known;
    let (outcome, says) = match used < limit.max {
        true => (Outcome::Passed, format!("{used} of {}", limit.max)),
        false if is_known => {
            (Outcome::Noted, format!("{used} of {}: new series are refused", limit.max))
        }
        false => (Outcome::Refused, format!("{used} of {}: it is reached", limit.max)),
    };
    Step::new(id, title, outcome, says)
        .fact("counted", by)
        .fact("owned", count.owned)
        .fact("in memory", count.in_memory)
        .fact("limit in force", limit.max)
}

/// The tenant's limits have Cortex's number for none, the instance's one of its own.
fn is_none(max: u64) -> bool {
    max == UNLIMITED || max == NO_LIMIT as u64
}

fn verdict(told: &mut Explanation, found: &Inspection) {
    match (found.series.verdict, &found.refusal) {
        (Err(refusal), Some(text)) => {
            told.refuse(text.clone());
            advise(told, found, refusal);
        }
        (Err(refusal), None) => told.refuse(refusal.to_string()),
        (Ok(()), _) => {
            told.verdict = Verdict::Admitted;
            told.says = match found.series.is_known {
                true => "the series is known: its samples are taken",
                false => "the series would be created",
            }
            .to_owned();
            if !told.errors.is_empty() {
                told.advise(
                    "the text is of an earlier moment: counts, limits or the ring have \
                             changed since",
                );
            }
        }
    }
}

fn advise(told: &mut Explanation, found: &Inspection, refusal: Refusal) {
    let decided = match refusal {
        Refusal::Instance(decided) => {
            told.advise("add ingesters, or raise max_series of the instance");
            decided
        }
        Refusal::Series(decided) => {
            told.advise("raise max_global_series_per_user, or find the metric that grows");
            decided
        }
        Refusal::NativeHistogramSeries(decided) => {
            told.advise("raise max_global_native_histogram_series_per_user");
            decided
        }
        Refusal::Metric(decided) => {
            told.advise(
                "drop the label whose values never end, or raise \
                         max_global_series_per_metric",
            );
            decided
        }
        Refusal::LabelSet { decided, .. } => {
            told.advise("raise max_series of the set in limits_per_label_set");
            decided
        }
    };
    let Decided { count, basis, limit } = decided;
    if basis == Basis::InMemory && count.owned < limit.max && found.standing.unknown.is_none() {
        told.advise(format!(
            "only {} of the {} series in memory are this instance's by the ring: with \
             -ingester.owned-series-limit-enforcement-enabled it would be admitted",
            count.owned, count.in_memory
        ));
    }
    if found.series.is_loading {
        told.advise("wait until the series of before the start are listed: /ready");
    }
}
