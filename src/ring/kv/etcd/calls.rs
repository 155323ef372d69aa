//! Calls to a cluster of etcd servers: one is spoken to until it fails, then the next.
//!
//! Invariants: every try has a deadline, and a call has a bounded number of tries; a definite
//! verdict of a server (no permission, no space) is not asked for again elsewhere; the password
//! goes only into the one call that exchanges it for a token.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::Uri;
use http::uri::PathAndQuery;
use hyper_util::rt::TokioIo;
use prost::Message;
use tokio::time::error::Elapsed;
use tokio::time::timeout;
use tokio_stream::Stream;
use tonic::client::Grpc;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status, Streaming};
use tonic_prost::ProstCodec;
use tower::service_fn;

use crate::ring::config::EtcdConfig;
use crate::ring::kv::dial::{DialError, Dialler, Protocol};
use crate::ring::kv::{KvError, KvSetupError, VALUE_BYTES_MAX, one_line, reason};
use crate::units::Secret;
use crate::wire::proto::etcdserverpb::{AuthenticateRequest, AuthenticateResponse};

/// Time between two pings of a connection; Cortex's.
const PING_INTERVAL: Duration = Duration::from_secs(10);
/// A watch may tell a few changes of the value at once; more of them come in further messages.
const MESSAGE_BYTES_MAX: usize = 2 * VALUE_BYTES_MAX;
/// A lone server is tried this often: the first try may meet a connection that is just dead.
const TRIES_MIN: usize = 2;

#[derive(Clone, Debug)]
pub(super) struct Calls {
    shared: Arc<Shared>,
    /// How long one try may take, the connection included.
    try_timeout: Duration,
    tries_max: usize,
}

struct Shared {
    servers: Vec<Server>,
    /// The server in use; counts up with each that failed.
    turn: AtomicUsize,
    login: Option<Login>,
    /// Locked to copy it in or out.
    session: Mutex<Session>,
}

struct Server {
    authority: String,
    channel: Channel,
}

struct Login {
    name: String,
    password: Secret,
}

type Token = MetadataValue<Ascii>;

/// What the servers let us in with.
#[derive(Clone)]
enum Session {
    None,
    /// They ask nobody who he is.
    Open,
    Token(Token),
}

/// What a failed try means for the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// Every server would say the same.
    Final,
    /// Another server may know better, or this one over a new connection.
    Elsewhere,
    /// Log in first.
    LoginOver,
}

impl Calls {
    pub(super) fn new(config: &EtcdConfig) -> Result<Self, KvSetupError> {
        let mut servers = Vec::new();
        for (address, is_tls) in config.addresses()? {
            let tls = is_tls.then_some(&config.tls);
            let dialler = Dialler::new(address, tls, Protocol::Http2)
                .map_err(|source: DialError| KvSetupError::Dial { source })?;
            servers.push(Server::new(&dialler, config)?);
        }
        let tries_max = usize::try_from(config.max_retries).unwrap_or(usize::MAX);
        let login = (!config.username.is_empty())
            .then(|| Login { name: config.username.clone(), password: config.password.clone() });
        Ok(Self {
            try_timeout: config.dial_timeout.as_duration(),
            tries_max: servers.len().max(TRIES_MIN).min(tries_max),
            shared: Arc::new(Shared {
                // Members that all start with the same server would load it alone.
                turn: AtomicUsize::new(rand::random_range(0..servers.len().max(1))),
                servers,
                login,
                session: Mutex::new(Session::None),
            }),
        })
    }

    pub(super) fn authorities(&self) -> String {
        let authorities = self.shared.servers.iter().map(|server| server.authority.as_str());
        authorities.collect::<Vec<_>>().join(", ")
    }

    pub(super) async fn ask<Q, A>(&self, method: &'static str, question: &Q) -> Result<A, KvError>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let mut tries = Tries { calls: self, made: 0 };
        loop {
            let (turn, server) = self.server();
            let one_try = async {
                let token = self.token(server).await?;
                unary(server, method, question.clone(), token).await
            };
            let outcome = timeout(self.try_timeout, one_try).await;
            if let Some(end) = tries.judge(turn, outcome) {
                return end;
            }
        }
    }

