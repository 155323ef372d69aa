//! The gRPC edge as benches start it, and what its threads spend; included by path.

use std::net::SocketAddr;
use std::time::Duration;

use freehold::server::config::ServerConfig;
use freehold::server::drain::Drainer;
use freehold::server::grpc::{GrpcEdge, HealthSwitch, Settings, serve};
use freehold::server::listen::Listener;
use freehold::server::room::Room;
use freehold::server::seam::{IngesterCalls, Work};
use freehold::server::stream_auth::StreamKeys;
use freehold::server::tenancy::Tenancy;
use freehold::upstream::Upstream;
use freehold::upstream::config::UpstreamConfig;
use tokio::runtime::Runtime;

/// A runtime of one thread, so that the thread's CPU time is that of what runs on it.
pub fn runtime(name: &str) -> Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name(name)
        .enable_all()
        .build()
        .expect("runtime")
}

/// CPU time of the threads of this name, from the scheduler's own count.
pub fn cpu_ns(thread: &str) -> u64 {
    let mut total = 0;
    for task in std::fs::read_dir("/proc/self/task").expect("Linux").flatten() {
        let read = |file: &str| std::fs::read_to_string(task.path().join(file));
        let (Ok(name), Ok(stat)) = (read("comm"), read("schedstat")) else {
            continue; // the thread has ended
        };
        if name.trim() == thread {
            let cpu_ns = stat.split(' ').next().expect("a field");
            total += cpu_ns.parse::<u64>().expect("nanoseconds");
        }
    }
    total
}

/// Serves on the runtime that this is called on until the process ends.
pub async fn start(ingester: IngesterCalls, upstream: Option<SocketAddr>) -> SocketAddr {
    let upstream = upstream.map(|address| {
        let config = UpstreamConfig { address: address.to_string(), ..UpstreamConfig::default() };
        Upstream::new(&config).expect("config")
    });
    let settings = Settings {
        tenancy: Tenancy::Header,
        clients: Default::default(),
        stream_keys: StreamKeys::default(),
        room: Room::new(256 << 20),
        receive_message_bytes_max: 4 << 20,
        send_message_bytes_max: 4 << 20,
        upstream,
        stream_answer_within: Duration::from_secs(10),
    };
    let listener = Listener::bind(([127, 0, 0, 1], 0).into(), 0).await.expect("bind");
    let address = listener.local_address().expect("bound");
    tokio::spawn(async move {
        let (_drainer, drain) = Drainer::new();
        let health = HealthSwitch::new().await;
        let edge = GrpcEdge::new(settings, Some(ingester), Work::Inline, &health, drain.clone());
        serve(listener, edge, &ServerConfig::default(), drain).await
    });
    address
}
