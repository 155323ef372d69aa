//! Plans of rings whose numbers are known in closed form, and what is said of bad input.

use std::ffi::OsString;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::PathBuf;

use serde_json::Value;
use tempfile::TempDir;

use super::*;
use crate::config::Command;
use crate::ring::go_rand::GoRand;

/// A ring of members that go round the zones, or whose zones are named one by one.
struct Bench {
    dir: TempDir,
    flags: Vec<String>,
}

impl Bench {
    fn new(members: usize, zones: &[&str], tokens: usize) -> Self {
        let zone = |at: usize| zones.get(at % zones.len().max(1)).copied().unwrap_or("");
        Self::of((0..members).map(zone), tokens, !zones.is_empty())
    }

    fn of<'z>(zones: impl Iterator<Item = &'z str>, tokens: usize, zone_aware: bool) -> Self {
        let mut random = GoRand::new(11);
        let shards: Vec<Value> = zones
            .enumerate()
            .map(|(number, zone)| {
                let tokens: Vec<u32> = (0..tokens).map(|_| random.next_u32()).collect();
                serde_json::json!({
                    "id": format!("ingester-{number}"), "state": "ACTIVE", "zone": zone,
                    "address": format!("10.0.0.{number}:9095"), "tokens": tokens,
                    "timestamp": "2026-11-29 23:16:15 +0000 UTC",
                })
            })
            .collect();
        let page = serde_json::json!({ "shards": shards, "now": "2026-11-29T23:16:20Z" });
        let bench = Self { dir: tempfile::tempdir().expect("a directory"), flags: Vec::new() };
        bench.write("ring.json", &page.to_string());
        let aware = format!("-distributor.zone-awareness-enabled={zone_aware}");
        bench.with(&[&aware, "-ingester.max-series-per-user=0"])
    }

    fn with(mut self, flags: &[&str]) -> Self {
        self.flags.extend(flags.iter().map(|flag| (*flag).to_owned()));
        self
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        std::fs::write(&path, text).expect("a file");
        path.display().to_string()
    }

    fn args(&self, counts: &str) -> PlanArgs {
        let counts = match counts.starts_with("http:") {
            true => counts.to_owned(),
            false => self.write("counts", counts),
        };
        let mut arguments = vec!["freehold".to_owned(), "plan".to_owned()];
        arguments.extend(["--counts".to_owned(), counts]);
        arguments.push(format!("--ring={}", self.path("ring.json").display()));
        arguments.extend(self.flags.iter().cloned());
        match Command::parse(arguments.into_iter().map(OsString::from)).expect("sound arguments") {
            Command::Plan(args) => *args,
            other => panic!("{other:?}"),
        }
    }

    fn text(&self, counts: &str) -> Result<String, String> {
        self.told(counts).map(|told| told.text)
    }

    fn told(&self, counts: &str) -> Result<Told, String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let args = self.args(counts);
        let plan = run(&args, &Screen::FILE);
        runtime.expect("a runtime").block_on(plan).map_err(|error| error.to_string())
    }

    /// The outlook of the first tenant.
    fn outlook(&self, counts: &str) -> Found {
        let bench = Self { flags: self.flags.clone(), dir: tempfile::tempdir().expect("one") };
        std::fs::copy(self.path("ring.json"), bench.path("ring.json")).expect("a copy");
        let text = bench.with(&["--format=json"]).text(counts).expect("a plan");
        let mut plan: Value = serde_json::from_str(&text).expect("JSON");
        Found(plan["tenants"][0].take())
    }
}

struct Found(Value);

impl Found {
    fn rule(&self, counted: &str, divided: &str) -> &Value {
        let rules = self.0["rules"].as_array().expect("rules");
        let found = rules.iter().find(|r| r["counted"] == counted && r["divided"] == divided);
        found.expect("each rule is there")
    }

    fn instances(&self, what: &str) -> Vec<u64> {
        let all = self.0["instances"].as_array().expect("instances");
        all.iter().map(|instance| instance[what].as_u64().expect("a count")).collect()
    }