    /// Opens a stream both ways; `questions` makes our side of it, anew for each try.
    pub(super) async fn listen<Q, A, S>(
        &self,
        method: &'static str,
        questions: impl Fn() -> S,
    ) -> Result<Streaming<A>, KvError>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
        S: Stream<Item = Q> + Send + 'static,
    {
        let mut tries = Tries { calls: self, made: 0 };
        loop {
            let (turn, server) = self.server();
            let mut request = Request::new(questions());
            // A server that is cut off from the others would go on telling nothing: it is to
            // end the stream instead.
            request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
            let one_try = async {
                authorise(&mut request, self.token(server).await?);
                let mut grpc = server.ready().await?;
                let (method, codec) = (PathAndQuery::from_static(method), ProstCodec::default());
                Ok(grpc.streaming::<_, Q, A, _>(request, method, codec).await?.into_inner())
            };
            let outcome = timeout(self.try_timeout, one_try).await;
            if let Some(end) = tries.judge(turn, outcome) {
                return end;
            }
        }
    }

    /// For a stream that was ended for a reason of its own: the next call starts elsewhere, and
    /// with a new login.
    pub(super) fn start_over(&self) {
        self.move_on(self.shared.turn.load(Ordering::Relaxed));
        self.set_session(Session::None);
    }

    /// The server in use, and the turn that it is in use for.
    fn server(&self) -> (usize, &Server) {
        let turn = self.shared.turn.load(Ordering::Relaxed);
        (turn, &self.shared.servers[turn % self.shared.servers.len()])
    }

    /// What lets us in with `server`; logs in first if need be.
    async fn token(&self, server: &Server) -> Result<Option<Token>, Status> {
        let Some(login) = &self.shared.login else { return Ok(None) };
        let session = self.shared.session.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match session {
            Session::Token(token) => return Ok(Some(token)),
            Session::Open => return Ok(None),
            Session::None => {}
        }
        let question = AuthenticateRequest {
            name: login.name.clone(),
            password: login.password.reveal().to_owned(),
        };
        let answer: Result<AuthenticateResponse, _> =
            unary(server, "/etcdserverpb.Auth/Authenticate", question, None).await;
        match answer {
            Ok(answer) => {
                let token = Token::try_from(answer.token)
                    .map_err(|_| Status::internal("the login's token is no text"))?;
                self.set_session(Session::Token(token.clone()));
                Ok(Some(token))
            }
            Err(status) if status.message().contains("authentication is not enabled") => {
                self.set_session(Session::Open);
                Ok(None)
            }
            Err(status) => Err(status),
        }
    }

    /// Turns to the next server, unless somebody else has already turned away from that one.
    fn move_on(&self, turn: usize) {
        let next = turn.wrapping_add(1);
        let order = Ordering::Relaxed;
        // A lost race means that it is done.
        let _ = self.shared.turn.compare_exchange(turn, next, order, order);
    }

    fn set_session(&self, session: Session) {
        *self.shared.session.lock().unwrap_or_else(PoisonError::into_inner) = session;
    }
}

/// The tries of one call.
struct Tries<'a> {
    calls: &'a Calls,
    made: usize,
}

impl Tries<'_> {
    /// The call's end, or `None` where the next try may do better.
    fn judge<T>(
        &mut self,
        turn: usize,
        outcome: Result<Result<T, Status>, Elapsed>,
    ) -> Option<Result<T, KvError>> {
        let Calls { shared, try_timeout, tries_max } = self.calls;
        let status = match outcome {
            Ok(Ok(answer)) => return Some(Ok(answer)),
            Ok(Err(status)) => status,
            Err(_) => Status::deadline_exceeded(format!("no answer within {try_timeout:?}")),
        };
        let verdict = verdict(&status);
        match verdict {
            Verdict::Final => {}
            Verdict::Elsewhere => self.calls.move_on(turn),
            Verdict::LoginOver => self.calls.set_session(Session::None),
        }
        self.made += 1;
        let is_end = verdict == Verdict::Final || self.made == *tries_max;
        let server = &shared.servers[turn % shared.servers.len()];
        is_end.then(|| Err(error_at(server, &status)))
    }
}

