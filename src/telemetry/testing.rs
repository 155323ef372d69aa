//! What is logged, for tests of those who log.

use std::io;
use std::sync::{Arc, Mutex};

use serde_json::Value;
use tracing_subscriber::layer::SubscriberExt as _;

use super::Logfmt;
use super::error_ids::WithErrorIds;
use crate::server::config::LogFormat;

#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl Written {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().expect("lock").clone()).expect("text")
    }
}

impl io::Write for Written {
    fn write(&mut self, part: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("lock").write(part)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The lines that `act` logs on this thread, each as `-log.format=json` writes it.
pub fn logged(act: impl FnOnce()) -> Vec<Value> {
    let written = Written::default();
    let writer = written.clone();
    let layer = tracing_subscriber::fmt::layer()
        .json()
        .flatten_event(true)
        .map_event_format(|json| WithErrorIds::new(json, LogFormat::Json))
        .with_writer(move || writer.clone());
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), act);
    written.text().lines().map(|line| serde_json::from_str(line).expect("a line")).collect()
}

/// The same as `-log.format=logfmt` writes it.
pub fn logfmt(act: impl FnOnce()) -> String {
    let written = Written::default();
    let writer = written.clone();
    let layer = tracing_subscriber::fmt::layer()
        .event_format(WithErrorIds::new(Logfmt, LogFormat::Logfmt))
        .with_writer(move || writer.clone());
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), act);
    written.text()
}
