//! The configuration as a user meets it: flags, files, errors, texts.

use std::collections::HashSet;
use std::ffi::OsString;
use std::io::Write;

use super::table::{FILE_ONLY, RENAMED_KEYS, SECOND_PLACES};
use super::*;
use crate::clients::Gates;
use crate::clients::config::{ColdStart, OwnerLost};
use crate::ingester::config::{CheckIngestionLimits, SeriesLimitMode};
use crate::limits::QueryRate;
use crate::load::Pace;
use crate::units::Millis;

const HTTP: &str = "http://127.0.0.1:8080";

fn parse(arguments: &[&str]) -> Result<Command, ConfigError> {
    Command::parse(std::iter::once("freehold").chain(arguments.iter().copied()).map(OsString::from))
}

fn serve(arguments: &[&str]) -> Config {
    match parse(arguments) {
        Ok(Command::Serve(config)) => *config,
        other => panic!("{arguments:?} gave {other:?}"),
    }
}

fn refused(arguments: &[&str]) -> String {
    match parse(arguments) {
        Err(error) => chain(&error),
        Ok(command) => panic!("{arguments:?} gave {command:?}"),
    }
}

/// The error and its causes, as `main` prints them.
fn chain(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", chain(source)),
        None => error.to_string(),
    }
}

fn file(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    file.write_all(text.as_bytes()).expect("a write to it");
    file
}

fn from_file(text: &str, flags: &[&str]) -> Result<Command, ConfigError> {
    let file = file(text);
    let mut arguments = vec!["-config.file", file.path().to_str().expect("UTF-8")];
    arguments.extend(flags);
    parse(&arguments)
}

fn file_refused(text: &str) -> String {
    chain(&from_file(text, &[]).expect_err(text))
}

#[test]
fn no_arguments_are_the_defaults() {
    assert_eq!(serve(&[]), Config::default());
}

#[test]
fn flags_take_one_dash_or_two_and_the_value_after_a_sign_or_a_space() {
    let check = |arguments: &[&str]| {
        assert_eq!(serve(arguments).ingester.instance_limits.max_series, 5, "{arguments:?}");
    };
    check(&["-ingester.instance-limits.max-series=5"]);
    check(&["--ingester.instance-limits.max-series=5"]);
    check(&["-ingester.instance-limits.max-series", "5"]);
    check(&["--ingester.instance-limits.max-series", "5"]);
    check(&["-ingester.instance-limits.max-series=7", "-ingester.instance-limits.max-series=5"]);
}

#[test]
fn a_boolean_flag_needs_no_value_and_takes_gos_spellings() {
    let on = |arguments: &[&str]| serve(arguments).ingester.owned_series_limit_enforcement_enabled;
    let name = "-ingester.owned-series-limit-enforcement-enabled";
    assert!(on(&[name]));
    assert!(on(&[&format!("{name}=T")]));
    assert!(!on(&[&format!("{name}=0")]));
    assert!(on(&[name, "-target=all"]), "the next flag is not its value");
    assert!(refused(&[&format!("{name}=yes")]).contains("true or false"));
}

#[test]
fn a_value_that_starts_with_a_dash_is_the_flags_own() {
    let config = serve(&["-ingester.admin-limit-message", "-call us-"]);
    assert_eq!(config.ingester.admin_limit_message, "-call us-");
}

#[test]
fn every_kind_of_value_is_read_from_a_flag() {
    let config = serve(&[
        "-ingester.instance-limits.max-ingestion-rate=2.5e3",
        "-ingester.active-series-metrics-idle-timeout=90s",
        "-ingester.series-limit-mode=share",
        "-ingester.check-ingestion-limits=off",
        "-server.http-listen-port=0",
        "-target=ingester",
    ]);
    assert_eq!(config.ingester.instance_limits.max_ingestion_rate, 2500.0);
    assert_eq!(config.ingester.active_series_metrics_idle_timeout, Millis::from_secs(90));
    assert_eq!(config.ingester.series_limit_mode, SeriesLimitMode::Share);
    assert_eq!(config.ingester.check_ingestion_limits, CheckIngestionLimits::Off);
    assert_eq!(config.server.http_listen_port, 0);
    assert_eq!(config.target, Target::Ingester);
}

