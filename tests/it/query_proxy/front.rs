//! What stands before the way on: nothing, or the whole process of a query gate. Whatever one of
//! them must refuse or pass, the other must too.

use std::net::SocketAddr;

use freehold::app::QueryGate;
use freehold::config::{Config, Target};

use super::wire::Wire;
use super::{Gate, setup};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Front {
    Bare,
    Process,
}

pub const FRONTS: [Front; 2] = [Front::Bare, Front::Process];

pub struct Running {
    front: Front,
    pub address: SocketAddr,
    /// Where it is bare.
    pub gate: Option<Gate>,
    _process: Option<QueryGate>,
}

impl Front {
    /// Starts it before a downstream.
    pub async fn start(self, url: String) -> Running {
        match self {
            Self::Bare => {
                let gate = setup(url).start().await;
                Running { front: self, address: gate.address, gate: Some(gate), _process: None }
            }
            Self::Process => {
                let mut config = Config::for_target(Target::QueryFrontend);
                config.server.http_listen_address = "127.0.0.1".into();
                config.server.http_listen_port = 0;
                config.admin.http_listen_address = "127.0.0.1:0".into();
                config.frontend.downstream = setup(url).downstream;
                config.validate().expect("settings");
                let process = QueryGate::start(config).await.expect("starts");
                let address = process.http_address;
                Running { front: self, address, gate: None, _process: Some(process) }
            }
        }
    }
}

impl Running {
    pub async fn connect(&self) -> Wire {
        Wire::connect(self.address).await
    }

    /// A request as this front takes it: a process wants a call of the API, and a tenant.
    pub fn request(&self, request: &str) -> String {
        if self.front == Front::Bare {
            return request.to_owned();
        }
        let mut request = request.replace("Host: g\r\n", "Host: g\r\nX-Scope-OrgID: t\r\n");
        for method in ["GET", "HEAD", "POST"] {
            let (bare, call) = (format!("{method} /"), format!("{method} /prometheus/api/v1/"));
            request = request.replace(&bare, &call);
        }
        request
    }
}
