//! The front door on HTTP: who comes in, and what the answer says about him.
//!
//! It lies over all routes, so that a request meets it before anything of it is read but its head.
//! A request leaves when the headers of its answer are there: its body may go on for hours. One
//! that is dropped before, because its sender went or the process ends, leaves as broken off.

mod answer;
mod routes;

use std::sync::{Arc, Mutex, PoisonError};

use ::http::{HeaderMap, HeaderName, HeaderValue, Request, header};
use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, State};
use axum::middleware::{self, Next};
use axum::response::Response;
use std::net::SocketAddr;

use crate::clock::Clock;
use crate::front_door::address::HopHeader;
use crate::front_door::{Answer, FrontDoor, OverLimit, Pass, Refusal, RouteClass};
use crate::ratelimit::{LogLines, RateLimitHeaders};

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

    /// Puts it in front of all routes.
    pub fn before(self, router: Router) -> Router {
        router.layer(middleware::from_fn_with_state(self, pass_through))
    }
}

/// A request's whole way: in, to its route, and out.
async fn pass_through(
    State(edge): State<FrontDoorEdge>,
    request: Request<Body>,
    next: Next,
) -> Response {
    let Some(class) = edge.0.routes.class(request.uri().path()) else {
        return next.run(request).await;
    };
    let pass = match edge.0.enter(class, &request) {
        Ok(pass) => pass,
        Err(refused) => return *refused,
    };
    let mut visit = Visit { inner: &edge.0, class, pass: Some(pass) };
    let mut response = next.run(request).await;
    visit.answered(&mut response);
    response
}

impl Inner {
    fn enter<B>(&self, class: RouteClass, request: &Request<B>) -> Result<Pass, Box<Response>> {
        let now_ns = self.clock.steady_ns();
        let Some(ConnectInfo(peer)) = request.extensions().get::<ConnectInfo<SocketAddr>>() else {
            // Known of every connection, unless its other end has gone.
            self.log(
                |log| &mut log.no_address,
                now_ns,
                |untold| {
                    tracing::warn!(untold, "a request without an address is refused");
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
            self.tell(class, &refusal, now_ns);
            Box::new(answer::refused(class, &refusal, self.headers))
        })
    }

    /// A line for the log, with nothing in it that a sender chose.
    fn tell(&self, class: RouteClass, refusal: &Refusal, now_ns: i64) {
        let class = class.as_str();
        match *refusal {
            Refusal::Denied => self.log(|log| &mut log.denied, now_ns, |untold| {
                tracing::warn!(class, untold, "a request of a denied address is refused");
            }),
            Refusal::OverLimit(OverLimit { limiter, key, .. }) => self.log(
                |log| &mut log.over_limit[limiter as usize],
                now_ns,
                |untold| {
                    let limiter = limiter.as_str();
                    tracing::warn!(class, limiter, address_key = %key, untold, "refused at the front door");
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
struct Visit<'a> {
    inner: &'a Inner,
    class: RouteClass,
    pass: Option<Pass>,
}

impl Visit<'_> {
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

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        if let Some(pass) = self.pass.take() {
            let outcome = self.inner.door.outcome_of_abort(self.class);
            self.inner.door.leave(pass, outcome, self.inner.clock.steady_ns());
        }
    }
}