#[test]
fn a_list_that_is_given_again_goes_on() {
    let config =
        serve(&["-memberlist.join=a:1", "--memberlist.join", "b:2,c", "-memberlist.join=d"]);
    assert_eq!(config.memberlist.join_members, ["a:1", "b:2", "c", "d"]);
    let config = serve(&["-memberlist.join=", "-memberlist.join=a"]);
    assert_eq!(config.memberlist.join_members, ["a"]);
}

#[test]
fn a_gossip_is_told_under_cortexs_names() {
    let text = "memberlist:\n  node_name: a\n  randomize_node_name: false\n  cluster_label: prod\n  \
                bind_port: 7947\n  bind_addr: [10.0.0.1]\n  join_members:\n    - dns+ring:7947\n  \
                pull_push_interval: 1m\n  tls_enabled: true\n  tls_cert_path: c\n  tls_key_path: k\n";
    let Ok(Command::Serve(config)) = from_file(text, &["-memberlist.gossip-nodes=5"]) else {
        panic!("a configuration");
    };
    let memberlist = config.memberlist;
    assert_eq!((memberlist.gossip_nodes, memberlist.pull_push_interval.0), (5, 60_000));
    assert_eq!((memberlist.transport.bind_port, memberlist.transport.tls_enabled), (7947, true));
    assert_eq!(memberlist.seeds().len(), 1);
    assert!(file_refused("memberlist:\n  bind_prot: 1\n").contains("memberlist.bind_port"));
    assert!(refused(&["-memberlist.join=dns+a"]).contains("-memberlist.join has \"dns+a\""));
}

#[test]
fn comparable_systems_names_set_the_same_keys() {
    let config = serve(&[
        "-ingester.track-ingester-owned-series=true",
        "-ingester.use-ingester-owned-series-for-limits=true",
        "-ingester.owned-series-update-interval=15s",
    ]);
    assert!(config.ingester.owned_series_metrics_enabled);
    assert!(config.ingester.owned_series_limit_enforcement_enabled);
    assert_eq!(config.ingester.active_series_metrics_update_period, Millis::from_secs(15));
}

#[test]
fn a_flag_wins_over_the_file_and_the_file_over_the_default() {
    let text = "server:\n  http_listen_port: 81\n  grpc_listen_port: 82\n";
    let Ok(Command::Serve(config)) = from_file(text, &["-server.grpc-listen-port=83"]) else {
        panic!("a good file")
    };
    assert_eq!((config.server.http_listen_port, config.server.grpc_listen_port), (81, 83));
    assert_eq!(config.server.log_level, Config::default().server.log_level);
}

#[test]
fn an_unknown_flag_names_the_nearest_one() {
    let text = refused(&["-ingester.instance-limits.max-serie=5"]);
    assert!(text.contains("-ingester.instance-limits.max-series"), "{text}");
    let text = refused(&["--ingester.use-ingester-owned-series-for-limit"]);
    assert!(text.contains("-ingester.use-ingester-owned-series-for-limits"), "{text}");
    assert!(refused(&["-helpp"]).contains("-help"));
    let text = refused(&["-ingester.maxx=4"]);
    assert!(text.contains("flag is -ingester."), "{text}");
}

#[test]
fn a_flag_without_its_value_says_so() {
    assert!(refused(&["-server.http-listen-port"]).contains("needs a value"));
}

#[test]
fn a_value_that_does_not_fit_names_the_flag_and_what_it_takes() {
    let check = |argument: &str, parts: &[&str]| {
        let text = refused(&[argument]);
        let flag = argument.split('=').next().expect("a name");
        for part in parts.iter().chain([&flag]) {
            assert!(text.contains(part), "{part} in {text}");
        }
    };
    check("-server.http-listen-port=http", &["whole number"]);
    check("-server.http-listen-port=65536", &["65536", "u16"]);
    check("-ingester.instance-limits.max-series=many", &["whole number"]);
    check("-ingester.instance-limits.max-ingestion-rate=fast", &["a number"]);
    check("-ingester.active-series-metrics-idle-timeout=10", &["10s"]);
    check("-ingester.series-limit-mode=round", &["flat", "share"]);
    check("-log.level=loud", &["warn"]);
    check("-target=querier", &["there is no target \"querier\"", "query-frontend"]);
    check("-target=everything", &["all, ingester, distributor and query-frontend"]);
}

