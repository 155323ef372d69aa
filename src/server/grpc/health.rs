//! `grpc.health.v1`: tonic's service behind our frames.
//!
//! Cortex's clients compress health checks as they do pushes, with `snappy-block`, which tonic's
//! own server would refuse. The answer stands for the whole instance, whatever service is asked
//! for, as Cortex's does.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::StreamExt as _;
use prost::Message as _;
use tonic_health::ServingStatus;
use tonic_health::pb::health_server::Health as _;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse, health_check_response};
use tonic_health::server::{HealthReporter, HealthService, WatchStream};

use super::answer::Step;
use super::frames::frame;
use crate::server::drain::Drain;
use crate::server::status::GrpcStatus;
use crate::wire::encoding::Encoding;

/// Tells health checks whether this instance serves.
#[derive(Clone)]
pub struct HealthSwitch {
    reporter: HealthReporter,
    /// Set once, before the end is told: whoever asks for "serving" after that comes too late.
    is_ending: Arc<AtomicBool>,
}

impl HealthSwitch {
    /// Not serving, until told otherwise.
    pub async fn new() -> Self {
        let switch = Self { reporter: HealthReporter::new(), is_ending: Arc::default() };
        switch.tell(ServingStatus::NotServing).await;
        switch
    }

    pub async fn set_serving(&self, serving: bool) {
        let serves = serving && !self.is_ending.load(Ordering::Acquire);
        self.tell(if serves { ServingStatus::Serving } else { ServingStatus::NotServing }).await;
        // The end may have been told in between, and must have the last word.
        if serves && self.is_ending.load(Ordering::Acquire) {
            self.tell(ServingStatus::NotServing).await;
        }
    }

    /// Not serving, for good.
    pub async fn end(&self) {
        self.is_ending.store(true, Ordering::Release);
        self.tell(ServingStatus::NotServing).await;
    }

    async fn tell(&self, status: ServingStatus) {
        self.reporter.set_service_status("", status).await;
    }

    pub(super) fn service(&self) -> HealthService {
        HealthService::from_health_reporter(self.reporter.clone())
    }
}

pub async fn check(service: &HealthService) -> Result<HealthCheckResponse, GrpcStatus> {
    let request = tonic::Request::new(HealthCheckRequest::default());
    Ok(service.check(request).await?.into_inner())
}

pub async fn is_serving(service: &HealthService) -> bool {
    let answer = check(service).await;
    answer.is_ok_and(|answer| answer.status() == health_check_response::ServingStatus::Serving)
}

/// The status now and each time it changes, until the server goes down.
pub struct Watch {
    changes: Pin<Box<WatchStream>>,
    encoding: Encoding,
    drain: Drain,
}

impl Watch {
    pub async fn open(
        service: &HealthService,
        encoding: Encoding,
        drain: Drain,
    ) -> Result<Self, GrpcStatus> {
        let request = tonic::Request::new(HealthCheckRequest::default());
        let changes = Box::pin(service.watch(request).await?.into_inner());
        Ok(Self { changes, encoding, drain })
    }

    pub async fn step(mut self) -> (Self, Step) {
        // A change that is lost with the dropped wait would have been the last one anyway.
        let change = tokio::select! {
            biased;
            change = self.changes.next() => change,
            () = self.drain.started() => None,
        };
        let step = match change {
            Some(Ok(answer)) => match frame(&answer.encode_to_vec(), self.encoding, usize::MAX) {
                Ok(message) => Step::Answer(message),
                Err(error) => Step::End(error.into()),
            },
            Some(Err(status)) => Step::End(status.into()),
            None => Step::End(GrpcStatus::new(tonic::Code::Unavailable, "server is shutting down")),
        };
        (self, step)
    }
}
