//! The pages and the command about budgets of clients, against two gates that share a ring.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use freehold::admin::Site;
use freehold::admin::clients::{ClientsSource, query};
use freehold::app::WriteGate;
use freehold::clients::config::{ColdStart, OwnerLost};
use freehold::clients::key::KEY_SECRET_BYTES;
use freehold::clients::peers::{BudgetsSetup, connector};
use freehold::clients::{Budgets, GateSettings, Key, KeyHasher, Kind, OwnerMap, Terms};
use freehold::clock::Clock;
use freehold::config::{AskedArgs, ClientsArgs, ClientsAsk, Config, Target};
use freehold::exposition::RefusedCount;
use freehold::limits::IngestionRateStrategy;
use freehold::query::clients::{self, ClientsError};
use freehold::ratelimit::Budget;
use freehold::ring::config::KvStoreKind;
use freehold::tenant::{ClientId, TenantId};
use freehold::wire::proto::cortexpb;
use prost::Message as _;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::ring_stores::fake_consul::FakeConsul;

const PATIENCE: Duration = Duration::from_secs(60);
const TENANT: &str = "team";
const BURST: u64 = 5;
/// Too little for a credit to come back while a test runs.
const RATE: f64 = 0.0001;

struct Gates {
    gates: Vec<WriteGate>,
    /// The ring's store, and what stands behind the gates.
    _around: (FakeConsul, JoinSet<()>),
}

struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    #[track_caller]
    fn json(&self) -> Value {
        assert_eq!(self.status, 200, "{}", self.body);
        serde_json::from_str(&self.body).expect("JSON")
    }
}

