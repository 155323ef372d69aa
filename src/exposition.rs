//! Metric families made from plain values at scrape time.
//!
//! Most of our numbers live where they are kept right anyway (a tenant's ledger, the ring's
//! snapshot). Copying them into registered gauges would need somebody to remember which label
//! sets are stale; read at scrape time, a tenant's metrics go with the tenant.

use prometheus::core::{Collector, Desc};
use prometheus::proto::{self, Gauge, LabelPair, Metric, MetricFamily, MetricType};

use crate::sync::{AtomicU64, Ordering};

/// A count that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// How much was refused for one reason since the start: a sample of a counter, for those who
/// watch what is refused now without reading all families.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusedCount<'a> {
    /// The family that tells of it.
    pub metric: &'static str,
    /// What is counted: samples, requests, queries.
    pub unit: &'static str,
    pub reason: &'static str,
    /// Whose it was, where that is counted.
    pub tenant: Option<&'a str>,
    pub count: u64,
}

/// How much there is of what a limit bounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Used {
    pub limit: &'static str,
    pub used: f64,
    /// 0 is no limit.
    pub max: f64,
}

/// Families under construction, in the order they were opened.
#[derive(Default)]
pub struct Families(Vec<MetricFamily>);

/// One family; samples are added to it.
pub struct Family<'a>(&'a mut MetricFamily);

impl Families {
    pub fn gauges(&mut self, name: &str, help: &str) -> Family<'_> {
        self.open(name, help, MetricType::GAUGE)
    }

    pub fn counters(&mut self, name: &str, help: &str) -> Family<'_> {
        self.open(name, help, MetricType::COUNTER)
    }

    /// A gauge without labels.
    pub fn gauge(&mut self, name: &str, help: &str, value: f64) {
        self.gauges(name, help).sample([], value);
    }

    /// A counter without labels.
    pub fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.counters(name, help).sample([], value as f64);
    }

    /// What somebody keeps ready, such as a histogram.
    pub fn collected(&mut self, collector: &impl Collector) {
        self.0.extend(collector.collect());
    }

    /// Takes families out again, which somebody else exports for us.
    pub fn leave_out(&mut self, names: &[&str]) {
        self.0.retain(|family| !names.contains(&family.name()));
    }

    /// The families that have a sample; an empty one is no metric.
    pub fn into_vec(self) -> Vec<MetricFamily> {
        self.0.into_iter().filter(|family| !family.get_metric().is_empty()).collect()
    }

    fn open(&mut self, name: &str, help: &str, kind: MetricType) -> Family<'_> {
        let mut family = MetricFamily::default();
        family.set_name(name.to_owned());
        family.set_help(help.to_owned());
        family.set_field_type(kind);
        self.0.push(family);
        Family(self.0.last_mut().expect("pushed above"))
    }
}

impl Family<'_> {
    /// Adds a sample. Label names in alphabetical order, as the text form lists them.
    pub fn sample<const N: usize>(&mut self, labels: [(&str, &str); N], value: f64) {
        let mut metric = Metric::default();
        let pair = |(name, value): (&str, &str)| {
            let mut pair = LabelPair::default();
            pair.set_name(name.to_owned());
            pair.set_value(value.to_owned());
            pair
        };
        metric.set_label(labels.into_iter().map(pair).collect());
        if self.0.get_field_type() == MetricType::COUNTER {
            let mut counter = proto::Counter::default();
            counter.set_value(value);
            metric.set_counter(counter);
        } else {
            let mut gauge = Gauge::default();
            gauge.set_value(value);
            metric.set_gauge(gauge);
        }
        self.0.mut_metric().push(metric);
    }
}

/// A registry's source of families read at scrape time.
pub struct AtScrape<F> {
    /// The registry tells sources apart by their descriptions; this one stands for the source.
    id: Desc,
    read: F,
}

impl<F: Fn(&mut Families) + Send + Sync> AtScrape<F> {
    /// `name` has to be a metric name of its own among the sources of a registry.
    pub fn new(name: &str, read: F) -> Self {
        let id = Desc::new(
            name.to_owned(),
            "families read at scrape time".to_owned(),
            vec![],
            Default::default(),
        )
        .expect("the name is a literal and a valid metric name");
        Self { id, read }
    }
}

impl<F: Fn(&mut Families) + Send + Sync> Collector for AtScrape<F> {
    fn desc(&self) -> Vec<&Desc> {
        vec![&self.id]
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let mut families = Families::default();
        (self.read)(&mut families);
        families.into_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus::{Registry, TextEncoder};

    #[test]
    fn what_is_read_at_scrape_time_is_what_is_shown() {
        let registry = Registry::new();
        let source = AtScrape::new("test_source", |families: &mut Families| {
            families.gauge("a", "A.", 1.0);
            families.counters("b_total", "B.").sample([("user", "x")], 2.0);
            families.gauges("never", "No sample.");
        });
        registry.register(Box::new(source)).expect("new");
        let text = TextEncoder::new().encode_to_string(&registry.gather()).expect("text");
        let expect = "# HELP a A.\n# TYPE a gauge\na 1\n\
                      # HELP b_total B.\n# TYPE b_total counter\nb_total{user=\"x\"} 2\n";
        assert_eq!(text, expect);
    }
}
