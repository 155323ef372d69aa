//! The front door on HTTP: who comes in, and what the answer says about him.
//!
//! It lies over all routes, so that a request meets it before anything of it is read but its head.
//! A request leaves when the headers of its answer are there: its body may go on for hours. One
//! that is dropped before, because its sender went or the process ends, leaves as broken off.

mod answer;
mod routes;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use ::http::{HeaderMap, HeaderName, HeaderValue, Request, header};
use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::response::Response;
use tower::Service;

use crate::clock::Clock;
use crate::front_door::address::HopHeader;
use crate::front_door::{Answer, FrontDoor, OverLimit, Pass, Refusal, RouteClass};
use crate::ratelimit::{LogLines, RateLimitHeaders};
use crate::trail::Trail;

pub use routes::Routes;

/// On an answer: a limiter of this process refused the request.
#[derive(Clone, Copy, Debug)]
pub struct OwnRefusal;

/// On an answer: the request's body was none that could be read.
#[derive(Clone, Copy, Debug)]
pub struct Unreadable;

/// The front door as the edge has it; cheap to clone.
#[derive(Clone)]
pub struct FrontDoorEdge(Arc<Inner>);

struct Inner {
    door: Arc<FrontDoor>,
    clock: Clock,
    routes: Routes,
    headers: RateLimitHeaders,
    log: Mutex<Log>,
}

/// Lines of each kind that may still be written.
#[derive(Default)]
struct Log {
    over_limit: [LogLines; 3],
    denied: LogLines,
    no_address: LogLines,
}

impl FrontDoorEdge {
    pub fn new(
        door: Arc<FrontDoor>,
        clock: Clock,
        routes: Routes,
        headers: RateLimitHeaders,
    ) -> Self {
        Self(Arc::new(Inner { door, clock, routes, headers, log: Mutex::default() }))
    }

    /// Puts it in front of all routes: once, around the router, since a layer of the router's is
    /// copied with each request's route.
    pub fn before(self, router: Router) -> Router {
        Router::new().fallback_service(Guarded { edge: self, router })
    }
}

/// A router behind the front door.
#[derive(Clone)]
struct Guarded {
    edge: FrontDoorEdge,
    router: Router,
}

impl Service<Request<Body>> for Guarded {
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    /// A request's whole way: in, to its route, and out.
    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let inner = &self.edge.0;
        let Some(class) = inner.routes.class(request.uri().path()) else {
            return Box::pin(self.router.call(request));
        };
        let pass = match inner.enter(class, &request) {
            Ok(pass) => pass,
            Err(refused) => return Box::pin(std::future::ready(Ok(*refused))),
        };
        // Before anything else, so that it leaves though nobody ever asks for the answer.
        let mut visit = Visit { inner: Arc::clone(inner), class, pass: Some(pass) };
        let answer = self.router.call(request);
        Box::pin(async move {
            let mut response = answer.await?;
            visit.answered(&mut response);
            Ok(response)
        })
    }
}

impl Inner {
    fn enter<B>(&self, class: RouteClass, request: &Request<B>) -> Result<Pass, Box<Response>> {
        let now_ns = self.clock.steady_ns();
        let trail = request.extensions().get::<Trail>();
        let Some(ConnectInfo(peer)) = request.extensions().get::<ConnectInfo<SocketAddr>>() else {
            // Known of every connection, unless its other end has gone.
            self.log(
                |log| &mut log.no_address,
                now_ns,
                |untold| {
                    let request_id = trail.and_then(Trail::id);
                    tracing::warn!(
                        request_id,
                        untold,
                        error_id = answer::NO_ADDRESS.error_id,
                        "a request without an address is refused"
                    );
                },
            );
            return Err(Box::new(answer::no_address(class)));
        };
        let headers = request.headers();
        let hops = match self.door.hop_header() {
            HopHeader::XForwardedFor => values(headers, X_FORWARDED_FOR),
            HopHeader::Forwarded => values(headers, header::FORWARDED),
        };
        let found = self.door.find(peer.ip(), hops);
        let authorization = values(headers, header::AUTHORIZATION);
        let entered = self.door.enter(class, found.address, authorization, now_ns);
        entered.map_err(|refusal| {
            self.tell(class, &refusal, trail, now_ns);
            Box::new(answer::refused(class, &refusal, self.headers))
        })
    }

    /// A line for the log, with nothing in it that a sender chose but what it calls the request.
    fn tell(&self, class: RouteClass, refusal: &Refusal, trail: Option<&Trail>, now_ns: i64) {
        let (class, request_id) = (class.as_str(), trail.and_then(Trail::id));
        if let Some(trail) = trail {
            trail.span.text("freehold.refused.reason", "front_door");
        }
        match *refusal {
            Refusal::Denied => self.log(
                |log| &mut log.denied,
                now_ns,
                |untold| {
                    tracing::warn!(
                        class,
                        request_id,
                        untold,
                        error_id = answer::DENIED.error_id,
                        "a request of a denied address is refused"
                    );
                },
            ),
            Refusal::OverLimit(OverLimit { limiter, key, .. }) => self.log(
                |log| &mut log.over_limit[limiter as usize],
                now_ns,
                |untold| {
                    let error_id = answer::told(limiter).error_id;
                    let limiter = limiter.as_str();
                    tracing::warn!(
                        class, limiter, address_key = %key, request_id, untold, error_id,
                        "refused at the front door"
                    );
                },
            ),
        }
    }