    fn limits(&self, divided: &str, when: &str) -> Vec<u64> {
        let limits = self.rule("owned", divided)[when].as_array().expect("limits");
        limits.iter().filter_map(Value::as_u64).collect()
    }
}

fn mean(counts: &[u64]) -> f64 {
    counts.iter().sum::<u64>() as f64 / counts.len() as f64
}

#[track_caller]
fn assert_near(found: f64, expect: f64, part: f64) {
    assert!((found - expect).abs() <= expect * part, "{found}, not about {expect}");
}

#[test]
fn case_a1_the_old_refuse_by_memory_and_nobody_by_what_is_owned() {
    let found = Bench::new(75, &[], 128).with(&["--to=249"]).outlook("a,1250000,2700000");
    assert_near(mean(&found.instances("before")[..75]), 50_000.0, 0.01);
    assert_near(mean(&found.instances("after")), 15_060.0, 0.001);
    assert_eq!(found.limits("flat", "limit_before"), vec![108_000; 75]);
    assert_eq!(found.limits("flat", "limit_after"), vec![32_530; 249]);
    let cortex = found.rule("in_memory", "flat");
    assert_eq!((&cortex["refusing_at_join"], &cortex["refusing_after"]), (&75.into(), &0.into()));
    assert_eq!(cortex["cause"], "head");
    // Two replicas of three on the old 30 % of the members.
    let expect = 3.0 * 0.3_f64.powi(2) * 0.7 + 0.3_f64.powi(3);
    assert_near(cortex["refused_part"].as_f64().expect("a part"), expect, 0.2);
    let ours = found.rule("owned", "flat");
    assert_eq!((&ours["refusing_at_join"], &ours["refused_part"]), (&0.into(), &0.0.into()));
    assert_eq!(ours["cause"], "none");
}

#[test]
fn case_a3_old_instances_refuse_what_new_ones_take() {
    let bench = Bench::new(3, &["a", "b", "c"], 512);
    let found = bench.with(&["--to=6", "--new-series=1000"]).outlook("a,120000,175000");
    // Three zones of one: everybody holds everything.
    assert_eq!(found.instances("before"), [120_000, 120_000, 120_000, 0, 0, 0]);
    assert_near(mean(&found.instances("after")), 60_000.0, 0.001);
    assert_eq!(found.limits("flat", "limit_before"), vec![175_000; 3]);
    assert_eq!(found.limits("flat", "limit_after"), vec![87_500; 6]);
    let cortex = found.rule("in_memory", "flat");
    assert_eq!(cortex["refusing_at_join"], 3);
    assert_eq!(cortex["over_at_join"], 3 * (120_000 - 87_500));
    // In each zone half of the keys is with the old one; two such replicas of three refuse.
    assert_near(cortex["refused_part"].as_f64().expect("a part"), 0.5, 0.15);
    assert_near(cortex["refused_series"].as_f64().expect("a count"), 500.0, 0.15);
    assert_eq!(found.rule("owned", "flat")["refusing_at_join"], 0);
    assert_eq!(found.rule("owned", "share")["refusing_at_join"], 0);
}

#[test]
fn case_a4_a_shard_that_grows_with_the_ring() {
    // A quarter of 12 is three, of 24 six.
    let bench = Bench::new(12, &[], 512).with(&[
        "--to=24",
        "-distributor.replication-factor=1",
        "-distributor.sharding-strategy=shuffle-sharding",
        "-distributor.ingestion-tenant-shard-size=0.25",
    ]);
    let found = bench.outlook("tenant,series,global_limit\na,22500,30000");
    let (before, after) = (found.instances("before"), found.instances("after"));
    assert_eq!((found.0["shard_size"].as_u64(), after.len()), (Some(6), 6));
    assert_near(mean(&after), 3_750.0, 0.001);
    let old: Vec<u64> = before.into_iter().filter(|&count| count > 0).collect();
    assert!(!old.is_empty() && old.len() <= 3, "{old:?}");
    assert_near(mean(&old), 7_500.0, 0.15);
    assert_eq!(found.limits("flat", "limit_after"), vec![5_000; 6]);
    assert!(found.limits("flat", "limit_before").iter().all(|&limit| limit == 10_000));
    assert_eq!(found.rule("in_memory", "flat")["refusing_at_join"], old.len());
    assert_eq!(found.rule("owned", "flat")["refusing_at_join"], 0);
}

