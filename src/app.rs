//! The app room (being built).

use std::future::Future;

use crate::config::Config;

/// Why the app ended otherwise than asked.
#[derive(Debug, thiserror::Error)]
pub enum AppError {}

/// Runs what the configuration names until `stop` is ready, then drains.
pub async fn run(config: Config, stop: impl Future<Output = ()>) -> Result<(), AppError> {
    tracing::info!(services = %String::from(config.target), "started");
    stop.await;
    Ok(())
}
