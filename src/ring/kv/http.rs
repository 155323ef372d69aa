//! A ring as the `/ring` page of a Cortex process shows it, asked for again and again.
//!
//! Read only, and needs no credentials of the store behind it: gossip can be followed too. What
//! a page does not tell is in [`super::ring_page`].
//!
//! Invariant: what a poll brings is a whole page or an error; a server that says "not modified"
//! is believed only of the page that we hold.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request, StatusCode, header};
use http_body_util::Full;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use super::dial::{DialError, Dialler, Protocol};
use super::exchange::{Answer, Bounds, exchange};
use super::requests::Requests;
use super::{KvError, KvSetupError, KvValue, one_line, reason};
use crate::ring::config::HttpKvConfig;

/// Longest page that is read: ten times 1000 members of 512 tokens.
const PAGE_BYTES_MAX: usize = 64 << 20;

/// Clones share the page last read.
#[derive(Clone, Debug)]
pub struct HttpKv {
    dialler: Dialler,
    path: String,
    poll_interval: Duration,
    deadline: Duration,
    /// Locked to copy a page in or out.
    page: Arc<Mutex<Option<Page>>>,
    pub(super) requests: Option<Requests>,
}

#[derive(Debug)]
pub struct HttpWatch {
    kv: HttpKv,
    ticks: Interval,
    /// What was told last; `None` after a failure, so that the next page is news.
    told: Option<Bytes>,
}

#[derive(Clone, Debug)]
struct Page {
    bytes: Bytes,
    /// Headers that ask for a page only if it is another one.
    unless: Option<(HeaderName, HeaderValue)>,
}

impl HttpKv {
    pub(super) fn new(
        config: &HttpKvConfig,
        requests: Option<Requests>,
    ) -> Result<Self, KvSetupError> {
        let (address, is_tls) = config.address()?;
        let path = address.path.clone();
        let tls = is_tls.then_some(&config.tls);
        let dial_error = |source: DialError| KvSetupError::Dial { source };
        let dialler = Dialler::new(address, tls, Protocol::Http1).map_err(dial_error)?;
        let kv = Self {
            dialler,
            path,
            poll_interval: config.poll_interval.as_duration(),
            deadline: config.timeout.as_duration(),
            page: Arc::default(),
            requests,
        };
        // A path that no request can carry is found at the start.
        kv.request(None).map_err(|_| KvSetupError::Path)?;
        Ok(kv)
    }

    pub(super) async fn get(&self) -> Result<KvValue, KvError> {
        let known = self.page.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let unless = known.as_ref().and_then(|page| page.unless.as_ref());
        let request = self.request(unless).map_err(|error| self.error(reason(&error)))?;
        let bounds = Bounds { deadline: self.deadline, body_bytes_max: PAGE_BYTES_MAX };
        let answer = exchange(&self.dialler, request, bounds).await;
        let answer = answer.map_err(|error| self.error(reason(&error)))?;
        let page = match (answer.status, known) {
            (StatusCode::OK, _) => Page { unless: unless_modified(&answer), bytes: answer.body },
            (StatusCode::NOT_MODIFIED, Some(known)) => known,
            _ => return Err(self.refused(&answer)),
        };
        let bytes = page.bytes.clone();
        *self.page.lock().unwrap_or_else(PoisonError::into_inner) = Some(page);
        Ok(KvValue { bytes: Some(bytes), version: 0, stored_at_ms: None })
    }

    pub(super) fn watch(&self) -> HttpWatch {
        let mut ticks = interval_at(Instant::now(), self.poll_interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        HttpWatch { kv: self.clone(), ticks, told: None }
    }

    fn request(
        &self,
        unless: Option<&(HeaderName, HeaderValue)>,
    ) -> Result<Request<Full<Bytes>>, http::Error> {
        let request = Request::get(&self.path)
            .header(header::HOST, self.dialler.address().authority())
            .header(header::ACCEPT, "application/json");
        let request = match unless {
            Some((name, value)) => request.header(name, value),
            None => request,
        };
        request.body(Full::default())
    }

    fn refused(&self, answer: &Answer) -> KvError {
        let location = answer.headers.get(header::LOCATION);
        let to = location.map_or_else(String::new, |to| {
            format!(" to {}", one_line(&String::from_utf8_lossy(to.as_bytes())))
        });
        self.error(format!("answered {}{to}: {}", answer.status, answer.text()))
    }

    fn error(&self, reason: String) -> KvError {
        KvError::Call { store: "the ring page", at: self.endpoint(), reason }
    }

    pub(super) fn endpoint(&self) -> String {
        format!("{}{}", self.dialler.address().authority(), self.path)
    }
}

impl HttpWatch {
    /// Cancel-safe: a tick that is lost to a cancelled poll only delays the next one.
    pub(super) async fn next(&mut self) -> Result<KvValue, KvError> {
        loop {
            self.ticks.tick().await;
            let value = match self.kv.get().await {
                Ok(value) => value,
                Err(error) => {
                    self.told = None;
                    return Err(error);
                }
            };
            // A living page carries its time, so it differs from poll to poll.
            if value.bytes != self.told {
                self.told = value.bytes.clone();
                return Ok(value);
            }
        }
    }
}

fn unless_modified(answer: &Answer) -> Option<(HeaderName, HeaderValue)> {
    let headers = &answer.headers;
    let by_tag = headers.get(header::ETAG).map(|tag| (header::IF_NONE_MATCH, tag.clone()));
    by_tag.or_else(|| {
        let modified = headers.get(header::LAST_MODIFIED)?;
        Some((header::IF_MODIFIED_SINCE, modified.clone()))
    })
}
