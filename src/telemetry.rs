//! What the process says of itself: log lines, the metrics registry, and its text.
//!
//! The subscriber is set once by `main`; the registry is a value that the app hands down, so
//! that a test has its own. Both are the shell's: rooms log through `tracing` and register what
//! they are given.

mod error_ids;
mod process;
#[cfg(test)]
pub mod testing;

use std::fmt::{self, Write as _};
use std::io;
use std::time::{SystemTime, UNIX_EPOCH};

use prometheus::proto::{Counter, Metric, MetricFamily};
use prometheus::{Encoder as _, Gauge, IntGaugeVec, Opts, Registry, TextEncoder};
use time::OffsetDateTime;
use time::format_description::BorrowedFormatItem;
use time::macros::format_description;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::{SubscriberInitExt as _, TryInitError};

use crate::server::config::{LogFormat, LogLevel, ServerConfig};

use error_ids::WithErrorIds;

/// Longest answer of `/metrics`, in bytes.
///
/// 10,000 tenants with 30 series of 150 bytes are 45 MB. What is longer would be dropped by
/// every scraper's own limit, and it would be our memory that paid for it.
pub const METRICS_TEXT_BYTES_MAX: usize = 256 << 20;

/// In the names of families that more than one room counts into.
const DISCARDS: &str = "_discarded_";

/// Why there is no text of the metrics.
#[derive(Debug, thiserror::Error)]
pub enum MetricsTextError {
    #[error("cannot write the metrics as text")]
    Encode(#[from] prometheus::Error),
}

/// Sends log lines to standard error, as the configuration says.
///
/// Our own lines are kept from the configured level on, those of libraries from `warn` on: at
/// `debug` HTTP/2 would log every frame.
pub fn start_logging(config: &ServerConfig) -> Result<(), TryInitError> {
    let level = level_filter(config.log_level);
    let filter = Targets::new()
        .with_target(env!("CARGO_PKG_NAME"), level)
        .with_default(level.min(LevelFilter::WARN));
    let lines = tracing_subscriber::fmt::layer().with_writer(io::stderr);
    let lines = match config.log_format {
        LogFormat::Json => lines
            .json()
            .flatten_event(true)
            .map_event_format(|json| WithErrorIds::new(json, LogFormat::Json))
            .boxed(),
        LogFormat::Logfmt => {
            lines.event_format(WithErrorIds::new(Logfmt, LogFormat::Logfmt)).boxed()
        }
    };
    tracing_subscriber::registry().with(lines.with_filter(filter)).try_init()
}

/// A registry that knows the build and the start of the process.
pub fn registry() -> Registry {
    let registry = Registry::new();
    let build = IntGaugeVec::new(
        Opts::new("freehold_build_info", "Constant 1, with the version and the compiler's target."),
        &["version", "arch", "os"],
    )
    .expect("name and labels are valid");
    let target = [env!("CARGO_PKG_VERSION"), std::env::consts::ARCH, std::env::consts::OS];
    build.with_label_values(&target).set(1);
    let start = Gauge::new(
        "process_start_time_seconds",
        "Start time of the process since unix epoch in seconds.",
    )
    .expect("the name is valid");
    start.set(now_secs());
    registry.register(Box::new(build)).expect("the registry is empty");
    registry.register(Box::new(start)).expect("no other metric has this name");
    process::register(&registry);
    registry
}

/// The registry in Prometheus' text format.
pub fn metrics_text(registry: &Registry) -> Result<String, MetricsTextError> {
    let mut text = Bounded { bytes: Vec::new(), bytes_max: METRICS_TEXT_BYTES_MAX };
    let mut families = registry.gather();
    add_up_discards(&mut families);
    TextEncoder::new().encode(&families, &mut text)?;
    Ok(String::from_utf8(text.bytes).expect("the encoder writes names, numbers and valid texts"))
}

/// Adds up what two rooms of one process have discarded for the same reason: distributor and
/// ingester count under one name, as in Cortex, and a sample may stand in the text only once.
fn add_up_discards(families: &mut [MetricFamily]) {
    for family in families.iter_mut().filter(|family| family.name().contains(DISCARDS)) {
        let mut sums: Vec<Metric> = Vec::new();
        // The registry has sorted them, so equal label sets are neighbours.
        for metric in family.take_metric() {
            match sums.last_mut().filter(|last| last.get_label() == metric.get_label()) {
                None => sums.push(metric),
                Some(last) => {
                    let mut counter = Counter::default();
                    let sum = last.get_counter().get_value() + metric.get_counter().get_value();
                    counter.set_value(sum);
                    last.set_counter(counter);
                }
            }
        }
        family.set_metric(sums);
    }
}

fn level_filter(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Error => LevelFilter::ERROR,
    }
}