#[test]
fn case_a5_uneven_tokens_refuse_for_good_and_a_limit_by_share_does_not() {
    let found = Bench::new(30, &["a", "b", "c"], 128).with(&["--to=93"]).outlook("a,187000,200000");
    assert_near(mean(&found.instances("before")[..30]), 18_700.0, 0.05);
    assert_near(mean(&found.instances("after")), 6_032.0, 0.001);
    assert_eq!(found.limits("flat", "limit_before"), vec![20_000; 30]);
    assert_eq!(found.limits("flat", "limit_after"), vec![6_451; 93]);
    let flat = found.rule("owned", "flat");
    let refusing = flat["refusing_after"].as_u64().expect("a count");
    assert!((10..=30).contains(&refusing), "about one in five, not {refusing}");
    assert_eq!((&flat["cause"], &flat["lasts_ms"]), (&"imbalance".into(), &Value::Null));
    let share = found.rule("owned", "share");
    assert_eq!((&share["refusing_at_join"], &share["refusing_after"]), (&0.into(), &0.into()));
}

#[test]
fn case_a9_share_gives_the_small_zone_its_due() {
    let zones = ["a", "b", "b", "b", "b", "c", "c", "c", "c"];
    let bench = Bench::of(zones.into_iter(), 512, true);
    let found = bench.with(&["--to=10", "--zones=a"]).outlook("a,600,900");
    assert_eq!(found.limits("flat", "limit_after"), vec![270; 10]);
    let share = found.limits("share", "limit_after");
    // By id: ingester-0 of zone a, four of b, four of c, and the new one.
    let small = [share[0], share[9]];
    assert_near(mean(&small), 450.0, 0.01);
    assert_near(mean(&share[1..9]), 225.0, 0.01);
    assert_eq!(found.rule("owned", "flat")["refusing_after"], 2, "300 of 270 in the small zone");
    assert_eq!(found.rule("owned", "share")["refusing_after"], 0);
}

#[test]
fn case_a11_more_zones_than_replicas_change_nothing() {
    let zones = ["a", "b", "c", "d", "e"];
    let found = Bench::new(24, &zones, 512).with(&["--to=25"]).outlook("a,8000,10000");
    assert_eq!(found.limits("flat", "limit_after"), vec![1_200; 25]);
    let share = found.limits("share", "limit_after");
    assert_near(mean(&share), 1_200.0, 0.001);
    assert!(share.iter().all(|limit| (1_000..1_450).contains(limit)), "{share:?}");
}

#[test]
fn half_of_the_new_series_is_refused_when_a_single_copy_doubles() {
    // Recorded with Cortex: 148 of 300.
    let bench = Bench::new(3, &[], 512);
    let flags = ["--to=6", "-distributor.replication-factor=1", "--new-series=300"];
    let found = bench.with(&flags).outlook("a,2400,3000");
    let cortex = found.rule("in_memory", "flat");
    assert_near(cortex["refused_series"].as_f64().expect("a count"), 150.0, 0.15);
    assert_eq!(found.rule("owned", "flat")["refused_series"], 0);
}

#[test]
fn a_ring_that_shrinks_loses_the_last_of_its_largest_zone() {
    let zones = ["a", "b", "c"];
    let bench = Bench::new(12, &zones, 128).with(&["--to=9"]);
    let plan = run_json(&bench, "a,1000,1400");
    assert_eq!(plan["left"], serde_json::json!(["ingester-11", "ingester-10", "ingester-9"]));
    let found = Found(plan["tenants"][0].clone());
    assert_eq!(found.instances("before").len(), 9);
    assert_eq!(found.limits("flat", "limit_before"), vec![350; 9]);
    assert_eq!(found.limits("flat", "limit_after"), vec![466; 9]);
    // What is gained comes on top of what is there.
    for (join, after) in found.instances("in_memory_at_join").iter().zip(found.instances("after")) {
        assert_eq!(*join, after);
    }
}

