//! Where traces go: the `tracing:` block, under Cortex's names.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::tls::ClientTlsConfig;
use crate::units::Millis;
use crate::upstream::config::UpstreamConfig;

/// `tracing:`
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TracingConfig {
    #[serde(rename = "type")]
    pub kind: TracingKind,
    pub otel: OtelConfig,
}

/// How spans are told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum TracingKind {
    #[default]
    Off,
    /// Over OTLP.
    Otel,
    /// Cortex's default, which does nothing either unless an agent is named in the environment.
    /// Jaeger itself takes OTLP.
    Jaeger,
}

/// `tracing.otel:`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OtelConfig {
    /// `host:port` of a collector's gRPC.
    pub otlp_endpoint: String,
    /// Part of the traces that begin here; who is called in a trace goes along with its beginning.
    pub sample_ratio: f64,
    pub tls_enabled: bool,
    pub tls: OtelTlsConfig,
}

/// `tracing.otel.tls:`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OtelTlsConfig {
    /// What we show of ourselves; needs the key.
    pub tls_cert_path: PathBuf,
    pub tls_key_path: PathBuf,
    /// Whom we trust; empty trusts whom the host trusts.
    pub tls_ca_path: PathBuf,
    /// Name on the collector's certificate; empty takes the host of the endpoint.
    pub tls_server_name: String,
    pub tls_insecure_skip_verify: bool,
}

/// Why a text is no kind of tracing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no tracing of type {name:?}; there are off, otel and jaeger, which is off here")]
pub struct TracingKindError {
    name: String,
}

/// Settings of tracing that cannot work.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum TracingConfigError {
    #[error("-tracing.type=otel needs -tracing.otel.otlp-endpoint")]
    NoEndpoint,
    #[error("-tracing.otel.otlp-endpoint is {endpoint:?}; it must be host:port")]
    Endpoint { endpoint: String },
    #[error("-tracing.otel.sample-ratio is {ratio}; it must be a number from 0 on")]
    Ratio { ratio: f64 },
    #[error("-tracing.otel.tls.tls-cert-path and -tracing.otel.tls.tls-key-path need each other")]
    HalfPair,
    #[error("-tracing.otel.tls.tls-server-name, or the host without it, is no name")]
    ServerName,
}

/// Cortex's, and OpenTelemetry's own: before the name of a host that is to be looked up.
const LOOK_UP: &str = "dns:///";

/// A collector is next door or away: what it does not take within seconds it will not take.
const CONNECT_TIMEOUT: Millis = Millis(5_000);
/// Go's servers hang up on who asks more often whether they live; that a connection has died is
/// found out by the next batch.
const KEEPALIVE_TIME: Millis = Millis(10 * 60 * 1000);
/// Batches under way, of which there is one, and its bytes: far above any batch's.
const CALLS_MAX: usize = 4;
const BYTES_MAX: usize = 64 << 20;
const ANSWER_BYTES_MAX: usize = 1 << 20;

impl Default for OtelConfig {
    fn default() -> Self {
        Self {
            otlp_endpoint: String::new(),
            sample_ratio: 0.001,
            tls_enabled: false,
            tls: OtelTlsConfig::default(),
        }
    }
}

impl TracingConfig {
    pub fn is_on(&self) -> bool {
        self.kind == TracingKind::Otel
    }

    pub fn validate(&self) -> Result<(), TracingConfigError> {
        let Self { kind, otel } = self;
        if otel.sample_ratio.is_nan() || otel.sample_ratio < 0.0 {
            return Err(TracingConfigError::Ratio { ratio: otel.sample_ratio });
        }
        if otel.client_tls().has_half_a_pair() {
            return Err(TracingConfigError::HalfPair);
        }
        if *kind != TracingKind::Otel {
            return Ok(());
        }
        if otel.otlp_endpoint.is_empty() {
            return Err(TracingConfigError::NoEndpoint);
        }
        let way = otel.upstream();
        if otel.tls_enabled && way.server_name().is_err() {
            return Err(TracingConfigError::ServerName);
        }
        // All else in it is ours, and sound.
        let endpoint = otel.otlp_endpoint.clone();
        way.validate().map_err(|_| TracingConfigError::Endpoint { endpoint })
    }
}

