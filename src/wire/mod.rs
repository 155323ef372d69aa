//! Formats: bytes off the wire to values and back. No decisions.
//!
//! What a push needs is read from the received bytes as they lie ([`write_request`]); generated
//! protobuf types are for everything that is small or only written.

pub mod batch;
pub mod budgets;
pub mod encoding;
pub mod histogram;
pub mod key_value_pair;
pub mod metric_list;
pub mod otlp;
pub mod outgoing;
pub mod remote_read;
pub mod remote_write;
pub mod replica_desc;
pub mod rewrite;
pub mod ring_desc;
pub mod selector;
pub mod signature;
pub mod status;
pub mod stream;
pub mod timestamp;
pub mod write_request;

mod cursor;
mod writer;

pub use cursor::DecodeError;
pub use writer::request_of_one;

/// Generated protobuf types, included here and nowhere else.
pub mod proto {
    pub mod cortexpb {
        include!(concat!(env!("OUT_DIR"), "/cortexpb.rs"));
    }
    pub mod cortex {
        include!(concat!(env!("OUT_DIR"), "/cortex.rs"));
    }
    pub mod prometheus {
        include!(concat!(env!("OUT_DIR"), "/prometheus.rs"));
    }
    pub mod httpgrpc {
        include!(concat!(env!("OUT_DIR"), "/httpgrpc.rs"));
    }
    pub mod ha {
        include!(concat!(env!("OUT_DIR"), "/ha.rs"));
    }
    /// What Cortex's gossiping store tells its like.
    pub mod memberlist {
        include!(concat!(env!("OUT_DIR"), "/memberlist.rs"));
    }
    pub mod budgets {
        include!(concat!(env!("OUT_DIR"), "/freehold.budgets.v1.rs"));
    }
    /// The part of etcd's v3 API that the ring's store speaks.
    pub mod etcdserverpb {
        include!(concat!(env!("OUT_DIR"), "/etcdserverpb.rs"));
    }
    /// The part of OTLP that spans go to a collector by.
    pub mod otlptrace {
        include!(concat!(env!("OUT_DIR"), "/otlptrace.rs"));
    }
    pub mod google {
        pub mod rpc {
            include!(concat!(env!("OUT_DIR"), "/google.rpc.rs"));
        }
    }
}
