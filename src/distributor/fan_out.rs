//! A prepared request on its way to the ingesters that the ring gives its series to.
//!
//! ```text
//! keys of the items ─► Batches: who gets which ─► messages: ranges of the body ─► Spread
//!                      Quorum: what their answers come to ◄──────────────────────┘
//! ```
//!
//! Nothing is decoded and nothing is allocated per series: a message is ranges of the prepared
//! body, in memory that is kept from request to request.
//!
//! What must hold: nothing is sent when one key cannot be placed; a series is stored only once a
//! quorum of its replicas has said so; whoever stops waiting for the verdict stops nothing; a
//! request that is larger than an ingester's messages may be is sent in several.

mod scratch;
mod subrings;

use std::sync::Arc;

use crate::ring::{
    AssignError, Batch, Operation, Placement, Quorum, QuorumError, RingSnapshot, Subring,
};
use crate::upstream::ingesters::{Awaited, Contents, Ingesters, Pushing};
use crate::wire::batch::{BatchSource, write_batch};

use super::{Item, ItemKind, Prepared, ShardingStrategy};
use scratch::{Scratch, ScratchPool};
use subrings::Subrings;

/// Spreads prepared requests over the ring.
pub struct FanOut {
    ingesters: Ingesters,
    sharding: ShardingStrategy,
    /// What ingesters are looked up for: with or without successors of those that are not ACTIVE.
    op: Operation,
    subrings: Subrings,
    scratch: ScratchPool,
}

/// Where a tenant's series are placed.
#[derive(Clone, Debug)]
pub struct Place {
    /// `None` is the whole ring.
    pub subring: Option<Arc<Subring>>,
    pub op: Operation,
}

impl Place {
    pub fn placement<'a>(&'a self, ring: &'a RingSnapshot) -> Placement<'a> {
        match &self.subring {
            Some(subring) => subring.placement(),
            None => ring.placement(),
        }
    }
}

/// Why a request is not stored. The texts are Cortex's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FanOutError {
    /// Nothing was sent.
    #[error(transparent)]
    Unplaced(#[from] AssignError),
    /// What could be sent was, and some of it may be stored.
    #[error(transparent)]
    Ingesters(#[from] QuorumError),
}

impl FanOut {
    pub fn new(ingesters: Ingesters, sharding: ShardingStrategy, extend_writes: bool) -> Self {
        Self {
            ingesters,
            sharding,
            op: if extend_writes { Operation::Write } else { Operation::WriteNoExtend },
            subrings: Subrings::default(),
            scratch: ScratchPool::default(),
        }
    }

    pub fn ingesters(&self) -> &Ingesters {
        &self.ingesters
    }

    /// Sends a request to its ingesters and waits for the verdict.
    ///
    /// `shard_size` is the tenant's, and only looked at with shuffle sharding. A caller that goes
    /// away stops waiting; what was sent goes on, by the remote timeout at the longest.
    pub async fn push(
        &self,
        pushing: &Pushing<'_>,
        prepared: &Prepared<'_>,
        ring: &RingSnapshot,
        shard_size: i64,
    ) -> Result<(), FanOutError> {
        let awaited = self.send(pushing, prepared, ring, shard_size)?;
        Ok(awaited.verdict().await?)
    }

    /// Sends a request; when this returns all of it is on its way, and the body is free.
    pub fn send(
        &self,
        pushing: &Pushing<'_>,
        prepared: &Prepared<'_>,
        ring: &RingSnapshot,
        shard_size: i64,
    ) -> Result<Awaited, FanOutError> {
        let place = self.place(ring, pushing.tenant, shard_size);
        let mut scratch = self.scratch.take();
        let awaited = self.send_to(&place.placement(ring), pushing, prepared, &mut scratch);
        self.scratch.put(scratch);
        awaited
    }

    /// Where a tenant's series are placed, and what for.
    pub fn place(&self, ring: &RingSnapshot, tenant: &str, shard_size: i64) -> Place {
        let subring = match self.sharding {
            ShardingStrategy::Default => None,
            ShardingStrategy::ShuffleSharding => self.subrings.get(ring, tenant, shard_size),
        };
        Place { subring, op: self.op }
    }

    fn send_to(
        &self,
        place: &Placement<'_>,
        pushing: &Pushing<'_>,
        prepared: &Prepared<'_>,
        scratch: &mut Scratch,
    ) -> Result<Awaited, FanOutError> {
        let Scratch { batches, request, message } = scratch;
        batches.assign(place, self.op, prepared.items.iter().map(|item| item.key))?;
        // No part of a body is larger than the whole, so few requests are looked through.
        let bytes_max = self.ingesters.request_bytes_max();
        if prepared.body.len() > bytes_max {
            batches.split(bytes_max as u64, |item| prepared.items[item as usize].len_bytes());
        }
        let source = BatchSource {
            source: prepared.source,
            discard_out_of_order: prepared.discard_out_of_order,
        };
        let mut spread = self.ingesters.spread(pushing, Quorum::new(batches), message);
        for batch in batches.iter() {
            request.clear();
            let contents = write(request, prepared, batch, source);
            spread.add(&place.members[batch.member().index()], contents, request);
        }
        Ok(spread.send())
    }
}

impl FanOutError {
    /// The HTTP status that it is to its sender; none for a failure of ours alone.
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Unplaced(_) => None,
            Self::Ingesters(error) => Some(error.code),
        }
    }
}

/// A batch's items as a request of their own.
fn write(
    out: &mut Vec<u8>,
    prepared: &Prepared<'_>,
    batch: &Batch,
    source: BatchSource,
) -> Contents {
    let mut contents = Contents::default();
    for item in of(batch, prepared) {
        match item.kind {
            ItemKind::Series { .. } => contents.has_series = true,
            ItemKind::Metadata => contents.has_metadata = true,
        }
    }
    let range = |item: &Item| (item.start, item.end);
    let series = of(batch, prepared).filter(|item| item.kind != ItemKind::Metadata).map(range);
    let metadata = of(batch, prepared)
        .filter(|item| contents.has_metadata && item.kind == ItemKind::Metadata)
        .map(range);
    write_batch(out, &prepared.body, series, metadata, source);
    contents
}

fn of<'a>(batch: &'a Batch, prepared: &'a Prepared<'_>) -> impl Iterator<Item = &'a Item> {
    batch.items().map(|item| &prepared.items[item as usize])
}