#[test]
fn an_unknown_key_names_the_nearest_one_with_its_block() {
    let text = file_refused("ingester:\n  active_series_metrics_idle_timeot: 5m\n");
    assert!(text.contains("ingester.active_series_metrics_idle_timeout"), "{text}");
    let text = file_refused("sever:\n  http_listen_port: 1\n");
    assert!(text.contains("known key is server"), "{text}");
}

#[test]
fn case_f8_a_key_in_the_wrong_block_names_the_right_block() {
    let text = file_refused("ingester:\n  max_series: 5\n");
    assert!(text.contains("ingester.instance_limits.max_series"), "{text}");
    let text = file_refused("http_listen_port: 5\n");
    assert!(text.contains("server.http_listen_port"), "{text}");
}

#[test]
fn limits_that_only_cortex_uses_are_read_past_and_others_are_not() {
    let text = "limits:\n  max_query_length: 1h\n  max_global_series_per_user: 5\n";
    let Ok(Command::Serve(config)) = from_file(text, &[]) else { panic!("a good file") };
    assert_eq!(config.limits.max_global_series_per_user, 5);
    let text = file_refused("limits:\n  max_global_series_per_usr: 5\n");
    assert!(text.contains("key is limits.max_global_series_per_user"), "{text}");
}

#[test]
fn limits_of_clients_may_stand_under_the_distributor_too() {
    let limits = |text: &str, flags: &[&str]| match from_file(text, flags) {
        Ok(Command::Serve(config)) => config.limits,
        other => panic!("{text}: {other:?}"),
    };
    let there = "distributor:\n  client_identity_ingestion_rate_limit: 5\n  \
                 client_identity_ingestion_burst_size: 7\n  \
                 client_identity_ingestion_tracked_clients_limit: 9\n  \
                 client_identity_ingestion_shadow: true\n";
    let expect = Limits {
        client_identity_ingestion_rate_limit: 5.0,
        client_identity_ingestion_burst_size: 7,
        client_identity_ingestion_tracked_clients_limit: 9,
        client_identity_ingestion_shadow: true,
        ..Limits::default()
    };
    assert_eq!(limits(there, &[]), expect);
    // A flag wins over both places; the same twice is no contradiction.
    let flag = "-distributor.client-identity-ingestion-rate-limit=6";
    assert_eq!(limits(there, &[flag]).client_identity_ingestion_rate_limit, 6.0);
    let both = format!("{there}limits:\n  client_identity_ingestion_rate_limit: 5.0\n");
    assert_eq!(limits(&both, &[]), expect);
    let empty = "distributor:\n  client_identity_ingestion_rate_limit:\n";
    assert_eq!(limits(empty, &[]), Limits::default());

    let text =
        file_refused(&format!("limits:\n  client_identity_ingestion_burst_size: 8\n{there}"));
    let names = "keys distributor.client_identity_ingestion_burst_size and \
                 limits.client_identity_ingestion_burst_size in ";
    assert!(text.contains(names), "{text}");
    assert!(text.ends_with("set one thing, to 7 and 8; give one of them"), "{text}");
    let text = file_refused("distributor:\n  client_identity_ingestion_tracked_clients_limit: 0\n");
    assert!(text.contains("key distributor.client_identity_ingestion_tracked"), "{text}");
    assert!(text.contains("0 is not a whole number of 1 or more"), "{text}");
    let text = file_refused("distributor:\n  client_identity_ingestion_rate: 5\n");
    assert!(text.ends_with("key is distributor.client_identity_ingestion_rate_limit"), "{text}");
    for (_, ours) in SECOND_PLACES {
        assert!(flags::at(&flags::default_tree(), ours).is_some(), "{ours}");
    }
}

