//! Serving gRPC connections, until the drain and through it.

use tonic::transport::Server;

use super::GrpcEdge;
use crate::server::Drained;
use crate::server::config::ServerConfig;
use crate::server::drain::Drain;
use crate::server::listen::Listener;

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
///
/// What is open after that ends when the runtime does: its clients see a broken connection, and
/// nothing of it was answered.
pub async fn serve(
    listener: Listener,
    edge: GrpcEdge,
    config: &ServerConfig,
    mut drain: Drain,
) -> Result<Drained, tonic::transport::Error> {
    let streams_max = config.grpc_server_max_concurrent_streams;
    let mut signal = drain.clone();
    let serving = Server::builder()
        .max_concurrent_streams((streams_max > 0).then_some(streams_max))
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .http2_max_header_list_size(HEAD_BYTES_MAX)
        .http2_max_pending_accept_reset_streams(Some(RESETS_UNSEEN_MAX))
        // It counts over the life of a connection, and ours are to live for weeks: a sender
        // whose calls end early now and then would lose all of its push streams for it.
        .http2_max_local_error_reset_streams(None)
        .http2_keepalive_interval(Some(config.grpc_server_keepalive_time.as_duration()))
        .http2_keepalive_timeout(Some(config.grpc_server_keepalive_timeout.as_duration()))
        .serve_with_incoming_shutdown(edge, listener.into_stream(), async move {
            signal.started().await;
        });
    tokio::select! {
        // Neither arm is polled again, so nothing is lost with the other.
        ended = serving => ended.map(|()| Drained::Whole),
        () = async {
            drain.started().await;
            tokio::time::sleep(config.graceful_shutdown_timeout.as_duration()).await;
        } => Ok(Drained::Cut),
    }
}
