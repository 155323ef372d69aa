//! What others ask of our accounts.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Gate, Id, TermsOf, lock};
use crate::clients::account::{Holder, LEASE_NS, Short};
use crate::clients::exchange::{Answer, Answers, Batch, Item, Refund};
use crate::clients::key::KeyHash;
use crate::clients::owner::{KeyedTerms, Terms};
use crate::clients::placement::OwnerMap;
use crate::sync::{Mutex, Ordering};

/// Most gates that are told apart. One more is a stranger with each of its batches: what it says it
/// holds is counted anew, which makes an owner careful and nobody rich.
const PEERS_MAX: usize = 1024;

/// Those who ask us.
pub(super) struct Peers {
    pub(super) by_id: HashMap<Id, Arc<Mutex<Peer>>>,
    pub(super) next: u32,
}

pub(super) struct Peer {
    pub(super) holder: Holder,
    incarnation: u64,
    /// The last batch that was answered.
    sequence: u64,
    answers: Option<Answers>,
    pub(super) seen_ns: i64,
}

impl<W> Gate<W> {
    /// Answers a batch of `peer`; `None` to one that is older than what it has been answered.
    pub fn serve(
        &self,
        peer: &str,
        incarnation: u64,
        batch: &Batch,
        terms_of: TermsOf<'_>,
        now_ns: i64,
    ) -> Option<Answers> {
        let peer = self.peer(peer, now_ns);
        let mut peer = lock(&peer);
        peer.seen_ns = now_ns;
        if peer.incarnation != incarnation {
            // Its process began anew, and asks from 1 again.
            (peer.incarnation, peer.sequence, peer.answers) = (incarnation, 0, None);
        }
        if batch.sequence <= peer.sequence {
            return peer.answers.clone().filter(|last| last.sequence == batch.sequence);
        }
        let maps = self.maps.load();
        let holder = peer.holder;
        let judged = |item: &Item| {
            let key = item.key.as_key();
            let hash = self.hasher.hash(key);
            if !maps.map.is_here(hash) {
                return Err(Answer::NotOwner);
            }
            match terms_of(key.kind, key.tenant) {
                Some(terms) => Ok((hash, terms)),
                None => Err(Answer::NoLimit),
            }
        };
        let judged: Vec<_> = batch.items.iter().map(judged).collect();
        // All reports before any grant: they were written before.
        for (item, judged) in batch.items.iter().zip(&judged) {
            if let (Some(holding), Ok((hash, terms))) = (item.holding, judged) {
                let budget = KeyedTerms { key: item.key.as_key(), hash: *hash, terms: *terms };
                let start = || self.start(&maps, *hash, terms.budget, now_ns);
                self.owner.report(budget, holder, holding, now_ns, start);
            }
            if let (Some(refund), Ok((hash, _))) = (item.refund, judged) {
                let Refund { credits, age_ns } = refund;
                self.owner.refund(item.key.as_key(), *hash, credits, age_ns, now_ns);
            }
            if let (1.., Ok((hash, terms))) = (item.debt, judged) {
                let budget = KeyedTerms { key: item.key.as_key(), hash: *hash, terms: *terms };
                let start = || self.start(&maps, *hash, terms.budget, now_ns);
                self.owner.debit(budget, item.debt, now_ns, start);
            }
        }
        let answer = |(item, judged): (&Item, Result<(KeyHash, Terms), Answer>)| {
            let (hash, terms) = match judged {
                Ok(judged) => judged,
                Err(answer) => return answer,
            };
            if item.wish.spend == 0 && item.wish.want == 0 {
                return Answer::Granted { lease: 0 };
            }
            let budget = KeyedTerms { key: item.key.as_key(), hash, terms };
            let start = || self.start(&maps, hash, terms.budget, now_ns);
            match self.owner.grant(budget, item.wish, holder, now_ns, start) {
                Ok(lease) => Answer::Granted { lease },
                Err(Short { wait_ns }) => Answer::Denied { wait_ns },
            }
        };
        let items: Vec<_> = batch.items.iter().zip(judged).map(answer).collect();
        self.counts.served.fetch_add(items.len() as u64, Ordering::Relaxed);
        let answers = Answers { sequence: batch.sequence, items };
        peer.sequence = batch.sequence;
        peer.answers = Some(answers.clone());
        Some(answers)
    }

    pub(super) fn peer(&self, id: &str, now_ns: i64) -> Arc<Mutex<Peer>> {
        let mut peers = lock(&self.peers);
        if let Some(peer) = peers.by_id.get(id) {
            return Arc::clone(peer);
        }
        let holder = Holder(peers.next);
        peers.next = peers.next.wrapping_add(1).max(1);
        let peer = Peer { holder, incarnation: 0, sequence: 0, answers: None, seen_ns: now_ns };
        let peer = Arc::new(Mutex::new(peer));
        if peers.by_id.len() < PEERS_MAX {
            peers.by_id.insert(id.into(), Arc::clone(&peer));
        }
        peer
    }

    /// Those that left the ring, once nothing that they hold can be alive.
    pub(super) fn forget_peers(&self, map: &OwnerMap, now_ns: i64) {
        lock(&self.peers).by_id.retain(|id, peer| {
            map.members().contains(id) || lock(peer).seen_ns.saturating_add(2 * LEASE_NS) > now_ns
        });
    }

    pub(super) fn peer_names(&self) -> HashMap<Holder, Id> {
        let peers = lock(&self.peers);
        let named = peers.by_id.iter().map(|(id, peer)| (lock(peer).holder, Id::clone(id)));
        named.collect()
    }
}
