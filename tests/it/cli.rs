//! The command line as people and scripts meet it: the program itself, its two outputs and its
//! exit codes, against a running freehold and against servers that behave badly.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse as _;
use axum::routing::get;
use serde_json::{Value, json};

use super::process::{Freehold, wait_for};

struct Ended {
    code: i32,
    stdout: String,
    stderr: String,
}

impl Ended {
    #[track_caller]
    fn json(&self) -> Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}{}", self.stdout, self.stderr))
    }

    #[track_caller]
    fn check(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{}{}", self.stdout, self.stderr);
        self
    }
}

/// Runs the program to its end, off the threads that serve it.
async fn freehold(arguments: &[&str]) -> Ended {
    let mut command = Command::new(env!("CARGO_BIN_EXE_freehold"));
    command.args(arguments).stdin(Stdio::null());
    let ended = tokio::task::spawn_blocking(move || command.output().expect("the program runs"));
    let output = ended.await.expect("no panic");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    Ended {
        code: output.status.code().expect("an end of its own"),
        stdout: text(output.stdout),
        stderr: text(output.stderr),
    }
}

/// Where the pages of operators are.
fn admin(server: &Freehold) -> String {
    format!("--address=http://{}", server.admin)
}

fn http_address(server: &Freehold) -> String {
    format!("--address=http://{}", server.http)
}

async fn started(dir: &Path, flags: &[&str]) -> Freehold {
    let heartbeats = ["-ingester.heartbeat-period=100ms", "-ingester.num-tokens=16"];
    let server = Freehold::start(dir, &[&heartbeats, flags].concat()).await;
    server.wait_ready().await;
    server
}

