//! How a run goes, in a line, and what became of it, as tables or JSON.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::drive::Outcomes;
use super::latency::Latencies;
use super::schedule::Pace;
use super::tally::{Count, LATE_US, Tally};
use crate::config::{LoadArgs, LoadTo};
use crate::output::{Cell, Column, Screen, Style, Table, grouped};

/// What has happened since the last line, and so far.
pub struct Progress<'a> {
    pub elapsed: Duration,
    pub window: &'a Tally,
    pub total: &'a Tally,
}

impl fmt::Display for Progress<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { elapsed, window, total } = self;
        let latency = |part| match window.latencies.quantile_us(part) {
            Some(us) => format!("{} ms", ms_text(us)),
            None => "-".to_owned(),
        };
        write!(
            f,
            "{}s  {} samples/s  {} requests/s  p50 {}  p99 {}  refused {}  unanswered {}",
            elapsed.as_secs(),
            grouped(window.accepted.samples),
            grouped(window.sent().requests),
            latency(0.5),
            latency(0.99),
            grouped(total.refused.requests),
            grouped(total.unanswered.requests),
        )
    }
}

/// What became of a run.
#[derive(Debug, Serialize)]
pub struct Summary {
    address: String,
    protocol: &'static str,
    tenants: u32,
    clients: u32,
    /// Of each tenant, at a time.
    series: u32,
    churn_per_minute: u32,
    labels: u32,
    /// Samples a second that were asked for; `None` for as many as there can be.
    rate: Option<u64>,
    seconds: f64,
    /// Before its time was over.
    stopped: bool,
    sent: Told,
    accepted: Told,
    refused: Told,
    unanswered: Told,
    /// Due before the end, and not sent.
    not_sent: Told,
    late_requests: u64,
    /// Different series that were in a request.
    series_sent: u64,
    bytes: u64,
    accepted_samples_per_second: f64,
    latency: Option<Latency>,
    errors: Vec<Error>,
    /// Of kinds beyond those of the list.
    other_errors: Told,
}

#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Told {
    requests: u64,
    samples: u64,
}

#[derive(Debug, Serialize)]
struct Latency {
    /// `due`, or `sent` where nothing is due.
    from: &'static str,
    p50_ms: f64,
    p90_ms: f64,
    p99_ms: f64,
    p999_ms: f64,
    max_ms: f64,
}

#[derive(Debug, Serialize)]
struct Error {
    /// HTTP's or gRPC's; `None` without an answer.
    status: Option<i32>,
    /// The first of its kind.
    text: String,
    requests: u64,
    samples: u64,
}

impl From<Count> for Told {
    fn from(count: Count) -> Self {
        Self { requests: count.requests, samples: count.samples }
    }
}

impl Summary {
    pub(super) fn new(args: &LoadArgs, outcomes: &Outcomes) -> Self {
        let Outcomes { tally, not_sent, elapsed, is_stopped } = outcomes;
        let rate = match args.pace {
            Pace::Rate(rate) => Some(rate.get()),
            Pace::Max => None,
        };
        let errors = tally.failures().into_iter().map(|failure| Error {
            status: failure.status,
            text: failure.example.to_owned(),
            requests: failure.count.requests,
            samples: failure.count.samples,
        });
        // A run that ends within its grace took as long as it was told to.
        let elapsed = if *is_stopped { *elapsed } else { (*elapsed).max(args.duration) };
        Self {
            address: args.asked.address.clone(),
            protocol: match args.to {
                LoadTo::RemoteWrite => "remote-write",
                LoadTo::Push => "grpc",
            },
            tenants: args.shape.tenants,
            clients: args.shape.clients,
            series: args.shape.series,
            churn_per_minute: args.shape.churn_per_minute,
            labels: args.labels,
            rate,
            seconds: elapsed.as_secs_f64(),
            stopped: *is_stopped,
            sent: tally.sent().into(),
            accepted: tally.accepted.into(),
            refused: tally.refused.into(),
            unanswered: tally.unanswered.into(),
            not_sent: (*not_sent).into(),
            late_requests: tally.late_requests,
            series_sent: tally.new_series,
            bytes: tally.bytes,
            accepted_samples_per_second: tally.accepted.samples as f64 / elapsed.as_secs_f64(),
            latency: Latency::new(&tally.latencies, rate.is_some()),
            errors: errors.collect(),
            other_errors: tally.others.into(),
        }
    }