impl Server {
    fn new(dialler: &Dialler, config: &EtcdConfig) -> Result<Self, KvSetupError> {
        let authority = dialler.address().authority();
        let uri = Uri::builder().scheme("http").authority(authority.as_str()).path_and_query("/");
        let uri = uri.build().map_err(|_| KvSetupError::Path)?;
        let try_timeout = config.dial_timeout.as_duration();
        let dialler = dialler.clone();
        let connect = service_fn(move |_: Uri| {
            let connecting = dialler.dial();
            async move { connecting.await.map(TokioIo::new) }
        });
        let channel = Endpoint::from(uri)
            .connect_timeout(try_timeout)
            .http2_keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(2 * try_timeout)
            .keep_alive_while_idle(config.ping_without_stream_allowed)
            .connect_with_connector_lazy(connect);
        Ok(Self { authority, channel })
    }

    async fn ready(&self) -> Result<Grpc<Channel>, Status> {
        let mut grpc = Grpc::new(self.channel.clone()).max_decoding_message_size(MESSAGE_BYTES_MAX);
        grpc.ready().await.map_err(|error| Status::unavailable(reason(&error)))?;
        Ok(grpc)
    }
}

async fn unary<Q, A>(
    server: &Server,
    method: &'static str,
    question: Q,
    token: Option<Token>,
) -> Result<A, Status>
where
    Q: Message + 'static,
    A: Message + Default + 'static,
{
    let mut request = Request::new(question);
    authorise(&mut request, token);
    let mut grpc = server.ready().await?;
    let codec = ProstCodec::<Q, A>::default();
    let answer = grpc.unary(request, PathAndQuery::from_static(method), codec).await?;
    Ok(answer.into_inner())
}

fn authorise<Q>(request: &mut Request<Q>, token: Option<Token>) {
    if let Some(token) = token {
        request.metadata_mut().insert("token", token);
    }
}

fn verdict(status: &Status) -> Verdict {
    let text = status.message();
    let is_login_over = status.code() == Code::Unauthenticated
        || text.contains("revision of auth store is old")
        || text.contains("user name is empty");
    if is_login_over {
        return Verdict::LoginOver;
    }
    match status.code() {
        Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::PermissionDenied
        | Code::ResourceExhausted
        | Code::FailedPrecondition
        | Code::OutOfRange => Verdict::Final,
        _ => Verdict::Elsewhere,
    }
}

fn error_at(server: &Server, status: &Status) -> KvError {
    // Our own failures to connect carry their causes, a server's verdicts none.
    let mut text = status.message().to_owned();
    let mut cause = std::error::Error::source(status);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    let reason = one_line(&format!("{:?}: {text}", status.code()));
    KvError::Call { store: "etcd", at: server.authority.clone(), reason }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let servers: Vec<&str> = self.servers.iter().map(|s| s.authority.as_str()).collect();
        f.debug_struct("Shared").field("servers", &servers).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_says_where_to_try_next() {
        let check = |status: Status, expect| assert_eq!(verdict(&status), expect, "{status}");
        check(Status::unavailable("transport error"), Verdict::Elsewhere);
        check(Status::unknown("broken pipe"), Verdict::Elsewhere);
        check(Status::unimplemented("no etcd"), Verdict::Elsewhere);
        check(Status::permission_denied("etcdserver: permission denied"), Verdict::Final);
        check(Status::resource_exhausted("mvcc: database space exceeded"), Verdict::Final);
        check(Status::unauthenticated("etcdserver: invalid auth token"), Verdict::LoginOver);
        let old = "etcdserver: revision of auth store is old";
        check(Status::invalid_argument(old), Verdict::LoginOver);
        check(Status::invalid_argument("etcdserver: user name is empty"), Verdict::LoginOver);
        check(Status::invalid_argument("etcdserver: request is too large"), Verdict::Final);
    }
}