/// Counters that no flag of a test moves.
async fn count(server: &Freehold, name: &str) -> u64 {
    server.metric(name).await.unwrap_or(0.0) as u64
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_load_says_it_sent_is_what_the_server_counted() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = started(dir.path(), &[]).await;
    let to = http_address(&server);
    let run = freehold(&[
        "load",
        &to,
        "--output=json",
        "--tenant=team",
        "--tenants=2",
        "--clients=3",
        "--series=250",
        "--churn=6000",
        "--batch=100",
        "--labels=4",
        "--rate=2000",
        "--duration=2s",
    ])
    .await
    .check(0);
    let told = run.json();
    assert_eq!(run.stderr, "", "there is no terminal to show progress on");
    assert_eq!(told["sent"], json!({ "requests": 48, "samples": 4000 }), "{told}");
    assert_eq!(told["accepted"], told["sent"]);
    let nothing = json!({ "requests": 0, "samples": 0 });
    assert_eq!((&told["refused"], &told["not_sent"]), (&nothing, &nothing));
    assert_eq!(told["latency"]["from"], "due");
    let mut received = 0;
    for tenant in ["team-1", "team-2"] {
        let of_tenant = |name: &str| format!("{name}{{type=\"float\",user=\"{tenant}\"}}");
        received += count(&server, &of_tenant("cortex_distributor_received_samples_total")).await;
    }
    assert_eq!(received, 4000);
    assert_eq!(count(&server, "cortex_ingester_ingested_samples_total").await, 4000);
    // Churn replaces a hundred a second.
    let series = told["series_sent"].as_u64().expect("a number");
    assert!((800..=900).contains(&series), "{series}");
    assert_eq!(count(&server, "cortex_ingester_memory_series").await, series);

    // The same series again, and as a table.
    let grpc = format!("--address={}", server.grpc);
    let run = freehold(&[
        "load",
        &grpc,
        "--protocol=grpc",
        "--tenant=pushed",
        "--series=300",
        "--batch=70",
        "--rate=max",
        "--duration=500ms",
        "--output=json",
    ])
    .await;
    let told = run.check(0).json();
    assert_eq!((&told["protocol"], &told["rate"]), (&json!("grpc"), &Value::Null));
    assert_eq!(told["latency"]["from"], "sent");
    let sent = told["accepted"]["samples"].as_u64().expect("a number");
    assert!(sent >= 300, "{told}");
    assert_eq!(told["accepted"], told["sent"]);
    assert_eq!(count(&server, "cortex_ingester_ingested_samples_total").await, 4000 + sent);
    let few = ["load", &to, "--series=10", "--rate=100", "--duration=200ms"];
    let table = freehold(&few).await.check(0).stdout;
    assert!(table.starts_with("remote-write to http://127.0.0.1:"), "{table}");
    let accepted = table.lines().find(|line| line.trim_start().starts_with("accepted"));
    let accepted: Vec<_> = accepted.expect("a row").split_whitespace().collect();
    assert_eq!(accepted, ["accepted", "2", "20", "100"], "{table}");
    assert!(table.contains("different series sent: 10\n"), "{table}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_load_tells_what_is_refused_and_by_what_words() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = started(dir.path(), &["-ingester.max-series-per-user=100"]).await;
    let to = http_address(&server);
    let load = ["load", &to, "--tenant=full", "--series=150", "--batch=50", "--rate=150"];
    let run = freehold(&[&load[..], &["--duration=2s", "--output=json"]].concat()).await.check(3);
    let told = run.json();
    assert_eq!(told["sent"], json!({ "requests": 6, "samples": 300 }));
    assert_eq!(told["accepted"], json!({ "requests": 4, "samples": 200 }));
    assert_eq!(told["refused"], json!({ "requests": 2, "samples": 100 }));
    let errors = told["errors"].as_array().expect("a list");
    assert_eq!(errors.len(), 1, "one kind, whatever series each names: {told}");
    assert_eq!((&errors[0]["status"], &errors[0]["requests"]), (&json!(400), &json!(2)));
    let text = errors[0]["text"].as_str().expect("a text");
    assert!(text.contains("per-user series limit of 100"), "{text}");

    // Its tenant is full, which is a finding; another one is not.
    let from = admin(&server);
    let run = freehold(&["tenants", &from, "--output=json"]).await.check(3);
    let told = run.json();
    assert_eq!((&told["total"], &told["matching"]), (&json!(1), &json!(1)));
    let row = &told["tenants"][0];
    assert_eq!((&row["tenant"], &row["in_memory"]), (&json!("full"), &json!(100)));
    assert_eq!((&row["headroom"], &row["limit"]), (&json!(0), &json!(100)));
    let table = freehold(&["tenants", &from]).await.check(3).stdout;
    let row: Vec<_> = table.lines().nth(1).expect("a row").split_whitespace().collect();
    assert_eq!(row[0], "full");
    assert!(row.contains(&"100"), "{table}");
    let none = freehold(&["tenants", &from, "--filter=nobody"]).await.check(0).stdout;
    assert_eq!(none.lines().count(), 1, "{none}");
    assert!(none.starts_with("tenants that match: 0 of 1"), "{none}");
    for tenant in ["a", "b", "c"] {
        let load = ["load", &to, "--series=5", "--rate=1000", "--duration=5ms", "--tenant", tenant];
        freehold(&load).await.check(0);
    }
    let top = freehold(&["tenants", &from, "--sort=tenant", "--top=2", "--output=json"]).await;
    let names = |told: &Value| {
        let rows = told["tenants"].as_array().expect("a list").iter();
        rows.map(|row| row["tenant"].as_str().expect("a name").to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names(&top.check(0).json()), ["a", "b"]);
    let all = freehold(&["tenants", &from, "--sort=in-memory", "--top=0", "--output=json"]).await;
    assert_eq!(names(&all.check(3).json())[0], "full");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ring_is_shown_and_a_member_is_forgotten() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = started(dir.path(), &["-ingester.lifecycler.ID=it-1"]).await;
    let from = admin(&server);
    let told = freehold(&["ring", "show", &from, "--output=json"]).await.check(0).json();
    let members = told["members"].as_array().expect("a list");
    assert_eq!(members.len(), 1);
    let member = &members[0];
    assert_eq!((&member["id"], &member["state"]), (&json!("it-1"), &json!("ACTIVE")));
    assert_eq!((&member["tokens"], &member["share"]), (&json!(16), &json!(1.0)));
    let table = freehold(&["ring", "show", &from]).await.check(0).stdout;
    assert!(table.contains("it-1") && table.ends_with("members: 1 ACTIVE\n"), "{table}");

    let nobody = freehold(&["ring", "forget", &from, "nobody", "--yes"]).await.check(1);
    assert!(nobody.stderr.contains("has no member \"nobody\""), "{}", nobody.stderr);
    assert_eq!(nobody.stdout, "");
    let unsure = freehold(&["ring", "forget", &from, "it-1"]).await.check(1);
    assert!(unsure.stderr.contains("--yes"), "{}", unsure.stderr);
    let done = freehold(&["ring", "forget", &from, "it-1", "--yes", "--output=json"]).await;
    assert_eq!(done.check(0).json(), json!({ "forgotten": "it-1" }));
    // It lives, so it comes back.
    let explain = || "the member has not come back".to_owned();
    wait_for(explain, async || (freehold(&["ring", "show", &from]).await.code == 0).then_some(()))
        .await;
    let page = format!("--address=http://{}/ingester/ring", server.http);
    assert!(freehold(&["ring", "show", &page]).await.check(0).stdout.contains("it-1"));
    let no_page = format!("--address=http://{}/no/ring", server.http);
    let error = freehold(&["ring", "show", &no_page]).await.check(1).stderr;
    assert!(error.contains("/no/ring answers 404"), "{error}");
}

/// A process that lets in who shows the operator's token, and takes only forms of its own.
async fn guarded(forms: Arc<Mutex<Vec<String>>>) -> SocketAddr {
    const PAGE: &str = r#"{"shards":[{"id":"dead/1","state":"Unhealthy","address":"a:1","zone":"z",
        "timestamp":"2026-11-29 23:16:15 +0000 UTC","tokens":[7]}],"now":"2026-11-29T23:18:33Z"}"#;
    let shows = |headers: &HeaderMap, name: &str, value: &str| {
        headers.get(name).is_some_and(|shown| shown == value)
    };
    let ready = move |headers: HeaderMap| async move {
        match shows(&headers, "authorization", "Bearer it") {
            true => (StatusCode::OK, [("x-csrf-token", "abc")], "ready").into_response(),
            false => StatusCode::UNAUTHORIZED.into_response(),
        }
    };
    let show = move |headers: HeaderMap| async move {
        match shows(&headers, "authorization", "Bearer it") {
            true => PAGE.into_response(),
            false => (StatusCode::UNAUTHORIZED, "show\x1b[2J a token\n").into_response(),
        }
    };
    let taken = forms;
    let forget = move |headers: HeaderMap, form: String| {
        let taken = Arc::clone(&taken);
        async move {
            let is_ours = shows(&headers, "x-csrf-token", "abc")
                && shows(&headers, "authorization", "Bearer it");
            taken.lock().expect("no panic").push(form);
            if is_ours { StatusCode::SEE_OTHER } else { StatusCode::FORBIDDEN }
        }
    };
    let router = Router::new().route("/ready", get(ready)).route("/ring", get(show).post(forget));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forgetting_carries_the_token_of_the_form_and_the_bearer_of_the_operator() {
    let forms = Arc::new(Mutex::new(Vec::new()));
    let address = guarded(Arc::clone(&forms)).await;
    let to = format!("--address=http://{address}");
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("token");
    std::fs::write(&file, "it\n").expect("written");
    let bearer = format!("--bearer-token-file={}", file.display());
    let stranger = freehold(&["ring", "show", &to]).await.check(1);
    let said = "refuses with status 401: show\\u{1b}[2J a token";
    assert!(stranger.stderr.contains(said), "{}", stranger.stderr);
    // Its only member is silent, which is a finding.
    let shown = freehold(&["ring", "show", &to, &bearer]).await.check(3).stdout;
    assert!(shown.contains("Unhealthy") && shown.contains("1 Unhealthy"), "{shown}");
    let done = freehold(&["ring", "forget", &to, &bearer, "--yes", "dead/1"]).await.check(0);
    assert_eq!(done.stdout, "dead/1 is forgotten\n");
    assert_eq!(*forms.lock().expect("no panic"), ["forget=dead%2F1"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn series_and_plans_are_told_as_tables_and_as_json() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = started(dir.path(), &["-ingester.max-global-series-per-user=40"]).await;
    let to = http_address(&server);
    let load =
        ["load", &to, "--tenant=t", "--series=30", "--metrics=1", "--labels=2", "--rate=300"];
    freehold(&[&load[..], &["--duration=200ms", "--values=constant"]].concat()).await.check(0);
    let query = ["query", &to, "--tenant=t", "load_metric_0"];
    let told = freehold(&[&query[..], &["--output=json"]].concat()).await.check(0).json();
    let series = told.as_array().expect("a list");
    assert_eq!(series.len(), 30);
    let labels = series[0]["labels"].as_object().expect("a map");
    assert_eq!((labels.len(), &labels["__name__"]), (3, &json!("load_metric_0")));
    assert_eq!(series[0]["samples"].as_array().expect("a list").len(), 2);
    assert!(series[0]["samples"][0]["value"].is_string());
    let text = freehold(&query).await.check(0).stdout;
    assert!(text.starts_with("load_metric_0{label_01=\""), "{text}");
    let none = freehold(&["query", &to, "--tenant=t", "nothing", "--output=json"]).await;
    assert_eq!(none.check(0).json(), json!([]));

    let (ring, counts) = (format!("--ring=http://{}", server.http), admin(&server));
    let counts = counts.replace("--address", "--counts");
    let flags = ["-distributor.replication-factor=1", "-distributor.zone-awareness-enabled=false"];
    let plan = |more: &[&str]| {
        let all = [&["plan", &ring, &counts, "--to=2"], &flags[..], more].concat();
        let all: Vec<String> = all.into_iter().map(str::to_owned).collect();
        async move { freehold(&all.iter().map(String::as_str).collect::<Vec<_>>()).await }
    };
    // 30 series stay in memory where 20 are allowed; owned, there is room.
    let told = plan(&["--output=json"]).await.check(3).json();
    assert_eq!(
        (&told["after"]["instances"], &told["tenants"][0]["tenant"]),
        (&json!(2), &json!("t"))
    );
    let table = plan(&[]).await.check(3).stdout;
    assert!(table.starts_with("Ring: 1 to 2 instances"), "{table}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exit_codes_tell_a_wrong_command_line_from_a_failure() {
    let usage = |arguments: &'static [&'static str], part: &'static str| async move {
        let ended = freehold(arguments).await.check(2);
        assert!(ended.stderr.contains(part), "{}", ended.stderr);
        assert_eq!(ended.stdout, "", "errors are not on standard output");
    };
    usage(&["ring"], "show").await;
    usage(&["tenants", "--top=many"], "--top").await;
    usage(&["load", "--rate=fast"], "--rate").await;
    usage(&["-ingester.max-seris-per-user=1"], "-ingester.max-series-per-user").await;
    usage(&["query", "up"], "--tenant").await;

    let nowhere = "--address=127.0.0.1:1";
    for arguments in [
        &["tenants", nowhere][..],
        &["ring", "show", nowhere],
        &["query", nowhere, "--tenant=t", "up"],
        &["clients", "top", nowhere, "--tenant=t"],
        &["check-config", "/no/such/file"],
        &["tenants", "--address=nonsense"],
        &["ring", "show", nowhere, "--bearer-token-file=/no/such/file"],
        &["load", "--address=ftp://h"],
    ] {
        let ended = freehold(arguments).await.check(1);
        assert!(ended.stderr.starts_with("error: "), "{arguments:?}: {}", ended.stderr);
        assert_eq!(ended.stdout, "");
    }
    let config = freehold(&["check-config", "docs/freehold.yaml", "--output=json"]).await.check(0);
    assert!(config.json()["ingester"].is_object());
    let help = freehold(&["--help"]).await.check(0).stdout;
    assert!(help.contains("Exit codes: 0 done"), "{help}");
}

/// Takes connections and never answers.
async fn silent() -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        let mut taken = Vec::new();
        while let Ok(stream) = listener.accept().await {
            taken.push(stream);
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_does_not_answer_is_charged_for_what_had_to_wait() {
    let address = silent().await;
    let to = format!("--address=http://{address}");
    let load = ["load", &to, "--series=100", "--batch=10", "--rate=1000", "--concurrency=2"];
    let stalled = ["--duration=1s", "--timeout=600ms", "--output=json"];
    let told = freehold(&[&load[..], &stalled].concat()).await.check(3).json();
    let of = |name: &str| told[name]["requests"].as_u64().expect("a number");
    assert_eq!(of("accepted") + of("refused"), 0, "{told}");
    assert_eq!(of("unanswered") + of("not_sent"), 100, "each that was due is told: {told}");
    assert!(of("unanswered") >= 2 && of("not_sent") >= 90, "{told}");
    assert!(told["late_requests"].as_u64().expect("a number") >= 2, "{told}");
    let text = told["errors"][0]["text"].as_str().expect("a text");
    assert!(text.contains("no answer within 600ms"), "{text}");
    assert_eq!(told["errors"][0]["status"], Value::Null);

    let nowhere = ["load", "--address=http://127.0.0.1:1", "--rate=max", "--duration=500ms"];
    let told = freehold(&[&nowhere[..], &["--output=json"]].concat()).await.check(3).json();
    let tries = told["unanswered"]["requests"].as_u64().expect("a number");
    assert!((1..=200).contains(&tries), "nobody is tried as fast as one can: {tries}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_load_that_is_interrupted_tells_what_it_did() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = started(dir.path(), &[]).await;
    let child = Command::new(env!("CARGO_BIN_EXE_freehold"))
        .args(["load", &http_address(&server), "--rate=2000", "--duration=1h", "--output=json"])
        .stdout(Stdio::piped())
        .spawn();
    let child = child.expect("the program starts");
    let explain = || "nothing was sent".to_owned();
    wait_for(explain, async || {
        let sent = count(&server, "cortex_ingester_ingested_samples_total").await;
        (sent > 0).then_some(())
    })
    .await;
    let interrupt = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(interrupt.expect("kill runs").success());
    let output = tokio::task::spawn_blocking(move || child.wait_with_output());
    let output = output.await.expect("no panic").expect("its output");
    let told: Value = serde_json::from_slice(&output.stdout).expect("a summary");
    assert_eq!(told["stopped"], true, "{told}");
    let sent = count(&server, "cortex_ingester_ingested_samples_total").await;
    assert_eq!(told["accepted"]["samples"], sent, "{told}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_manual_is_written_and_completions_are_printed() {
    let dir = tempfile::tempdir().expect("a directory");
    let to = format!("--directory={}", dir.path().join("man").display());
    let said = freehold(&["man", &to]).await.check(0).stdout;
    assert!(said.lines().count() >= 12, "{said}");
    for path in said.lines() {
        let page = std::fs::read_to_string(path).expect("a page");
        assert!(page.contains(".SH NAME"), "{path}");
    }
    let one = freehold(&["man"]).await.check(0).stdout;
    assert!(one.contains("freehold"));
    let completions = freehold(&["completions", "bash"]).await.check(0).stdout;
    assert!(completions.contains("complete -F"), "{completions}");
    freehold(&["completions", "tcsh"]).await.check(2);
}
