//! Serving gRPC connections, until the drain and through it.
//!
//! hyper serves them and not tonic's server, which has a deadline of its own for every call with a
//! `grpc-timeout` and answers CANCELLED when it fires before ours; nothing turns that off.

use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tonic::body::Body;
use tower::Service;

use super::GrpcEdge;
use crate::server::config::ServerConfig;
use crate::server::drain::Drain;
use crate::server::listen::{Connection, Listener};
use crate::server::{Drained, connections};

/// What one call may have sent that nobody has read. It is also what one stream can move per
/// round trip; a push of 1000 series is a tenth of it.
const STREAM_WINDOW_BYTES: u32 = 512 << 10;
/// The same for a connection: large enough that over a hundred streams which are not read leave
/// room for the others. With room for one, a request that an upstream does not take would stop
/// the pushes beside it.
const CONNECTION_WINDOW_BYTES: u32 = 64 << 20;
/// Largest head of a call. Traces and baggage fit many times; a larger one is answered 431.
const HEAD_BYTES_MAX: u32 = 1 << 20;
/// Calls of one connection that their client gave up before we had seen them. A querier gives up
/// the slower of its replicas with most queries; with more at once the connection is closed.
const RESETS_UNSEEN_MAX: usize = 1000;

/// Serves until the drain starts, then until all calls have ended or the drain's time is over.
pub async fn serve(
    listener: Listener,
    edge: GrpcEdge,
    config: &ServerConfig,
    drain: Drain,
) -> Drained {
    let streams_max = config.grpc_server_max_concurrent_streams;
    let mut http = http2::Builder::new(TokioExecutor::new());
    http.timer(TokioTimer::new())
        .max_concurrent_streams((streams_max > 0).then_some(streams_max))
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_header_list_size(HEAD_BYTES_MAX)
        .max_pending_accept_reset_streams(RESETS_UNSEEN_MAX)
        // It counts over the life of a connection, and ours are to live for weeks: a sender
        // whose calls end early now and then would lose all of its push streams for it.
        .max_local_error_reset_streams(None)
        .keep_alive_interval(config.grpc_server_keepalive_time.as_duration())
        .keep_alive_timeout(config.grpc_server_keepalive_timeout.as_duration());
    let grace = config.graceful_shutdown_timeout.as_duration();
    connections::serve(listener, drain, grace, |connection, drain| {
        serve_one(http.clone(), connection, edge.clone(), drain)
    })
    .await
}

async fn serve_one(
    http: http2::Builder<TokioExecutor>,
    connection: Connection,
    edge: GrpcEdge,
    mut drain: Drain,
) {
    let service =
        service_fn(move |request: Request<Incoming>| edge.clone().call(request.map(Body::new)));
    let mut serving = std::pin::pin!(http.serve_connection(TokioIo::new(connection), service));
    let outcome = tokio::select! {
        outcome = serving.as_mut() => outcome,
        () = drain.started() => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = outcome {
        tracing::debug!(%error, "gRPC connection ended early");
    }
}
