//! The life of a listener's connections: accepted, served, told of the drain, cut at its end.

use std::time::Duration;

use tokio::task::JoinSet;

use super::Drained;
use super::drain::Drain;
use super::listen::{Connection, Listener};

/// Serves until the drain starts, then until all connections have ended or `grace` is over. What
/// is open after that is closed: its clients see a broken connection.
pub(super) async fn serve<F>(
    listener: Listener,
    mut drain: Drain,
    grace: Duration,
    serve_one: impl Fn(Connection, Drain) -> F,
) -> Drained
where
    F: Future<Output = ()> + Send + 'static,
{
    // Closed when dropped, at the end of this function.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            // All arms are cancel-safe: nothing is accepted, or reaped, by a dropped one.
            () = drain.started() => break,
            connection = listener.accept() => {
                connections.spawn(serve_one(connection, drain.clone()));
            }
            Some(_) = connections.join_next() => {}
        }
    }
    drop(listener);
    let all_ended = async { while connections.join_next().await.is_some() {} };
    match tokio::time::timeout(grace, all_ended).await {
        Ok(()) => Drained::Whole,
        Err(_) => Drained::Cut,
    }
}
