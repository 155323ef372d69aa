//! The ids of the errors that a log line holds, beside its text.
//!
//! Whoever logs writes the text that its sender was told, or an upstream's, and no room knows the
//! catalogue; so the id is found where the line is written, once for all of them. A line that
//! names its `error_id` itself, since it has no such text, keeps that.
//!
//! A line costs a search for each text of the catalogue, some ten microseconds, and only lines of
//! trouble are searched: those are told a few times a second at the most, while there may be a
//! `debug` line per connection.

use std::fmt::{self, Write as _};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::explain::catalogue::Catalogue;
use crate::server::config::LogFormat;

/// The key of a line that holds the error's text, and the one that is added.
const ERROR: &str = "error";
const ERROR_ID: &str = "error_id";

/// Lines as `inner` writes them, with the ids of their errors.
pub struct WithErrorIds<F> {
    inner: F,
    /// As which `inner` writes: where a pair can be added hangs on it.
    form: LogFormat,
    catalogue: Catalogue,
}

impl<F> WithErrorIds<F> {
    pub fn new(inner: F, form: LogFormat) -> Self {
        Self { inner, form, catalogue: Catalogue::new() }
    }

    fn ids(&self, event: &Event<'_>) -> Option<String> {
        if *event.metadata().level() > Level::WARN {
            return None;
        }
        let mut read = Read::default();
        event.record(&mut read);
        match read {
            Read { error: Some(text), has_id: false } => self.catalogue.ids(&text),
            _ => None,
        }
    }
}

impl<S, N, F> FormatEvent<S, N> for WithErrorIds<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let Some(ids) = self.ids(event) else {
            return self.inner.format_event(context, writer, event);
        };
        let mut line = String::new();
        self.inner.format_event(context, Writer::new(&mut line), event)?;
        // An id is letters and hyphens, and a comma is between two, so nothing is to be escaped.
        match self.form {
            LogFormat::Logfmt => {
                let pairs = line.trim_end_matches('\n');
                writeln!(writer, "{pairs} {ERROR_ID}={ids}")
            }
            LogFormat::Json => {
                // The fields are flat, so the last brace is the one that ends the line.
                let (object, _) = line.rsplit_once('}').ok_or(fmt::Error)?;
                writeln!(writer, "{object},\"{ERROR_ID}\":\"{ids}\"}}")
            }
        }
    }
}

/// What a line has of an error.
#[derive(Default)]
struct Read {
    error: Option<String>,
    has_id: bool,
}

impl Visit for Read {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            ERROR => self.error = Some(value.to_owned()),
            ERROR_ID => self.has_id = true,
            _ => {}
        }
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        if field.name() == ERROR {
            self.error = Some(super::with_causes(value));
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == ERROR {
            let mut text = String::new();
            // Writing to a `String` cannot fail.
            let _ = write!(text, "{value:?}");
            self.error = Some(text);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::telemetry::testing::{logfmt, logged};

    const TEXT: &str = "per-user series limit of 5 exceeded, please ask me (local limit: 0 global \
                        limit: 5 actual local limit: 5)";

    #[test]
    fn an_error_that_is_known_has_its_id_in_both_forms() {
        let quorum = format!(
            "maxFailure (quorum) on a given error family, addr=10.0.0.1:9095 state=ACTIVE zone=a, \
             rpc error: code = Code(400) desc = user=t: {TEXT}"
        );
        for (text, ids) in
            [(TEXT, "series-limit-tenant"), (&quorum, "quorum-failed,series-limit-tenant")]
        {
            let told = || tracing::warn!(error = text, untold = 0, "push refused");
            let lines = logged(told);
            assert_eq!((&lines[0]["error_id"], &lines[0]["error"]), (&ids.into(), &text.into()));
            let line = logfmt(told);
            assert!(line.ends_with(&format!(" untold=0 error_id={ids}\n")), "{line}");
            assert_eq!(line.lines().count(), 1, "{line}");
        }
    }

    #[test]
    fn values_of_every_kind_are_read_and_braces_in_them_end_no_line() {
        let source = std::io::Error::other(format!("{TEXT} for {{a=\"}}\"}}"));
        let error: &(dyn std::error::Error + 'static) = &source;
        let lines = logged(|| {
            tracing::warn!(error, "one");
            tracing::error!(error = %source, "two }}");
        });
        assert_eq!(lines.len(), 2);
        for line in lines {
            assert_eq!(line["error_id"], "series-limit-tenant", "{line}");
        }
    }

    #[test]
    fn what_is_unknown_named_already_or_no_trouble_gets_none() {
        let lines = logged(|| {
            tracing::warn!(error = "it rains", "one");
            tracing::info!(error = TEXT, "two");
            tracing::warn!(reason = TEXT, "three");
            tracing::warn!(error = TEXT, error_id = "front-door-denied", "four");
        });
        let ids: Vec<Option<&str>> =
            lines.iter().map(|line| line.get("error_id")?.as_str()).collect();
        assert_eq!(ids, [None, None, None, Some("front-door-denied")]);
    }
}
