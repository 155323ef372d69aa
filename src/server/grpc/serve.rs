//! Serving gRPC connections, until the drain and through it.

use tonic::transport::Server;

use super::GrpcEdge;
use crate::server::Drained;
use crate::server::config::ServerConfig;
use crate::server::drain::Drain;
use crate::server::listen::Listener;

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
