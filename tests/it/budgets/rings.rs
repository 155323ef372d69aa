//! Gates that are in the rings of writes and of queries, at one address.

use freehold::clients::Gates::{Distributors, QueryFrontends};

use super::*;

struct Both {
    id: Arc<str>,
    writes: Budgets,
    queries: Option<Budgets>,
    proxy: Proxy,
    _drainer: Drainer,
    _serving: JoinSet<()>,
}

impl Both {
    async fn start(id: &str, takes_queries: bool, setup: &Setup) -> Self {
        let id: Arc<str> = id.into();
        let writes = budgets(&id, Distributors, setup);
        let queries = takes_queries.then(|| budgets(&id, QueryFrontends, setup));
        let rings: Vec<_> = std::iter::once(writes.clone()).chain(queries.clone()).collect();
        let (address, drainer, serving) = start_edge(Some(BudgetCalls::of(&rings)), None).await;
        let proxy = Proxy::start(address).await;
        Self { id, writes, queries, proxy, _drainer: drainer, _serving: serving }
    }

    fn queries(&self) -> &Budgets {
        self.queries.as_ref().expect("it takes queries")
    }

    fn has_spent(&self, key: Key<'_>) -> Option<f64> {
        use freehold::wire::budgets::Shown;
        let budgets = match key.kind.gates() {
            Distributors => &self.writes,
            QueryFrontends => self.queries(),
        };
        match budgets.show_own(&key.to_owned()) {
            Shown::Account(account) => {
                Some(account.map_or(0.0, |one| (1000.0 - one.credit).round()))
            }
            Shown::NotOwner => None,
        }
    }
}

/// All of a ring that both sorts of gates believe in; `owner` owns everything.
fn publish(gates: &[&Both], owner: &Both) {
    let members: Vec<_> = gates.iter().map(|gate| Arc::clone(&gate.id)).collect();
    let at = members.iter().position(|id| *id == owner.id).expect("a member") as u16;
    let addresses: HashMap<Arc<str>, Arc<str>> = gates
        .iter()
        .map(|gate| (Arc::clone(&gate.id), gate.proxy.address.to_string().into()))
        .collect();
    for gate in gates {
        for budgets in std::iter::once(&gate.writes).chain(&gate.queries) {
            budgets.publish(OwnerMap::new(&[(7, at)], &members, &gate.id), &addresses);
        }
    }
}

fn key(kind: Kind) -> Key<'static> {
    Key { kind, tenant: TENANT, client: "a" }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_kind_reaches_the_budgets_of_its_own_ring() {
    let setup = Setup::default();
    let (owner, other) =
        (Both::start("gate-0", true, &setup).await, Both::start("gate-1", true, &setup).await);
    publish(&[&owner, &other], &owner);
    let kinds = [Kind::ClientWrites, Kind::ClientQueries, Kind::ClientQueryTries];
    for (n, kind) in (10..).zip(kinds) {
        let budgets = if kind.gates() == Distributors { &other.writes } else { other.queries() };
        let _ = budgets.charge(key(kind), n, setup.terms).await.expect("credit");
        assert_eq!(owner.has_spent(key(kind)), Some(n as f64), "{kind:?}");
        assert_eq!(other.has_spent(key(kind)), None, "{kind:?}");
        let top = budgets.top(kind, TENANT, 5).await;
        assert_eq!((top.accounts.len(), top.silent.len()), (1, 0), "{kind:?}");
        assert_eq!(top.accounts[0].1.credit.round(), 1000.0 - n as f64);
    }
    assert_eq!(owner.writes.counts().served, 1);
    assert_eq!(owner.queries().counts().served, 2);
    // One is forgiven, the others are not.
    let reset = other.queries().reset(key(Kind::ClientQueries)).await.expect("an owner");
    assert!(reset.was_owed && reset.silent.is_empty());
    let spent = kinds.map(|kind| owner.has_spent(key(kind)).expect("the owner"));
    assert_eq!(spent, [10.0, 0.0, 12.0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn accounts_of_both_rings_find_their_new_owner() {
    let setup = Setup::default();
    let (first, next) =
        (Both::start("gate-0", true, &setup).await, Both::start("gate-1", true, &setup).await);
    publish(&[&first, &next], &first);
    let _ = first.writes.charge(key(Kind::ClientWrites), 10, setup.terms).await.expect("credit");
    let _ =
        first.queries().charge(key(Kind::ClientQueries), 20, setup.terms).await.expect("credit");
    publish(&[&next, &first], &next);
    first.writes.leave().await;
    first.queries().leave().await;
    assert_eq!(next.has_spent(key(Kind::ClientWrites)), Some(10.0));
    assert_eq!(next.has_spent(key(Kind::ClientQueries)), Some(20.0));
    assert_eq!(next.writes.counts().taken_over, 1);
    assert_eq!(next.queries().counts().taken_over, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gate_of_writes_alone_refuses_who_asks_it_for_queries() {
    let setup = Setup::default();
    let (owner, other) =
        (Both::start("gate-0", false, &setup).await, Both::start("gate-1", true, &setup).await);
    publish(&[&owner, &other], &owner);
    let _ = other.writes.charge(key(Kind::ClientWrites), 1, setup.terms).await.expect("credit");
    until("refused", || !other.queries().is_up("gate-0")).await;
    other.queries().charge(key(Kind::ClientQueries), 1, setup.terms).await.expect_err("no owner");
    assert_eq!(owner.writes.counts().served, 1);
}