impl Gates {
    async fn start(len: usize, change: impl Fn(&mut Config)) -> Self {
        let consul = FakeConsul::start().await;
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let upstream = listener.local_addr().expect("bound");
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let takes_all = Router::new().fallback(|| async {});
            axum::serve(listener, takes_all).await.expect("serves");
        });
        let mut gates = Vec::new();
        for number in 0..len {
            let mut config = Config::for_target(Target::Distributor);
            config.distributor.upstream.url = format!("http://{upstream}");
            config.admin.http_listen_address = "127.0.0.1:0".into();
            let server = &mut config.server;
            server.http_listen_address = "127.0.0.1".into();
            server.grpc_listen_address = "127.0.0.1".into();
            (server.http_listen_port, server.grpc_listen_port) = (0, 0);
            let ring = &mut config.distributor.ring;
            ring.instance_id = format!("gate-{number}");
            ring.instance_addr = "127.0.0.1".into();
            ring.kvstore.store = KvStoreKind::Consul;
            ring.kvstore.consul = consul.config().consul;
            config.client_identity.cold_start = ColdStart::Full;
            config.client_identity.owner_timeout = freehold::units::Millis::from_secs(5);
            config.limits.client_identity_ingestion_rate_limit = RATE;
            config.limits.client_identity_ingestion_burst_size = BURST;
            change(&mut config);
            gates.push(WriteGate::start(config).await.expect("starts"));
        }
        let gates = Self { gates, _around: (consul, serving) };
        let known = async {
            // Each has links to all others, and a ring in which each owns something.
            let has_all = |gate: &WriteGate| match &gate.budgets {
                None => true,
                Some(budgets) => (0..len).all(|at| owned_by(budgets, at).next().is_some()),
            };
            while !gates.gates.iter().all(has_all) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(PATIENCE, known).await.expect("a ring of all");
        gates
    }

    fn budgets(&self, at: usize) -> &Budgets {
        self.gates[at].budgets.as_ref().expect("kept here")
    }

    async fn get(&self, at: usize, query: &str, accept: &str) -> Answer {
        let head = format!("GET /distributor/clients?{query} HTTP/1.1\r\nAccept: {accept}\r\n");
        send(self.pages(at), &head, b"").await
    }

    async fn json(&self, at: usize, query: &str) -> Value {
        self.get(at, query, "application/json").await.json()
    }

    /// Where the pages of a gate are.
    fn pages(&self, at: usize) -> SocketAddr {
        self.gates[at].admin_address.expect("pages are on")
    }

    /// As a form of the gate's own page.
    async fn reset(&self, at: usize, form: &str, more: &str) -> Answer {
        let page = self.get(at, "", "text/html").await;
        let (_, rest) = page.head.split_once("x-csrf-token: ").expect("a token");
        let token = rest.lines().next().unwrap_or_default();
        self.post(at, &format!("{form}&csrf={token}"), more).await
    }

    async fn post(&self, at: usize, form: &str, more: &str) -> Answer {
        let head = format!(
            "POST /distributor/clients/reset HTTP/1.1\r\n\
             Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n{more}",
            form.len()
        );
        send(self.pages(at), &head, form.as_bytes()).await
    }

    /// The status of a write of so many samples.
    async fn push(&self, at: usize, client: &str, samples: u64) -> u16 {
        let label = |name: &str, value: String| cortexpb::LabelPair {
            name: name.into(),
            value: value.into(),
        };
        let series = |number: u64| cortexpb::TimeSeries {
            labels: vec![label("__name__", "m".into()), label("n", number.to_string())],
            samples: vec![cortexpb::Sample { timestamp_ms: 5, ..Default::default() }],
            ..Default::default()
        };
        let timeseries = (0..samples).map(series).collect();
        let request = cortexpb::WriteRequest { timeseries, ..Default::default() };
        let body = snap::raw::Encoder::new().compress_vec(&request.encode_to_vec());
        let body = body.expect("packs");
        let named = match client {
            "" => String::new(),
            client => format!("X-Scope-ClientID: {client}\r\n"),
        };
        let head = format!(
            "POST /api/v1/push HTTP/1.1\r\nX-Scope-OrgID: {TENANT}\r\n{named}\
             Content-Length: {}\r\n",
            body.len()
        );
        send(self.gates[at].http_address, &head, &body).await.status
    }

    fn args(&self, at: usize, ask: ClientsAsk, json: bool) -> ClientsArgs {
        let addr = self.pages(at).to_string();
        let kind = freehold::clients::Gates::Distributors;
        let asked = AskedArgs { address: addr, ..AskedArgs::default() };
        ClientsArgs { asked, tenant: TENANT.to_owned(), kind: Some(kind), ask, json }
    }

    async fn stop(self) {
        for gate in self.gates {
            gate.stop().await.expect("stops");
        }
    }
}

async fn send(address: SocketAddr, head: &str, body: &[u8]) -> Answer {
    let exchange = async {
        let mut stream = TcpStream::connect(address).await.expect("connect");
        let head = format!("{head}Host: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(&[head.as_bytes(), body].concat()).await.expect("write");
        let mut text = String::new();
        stream.read_to_string(&mut text).await.expect("text");
        text
    };
    let text = tokio::time::timeout(PATIENCE, exchange).await.expect("an answer");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
    Answer { status, head: head.to_owned(), body: body.to_owned() }
}

fn key(client: &str) -> Key<'_> {
    Key { kind: Kind::ClientWrites, tenant: TENANT, client }
}

/// Names of clients whose budgets the gate of that number keeps; none while nobody knows it.
fn owned_by(budgets: &Budgets, owner: usize) -> impl Iterator<Item = String> {
    let owner = format!("gate-{owner}");
    let names = (0..200).map(|number| format!("CN=<b>{number} & co"));
    names.filter(move |name| budgets.owner_of(key(name)).is_some_and(|found| *found == *owner))
}