fn run_json(bench: &Bench, counts: &str) -> Value {
    let copy = Bench { flags: bench.flags.clone(), dir: tempfile::tempdir().expect("one") };
    std::fs::copy(bench.path("ring.json"), copy.path("ring.json")).expect("a copy");
    let text = copy.with(&["--format=json"]).text(counts).expect("a plan");
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn the_table_says_who_is_refused_and_for_how_long() {
    let bench = Bench::new(3, &["a", "b", "c"], 512);
    let flags = ["--to=6", "--at=2026-11-30T04:30:00Z", "--instances"];
    let text = bench.with(&flags).text("a,2400,3000\nb,10,0").expect("a plan");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "Ring: 3 to 6 instances, zones a b c, 3 replicas, zone awareness on");
    assert_eq!(lines[1], "3 new with 512 random tokens each (seed 1)");
    assert_eq!(
        lines[3],
        "Tenant a: 2400 series, limit 3000 for the cluster; heads hold what moves away for 2h31m0s"
    );
    let row: Vec<&str> = lines[5].split("  ").map(str::trim).filter(|t| !t.is_empty()).collect();
    let start = ["in memory", "flat", "2400 of 3000", "2400 of 1500", "3 of 6", "2700"];
    assert_eq!(row[..6], start);
    assert!(row[6].ends_with(" %") && row[7..] == ["2h31m0s", "0"], "{row:?}");
    assert!(lines[7].trim_start().starts_with("owned      flat"), "{}", lines[7]);
    assert!(text.contains("  ingester-0  2400"), "{text}");
    assert!(text.contains("Tenant b: 10 series; heads"), "{text}");
    assert!(text.contains("no limit"), "{text}");
}

#[test]
fn a_plan_is_a_finding_when_the_rule_in_force_refuses() {
    let check = |flags: &[&str], counts: &str, is_finding: bool| {
        let bench = Bench::new(3, &["a", "b", "c"], 512).with(&["--to=6"]).with(flags);
        assert_eq!(bench.told(counts).expect("a plan").is_finding, is_finding, "{flags:?}");
    };
    // In memory is still everything when the limit has halved.
    check(&[], "a,2400,3000", true);
    check(&[], "a,100,3000", false);
    let enforced = [
        "-ingester.owned-series-metrics-enabled",
        "-ingester.owned-series-limit-enforcement-enabled",
        "-ingester.series-limit-mode=share",
    ];
    check(&enforced, "a,2400,3000", false);
    check(&enforced, "a,3000,3000", true);
}

#[test]
fn heads_hold_what_moved_for_one_to_three_hours() {
    const HOUR_MS: i64 = 3_600_000;
    let check = |at_ms: i64, hours: f64| {
        let held = outlook::held_ms(1_000_000 * 2 * HOUR_MS + at_ms);
        let late = held as f64 - hours * HOUR_MS as f64;
        assert!((0.0..=60_000.0).contains(&late), "{at_ms}: {held}");
    };
    check(0, 3.0);
    check(HOUR_MS / 2, 2.5);
    check(HOUR_MS, 2.0);
    check(2 * HOUR_MS - 60_000, 1.0 + 1.0 / 60.0);
}