    fn log(
        &self,
        lines: impl FnOnce(&mut Log) -> &mut LogLines,
        now_ns: i64,
        write: impl FnOnce(u64),
    ) {
        // The line is written after the lock is released.
        let untold = {
            let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
            lines(&mut log).take(now_ns)
        };
        if let Some(untold) = untold {
            write(untold);
        }
    }
}

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

fn values(headers: &HeaderMap, name: HeaderName) -> impl DoubleEndedIterator<Item = &[u8]> {
    headers.get_all(name).into_iter().map(HeaderValue::as_bytes)
}

/// A request that is in; it leaves when this is dropped, if not before.
struct Visit {
    inner: Arc<Inner>,
    class: RouteClass,
    pass: Option<Pass>,
}

impl Visit {
    fn answered(&mut self, response: &mut Response) {
        let Some(pass) = self.pass.take() else { return };
        let door = &self.inner.door;
        if self.inner.headers != RateLimitHeaders::Off
            && let Some((limiter, left)) = pass.left()
        {
            answer::tell_left(response, self.inner.headers, limiter, left);
        }
        let extensions = response.extensions();
        let outcome = door.outcome(
            self.class,
            Answer {
                status: response.status().as_u16(),
                is_own_refusal: extensions.get::<OwnRefusal>().is_some(),
                is_unreadable: extensions.get::<Unreadable>().is_some(),
            },
        );
        door.leave(pass, outcome, self.inner.clock.steady_ns());
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        if let Some(pass) = self.pass.take() {
            let outcome = self.inner.door.outcome_of_abort(self.class);
            self.inner.door.leave(pass, outcome, self.inner.clock.steady_ns());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::catalogue::Catalogue;
    use crate::front_door::config::{ClassConfig, FrontDoorConfig, Limiter};
    use crate::front_door::networks::Network;
    use crate::telemetry::testing::logged;

    /// A request to `path`, from `peer` if that is known.
    fn request(path: &str, peer: Option<&str>) -> Request<()> {
        let mut request = Request::builder().uri(path).body(()).expect("a request");
        if let Some(peer) = peer {
            let peer: SocketAddr = peer.parse().expect("an address");
            request.extensions_mut().insert(ConnectInfo(peer));
        }
        request
    }

    #[test]
    fn every_refusal_is_told_by_the_id_of_what_its_sender_reads() {
        let class = ClassConfig {
            failures_per_minute: 1,
            requests_per_credential_per_minute: 1,
            ..ClassConfig::default()
        };
        let config = FrontDoorConfig {
            deny: vec![Network::parse("10.0.0.9").expect("a network")],
            query: class.clone(),
            write: ClassConfig { requests_per_address_per_minute: 1, ..ClassConfig::default() },
            ..FrontDoorConfig::default()
        };
        config.validate().expect("a good configuration");
        let door = Arc::new(FrontDoor::new(&config, b"a salt of a test"));
        let routes = Routes::default();
        let edge = FrontDoorEdge::new(door, Clock::start(), routes, RateLimitHeaders::Off);
        let told = |class, request: Request<()>| {
            let mut refused = None;
            let lines = logged(|| {
                // The first one may be let in; what it holds is kept while others come.
                let _passes: Vec<Pass> = std::iter::repeat_with(|| edge.0.enter(class, &request))
                    .take(1000)
                    .map_while(|entered| entered.map_err(|answer| refused = Some(answer)).ok())
                    .collect();
            });
            assert!(refused.is_some(), "let in a thousand times");
            lines[0]["error_id"].as_str().expect("an id").to_owned()
        };
        let (query, write) = (RouteClass::Query, RouteClass::Write);
        assert_eq!(told(query, request("/", None)), "front-door-no-address");
        assert_eq!(told(query, request("/", Some("10.0.0.9:1"))), "front-door-denied");
        assert_eq!(told(query, request("/", Some("10.0.0.1:1"))), "front-door-failures");
        assert_eq!(told(write, request("/", Some("10.0.0.1:1"))), "front-door-address");
    }

    #[test]
    fn the_ids_are_those_of_the_texts() {
        let catalogue = Catalogue::new();
        let limiters = [Limiter::Failures, Limiter::Address, Limiter::Credential].map(answer::told);
        for told in limiters.into_iter().chain([answer::DENIED, answer::NO_ADDRESS]) {
            assert_eq!(catalogue.ids(told.text).as_deref(), Some(told.error_id));
        }
    }
}