impl OtelConfig {
    /// The way to the collector.
    pub fn upstream(&self) -> UpstreamConfig {
        let endpoint = &self.otlp_endpoint;
        let address = endpoint.strip_prefix(LOOK_UP).unwrap_or(endpoint).to_owned();
        let tls = self.tls.clone();
        UpstreamConfig {
            address,
            connect_timeout: CONNECT_TIMEOUT,
            max_connections: 1,
            max_inflight_requests: CALLS_MAX,
            max_inflight_bytes: BYTES_MAX,
            max_recv_msg_size: ANSWER_BYTES_MAX,
            keepalive_time: KEEPALIVE_TIME,
            tls_enabled: self.tls_enabled,
            tls_cert_path: tls.tls_cert_path,
            tls_key_path: tls.tls_key_path,
            tls_ca_path: tls.tls_ca_path,
            tls_server_name: tls.tls_server_name,
            tls_insecure_skip_verify: tls.tls_insecure_skip_verify,
            ..UpstreamConfig::default()
        }
    }

    pub fn client_tls(&self) -> ClientTlsConfig {
        self.upstream().tls()
    }
}

impl TryFrom<String> for TracingKind {
    type Error = TracingKindError;

    fn try_from(name: String) -> Result<Self, Self::Error> {
        // Cortex reads it in any case.
        match name.to_ascii_lowercase().as_str() {
            "" | "off" => Ok(Self::Off),
            "otel" => Ok(Self::Otel),
            "jaeger" => Ok(Self::Jaeger),
            _ => Err(TracingKindError { name }),
        }
    }
}

impl From<TracingKind> for String {
    fn from(kind: TracingKind) -> Self {
        match kind {
            TracingKind::Off => "off".into(),
            TracingKind::Otel => "otel".into(),
            TracingKind::Jaeger => "jaeger".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn otel(change: impl FnOnce(&mut OtelConfig)) -> Result<(), TracingConfigError> {
        let mut config = TracingConfig { kind: TracingKind::Otel, ..Default::default() };
        config.otel.otlp_endpoint = "collector:4317".into();
        change(&mut config.otel);
        config.validate()
    }

    #[test]
    fn what_cannot_work_is_refused_by_its_flag_name() {
        assert_eq!(otel(|_| {}), Ok(()));
        assert_eq!(otel(|otel| otel.otlp_endpoint = "dns:///collector:4317".into()), Ok(()));
        assert_eq!(otel(|otel| otel.sample_ratio = 3.0), Ok(()), "as Cortex: all");
        let none = otel(|otel| otel.otlp_endpoint.clear());
        assert_eq!(none, Err(TracingConfigError::NoEndpoint));
        for bad in ["collector", "http://collector:4317/v1/traces", ":4317"] {
            let outcome = otel(|otel| otel.otlp_endpoint = bad.into());
            assert!(matches!(outcome, Err(TracingConfigError::Endpoint { .. })), "{bad}");
        }
        for ratio in [-0.1, f64::NAN] {
            let outcome = otel(|otel| otel.sample_ratio = ratio);
            assert!(matches!(outcome, Err(TracingConfigError::Ratio { .. })), "{ratio}");
        }
        let half = otel(|otel| otel.tls.tls_cert_path = "cert.pem".into());
        assert_eq!(half, Err(TracingConfigError::HalfPair));
        let nameless = otel(|otel| {
            otel.tls_enabled = true;
            otel.tls.tls_server_name = "a b".into();
        });
        assert_eq!(nameless, Err(TracingConfigError::ServerName));
    }

    #[test]
    fn cortexs_types_are_known_and_its_default_is_off() {
        let kind = |name: &str| TracingKind::try_from(name.to_owned());
        assert_eq!(kind("OTEL"), Ok(TracingKind::Otel));
        assert_eq!(kind("jaeger"), Ok(TracingKind::Jaeger));
        assert!(kind("zipkin").expect_err("unknown").to_string().contains("zipkin"));
        let config = TracingConfig { kind: TracingKind::Jaeger, ..Default::default() };
        assert_eq!((config.validate(), config.is_on()), (Ok(()), false));
    }
}