#[test]
fn counts_are_read_in_every_form_that_operators_have() {
    let read = |text: &str| {
        let counts = input::parse_counts(text, 3).map(|read| read.counts);
        counts.map(|all| all.iter().map(|c| (c.tenant.to_string(), c.series)).collect::<Vec<_>>())
    };
    let expect = Ok(vec![("a".to_owned(), 500.0)]);
    let row = r#""tenant":"a","in_memory":9,"owned":250,"share":0.5,"limit":null"#;
    let page = format!(
        r#"{{"tenants":[{{{row},"global_limit":7,"local_limit":0,"ownership_unknown":null}}]}}"#
    );
    for text in [
        "a,500",
        "tenant,series\na,500\n",
        r#"{"a":500}"#,
        r#"[{"tenant":"a","series":500}]"#,
        r#"[{"userID":"a","numSeries":1500,"queriedIngesters":6,"ingestionRate":1.5}]"#,
        page.as_str(),
    ] {
        assert_eq!(read(text), expect, "{text}");
    }
    let refused = |text: &str, part: &str| {
        let error = read(text).expect_err(text);
        assert!(error.contains(part), "{error}");
    };
    refused("a,b,c", "line 1 is not tenant,series");
    refused("a,1,2,3,4", "line 1 is not tenant,series");
    refused("tenant,series\na/b,1", "is no tenant");
    refused(r#"{"a":-1}"#, "the count of tenant a is -1");
    refused(r#"[{"userID":"a","numSeries":1}]"#, "take /distributor/all_user_stats");
    refused(&page.replace("\"share\":0.5", "\"share\":0.0"), "ask one of its shard");
    refused(&page.replace("unknown\":null", "unknown\":\"no ring\""), "does not know what it owns");
}

/// Answers each request by its path, as many times as there are answers.
fn serve(
    status: &'static str,
    answers: Vec<(&'static str, String)>,
) -> (String, std::thread::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    let server = std::thread::Builder::new().name("plan-test".to_owned()).spawn(move || {
        for (path, body) in answers {
            let (mut stream, _) = listener.accept().expect("a request");
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).expect("read") == 1 {
                head.push(byte[0]);
            }
            let head = String::from_utf8(head).expect("text");
            assert!(head.starts_with(&format!("GET {path} ")), "{head}");
            assert!(head.to_lowercase().contains("accept: application/json"), "{head}");
            let length = body.len();
            let answer = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n{body}");
            stream.write_all(answer.as_bytes()).expect("written");
        }
    });
    (url, server.expect("a thread"))
}

#[test]
fn a_running_instance_is_asked_for_all_pages_of_its_tenants() {
    let page = |tenant: &str| {
        format!(
            r#"{{"tenants":[{{"tenant":"{tenant}","owned":800,"share":1.0,"global_limit":3000,
            "local_limit":0,"ownership_unknown":null}}],"pages":2}}"#
        )
    };
    let answers = vec![("/tenants?page=1", page("a")), ("/tenants?page=2", page("b"))];
    let (url, server) = serve("200 OK", answers);
    let plan = run_json(&Bench::new(3, &[], 64).with(&["--to=4"]), &url);
    server.join().expect("both were asked for");
    let tenants = plan["tenants"].as_array().expect("tenants");
    let names: Vec<_> = tenants.iter().map(|t| (&t["tenant"], &t["global_limit"])).collect();
    assert_eq!(names, [(&"a".into(), &3000.into()), (&"b".into(), &3000.into())]);
}

#[test]
fn who_counts_no_series_is_named_together_with_who_does() {
    let no_page = "404 page not found\n".to_owned();
    let (gate, server) = serve("404 Not Found", vec![("/tenants?page=1", no_page)]);
    let bench = Bench::new(3, &[], 64).with(&["--to=4"]);
    let error = bench.text(&gate).expect_err("no counts there");
    server.join().expect("it was asked");
    assert!(error.starts_with(&format!("{gate}/tenants?page=1 answers 404; --counts ")), "{error}");
    assert!(error.contains("-target=all or ingester"), "{error}");
    assert!(error.contains("/distributor/all_user_stats"), "{error}");

    let (gate, server) = serve("404 Not Found", vec![("/ring", String::new())]);
    let error = bench.with(&[&format!("--ring={gate}")]).text("a,1").expect_err("no ring there");
    server.join().expect("it was asked");
    assert!(error.starts_with(&format!("{gate}/ring answers 404; --ring ")), "{error}");
}

