//! What others may see of the distributor: what it refuses, how near it is to the limits of the
//! instance, and whether what lies behind it can be reached.

use super::{Distributor, Sink};
use crate::exposition::{RefusedCount, Used};
use crate::tenant::TenantId;

/// Where admitted writes go, and how that is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WayOn {
    /// The ingester of this process.
    Here,
    /// The ring's ingesters, and how many of them have been written to lately.
    Ring {
        clients: usize,
    },
    Upstream {
        is_reachable: bool,
    },
}

impl Distributor {
    /// Tells of everything that was refused here since the start, by reason and tenant.
    pub fn tell_refused(&self, tell: &mut dyn FnMut(RefusedCount<'_>)) {
        self.admission.tell_refused(tell);
        self.tenants.tell_refused(tell);
        self.sink.tell_refused(tell);
    }

    /// The same of one tenant; nothing of one that has sent nothing lately.
    pub fn tell_refused_of(&self, tenant: &TenantId, tell: &mut dyn FnMut(RefusedCount<'_>)) {
        let Some(counters) = self.tenants.known(tenant) else { return };
        counters.tell_refused(tenant.as_str(), tell);
        let count = counters.shadow_refused_total();
        tell(RefusedCount {
            metric: "freehold_distributor_client_shadow_refused_total",
            unit: "items",
            reason: "in shadow",
            tenant: Some(tenant.as_str()),
            count,
        });
    }

    pub fn instance_use(&self) -> [Used; 3] {
        self.admission.used(self.sink.requests_in_flight())
    }

    pub fn way_on(&self) -> WayOn {
        match &self.sink {
            Sink::Local(_) => WayOn::Here,
            Sink::Ring(sink) => WayOn::Ring { clients: sink.fan_out.ingesters().addresses().len() },
            Sink::Upstream(upstream) => WayOn::Upstream { is_reachable: upstream.is_reachable() },
        }
    }
}
