//! What the edge calls: the services behind it, as values.
//!
//! The shell fills these in, so that the edge names no service's insides and its tests can put
//! anything behind it. Calls of the ingester are synchronous; `Work` decides on which threads they
//! run.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::Semaphore;

use crate::clients::exchange::{Answers, Batch, HandOver, HandedOver};
use crate::clients::peers::{Budgets, HelloRefused};
use crate::clients::{AccountView, Gates, OwnedKey};
use crate::distributor;
use crate::ratelimit::BucketView;
use crate::tenant::TenantId;
use crate::wire::budgets::{Hello, ListRequest, Shown, Welcome};

pub use crate::distributor::{Form, Received, RequestKind};
pub use crate::ingester::Pushed;
pub use crate::ingester::forward::{Forward, Told};
pub use crate::ingester::views::UserStats;

/// Why a push was refused; how each is worded on the wire is `status`' business.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PushError {
    /// A decision that the sender is told as an HTTP status, also over gRPC.
    #[error("{text}")]
    Rejected { code: u16, text: String },
    /// Too much at once: status 429, and over HTTP when to come back, if that helps.
    #[error("{text}")]
    RateLimited { text: String, wait_ns: Option<u64> },
    #[error("{text}")]
    Plain { text: String },
    #[error("{text}")]
    Unavailable { text: String },
    /// The bytes are no write request.
    #[error("{text}")]
    Malformed { text: String },
}

type PushFn = dyn Fn(&TenantId, Bytes) -> Result<Pushed, PushError> + Send + Sync;
type JudgeFn = dyn Fn(&TenantId, &[u8]) -> Result<Judged, PushError> + Send + Sync;
type SettleFn = dyn FnOnce(Told) -> Result<Pushed, PushError> + Send;
type UserStatsFn = dyn Fn(&TenantId) -> UserStats + Send + Sync;
type AllUserStatsFn = dyn Fn() -> Vec<(TenantId, UserStats)> + Send + Sync;
type GreetFn = dyn Fn(&Hello) -> Result<Welcome, HelloRefused> + Send + Sync;
type ServeFn = dyn Fn(&Hello, &Batch) -> Option<Answers> + Send + Sync;
type ListFn = dyn Fn(&ListRequest) -> Vec<AccountView> + Send + Sync;
type RemoteWriteFn = dyn Fn(TenantId, Received) -> WriteFuture + Send + Sync;
type BudgetFn = dyn Fn(&TenantId) -> Option<BucketView> + Send + Sync;
type WriteOutcome = Result<distributor::Answer, distributor::PushError>;

/// A remote write under way. Dropped, it is broken off where it can be.
pub type WriteFuture = Pin<Box<dyn Future<Output = WriteOutcome> + Send>>;

/// The ingester, as the gRPC edge sees it. `push` takes an encoded `cortexpb.WriteRequest`.
#[derive(Clone)]
pub struct IngesterCalls {
    pub push: Arc<PushFn>,
    /// The first half of a push that an upstream stores.
    pub judge: Arc<JudgeFn>,
    pub user_stats: Arc<UserStatsFn>,
    pub all_user_stats: Arc<AllUserStatsFn>,
}

/// A push that waits for what the upstream makes of it. Dropped, it was never answered.
pub struct Judged {
    pub forward: Forward,
    /// Tells what became of it; answers what we ourselves have to say.
    pub settle: Box<SettleFn>,
}

/// The distributor, as the HTTP edge sees it.
#[derive(Clone)]
pub struct DistributorCalls {
    pub push: Arc<RemoteWriteFn>,
    /// What is left of a tenant's budget; `None` while nothing of it is used.
    pub budget: Arc<BudgetFn>,
    /// Counts a request whose kind is known, whatever becomes of it.
    pub came: Arc<dyn Fn(RequestKind) + Send + Sync>,
}

/// Budgets of clients, as other gates ask for them. All of it is over in less than a millisecond.
#[derive(Clone)]
pub struct BudgetCalls {
    /// Answers whoever opens a stream.
    pub greet: Arc<GreetFn>,
    /// Answers a batch; `None` to one that comes after a later one.
    pub serve: Arc<ServeFn>,
    pub take_over: Arc<dyn Fn(HandOver) + Send + Sync>,
    pub list: Arc<ListFn>,
    pub show: Arc<dyn Fn(&OwnedKey) -> Shown + Send + Sync>,
    /// Tells whether anything was owed.
    pub reset: Arc<dyn Fn(&OwnedKey) -> bool + Send + Sync>,
}

impl BudgetCalls {
    /// Those of this process, which may be in the rings of both sorts of gates. Each question is
    /// for one of them: a stream says so at its beginning, and of single calls the kind does.
    pub fn of(budgets: &[Budgets]) -> Self {
        let rings = Rings(budgets.into());
        let [greeting, serving, taking, listing, showing, resetting] =
            std::array::from_fn(|_| rings.clone());
        Self {
            greet: Arc::new(move |hello| match greeting.of(hello.gates) {
                Some(budgets) => budgets.greet(hello),
                None => Err(HelloRefused::NotServed { gates: hello.gates }),
            }),
            serve: Arc::new(move |hello, batch| serving.of(hello.gates)?.serve(hello, batch)),
            take_over: Arc::new(move |HandOver { accounts }| {
                let mut rest = accounts;
                for budgets in &*taking.0 {
                    let is_theirs =
                        |account: &HandedOver| account.key.kind.gates() == budgets.gates();
                    let (accounts, others) = rest.into_iter().partition(is_theirs);
                    budgets.take_over(HandOver { accounts });
                    rest = others;
                }
            }),
            list: Arc::new(move |request| {
                let budgets = listing.of(request.kind.gates());
                budgets.map_or_else(Vec::new, |budgets| budgets.list_own(request))
            }),
            show: Arc::new(move |key| {
                let budgets = showing.of(key.kind.gates());
                budgets.map_or(Shown::NotOwner, |budgets| budgets.show_own(key))
            }),
            reset: Arc::new(move |key| {
                let budgets = resetting.of(key.kind.gates());
                budgets.is_some_and(|budgets| budgets.reset_own(key.as_key()))
            }),
        }
    }
}

/// Budgets of this process, by the ring that they are kept in.
#[derive(Clone)]
struct Rings(Arc<[Budgets]>);

impl Rings {
    fn of(&self, gates: Gates) -> Option<&Budgets> {
        self.0.iter().find(|budgets| budgets.gates() == gates)
    }
}

/// On which threads calls run.
///
/// A push that only touches memory is over before a thread could be woken, so it runs where it
/// was read. One that may wait for a disk must not hold a thread of the runtime.
#[derive(Clone)]
pub enum Work {
    Inline,
    /// On the runtime's blocking threads, at most as many at once as there are permits; the
    /// rest wait in line, each holding the one message that it has read.
    Blocking(Arc<Semaphore>),
}

/// The call panicked, or the runtime is going down.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the call did not finish")]
pub struct WorkLost;

impl Work {
    pub fn blocking(calls_max: usize) -> Self {
        Self::Blocking(Arc::new(Semaphore::new(calls_max)))
    }

    pub async fn run<T: Send + 'static>(
        &self,
        call: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, WorkLost> {
        match self {
            Self::Inline => Ok(call()),
            Self::Blocking(permits) => {
                let permit = Arc::clone(permits).acquire_owned().await.map_err(|_| WorkLost)?;
                // The permit goes with the call: a caller that gave up does not free the thread.
                tokio::task::spawn_blocking(move || {
                    let outcome = call();
                    drop(permit);
                    outcome
                })
                .await
                .map_err(|_| WorkLost)
            }
        }
    }
}