#[test]
fn what_a_page_that_refuses_has_said_is_passed_on_as_one_line_without_controls() {
    let said = "come by an address\u{1b}[2J or as localhost\nand more\n".to_owned();
    let (listener, server) = serve("403 Forbidden", vec![("/tenants?page=1", said)]);
    let bench = Bench::new(3, &[], 64).with(&["--to=4"]);
    let error = bench.text(&listener).expect_err("it refuses");
    server.join().expect("it was asked");
    let page = format!("{listener}/tenants?page=1 answers 403");
    assert!(error.contains(&format!("{page}: come by an address[2J or as localhost")), "{error}");
    assert!(!error.contains("and more") && !error.contains('\u{1b}'), "{error}");
    let (listener, server) = serve("403 Forbidden", vec![("/tenants?page=1", String::new())]);
    let error = bench.text(&listener).expect_err("it refuses");
    server.join().expect("it was asked");
    assert!(error.contains("answers 403") && !error.contains("403:"), "{error}");
}

#[test]
fn a_stored_ring_and_the_usual_files_are_read_too() {
    let bench = Bench::new(3, &["a", "b", "c"], 64);
    let page = std::fs::read(bench.path("ring.json")).expect("the page");
    let ring = crate::ring::kv::ring_page::parse(&page).expect("a page").ring;
    let stored = crate::wire::ring_desc::encode(&ring).expect("encode");
    std::fs::write(bench.path("ring.json"), stored).expect("the stored ring");
    let runtime = bench.write("runtime", "overrides: {a: {max_global_series_per_user: 900}}");
    let config = bench.write("config.yaml", "limits: {max_series_per_user: 70}\n");
    let (config, runtime) =
        (format!("-config.file={config}"), format!("-runtime-config.file={runtime}"));
    let mut bench = bench.with(&["--to=6", &config, &runtime]);
    bench.flags.retain(|flag| !flag.contains("max-series-per-user"));
    let plan = run_json(&bench, "a,100\nb,100");
    let limits = |at: usize| {
        let tenant = &plan["tenants"][at];
        (tenant["tenant"].clone(), tenant["global_limit"].clone(), tenant["local_limit"].clone())
    };
    assert_eq!(limits(0), ("a".into(), 900.into(), 70.into()));
    assert_eq!(limits(1), ("b".into(), 0.into(), 70.into()));
}

#[test]
fn what_cannot_be_planned_says_why() {
    let check = |flags: &[&str], counts: &str, part: &str| {
        let error = Bench::new(3, &[], 8).with(flags).text(counts).expect_err(part);
        assert!(error.contains(part), "{error}");
    };
    check(&["--to=3"], "a,1", "the ring has as many members already");
    check(&["--to=0"], "a,1", "it must be 1 to");
    check(&["--to=4", "--tokens=9999"], "a,1", "--tokens 9999");
    check(&["--to=4", "--at=soon"], "a,1", "--at \"soon\" is no time");
    check(&["--to=4", "--tenant=b"], "a,1", "--tenant b");
    check(&["--to=4"], "", "there is no tenant in it");
    check(&["--to=4"], "a,1\na,2", "tenant a is listed twice");
    check(&["--to=4", "--ring=/no/such/file"], "a,1", "cannot read /no/such/file");
    let empty = Bench::new(0, &[], 8).with(&["--to=4"]).text("a,1").expect_err("no ring");
    assert!(empty.contains("no member of the ring has a token"), "{empty}");
    let garbage = Bench::new(3, &[], 8).with(&["--to=4"]);
    garbage.write("ring.json", "{not a ring");
    let error = garbage.text("a,1").expect_err("garbage");
    assert!(error.contains("neither a /ring page as JSON nor a stored ring"), "{error}");
    // Arguments are held to the same rules as elsewhere.
    let parse = |arguments: &[&str]| {
        let all = ["freehold", "plan"].iter().chain(arguments);
        Command::parse(all.map(OsString::from)).expect_err("refused").to_string()
    };
    assert!(parse(&["--ring=a", "--counts=b"]).contains("--to"));
    assert!(
        parse(&["--ring=a", "--to=4", "--counts=b", "-ingester.max-seris-per-user=1"])
            .contains("the nearest known flag is -ingester.max-series-per-user")
    );
    assert!(parse(&["--ring=a", "--to=4", "--counts=b", "surplus"]).contains("surplus"));
}
