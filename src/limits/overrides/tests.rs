//! From the text of a runtime file to the limits of a tenant.

use super::*;
use crate::limits::{WARNINGS_MAX, Warnings};

fn parse(text: &str) -> RuntimeFile {
    let instance = InstanceLimits { max_series: 7, max_tenants: 3, ..Default::default() };
    RuntimeFile::parse(text, &Limits::default(), &instance)
        .unwrap_or_else(|e| panic!("{e:?}: {text}"))
}

fn parse_error(text: &str) -> String {
    match RuntimeFile::parse(text, &Limits::default(), &InstanceLimits::default()) {
        Ok(file) => panic!("accepted {text}: {file:?}"),
        Err(error) => std::error::Error::source(&error).expect("has a cause").to_string(),
    }
}

fn warnings(text: &str) -> Vec<String> {
    parse(text).warnings.shown.iter().map(ToString::to_string).collect()
}

fn tenant(name: &str) -> TenantId {
    TenantId::parse(name).expect("tenant")
}

#[test]
fn case_f4_overrides_of_one_tenant_leave_the_others_alone() {
    let defaults = Limits { ingestion_rate: 5.0, ..Limits::default() };
    let overrides = Overrides::new(defaults.clone(), InstanceLimits::default());
    let file = overrides
        .parse("overrides:\n  a:\n    max_global_series_per_user: 10\n  b:\n  c: {}\n")
        .expect("valid");
    assert_eq!(overrides.publish(file), 1);
    let snapshot = overrides.load();
    let a = Limits { max_global_series_per_user: 10, ..defaults.clone() };
    assert_eq!(**snapshot.limits(&tenant("a")), a);
    for other in ["b", "c", "d"] {
        assert_eq!(**snapshot.limits(&tenant(other)), defaults, "{other}");
    }
    // A later file without the tenant takes its overrides away.
    let file = overrides.parse("").expect("valid");
    assert_eq!(overrides.publish(file), 2);
    assert_eq!(**overrides.load().limits(&tenant("a")), defaults);
}

#[test]
fn empty_files_and_blocks_set_nothing() {
    for text in ["", "\n# nothing\n", "---\n", "{}", "overrides:\n", "overrides: {a: }\n"] {
        let file = parse(text);
        assert_eq!((file.instance, file.warnings.total), (None, 0), "{text:?}");
    }
}