fn with_clients(config: &mut Config) {
    config.client_identity.enabled = true;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_r17_any_gate_shows_what_the_owner_keeps_and_resets_it() {
    let gates = Gates::start(2, with_clients).await;
    for owner in 0..2 {
        let client = owned_by(gates.budgets(0), owner).next().expect("a client");
        let named = query(TENANT, Some(&client));
        let full = gates.json(1 - owner, &named).await;
        assert_eq!(full["budget"]["credit"], json!(BURST as f64), "nothing is owed: {full}");
        assert_eq!(gates.push(0, &client, BURST).await, 200);
        assert_eq!(gates.push(1, &client, 1).await, 429);
        let refused = &gates.json(1, &named).await["refused"][0];
        assert_eq!(refused["reason"], "client_rate_limited", "the second gate has refused");
        for asked in 0..2 {
            let one = gates.json(asked, &named).await;
            let row = &one["budget"];
            assert_eq!((&one["tenant"], &one["client"]), (&json!(TENANT), &json!(client)));
            assert_eq!(row["owner"], format!("gate-{owner}"));
            assert!(row["credit"].as_f64().expect("a number") < 1.0, "{row}");
            assert_eq!((&row["burst"], &row["rate"]), (&json!(BURST), &json!(RATE)));
            let shown = gates.get(asked, &named, "text/html").await;
            assert!(shown.body.contains("name=\"client\"") && !shown.body.contains("<b>"));
            let asks_twice = shown.body.contains("<details class=\"confirm\">");
            assert!(asks_twice && shown.body.contains("name=\"csrf\""), "{}", shown.body);
            let text = clients::run(&gates.args(asked, show(&client), false)).await.expect("told");
            assert!(text.contains(&client) && text.contains(&format!("gate-{owner}")), "{text}");

            let back = gates.reset(asked, &named, "").await;
            assert_eq!(back.status, 303, "{}", back.body);
            let leads = format!("location: ../clients?{named}&kind=writes");
            let mut lines = back.head.lines();
            assert!(lines.any(|line| line.eq_ignore_ascii_case(&leads)), "{}", back.head);
            assert_eq!(gates.push(1 - asked, &client, BURST).await, 200, "forgiven");
            assert_eq!(gates.push(asked, &client, 1).await, 429);
        }
        let done = gates.reset(0, &named, "Accept: application/json\r\n").await.json();
        assert_eq!(done, json!({ "was_owed": true, "silent_gates": [] }));
        let ask = ClientsAsk::Reset { client: client.clone() };
        let text = clients::run(&gates.args(1, ask, false)).await.expect("told");
        assert_eq!(text, "nothing was owed\n");
    }
    gates.stop().await;
}

fn show(client: &str) -> ClientsAsk {
    ClientsAsk::Show { client: client.to_owned() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_list_has_the_poorest_of_all_gates_and_names_who_is_silent() {
    let mut gates = Gates::start(2, with_clients).await;
    let terms = Terms { budget: Budget { rate: RATE, burst: BURST }, tracked_max: 1000 };
    let empty = clients::run(&gates.args(0, ClientsAsk::Top, false)).await.expect("told");
    assert!(empty.contains("no client owes anything"), "{empty}");
    for number in 0..110 {
        let client = format!("client-{number:03}");
        let n = if number < 7 { BURST } else { 1 };
        let _spent = gates.budgets(0).charge(key(&client), n, terms).await.expect("full");
    }
    let [first, second] = [
        gates.json(0, &query(TENANT, None)).await,
        gates.json(1, &format!("{}&format=json", query(TENANT, None))).await,
    ];
    for page in [&first, &second] {
        let gates: Vec<_> = page["gates"].as_array().expect("a list").iter().collect();
        assert!(gates.len() == 2 && gates.iter().all(|gate| gate["up"] == true), "{gates:?}");
        assert_eq!(page["silent_gates"], json!([]));
        let expect =
            json!({ "rate": RATE, "burst": BURST, "tracked_clients": 1000, "shadow": false });
        assert_eq!(page["limit"], expect);
        let rows = page["clients"].as_array().expect("a list");
        assert_eq!(rows.len(), 100);
        let credit = |row: &Value| row["credit"].as_f64().expect("a number");
        assert!(rows.is_sorted_by_key(credit));
        let mut poorest: Vec<_> = rows[..7].iter().map(|row| row["client"].as_str()).collect();
        poorest.sort_unstable();
        let expect: Vec<_> = (0..7).map(|number| format!("client-{number:03}")).collect();
        assert_eq!(poorest, expect.iter().map(|name| Some(name.as_str())).collect::<Vec<_>>());
        let owners = ["gate-0", "gate-1"].map(|id| rows.iter().any(|row| row["owner"] == id));
        assert_eq!(owners, [true; 2]);
    }
    let shown = gates.get(0, &query(TENANT, None), "text/html").await;
    for text in [">client-006</a>", "at most 100.", "Each client of team: 0.0001 items a second"] {
        assert!(shown.body.contains(text), "{text} in {}", shown.body);
    }
    // Two words of one attribute, as of one sentence.
    assert!(shown.body.contains("<td class=\"number bad\">0.0</td>"), "{}", shown.body);
    let text = clients::run(&gates.args(1, ClientsAsk::Top, false)).await.expect("told");
    assert_eq!(text.lines().count(), 102, "a line on the limit, a heading, the rows: {text}");
    let told = clients::run(&gates.args(1, ClientsAsk::Top, true)).await.expect("told");
    let told: Value = serde_json::from_str(&told).expect("JSON");
    assert_eq!(told["clients"].as_array().map(Vec::len), Some(100));

    // As by `kill -9`: its entry stays behind.
    drop(gates.gates.pop());
    let page = gates.json(0, &query(TENANT, None)).await;
    assert_eq!(page["silent_gates"], json!(["gate-1"]));
    let text = clients::run(&gates.args(0, ClientsAsk::Top, false)).await.expect("told");
    assert!(text.contains("no answer from gate-1"), "{text}");
    gates.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenants_own_budget_is_shown_and_reset_by_an_empty_client() {
    let gates = Gates::start(2, |config| {
        config.limits.ingestion_rate_strategy = IngestionRateStrategy::Leased;
        config.limits.ingestion_rate = RATE;
        config.limits.ingestion_burst_size = BURST;
    })
    .await;
    let own = query(TENANT, Some(""));
    assert_eq!(gates.push(0, "", BURST).await, 200);
    for asked in 0..2 {
        assert_eq!(gates.push(asked, "", 1).await, 429);
        let one = gates.json(asked, &own).await;
        assert!(one["budget"]["credit"].as_f64().expect("a number") < 1.0, "{one}");
        let list = gates.json(asked, &query(TENANT, None)).await;
        let row = &list["tenant_budget"];
        assert_eq!((&row["client"], &row["owner"]), (&json!(""), &one["budget"]["owner"]));
        assert!(row["credit"].as_f64().expect("a number") < 1.0, "{row}");
        let notes = list["notes"].to_string();
        assert!(notes.contains("-client-identity.enabled"), "clients have none here: {notes}");
        let text = clients::run(&gates.args(asked, ClientsAsk::Top, false)).await.expect("told");
        assert!(text.contains("(the tenant itself)"), "{text}");
        assert_eq!(gates.reset(asked, &own, "").await.status, 303);
        assert_eq!(gates.push(1 - asked, "", BURST).await, 200, "forgiven");
    }
    gates.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_asked_wrongly_or_by_another_site_is_refused() {
    let gates = Gates::start(1, with_clients).await;
    let named = query(TENANT, Some("a"));
    assert_eq!(gates.push(0, "a", BURST).await, 200);
    for from in ["Sec-Fetch-Site: cross-site\r\n", "Origin: http://evil.example\r\n"] {
        assert_eq!(gates.reset(0, &named, from).await.status, 403);
    }
    for forged in
        [named.clone(), format!("{named}&csrf="), format!("{named}&csrf={}", "0".repeat(64))]
    {
        let refused = gates.post(0, &forged, "").await;
        assert_eq!((refused.status, refused.body.contains("x-csrf-token")), (403, true));
    }
    assert_eq!(gates.push(0, "a", 1).await, 429, "nothing was forgiven");
    assert_eq!(gates.reset(0, "tenant=team", "").await.status, 400, "no client is not every one");
    let head = format!("GET /distributor/clients/reset?{named} HTTP/1.1\r\n");
    let by_a_link = send(gates.pages(0), &head, b"").await;
    assert_eq!(by_a_link.status, 405);
    assert_eq!(gates.get(0, "", "text/html").await.status, 200, "people get a form");
    for wrong in ["", "tenant=a%2Fb", "tenant=a&client=%09", "tenant=a&client=%C3%A9"] {
        assert_eq!(gates.get(0, wrong, "application/json").await.status, 400, "{wrong}");
    }
    let mut args = gates.args(0, show(&"x".repeat(257)), false);
    let refused = clients::run(&args).await.expect_err("too long");
    assert!(refused.to_string().contains("400: client ID is too long"), "{refused}");
    gates.stop().await;
    args.ask = ClientsAsk::Top;
    let gone = clients::run(&args).await.expect_err("nobody is there");
    assert!(matches!(gone, ClientsError::Instance(_)), "{gone}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_budgets_are_off_the_page_says_how_to_turn_them_on() {
    let gates = Gates::start(1, |_| {}).await;
    for asked in [query(TENANT, None), query(TENANT, Some("a"))] {
        let page = gates.json(0, &asked).await;
        assert_eq!(page["enabled"], json!(false));
        assert!(page["notes"][0].as_str().expect("a note").contains("-client-identity.enabled"));
        let shown = gates.get(0, &asked, "text/html").await;
        assert!(shown.body.contains("-client-identity.enabled=true"), "{}", shown.body);
    }
    let off = gates.reset(0, &query(TENANT, Some("a")), "").await;
    assert_eq!((off.status, off.body.contains("-client-identity.enabled")), (409, true));
    for ask in [ClientsAsk::Top, show("a")] {
        let error = clients::run(&gates.args(0, ask, true)).await.expect_err("off");
        assert!(matches!(&error, ClientsError::Off { text, .. } if text.contains("=leased")));
    }
    gates.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_keeps_a_limit_from_acting_is_told() {
    let gates = Gates::start(1, |config| {
        config.client_identity.enabled = true;
        config.limits.client_identity_ingestion_shadow = true;
    })
    .await;
    assert_eq!(gates.push(0, "a", BURST).await, 200);
    assert_eq!(gates.push(0, "a", BURST).await, 200, "only counted");
    for asked in [query(TENANT, None), query(TENANT, Some("a"))] {
        let page = gates.json(0, &asked).await;
        assert!(page["notes"].to_string().contains("shadow"), "{page}");
    }
    let own = gates.json(0, &query(TENANT, Some(""))).await;
    assert!(own["notes"].to_string().contains("=leased"), "{own}");
    assert_eq!(own["budget"], Value::Null);
    gates.stop().await;
    let gates = Gates::start(1, |config| {
        config.client_identity.enabled = true;
        config.limits.client_identity_ingestion_rate_limit = 0.0;
    })
    .await;
    let page = gates.json(0, &query(TENANT, None)).await;
    assert!(page["notes"].to_string().contains("client_identity_ingestion_rate_limit"), "{page}");
    assert_eq!((&page["limit"], &page["clients"]), (&Value::Null, &json!([])));
    gates.stop().await;
}

#[tokio::test]
async fn budgets_of_queries_are_shown_and_forgiven_with_their_tries() {
    use freehold::clients::Gates::QueryFrontends;
    use freehold::frontend::shared;

    let limits = freehold::limits::Limits {
        client_identity_query_rate_limit: freehold::limits::QueryRate::Share(0.01),
        client_identity_query_burst_size: BURST,
        query_capacity_per_second: 1.0,
        ..Default::default()
    };
    let overrides = Arc::new(freehold::limits::Overrides::new(limits, Default::default()));
    let us: Arc<str> = "gate-0".into();
    let budgets = Budgets::new(BudgetsSetup {
        gates: QueryFrontends,
        us: Arc::clone(&us),
        incarnation: 1,
        settings: GateSettings { owner_lost: OwnerLost::Deny, cold_start: ColdStart::Full },
        hasher: KeyHasher::new([7; KEY_SECRET_BYTES]),
        clock: Clock::start(),
        owner_timeout: PATIENCE,
        terms_of: shared::terms_of(&overrides),
        connect: connector(Default::default(), None),
    });
    budgets.publish(OwnerMap::new(&[(7, 0)], &[us], "gate-0"), &HashMap::new());
    let source = ClientsSource {
        writes: None,
        queries: Some(budgets.clone()),
        overrides: Arc::clone(&overrides),
        are_clients_known: true,
        refused: Arc::new(|_: &TenantId, _: &mut dyn FnMut(RefusedCount<'_>)| {}),
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let addr = listener.local_addr().expect("bound").to_string();
    let mut serving = JoinSet::new();
    let router = freehold::admin::clients::router(QueryFrontends, source, &Site::of_http());
    serving.spawn(async move { axum::serve(listener, router).await.expect("serves") });

    let (tenant, client) = (TenantId::parse(TENANT).expect("a name"), ClientId::parse("a"));
    let client = client.expect("a name");
    let terms = shared::client_terms(overrides.load().limits(&tenant)).expect("a limit");
    let (queries, tries) =
        (shared::client_key(&tenant, &client), shared::tries_key(&tenant, &client));
    let ask = async |ask: ClientsAsk| {
        let (addr, tenant) = (addr.clone(), TENANT.to_owned());
        // It has budgets of queries alone, and is found to.
        let asked = AskedArgs { address: addr, ..AskedArgs::default() };
        let args = ClientsArgs { asked, tenant, kind: None, ask, json: false };
        clients::run(&args).await
    };
    let spend_all = async || {
        let (n, of_tries) = (BURST, shared::tries_terms(terms));
        let charged = budgets.charge(queries, n, terms).await.is_ok();
        charged && budgets.charge(tries, 10 * n, of_tries).await.is_ok()
    };
    assert!(spend_all().await);
    assert!(!spend_all().await);
    let text = ask(ClientsAsk::Top).await.expect("told");
    let head = "Each client of team: 0.0001 queries a second over all query gates, 5 at once";
    assert!(text.starts_with(head), "{text}");
    assert!(text.contains("a       0.0"), "{text}");
    budgets.debit(queries, 3, terms);
    let text = ask(show("a")).await.expect("told");
    assert!(text.contains("-3.0"), "{text}");
    let reset = |client: &str| ClientsAsk::Reset { client: client.to_owned() };
    let text = ask(reset("a")).await.expect("told");
    assert_eq!(text, "forgiven: the budget is full again\n");
    assert!(spend_all().await, "tries are forgiven too");
    let error = ask(reset("")).await.expect_err("of nobody");
    assert!(matches!(&error, ClientsError::Refused { status: 400, .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_gate_says_that_it_keeps_no_budgets_of_queries() {
    let gates = Gates::start(1, |config| config.client_identity.enabled = true).await;
    let page = gates.json(0, &format!("{}&kind=queries", query(TENANT, Some("a")))).await;
    assert_eq!((&page["enabled"], &page["kind"]), (&json!(false), &json!("queries")));
    assert!(page["notes"].to_string().contains("client_identity_query_rate_limit"), "{page}");
    let page = gates.json(0, &format!("{}&kind=writes", query(TENANT, None))).await;
    assert_eq!((&page["enabled"], &page["kind"]), (&json!(true), &json!("writes")));
    let wrong = gates.get(0, &format!("{}&kind=reads", query(TENANT, None)), "text/html").await;
    assert_eq!(wrong.status, 400, "{}", wrong.body);
    gates.stop().await;
}