#[expect(clippy::disallowed_methods, reason = "the shell is where the wall clock is read")]
fn now_secs() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

/// A buffer that refuses to grow past its bound.
struct Bounded {
    bytes: Vec<u8>,
    bytes_max: usize,
}

impl io::Write for Bounded {
    fn write(&mut self, part: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + part.len() > self.bytes_max {
            return Err(io::Error::other(format!("they are longer than {} bytes", self.bytes_max)));
        }
        self.bytes.extend_from_slice(part);
        Ok(part.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// One event per line as `key=value`, the form that Cortex and Prometheus log in.
struct Logfmt;

const TIMESTAMP: &[BorrowedFormatItem<'_>] =
    format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z");

impl<S, N> FormatEvent<S, N> for Logfmt
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let now = OffsetDateTime::now_utc().format(TIMESTAMP).map_err(|_| fmt::Error)?;
        let level = match *event.metadata().level() {
            Level::ERROR => "error",
            Level::WARN => "warn",
            Level::INFO => "info",
            Level::DEBUG => "debug",
            Level::TRACE => "trace",
        };
        write!(writer, "ts={now} level={level} caller={}", event.metadata().target())?;
        let mut pairs = Pairs { text: String::new() };
        event.record(&mut pairs);
        writeln!(writer, "{}", pairs.text)
    }
}

/// The fields of an event, the message under `msg`.
struct Pairs {
    text: String,
}

impl Pairs {
    fn push(&mut self, field: &Field, value: &str) {
        let key = if field.name() == "message" { "msg" } else { field.name() };
        let is_plain = !value.is_empty()
            && value.chars().all(|c| c.is_ascii_graphic() && !matches!(c, '"' | '=' | '\\'));
        // Writing to a `String` cannot fail.
        let _ = match is_plain {
            true => write!(self.text, " {key}={value}"),
            false => write!(self.text, " {key}={value:?}"),
        };
    }
}

impl Visit for Pairs {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.push(field, value);
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.push(field, &with_causes(value));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.push(field, &format!("{value:?}"));
    }
}

fn with_causes(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        // Writing to a `String` cannot fail.
        let _ = write!(text, ": {error}");
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line_of_pairs_and_what_could_break_it_is_quoted() {
        let error = MetricsTextError::Encode(prometheus::Error::Msg("too long".into()));
        let text = testing::logfmt(|| {
            tracing::warn!(
                tenant = %"a\nlevel=error",
                series = 5,
                error = &error as &dyn std::error::Error,
                "limit hit"
            );
        });
        let (ts, rest) = text.split_once(' ').unwrap();
        assert!(ts.starts_with("ts=2") && ts.ends_with('Z'), "{ts}");
        let wanted = "level=warn caller=freehold::telemetry::tests msg=\"limit hit\" \
                      tenant=\"a\\nlevel=error\" series=5 \
                      error=\"cannot write the metrics as text: Error: too long\"\n";
        assert_eq!(rest, wanted);
    }

    /// What `docs/tracing-and-logs.md` promises of both forms.
    #[test]
    fn both_forms_of_a_line_have_the_same_keys() {
        let told = || tracing::warn!(tenant = "a", reason = "why", untold = 0_u64, "write refused");
        let json = testing::logged(told);
        let json: Vec<&str> = json[0].as_object().unwrap().keys().map(String::as_str).collect();
        let text = testing::logfmt(told);
        let pair = regex::Regex::new(r#"([a-z_]+)=(?:"[^"]*"|\S+)"#).unwrap();
        let mut logfmt: Vec<&str> = pair
            .captures_iter(&text)
            .map(|pair| match pair.get(1).unwrap().as_str() {
                "ts" => "timestamp",
                "caller" => "target",
                "msg" => "message",
                key => key,
            })
            .collect();
        logfmt.sort_unstable();
        assert_eq!(logfmt, json, "{text}");
    }

    #[test]
    fn the_registry_knows_the_build_and_the_start() {
        let text = metrics_text(&registry()).unwrap();
        assert!(text.contains("\nfreehold_build_info{arch="), "{text}");
        let start = text.lines().find_map(|line| line.strip_prefix("process_start_time_seconds "));
        assert!(start.unwrap().parse::<f64>().unwrap() > 1.7e9);
    }

    #[test]
    fn a_text_past_its_bound_is_an_error() {
        let mut text = Bounded { bytes: Vec::new(), bytes_max: 10 };
        let families = registry().gather();
        assert!(TextEncoder::new().encode(&families, &mut text).is_err());
        assert!(text.bytes.len() <= 10);
    }
}
