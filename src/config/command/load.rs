//! `freehold load`: what it is told.

use std::num::NonZeroU64;
use std::time::Duration;

use clap::{Arg, ArgMatches};

use super::Output;
use super::options::{self, AskedArgs, text};
use crate::load::{Pace, Shape, Values};
use crate::units::Millis;

pub(super) const NAME: &str = "load";

/// How often a series gets a sample unless a rate is told: as Prometheus scrapes.
const SCRAPE_S: u64 = 15;
/// Most samples a second: what no machine sends. What is due and not sent has to be a number.
const RATE_MAX: u64 = 1_000_000_000;

/// What `freehold load` is told.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadArgs {
    pub to: LoadTo,
    pub asked: AskedArgs,
    /// The tenant, or with several the beginning of their names.
    pub tenant: String,
    pub shape: Shape,
    pub pace: Pace,
    /// Metric names that a tenant's series spread over.
    pub metrics: u32,
    /// Labels of each series, beside its metric name.
    pub labels: u32,
    pub values: Values,
    pub seed: u64,
    pub duration: Duration,
    /// How long a request may take.
    pub timeout: Duration,
    pub output: Output,
}

/// What is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadTo {
    /// Remote write 1.0 over HTTP.
    RemoteWrite,
    /// `cortex.Ingester/Push` over gRPC.
    Push,
}

pub(super) fn read(given: &ArgMatches) -> LoadArgs {
    let number = |name: &str| *given.get_one::<u32>(name).expect("it has a default");
    let duration =
        |name: &str| given.get_one::<Millis>(name).expect("it has a default").as_duration();
    let shape = Shape {
        tenants: number("tenants"),
        series: number("series"),
        churn_per_minute: number("churn"),
        batch: number("batch"),
        clients: number("clients"),
        lanes: number("concurrency"),
    };
    let to = match text(given, "protocol").as_deref() {
        Some("grpc") => LoadTo::Push,
        _ => LoadTo::RemoteWrite,
    };
    let mut asked = AskedArgs::read(given);
    if given.value_source("address") == Some(clap::parser::ValueSource::DefaultValue)
        && to == LoadTo::Push
    {
        asked.address = GRPC_ADDRESS.to_owned();
    }
    LoadArgs {
        to,
        asked,
        tenant: text(given, "tenant").expect("it has a default"),
        pace: given.get_one("rate").copied().unwrap_or_else(|| {
            let samples = u64::from(shape.tenants) * u64::from(shape.series) / SCRAPE_S;
            Pace::Rate(NonZeroU64::new(samples).unwrap_or(NonZeroU64::MIN))
        }),
        shape,
        metrics: number("metrics"),
        labels: number("labels"),
        values: match text(given, "values").as_deref() {
            Some("gauge") => Values::Gauge,
            Some("constant") => Values::Constant,
            _ => Values::Counter,
        },
        seed: *given.get_one("seed").expect("it has a default"),
        duration: duration("duration"),
        timeout: duration("timeout"),
        output: options::output(given),
    }
}

const HTTP_ADDRESS: &str = "http://127.0.0.1:8080";
const GRPC_ADDRESS: &str = "127.0.0.1:9095";

pub(super) fn command() -> clap::Command {
    let option = |name: &'static str| Arg::new(name).long(name);
    let number = |name: &'static str, default: &'static str, most: i64| {
        let least = i64::from(default != "0");
        option(name)
            .value_name("N")
            .value_parser(clap::value_parser!(u32).range(least..=most))
            .default_value(default)
    };
    let span = |name: &'static str, default: &'static str| {
        option(name).value_name("TIME").value_parser(parse_span).default_value(default)
    };
    clap::Command::new(NAME)
        .about("Send made-up series, and tell what became of them")
        .after_help(
            "Series, labels and values follow from the seed, so two runs send the same. \
             Nothing is sent twice: what is refused is counted, and the schedule goes on.\n\n\
             With a rate, each request has its time, and its latency counts from then: a server \
             that stalls is charged for what had to wait. With --rate max there is no such time; \
             latencies count from the sending, and say little of a server that stalls.\n\n\
             A stop by Ctrl-C ends with the summary too. Ends with 3 when something was refused, \
             not answered, or not sent in time.",
        )
        .args(AskedArgs::options(
            HTTP_ADDRESS,
            "Where to: a URL, /api/v1/push unless it has a path; for grpc the HOST:PORT of an \
             ingester, by default 127.0.0.1:9095",
        ))
        .arg(
            option("protocol")
                .value_name("PROTOCOL")
                .value_parser(["remote-write", "grpc"])
                .default_value("remote-write")
                .help("Remote write 1.0, or an ingester's Push"),
        )
        .arg(
            option("tenant")
                .value_name("TENANT")
                .value_parser(parse_tenant)
                .default_value("load")
                .help("Who sends; with several tenants the beginning of their names"),
        )
        .arg(number("tenants", "1", 1_000_000).help("Tenants: TENANT-1 to TENANT-N"))
        .arg(number("clients", "0", 1_000_000).help(
            "Clients of each tenant, in X-Scope-ClientID: client-1 to client-N; 0 sends none",
        ))
        .arg(number("series", "10000", 100_000_000).help("Series of each tenant at a time"))
        .arg(
            number("churn", "0", 1_000_000_000)
                .help("Series of each tenant that end and are followed by new ones, per minute"),
        )
        .arg(number("metrics", "100", 1_000_000).help("Metric names that the series spread over"))
        .arg(number("labels", "10", 60).help("Labels of each series, beside its metric name"))
        .arg(
            option("values")
                .value_name("PATTERN")
                .value_parser(["counter", "gauge", "constant"])
                .default_value("counter")
                .help("What samples say: a sum that rises, a wave, the same"),
        )
        .arg(
            option("rate")
                .value_name("N|max")
                .value_parser(parse_pace)
                .help("Samples a second, of all tenants; default each series every 15 seconds"),
        )
        .arg(span("duration", "1m").help("How long"))
        .arg(number("batch", "500", 100_000).help("Samples of a request, each of another series"))
        .arg(number("concurrency", "8", 10_000).help("Requests under way at once"))
        .arg(span("timeout", "10s").help("How long a request may take"))
        .arg(
            option("seed")
                .value_name("N")
                .value_parser(clap::value_parser!(u64))
                .default_value("1")
                .help("What series and values are drawn from"),
        )
        .arg(options::output_arg())
}

fn parse_pace(text: &str) -> Result<Pace, String> {
    match text {
        "max" => Ok(Pace::Max),
        text => match text.parse::<NonZeroU64>() {
            Ok(rate) if rate.get() <= RATE_MAX => Ok(Pace::Rate(rate)),
            _ => Err(format!(
                "write how many samples a second, from 1 to {RATE_MAX}, or max for as many as there \
                 can be"
            )),
        },
    }
}

fn parse_span(text: &str) -> Result<Millis, String> {
    match Millis::parse(text) {
        Ok(Millis(0)) => Err("it must be more than 0".to_owned()),
        Ok(span) => Ok(span),
        Err(error) => Err(error.to_string()),
    }
}

/// Every name made of it is a tenant's.
fn parse_tenant(text: &str) -> Result<String, String> {
    // As long as the longest name that is made of it.
    let longest = format!("{text}-1000000");
    match crate::tenant::TenantId::parse(&longest) {
        Ok(_) => Ok(text.to_owned()),
        Err(error) => Err(error.to_string()),
    }
}