#[test]
fn limits_of_queries_may_stand_under_the_frontend_and_be_shares() {
    let config = |text: &str, flags: &[&str]| match from_file(text, flags) {
        Ok(Command::Serve(config)) => config,
        other => panic!("{text}: {other:?}"),
    };
    let there = "frontend:\n  client_identity_query_rate_limit: 5%\n  \
                 client_identity_query_burst_size: 7\n  \
                 client_identity_query_tracked_clients_limit: 9\n  \
                 client_identity_query_shadow: true\n  query_capacity_per_second: 200\n";
    let expect = Limits {
        client_identity_query_rate_limit: QueryRate::Share(5.0),
        client_identity_query_burst_size: 7,
        client_identity_query_tracked_clients_limit: 9,
        client_identity_query_shadow: true,
        query_capacity_per_second: 200.0,
        ..Limits::default()
    };
    assert_eq!(config(there, &[]).limits, expect);
    let shown = effective_yaml(&config(there, &[]));
    assert!(shown.contains("client_identity_query_rate_limit: 5%\n"), "{shown}");
    assert_eq!(config(&shown, &[]).limits, expect, "what is shown is read again");
    let flag = "-frontend.client-identity-query-rate-limit=2.5%";
    let rate = config(there, &[flag]).limits.client_identity_query_rate_limit;
    assert_eq!(rate, QueryRate::Share(2.5));
    let flag = "-frontend.client-identity-query-rate-limit=3";
    let rate = config(there, &[flag]).limits.client_identity_query_rate_limit;
    assert_eq!(rate, QueryRate::PerSecond(3.0));
    let text = file_refused("frontend:\n  client_identity_query_rate_limit: 5%\n");
    assert!(text.contains("is a share of query_capacity_per_second, which is not set"), "{text}");
    let text = refused(&["-distributor.ingestion-rate-limit=5%"]);
    assert!(text.contains("flag -distributor.ingestion-rate-limit"), "{text}");
    let text = refused(&["-frontend.client-identity-query-rate-limit=five"]);
    assert!(text.contains("a number"), "{text}");
}

#[test]
fn the_query_gate_is_a_target_with_a_ring() {
    let behind = "-frontend.downstream-url=http://behind:80";
    let config = serve(&["-target=query-frontend", "-frontend.ring.num-tokens=7", behind]);
    assert_eq!((config.target, config.frontend.ring.num_tokens), (Target::QueryFrontend, 7));
    assert_eq!(config.frontend.ring.heartbeat_period, Millis::from_secs(2));
    let text = refused(&["-frontend.ring.heartbeat-timeout=1s"]);
    assert!(text.contains("query gates' ring (-frontend.ring.*)"), "{text}");
    assert!(text.contains("heartbeat_period (2s) must be below heartbeat_timeout (1s)"), "{text}");
    assert!(!text.contains("lifecycler"), "{text}");
    assert!(refused(&["-target=query-frontend"]).contains("-frontend.downstream-url"));
}

#[test]
fn the_block_of_clients_is_read_and_checked() {
    let config = serve(&[
        "-client-identity.enabled",
        "-client-identity.header=X-Client",
        "-client-identity.owner-lost=local_share",
        "-client-identity.cold-start=full",
        "-client-identity.owner-timeout=1s",
    ])
    .client_identity;
    assert!(config.enabled);
    assert_eq!(config.header, "X-Client");
    assert_eq!((config.owner_lost, config.cold_start), (OwnerLost::LocalShare, ColdStart::Full));
    assert_eq!(config.owner_timeout, Millis::from_secs(1));
    assert!(refused(&["-client-identity.owner-timeout=6s"]).contains("within 1ms and 5s"));
    assert!(refused(&["-client-identity.header=Host"]).contains("meaning of its own"));
    assert!(refused(&["-client-identity.owner-lost=open"]).contains("standing_reserve"));
    assert!(file_refused("client_identity:\n  owner_overdue: 1s\n").contains("at least 3s"));
}

#[test]
fn cluster_wide_series_limits_need_sharding_by_all_labels() {
    let text = refused(&[
        "-ingester.max-global-series-per-user=5",
        "-distributor.shard-by-all-labels=false",
    ]);
    assert!(text.contains("distributor.shard-by-all-labels"), "{text}");
}

#[test]
fn a_renamed_key_fails_with_its_new_name() {
    let text = file_refused("ingester:\n  track_ingester_owned_series: true\n");
    assert!(text.contains("is called ingester.owned_series_metrics_enabled"), "{text}");
}

#[test]
fn a_value_that_does_not_fit_names_its_key_and_file() {
    let text = file_refused("ingester:\n  series_limit_mode: round\n");
    assert!(text.contains("key ingester.series_limit_mode in /"), "{text}");
    assert!(file_refused("server: 5\n").contains("server"), "a value where a block belongs");
    assert!(file_refused("server: {http_listen_port: 1.5}\n").contains("server.http_listen_port"));
}