#[test]
fn all_of_cortex_file_is_read() {
    let file = parse(
        "
overrides:
  1234: &tier
    ingestion_rate: 1e6
    ingestion_burst_size: 1_000_000
    max_exemplars: -1
    reject_old_samples: yes
    reject_old_samples_max_age: 2w
    creation_grace_period: 0
    ruler_max_rules_per_rule_group: 7
    query_priority: {enabled: true, priorities: [{priority: 1}]}
    limits_per_label_set:
      - label_set: {code: 200, version: 1.10}
        limits: {max_series: 5}
      - limits: {max_series: 1e3}
  other:
    <<: *tier
    ingestion_rate: 3
ingester_limits:
  max_series: 100
  max_ingestion_rate: 1.5
hard_overrides:
  1234: {ingestion_rate: 9}
api_allowed_limits: [ingestion_rate]
multi_kv_config: {mirror_enabled: true, primary: consul}
ingester_stream_chunks_when_using_blocks: true
",
    );
    assert_eq!(file.warnings, Warnings::default());
    let limits = &file.tenants["1234"];
    assert_eq!((limits.ingestion_rate, limits.ingestion_burst_size), (1e6, 1_000_000));
    assert_eq!((limits.max_exemplars, limits.reject_old_samples), (-1, true));
    assert_eq!(limits.reject_old_samples_max_age.0, 14 * 86_400_000);
    assert_eq!(limits.creation_grace_period.0, 0);
    let sets: Vec<_> =
        limits.limits_per_label_set.iter().map(|set| (&*set.id, set.max_series)).collect();
    assert_eq!(sets, [(r#"{code="200", version="1.10"}"#, 5), ("{}", 1000)]);
    let other = &file.tenants["other"];
    assert_eq!((other.ingestion_rate, other.ingestion_burst_size), (3.0, 1_000_000));
    let instance = file.instance.as_ref().expect("given");
    assert_eq!((instance.max_series, instance.max_ingestion_rate), (100, 1.5));
    assert_eq!(instance.max_tenants, 3, "unset fields have the configuration's value");
    assert_eq!(file.hard_overrides["1234"].ingestion_rate, 9.0);
    assert_eq!(file.api_allowed_limits, ["ingestion_rate"]);
}

#[test]
fn wrong_values_are_errors_that_name_their_place() {
    let check = |values: &str, words: &[&str]| {
        let error = parse_error(&format!("overrides:\n  tenant-a:\n    {values}\n"));
        for word in words {
            assert!(error.contains(word), "{word:?} not in {error:?}");
        }
    };
    check("ingestion_rate: fast", &["overrides.tenant-a.ingestion_rate: \"fast\" is not a finite"]);
    check("ingestion_rate: -1", &["ingestion_rate", "-1"]);
    check("ingestion_rate: .inf", &["ingestion_rate"]);
    check("ingestion_burst_size: 1.5", &["ingestion_burst_size", "1.5"]);
    check("ingestion_burst_size: -5", &["ingestion_burst_size", "-5", "line"]);
    check("max_series_per_user: \"5\"", &["max_series_per_user"]);
    check("max_series_per_user: 9223372036854775808", &["max_series_per_user"]);
    check("max_series_per_user:", &["max_series_per_user"]);
    check("reject_old_samples: 7", &["reject_old_samples"]);
    check("out_of_order_time_window: 10", &["out_of_order_time_window"]);
    check("out_of_order_time_window: -10m", &["out_of_order_time_window", "-10m"]);
    check("ingestion_rate_strategy: both", &["ingestion_rate_strategy", "both"]);
    check("limits_per_label_set: [{max_series: 5}]", &["limits_per_label_set", "max_series"]);
    check(
        "limits_per_label_set: [{label_set: {a: b}}, {label_set: {a: b}}]",
        &["duplicate per labelSet limits found. Make sure they are all unique"],
    );
    check("max_series_per_user: 1\n    max_series_per_user: 2", &["max_series_per_user"]);
    assert!(parse_error("ingester_limits: {max_series: many}").contains("max_series"));
    assert!(parse_error("--- {}\n--- {}\n").contains("multiple"));
    parse_error("[1, 2]");
    parse_error("overrides: [a]");
}

#[test]
fn case_f8_a_key_in_the_wrong_block_is_a_loud_warning() {
    assert_eq!(
        warnings("ingester_limits: {max_global_series_per_user: 5}"),
        ["ingester_limits: max_global_series_per_user has no effect here, it belongs under \
             overrides.<tenant>"]
    );
    assert_eq!(
        warnings("overrides: {a: {max_series: 5}}"),
        ["overrides.a: max_series has no effect here, it belongs under ingester_limits"]
    );
    assert_eq!(
        warnings("ingestion_rate: 5"),
        ["top of the file: ingestion_rate has no effect here, it belongs under overrides.<tenant>"]
    );
}

#[test]
fn unknown_names_are_warnings_with_the_nearest_known_one() {
    assert_eq!(
        warnings(
            "overrides: {a: {max_global_series_per_usr: 5, wombat: {deep: [1]}}}\noverride: {}"
        ),
        [
            "overrides.a: unknown limit max_global_series_per_usr, did you mean \
             max_global_series_per_user?",
            "overrides.a: unknown limit wombat",
            "top of the file: unknown limit override, did you mean overrides?",
        ]
    );
}

#[test]
fn warnings_are_bounded_and_counted() {
    let names: Vec<String> = (0..300).map(|i| format!("strange{i}: 1")).collect();
    let file = parse(&names.join("\n"));
    assert_eq!((file.warnings.shown.len(), file.warnings.total), (WARNINGS_MAX, 300));
}

#[test]
fn case_c5_a_burst_below_a_request_is_warned_about() {
    let low = "overrides: {a: {ingestion_rate: 13333, ingestion_burst_size: 3333}}";
    assert_eq!(
        warnings(low),
        ["overrides.a: ingestion_burst_size 3333 is below the rate and below a common \
             request; larger requests are never admitted"]
    );
    let fine = [
        "{ingestion_rate: 100, ingestion_burst_size: 200}",
        "{ingestion_rate: 1000000, ingestion_burst_size: 100000}",
        "{ingestion_rate: 1.7976931348623157e+308, ingestion_burst_size: 0}",
    ];
    for limits in fine {
        assert_eq!(warnings(&format!("overrides: {{a: {limits}}}")), [""; 0], "{limits}");
    }
}

#[test]
fn case_c17_a_finite_histogram_rate_without_burst_is_warned_about() {
    let text = "overrides: {a: {native_histogram_ingestion_rate: 1000}}";
    assert_eq!(
        warnings(text),
        ["overrides.a: native_histogram_ingestion_rate is finite and \
             native_histogram_ingestion_burst_size is 0, so no native histogram is ever admitted"]
    );
}

#[test]
fn a_budget_of_clients_without_a_burst_that_fits_is_warned_about() {
    let text = "overrides: {a: {client_identity_ingestion_rate_limit: 1000}}";
    assert_eq!(
        warnings(text),
        ["overrides.a: client_identity_ingestion_rate_limit is set and \
             client_identity_ingestion_burst_size is 0, so no write of a client is ever admitted; \
             set the burst to what the largest request holds"]
    );
    let budget = |rate: &str, burst: u64| {
        let name = "client_identity_ingestion";
        warnings(&format!(
            "overrides: {{a: {{{name}_rate_limit: {rate}, {name}_burst_size: {burst}}}}}"
        ))
    };
    assert_eq!(
        budget("13333", 3333),
        ["overrides.a: client_identity_ingestion_burst_size 3333 is below the rate and below a \
             common request; larger requests are never admitted"]
    );
    for (rate, burst) in [("100", 200), ("0", 0), ("1.7976931348623157e+308", 0)] {
        assert_eq!(budget(rate, burst), [""; 0], "{rate}");
    }
}

#[test]
fn budgets_of_clients_that_are_off_are_warned_about_where_they_are_set() {
    let defaults = Limits {
        client_identity_ingestion_rate_limit: 5.0,
        client_identity_ingestion_burst_size: 20_000,
        ..Limits::default()
    };
    let text = "overrides: {a: {client_identity_ingestion_rate_limit: 7}, b: {ingestion_rate: 9e9}, \
                c: {client_identity_ingestion_rate_limit: 0}}";
    let new = || Overrides::new(defaults.clone(), InstanceLimits::default());
    let shown = |overrides: Overrides| {
        let file = overrides.parse(text).expect("valid");
        file.warnings.shown.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(shown(new()), [""; 0]);
    let off = "overrides.a: client_identity_ingestion_rate_limit is without effect, since \
               -client-identity.enabled is not set";
    let writes = BudgetsOff { writes: true, queries: false };
    assert_eq!(shown(new().without_client_budgets(writes)), [off]);
    let queries = BudgetsOff { writes: false, queries: true };
    assert_eq!(shown(new().without_client_budgets(queries)), [""; 0], "of no use to it");
}

#[test]
fn budgets_of_queries_that_are_off_are_warned_about_where_they_are_set() {
    let defaults = Limits { query_capacity_per_second: 100.0, ..Limits::default() };
    let overrides = Overrides::new(defaults, InstanceLimits::default())
        .without_client_budgets(BudgetsOff { writes: true, queries: true });
    let text = "overrides: {a: {client_identity_query_rate_limit: 5%, \
                client_identity_query_burst_size: 9}}";
    let file = overrides.parse(text).expect("valid");
    let shown: Vec<_> = file.warnings.shown.iter().map(ToString::to_string).collect();
    let off = "overrides.a: client_identity_query_rate_limit is without effect, since \
               -client-identity.enabled is not set";
    assert_eq!(shown, [off]);
}

#[test]
fn a_share_of_a_capacity_that_no_one_sets_is_refused() {
    let rate = "client_identity_query_rate_limit";
    let capacity = "query_capacity_per_second";
    let parse = |defaults: &Limits, text: &str| {
        let overrides = Overrides::new(defaults.clone(), InstanceLimits::default());
        overrides.parse(&format!("overrides: {{a: {{{text}}}}}")).map_err(|error| {
            let mut text = String::new();
            let mut cause: Option<&dyn std::error::Error> = Some(&error);
            while let Some(error) = cause {
                text.push_str(&error.to_string());
                cause = error.source();
            }
            text
        })
    };
    let none = Limits::default();
    let both = Limits {
        client_identity_query_rate_limit: crate::limits::QueryRate::Share(5.0),
        query_capacity_per_second: 100.0,
        ..Limits::default()
    };
    parse(&none, &format!("{rate}: 5%, {capacity}: 40")).expect("a share of 40");
    parse(&none, &format!("{capacity}: 40")).expect("a capacity alone");
    let file = parse(&both, &format!("{capacity}: 40")).expect("the default's share");
    let budget = file.tenants["a"].query_client_budget().expect("a share");
    assert_eq!(budget.rate, 2.0);
    let file = parse(&both, &format!("{rate}: 7.5%")).expect("of the default's capacity");
    assert_eq!(file.tenants["a"].query_client_budget().expect("a share").rate, 7.5);
    parse(&both, &format!("{rate}: 1, {capacity}: 0")).expect("a number needs no capacity");
    for text in [format!("{rate}: 5%"), format!("{rate}: 5%, {capacity}: 0")] {
        let error = parse(&none, &text).expect_err("a share of nothing");
        assert!(error.contains("overrides.a: "), "{error}");
        assert!(error.contains("is a share of query_capacity_per_second, which is not"), "{error}");
    }
    parse(&both, &format!("{capacity}: 0")).expect_err("takes away what the default's is of");
}

#[test]
fn case_r16_a_file_that_tracks_no_clients_is_refused() {
    let text = "overrides: {a: {client_identity_ingestion_tracked_clients_limit: 0}}";
    let error = parse_error(text);
    let place = "overrides.a.client_identity_ingestion_tracked_clients_limit: 0 is not";
    assert!(error.contains(place), "{error}");
}

#[test]
fn what_cannot_apply_to_one_tenant_is_warned_about() {
    assert_eq!(
        warnings("overrides: {a: {ingestion_rate_strategy: global}, '': {}}"),
        [
            "overrides: no tenant can have the id \"\"",
            "overrides.a: ingestion_rate_strategy cannot differ between tenants and is ignored",
        ]
    );
}

#[test]
fn case_f6_values_of_limits_that_we_do_not_use_never_block_a_reload() {
    let text = "overrides: {a: {ruler_external_labels: {'': 7}, query_priority: nonsense}}";
    assert_eq!(warnings(text), [""; 0]);
}

#[test]
fn instance_limits_fall_back_to_the_configuration() {
    let configured = InstanceLimits { max_series: 7, ..InstanceLimits::default() };
    let overrides = Overrides::new(Limits::default(), configured.clone());
    let publish = |text: &str| overrides.publish(overrides.parse(text).expect("valid"));
    publish("ingester_limits: {max_tenants: 1}");
    let both = InstanceLimits { max_tenants: 1, ..configured.clone() };
    assert_eq!(*overrides.load().instance(), both);
    publish("overrides: {}");
    assert_eq!(*overrides.load().instance(), configured);
    publish("ingester_limits: {max_series: -1, max_ingestion_rate: -0.5}");
    assert_eq!(*overrides.load().instance(), InstanceLimits::default());
}

#[test]
fn the_view_shows_values_in_force_and_reads_back_as_the_same_file() {
    let overrides = Overrides::new(Limits::default(), InstanceLimits::default());
    assert!(overrides.load().view().is_none());
    let text = "
overrides:
  a:
    max_series_per_user: 5
    out_of_order_time_window: 90m
    limits_per_label_set: [{label_set: {job: \"true\"}, limits: {max_series: 3}}]
ingester_limits: {max_series: 9}
hard_overrides: {a: {ingestion_rate: 2}}
api_allowed_limits: [ingestion_rate]
";
    overrides.publish(overrides.parse(text).expect("valid"));
    let snapshot = overrides.snapshot();
    let yaml = snapshot.view().expect("a file is in force").to_yaml().expect("writes");
    assert!(yaml.contains("ingestion_rate: 25000"), "{yaml}");
    assert!(yaml.contains("out_of_order_time_window: 1h30m"), "{yaml}");
    assert!(yaml.contains("reject_old_samples_max_age: 2w"), "{yaml}");
    let mut read_back = overrides.parse(&yaml).expect("valid");
    // The view has all limits of a tenant, so read as a file it sets all of them.
    assert!(read_back.set_names["a"].len() > 30);
    let file = snapshot.file().expect("in force");
    read_back.set_names.clone_from(&file.set_names);
    assert_eq!(&read_back, file, "{yaml}");
}

#[test]
fn ten_thousand_tenants_with_one_anchor_are_read() {
    let mut text = String::from("overrides:\n  first: &tier {ingestion_rate: 7}\n");
    (0..10_000).for_each(|i| text.push_str(&format!("  t{i}: *tier\n")));
    let file = parse(&text);
    assert_eq!((file.tenants.len(), file.warnings.total), (10_001, 0));
}