    /// Something did not go as it should.
    pub fn is_finding(&self) -> bool {
        self.sent.requests != self.accepted.requests || self.not_sent.requests > 0
    }

    pub fn print(&self, screen: &Screen) -> String {
        let mut out = String::new();
        let stopped = if self.stopped { ", stopped" } else { "" };
        out.push_str(&format!(
            "{} to {} for {:.1} s{stopped}; tenants: {}; series of each: {}; bytes: {}\n",
            self.protocol,
            self.address,
            self.seconds,
            grouped(self.tenants.into()),
            grouped(self.series.into()),
            grouped(self.bytes),
        ));
        self.counts().print(&mut out, screen);
        out.push_str(&format!("different series sent: {}\n", grouped(self.series_sent)));
        if let Some(latency) = &self.latency {
            out.push_str(&format!("{latency}\n"));
        }
        if self.rate.is_some() {
            out.push_str(&format!(
                "requests sent more than {} ms late: {}\n",
                LATE_US / 1000,
                grouped(self.late_requests)
            ));
        }
        self.print_errors(&mut out, screen);
        out
    }

    fn counts(&self) -> Table {
        let mut table = Table::new([
            Column::word(""),
            Column::number("requests"),
            Column::number("samples"),
            Column::number("samples/s"),
        ]);
        let bad = |count: &Told| if count.requests > 0 { Style::Bad } else { Style::Plain };
        let mut row = |name: &str, count: &Told, style: Style| {
            let per_second = count.samples as f64 / self.seconds.max(f64::MIN_POSITIVE);
            table.row([
                Cell::new(style, name),
                Cell::from(grouped(count.requests)),
                Cell::from(grouped(count.samples)),
                Cell::from(grouped(per_second.round() as u64)),
            ]);
        };
        row("sent", &self.sent, Style::Plain);
        row("accepted", &self.accepted, Style::Plain);
        row("refused", &self.refused, bad(&self.refused));
        row("unanswered", &self.unanswered, bad(&self.unanswered));
        row("not sent in time", &self.not_sent, bad(&self.not_sent));
        table
    }

    fn print_errors(&self, out: &mut String, screen: &Screen) {
        if self.errors.is_empty() {
            return;
        }
        let mut table = Table::new([
            Column::number("status"),
            Column::number("requests"),
            Column::number("samples"),
            Column::text("first of its kind"),
        ]);
        for error in &self.errors {
            table.row([
                Cell::from(error.status.map_or("-".to_owned(), |status| status.to_string())),
                Cell::from(grouped(error.requests)),
                Cell::from(grouped(error.samples)),
                Cell::new(Style::Bad, &error.text),
            ]);
        }
        if self.other_errors.requests > 0 {
            table.row([
                Cell::from("…"),
                Cell::from(grouped(self.other_errors.requests)),
                Cell::from(grouped(self.other_errors.samples)),
                Cell::from("other kinds"),
            ]);
        }
        table.print(out, screen);
    }
}

impl Latency {
    fn new(latencies: &Latencies, has_rate: bool) -> Option<Self> {
        let ms = |part| latencies.quantile_us(part).map(|us| us as f64 / 1000.0);
        Some(Self {
            from: if has_rate { "due" } else { "sent" },
            p50_ms: ms(0.5)?,
            p90_ms: ms(0.9)?,
            p99_ms: ms(0.99)?,
            p999_ms: ms(0.999)?,
            max_ms: latencies.max_us()? as f64 / 1000.0,
        })
    }
}

impl fmt::Display for Latency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let from = match self.from {
            "due" => "from when a request was due",
            _ => "from the sending (without a rate, a stall hides the requests it kept back)",
        };
        let text = |ms: f64| ms_text((ms * 1000.0) as u64);
        write!(
            f,
            "latency p50 {} p90 {} p99 {} p99.9 {} max {} ms, {from}",
            text(self.p50_ms),
            text(self.p90_ms),
            text(self.p99_ms),
            text(self.p999_ms),
            text(self.max_ms),
        )
    }
}

/// Milliseconds with three digits that count.
fn ms_text(us: u64) -> String {
    let ms = us as f64 / 1000.0;
    match us {
        0..10_000 => format!("{ms:.2}"),
        10_000..100_000 => format!("{ms:.1}"),
        _ => format!("{ms:.0}"),
    }
}