#[test]
fn a_file_that_cannot_be_read_is_an_error_with_its_path() {
    assert!(refused(&["-config.file=/nowhere/at.yaml"]).contains("/nowhere/at.yaml"));
    assert!(file_refused("server: [\n").contains("no YAML"));
    assert!(file_refused("- a\n").contains("map of keys"));
    assert!(file_refused("server: {}\nserver: {}\n").contains("server"), "a key said twice");
    assert!(file_refused(&format!("# {}", "x".repeat(2 << 20))).contains("longer than"));
}

#[test]
fn yaml_spellings_keep_the_types_of_the_fields() {
    let text = "no_auth_tenant: 1234\ningester:\n  check_ingestion_limits: on\n  instance_limits:\n    max_ingestion_rate: 1000\nserver:\ndistributor: {}\n";
    let Ok(Command::Serve(config)) = from_file(text, &[]) else { panic!("a good file") };
    assert_eq!(config.no_auth_tenant, "1234");
    assert_eq!(config.ingester.check_ingestion_limits, CheckIngestionLimits::On);
    assert_eq!(config.ingester.instance_limits.max_ingestion_rate, 1000.0);
    assert_eq!(config.server, Config::default().server);
    for empty in ["", "# nothing\n", "---\n"] {
        assert!(matches!(from_file(empty, &[]), Ok(Command::Serve(_))), "{empty:?}");
    }
}

#[test]
fn enforcement_without_the_count_is_refused_at_start_naming_both_flags() {
    let text = refused(&[
        "-ingester.owned-series-metrics-enabled=false",
        "-ingester.owned-series-limit-enforcement-enabled",
    ]);
    assert!(text.contains("-ingester.owned-series-metrics-enabled"), "{text}");
    assert!(text.contains("-ingester.owned-series-limit-enforcement-enabled"), "{text}");
}

#[test]
fn a_write_gate_sends_to_a_distributor_or_to_the_ring_and_nobody_else_has_one() {
    let url = "-distributor.upstream-url=http://cortex:8080";
    let config = serve(&[
        "-target=distributor",
        url,
        "-distributor.ring.store=etcd",
        "-distributor.ring.etcd.endpoints=a:1",
        "-distributor.ratelimit-headers=draft",
    ]);
    assert_eq!(config.target, Target::Distributor);
    assert_eq!(config.distributor.ring.kvstore.etcd.endpoints, ["a:1"]);
    assert_eq!(config.distributor.ratelimit_headers, crate::distributor::RateLimitHeaders::Draft);
    assert!(refused(&["-target=distributor"]).contains("-distributor.upstream-url"));
    let ring = serve(&["-target=distributor", "-ring.store=etcd", "-etcd.endpoints=a:1"]);
    assert!(!ring.distributor.upstream.is_set());
    assert_eq!(ring.ingester.lifecycler.ring.replication_factor, 3);
    assert!(refused(&[url]).contains("-distributor.upstream-url"));
    let text = refused(&["-target=distributor", "-distributor.upstream-url=cortex:8080"]);
    assert!(text.contains("http://"), "{text}");
    let text = refused(&["-distributor.ring.heartbeat-period=2m"]);
    assert!(text.contains("distributors' ring"), "{text}");
    assert!(!text.contains("lifecycler"), "{text}");
}

#[test]
fn the_tenant_of_everybody_must_be_a_tenant_id() {
    assert!(refused(&["-auth.no-auth-tenant="]).contains("no org id"));
}

#[test]
fn help_starts_short_and_groups_the_flags_by_component() {
    for help in ["-h", "-help", "--help"] {
        let Ok(Command::Print(text)) = parse(&[help]) else { panic!("{help}") };
        let usage = text.find("Usage:").expect("a usage");
        let mut last = usage;
        for group in FLAGS {
            let heading = text.find(&format!("\n{}:\n", group.heading)).expect(group.heading);
            assert!(heading > last, "{} in order", group.heading);
            last = heading;
        }
        for flag in flags::all() {
            assert!(text.contains(&format!("--{}", flag.name)), "{}", flag.name);
        }
    }
}

