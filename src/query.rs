//! The query room (being built).

use crate::config::QueryArgs;

/// Why a query has no answer.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    #[error("cannot ask {addr}")]
    Ask { addr: String, source: std::io::Error },
}

/// Asks a running instance and returns what to print.
pub async fn run(args: &QueryArgs) -> Result<String, QueryError> {
    let unreachable = std::io::Error::from(std::io::ErrorKind::Unsupported);
    Err(QueryError::Ask { addr: args.addr.clone(), source: unreachable })
}