#[test]
fn version_names_the_program() {
    let Ok(Command::Print(text)) = parse(&["-version"]) else { panic!("a text") };
    assert_eq!(text, format!("freehold {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn check_config_prints_what_would_be_in_force_and_it_reads_back() {
    let given = file("ingester:\n  series_limit_mode: share\n");
    let Ok(Command::Print(text)) = parse(&["check-config", given.path().to_str().expect("UTF-8")])
    else {
        panic!("a text")
    };
    assert!(text.contains("series_limit_mode: share"), "{text}");
    let Ok(Command::Serve(config)) = from_file(&text, &[]) else { panic!("what it printed") };
    assert_eq!(config.ingester.series_limit_mode, SeriesLimitMode::Share);
    assert!(refused(&["check-config"]).contains("FILE"));
}

#[test]
fn the_difference_holds_only_what_differs() {
    let mut config = Config::default();
    let diff = |config: &Config| diff_yaml(config, &Config::default());
    assert_eq!(diff(&config), "{}\n");
    config.ingester.instance_limits.max_series = 7;
    assert_eq!(diff(&config), "ingester:\n  instance_limits:\n    max_series: 7\n");
}

#[test]
fn secrets_are_masked_wherever_the_configuration_is_shown() {
    let config = serve(&["-distributor.sign-write-requests-keys=hush"]);
    assert_eq!(config.distributor.sign_write_requests_keys.reveal(), "hush");
    let diff = diff_yaml(&config, &Config::default());
    for text in [effective_yaml(&config), diff, format!("{config:?}")] {
        assert!(text.contains("sign_write_requests_keys") && !text.contains("hush"), "{text}");
    }
}

#[test]
fn query_takes_a_tenant_matchers_and_times() {
    let Ok(Command::Query(args)) = parse(&["query", "--tenant", "t", "up{a!=\"b\"}", "--start=5"])
    else {
        panic!("a query")
    };
    assert_eq!((args.tenant.as_str(), args.matchers.as_str()), ("t", "up{a!=\"b\"}"));
    assert_eq!((args.addr.as_str(), args.start.as_deref()), ("127.0.0.1:8080", Some("5")));
    assert!(refused(&["query", "up"]).contains("--tenant"));
}

#[test]
fn clients_are_asked_for_by_tenant_and_one_by_its_name() {
    let check = |arguments: &[&str], expect: ClientsAsk| match parse(arguments) {
        Ok(Command::Clients(args)) => {
            assert_eq!((args.tenant.as_str(), &args.ask), ("t", &expect));
            (args.asked.address, args.json)
        }
        other => panic!("{arguments:?}: {other:?}"),
    };
    let found = check(&["clients", "top", "--tenant", "t"], ClientsAsk::Top);
    assert_eq!(found, ("http://127.0.0.1:8081".to_owned(), false));
    let show = ["clients", "show", "--tenant=t", "--client=-a b", "--json", "--addr=h:1"];
    let found = check(&show, ClientsAsk::Show { client: "-a b".into() });
    assert_eq!(found, ("h:1".to_owned(), true));
    let kind = |arguments: &[&str]| match parse(arguments) {
        Ok(Command::Clients(args)) => args.kind,
        other => panic!("{arguments:?}: {other:?}"),
    };
    let top = ["clients", "top", "--tenant", "t"];
    assert_eq!(kind(&top), None);
    assert_eq!(kind(&[&top[..], &["--kind=queries"]].concat()), Some(Gates::QueryFrontends));
    assert!(refused(&[&top[..], &["--kind", "reads"]].concat()).contains("queries"));
    let own = ClientsAsk::Reset { client: String::new() };
    check(&["clients", "reset", "--tenant", "t", "--client", ""], own);
    assert!(refused(&["clients", "reset", "--tenant", "t"]).contains("--client"));
    assert!(refused(&["clients", "top"]).contains("--tenant"));
}

#[test]
fn every_command_prints_for_people_unless_told_otherwise() {
    let check = |arguments: &[&str], output: fn(Command) -> Option<Output>| {
        let parsed = |more: &[&str]| {
            let all = [arguments, more].concat();
            output(parse(&all).unwrap_or_else(|error| panic!("{all:?}: {error}")))
        };
        assert_eq!(parsed(&[]), Some(Output::Table), "{arguments:?}");
        assert_eq!(parsed(&["--output=json"]), Some(Output::Json), "{arguments:?}");
        assert_eq!(parsed(&["--output", "json"]), Some(Output::Json), "{arguments:?}");
        assert!(refused(&[arguments, &["--output=xml"]].concat()).contains("json"));
    };
    check(&["query", "--tenant=t", "up"], |command| match command {
        Command::Query(args) => Some(args.output),
        _ => None,
    });
    check(&["plan", "--ring=a", "--counts=b", "--to=4"], |command| match command {
        Command::Plan(args) => Some(args.output),
        _ => None,
    });
    check(&["ring", "show"], |command| match command {
        Command::Ring(args) => Some(args.output),
        _ => None,
    });
    check(&["ring", "forget", "ingester-1"], |command| match command {
        Command::Ring(args) => Some(args.output),
        _ => None,
    });
    check(&["tenants"], |command| match command {
        Command::Tenants(args) => Some(args.output),
        _ => None,
    });
    check(&["load"], |command| match command {
        Command::Load(args) => Some(args.output),
        _ => None,
    });
    check(&["clients", "top", "--tenant=t"], |command| match command {
        Command::Clients(args) => Some(if args.json { Output::Json } else { Output::Table }),
        _ => None,
    });
    // As plan called it first.
    let old = parse(&["plan", "--ring=a", "--counts=b", "--to=4", "--format", "json"]);
    assert!(matches!(old, Ok(Command::Plan(args)) if args.output == Output::Json));
}

#[test]
fn a_load_is_told_in_numbers_within_bounds() {
    let load = |arguments: &[&str]| match parse(&[&["load"], arguments].concat()) {
        Ok(Command::Load(args)) => *args,
        other => panic!("{arguments:?}: {other:?}"),
    };
    let args = load(&["--tenants=3", "--series=1500"]);
    assert_eq!(args.pace, Pace::Rate(300.try_into().expect("not 0")), "every 15 seconds");
    assert_eq!((args.asked.address.as_str(), args.to), (HTTP, LoadTo::RemoteWrite));
    assert_eq!(load(&["--rate=max", "--duration=1m30s"]).pace, Pace::Max);
    assert_eq!(load(&["--duration=1m30s"]).duration.as_secs(), 90);
    let args = load(&["--protocol=grpc"]);
    assert_eq!((args.asked.address.as_str(), args.to), ("127.0.0.1:9095", LoadTo::Push));
    let args = load(&["--protocol=grpc", "--address=h:1"]);
    assert_eq!(args.asked.address, "h:1");
    for wrong in
        ["--rate=0", "--rate=fast", "--series=0", "--batch=0", "--duration=0s", "--tenant=a b"]
    {
        assert!(refused(&["load", wrong]).contains(&wrong[..6]), "{wrong}");
    }
}

#[test]
fn what_is_wrong_with_the_command_line_is_told_from_what_is_wrong_in_a_file() {
    let check = |arguments: &[&str], is_usage: bool| {
        let error = parse(arguments).expect_err("refused");
        assert_eq!(error.is_usage(), is_usage, "{error}");
    };
    check(&["-ingester.max-seris-per-user=1"], true);
    check(&["-target"], true);
    check(&["ring"], true);
    check(&["ring", "forget"], true);
    check(&["tenants", "--sort=size"], true);
    check(&["check-config", "/no/such/file"], false);
}

#[test]
fn every_row_of_the_table_sets_a_known_value_and_every_value_has_its_row() {
    let defaults = flags::default_tree();
    let mut names = HashSet::new();
    let mut rows = HashSet::new();
    for flag in flags::all() {
        let default = flags::at(&defaults, flag.path);
        assert!(default.is_some_and(|value| !value.is_object()), "{} has no value", flag.path);
        assert!(rows.insert(flag.path), "{} has two rows", flag.path);
        for name in std::iter::once(&flag.name).chain(flag.aliases) {
            assert!(names.insert(*name), "two flags are called {name}");
        }
    }
    let mut paths = Vec::new();
    load::paths(&defaults, "", &mut paths);
    for path in &paths {
        let is_value = flags::at(&defaults, path).is_some_and(|value| !value.is_object());
        let has_way = rows.contains(path.as_str()) || FILE_ONLY.contains(&path.as_str());
        assert!(!is_value || has_way, "{path} has no flag");
    }
    for (was, now) in RENAMED_KEYS {
        assert!(flags::at(&defaults, was).is_none(), "{was} is still a key");
        assert!(rows.contains(now), "{now} is no key");
    }
}

const DOCS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs");

#[test]
fn the_example_files_are_good() {
    let mut checked = Vec::new();
    for file in std::fs::read_dir(DOCS).expect("docs/") {
        let path = file.expect("a file").path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            let text = path.to_str().expect("UTF-8");
            let answer = parse(&["check-config", text]);
            assert!(matches!(answer, Ok(Command::Print(_))), "{text}: {answer:?}");
            let served = serve(&["-config.file", text]);
            checked.push((path.file_name().expect("a name").to_owned(), served.target));
        }
    }
    checked.sort_by(|(a, _), (b, _)| a.cmp(b));
    let expected = [
        ("freehold.yaml", Target::All),
        ("gate.yaml", Target::Distributor),
        ("gates.yaml", Target::Distributor),
        ("sidecar.yaml", Target::Ingester),
    ];
    assert_eq!(checked, expected.map(|(name, target)| (name.into(), target)));
}

#[test]
fn the_commands_of_the_unit_and_of_the_stateful_set_are_good() {
    let read = |name: &str| std::fs::read_to_string(format!("{DOCS}/{name}")).expect(name);
    for (unit, instance, config, target) in [
        ("freehold", "", "../packaging/debian/freehold.yaml", Target::All),
        ("freehold@", "sidecar", "sidecar.yaml", Target::Ingester),
    ] {
        let unit = read(&format!("../packaging/systemd/{unit}.service"));
        let command = unit.lines().find_map(|line| line.strip_prefix("ExecStart="));
        let installed =
            format!("/etc/freehold/{}.yaml", if instance.is_empty() { "freehold" } else { "%i" });
        let command = command.expect("a command").replace(&installed, &format!("{DOCS}/{config}"));
        let command = command.replace("$FREEHOLD_FLAGS", "-ingester.instance-id=host-7");
        let arguments: Vec<&str> = command.split(' ').skip(1).collect();
        let config = serve(&arguments);
        assert_eq!(config.target, target);
        if !instance.is_empty() {
            assert_eq!(config.ingester.instance_id, "host-7");
        }
    }
    for (manifest, target) in [
        ("sidecar", Target::Ingester),
        ("write-gate", Target::Distributor),
        ("query-gate", Target::QueryFrontend),
    ] {
        let manifest = read(&format!("../packaging/kubernetes/{manifest}.yaml"));
        let (_, freehold) = manifest.split_once("- name: freehold\n").expect("its container");
        let (_, arguments) = freehold.split_once("args:\n").expect("its arguments");
        let arguments: Vec<&str> =
            arguments.lines().map_while(|line| line.trim().strip_prefix("- ")).collect();
        assert!(arguments.len() > 5, "{arguments:?}");
        assert_eq!(serve(&arguments).target, target);
    }

    let guide = read("run-beside-cortex.md");
    let (_, sidecar) = guide.split_once("- name: freehold\n").expect("the sidecar");
    let (_, arguments) = sidecar.split_once("args:\n").expect("its arguments");
    let arguments: Vec<&str> =
        arguments.lines().map_while(|line| line.trim().strip_prefix("- ")).collect();
    let config = serve(&arguments);
    assert_eq!(config.ingester.upstream.address, "127.0.0.1:9095");
    assert_eq!(config.ingester.instance_id, "$(POD_NAME)");
    assert!(config.ingester.owned_series_shadow_enabled);

    // The question of the guide, less the shell's continuation lines.
    let (_, plan) = guide.split_once("$ freehold plan ").expect("a plan");
    let (plan, _) = plan.split_once("\n```").expect("its end");
    let arguments: Vec<&str> = plan.split_whitespace().filter(|word| *word != "\\").collect();
    let all: Vec<&str> = ["plan"].into_iter().chain(arguments).collect();
    match parse(&all) {
        Ok(Command::Plan(args)) => assert_eq!((args.growth.to, args.new_series), (9, 5000)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_reference_is_generated_from_the_table() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/configuration.md");
    let expected = reference_markdown();
    if std::env::var_os("FREEHOLD_BLESS").is_some() {
        std::fs::write(path, &expected).expect("docs/ can be written");
    }
    let found = std::fs::read_to_string(path).unwrap_or_default();
    assert!(found == expected, "docs/configuration.md is old; FREEHOLD_BLESS=1 cargo test --lib");
}
