//! Edits of files in the styles that operators write.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::limits::{InstanceLimits, Limits};

const FILE: &str = "\
# The operator's own words.
overrides:
  a:   # first
    ingestion_rate: 5
    max_series_per_user: 7  # seven
    ruler_max_rules_per_rule_group: 3

  # b is large
  'b':
    max_series_per_user: 9
hard_overrides:
  a: {ingestion_rate: 100}
api_allowed_limits: [ingestion_rate, max_series_per_user, creation_grace_period, limits_per_label_set]
multi_kv_config: {mirror_enabled: true}
";

fn overrides() -> Overrides {
    Overrides::new(Limits::default(), InstanceLimits::default())
}

fn tenant(name: &str) -> TenantId {
    TenantId::parse(name).expect("tenant")
}

fn map(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        other => panic!("{other} is no map"),
    }
}

fn set(text: &str, name: &str, limits: Value) -> Result<String, EditError> {
    edited(text, &tenant(name), Change::Set(&map(limits)), &overrides())
}

#[test]
fn a_change_keeps_the_words_of_the_file() {
    let text = set(FILE, "a", json!({ "ingestion_rate": 50, "creation_grace_period": "5m" }));
    let expect = FILE.replace(
        "  a:   # first\n    ingestion_rate: 5\n    max_series_per_user: 7  # seven\n    \
         ruler_max_rules_per_rule_group: 3\n",
        "  \"a\":\n    creation_grace_period: \"5m\"\n    ingestion_rate: 50\n    \
         max_series_per_user: 7\n    ruler_max_rules_per_rule_group: 3\n",
    );
    assert_eq!(text.expect("allowed"), expect);
}

#[test]
fn a_new_tenant_comes_last_and_a_deleted_one_leaves_the_others() {
    let text = set(FILE, "c", json!({ "ingestion_rate": 1.5 })).expect("allowed");
    let expect =
        FILE.replace("hard_overrides", "  \"c\":\n    ingestion_rate: 1.5\nhard_overrides");
    assert_eq!(text, expect);
    let without = edited(&text, &tenant("c"), Change::Delete, &overrides()).expect("deleted");
    assert_eq!(without, FILE);
    let same = edited(FILE, &tenant("nobody"), Change::Delete, &overrides()).expect("no change");
    assert_eq!(same, FILE);
    let without_b = edited(FILE, &tenant("b"), Change::Delete, &overrides()).expect("deleted");
    let none = edited(&without_b, &tenant("a"), Change::Delete, &overrides()).expect("deleted");
    assert!(none.contains("overrides: {}\n") && none.contains("# The operator's own words."));
    assert_eq!(told(&none, &tenant("a"), &overrides()).expect("read"), Told::UnknownTenant);
}

#[test]
fn only_allowed_limits_below_the_hard_ones_are_set() {
    let error = set(FILE, "a", json!({ "ingestion_rate": 1, "max_exemplars": 2, "accept": 1 }));
    let text =
        "the following limits cannot be modified via the overrides API: accept, max_exemplars";
    assert_eq!(error.expect_err("not allowed").to_string(), text);
    let error = set(FILE, "a", json!({ "ingestion_rate": 101 })).expect_err("too high");
    assert!(error.is_refusal());
    let text = "limit ingestion_rate exceeds hard limit: 101.000000 > 100.000000";
    assert_eq!(error.to_string(), text);
    // Texts are compared too where they are numbers.
    assert!(set(FILE, "a", json!({ "ingestion_rate": "101" })).is_err());
    set(FILE, "a", json!({ "ingestion_rate": 100 })).expect("the hard limit itself");
    set(FILE, "b", json!({ "ingestion_rate": 101 })).expect("another's hard limit");
    // A hard limit that is not given is the default.
    let error = set(FILE, "a", json!({ "max_series_per_user": 5_000_001 })).expect_err("too high");
    assert!(matches!(error, EditError::AboveHardLimit { .. }), "{error}");
    let nothing_allowed = "overrides: {a: {}}\n";
    assert!(set(nothing_allowed, "a", json!({ "ingestion_rate": 1 })).is_err());
    assert!(set(nothing_allowed, "a", json!({})).is_ok());
}

#[test]
fn a_wrong_value_changes_nothing() {
    let error = set(FILE, "a", json!({ "ingestion_rate": [1], "max_series_per_user": 1 }));
    let error = error.expect_err("no rate");
    assert!(matches!(error, EditError::Invalid(_)) && !error.is_refusal(), "{error}");
    assert!(matches!(set("]", "a", json!({})), Err(EditError::Unreadable(_))));
}

#[test]
fn files_in_other_styles_keep_their_values() {
    let allowed = "api_allowed_limits: [ingestion_rate]\n";
    let check = |text: &str, expect: Value| {
        let text = format!("{text}{allowed}");
        let edited = set(&text, "a", json!({ "ingestion_rate": 8 })).expect(&text);
        let after = tree(&edited).expect("readable");
        assert_eq!(after["overrides"], expect, "{text} became {edited}");
    };
    let b = || json!({ "max_series_per_user": 9 });
    let expect = || json!({ "a": { "ingestion_rate": 8 }, "b": b() });
    check("", json!({ "a": { "ingestion_rate": 8 } }));
    check("overrides:\n", json!({ "a": { "ingestion_rate": 8 } }));
    check("overrides: {}\n", json!({ "a": { "ingestion_rate": 8 } }));
    check("overrides: {b: {max_series_per_user: 9}}\n", expect());
    check("overrides:\n  b: {max_series_per_user: 9}\n", expect());
    check("overrides:\n  a: {ingestion_rate: 1}\n  b: {max_series_per_user: 9}\n", expect());
    check("overrides:\n    b:\n        max_series_per_user: 9\n", expect());
    check("\"overrides\":\n  a:\n  b:\n    max_series_per_user: 9\n", expect());
    // The tenant's block is what another one repeats.
    check(
        "overrides:\n  a: &x\n    max_series_per_user: 9\n  b: *x\n",
        json!({ "a": { "ingestion_rate": 8, "max_series_per_user": 9 }, "b": b() }),
    );
    let no_line_end = format!("{allowed}overrides:\n  b:\n    max_series_per_user: 9");
    let edited = set(&no_line_end, "a", json!({ "ingestion_rate": 8 })).expect("edited");
    assert_eq!(tree(&edited).expect("readable")["overrides"], expect());
    let infinite = format!("overrides: {{b: {{x: .inf}}}}\n{allowed}");
    assert!(matches!(
        set(&infinite, "a", json!({ "ingestion_rate": 8 })),
        Err(EditError::NotFinite)
    ));
}

#[test]
fn what_is_told_is_what_applies() {
    let Told::Limits(limits) = told(FILE, &tenant("a"), &overrides()).expect("read") else {
        panic!("a has limits")
    };
    assert_eq!(limits["ingestion_rate"], json!(5.0));
    assert_eq!(limits["ingestion_burst_size"], json!(50_000), "the default");
    assert_eq!(limits["ruler_max_rules_per_rule_group"], json!(3), "not ours");
    assert_eq!(told(FILE, &tenant("c"), &overrides()).expect("read"), Told::UnknownTenant);
    assert_eq!(told("", &tenant("c"), &overrides()).expect("read"), Told::NoOverrides);
}

proptest! {
    #[test]
    fn an_edit_changes_one_tenant_and_reads_back(
        rates in proptest::collection::btree_map("[a-z0-9_.*'()!-]{1,8}", 0_u32..1000, 0..6),
        name in "[a-z0-9_.*'()!-]{1,8}",
        rate in 0_u32..1000,
        flow: bool,
        blank in 0_usize..3,
    ) {
        let Ok(name) = TenantId::parse(&name) else { return Ok(()) };
        let mut text = "api_allowed_limits: [ingestion_rate]\noverrides:\n".to_owned();
        for (tenant, rate) in &rates {
            let tenant = Value::from(tenant.as_str());
            text.push_str(&match flow {
                true => format!("  {tenant}: {{ingestion_rate: {rate}}}\n"),
                false => format!("  {tenant}:\n    ingestion_rate: {rate}\n"),
            });
            text.push_str(&"\n".repeat(blank));
        }
        let before = tree(&text).expect("readable");
        let limits = map(json!({ "ingestion_rate": rate }));
        let set = edited(&text, &name, Change::Set(&limits), &overrides()).expect("allowed");
        let after = tree(&set).expect("readable");
        let block = after["overrides"].as_object().expect("a block");
        prop_assert_eq!(&block[name.as_str()], &json!({ "ingestion_rate": rate }));
        let others = |tree: &Value| -> Vec<(String, Value)> {
            let block = tree["overrides"].as_object().cloned().unwrap_or_default();
            block.into_iter().filter(|(tenant, _)| tenant != name.as_str()).collect()
        };
        prop_assert_eq!(others(&after), others(&before));
        let deleted = edited(&set, &name, Change::Delete, &overrides()).expect("deleted");
        let after = tree(&deleted).expect("readable");
        prop_assert_eq!(others(&after), others(&before));
        prop_assert!(after["overrides"].get(name.as_str()).is_none());
    }
}

#[test]
fn shares_of_queries_keep_their_text_and_are_bounded_by_what_they_come_to() {
    const RATE: &str = "client_identity_query_rate_limit";
    const CAPACITY: &str = "query_capacity_per_second";
    let file = |hard: &str| {
        format!(
            "overrides:\n  a:\n    {CAPACITY}: 100\nhard_overrides: {{a: {{{hard}}}}}\n\
             api_allowed_limits: [{RATE}, {CAPACITY}]\n"
        )
    };
    let plain = file(&format!("{RATE}: 10, {CAPACITY}: 1000"));
    let text = set(&plain, "a", json!({ RATE: "7.5%" })).expect("below");
    let Told::Limits(told) = told(&text, &tenant("a"), &overrides()).expect("read") else {
        panic!("a has limits")
    };
    assert_eq!((&told[RATE], &told[CAPACITY]), (&json!("7.5%"), &json!(100.0)));
    let above = |text: &str, limits: Value| {
        let error = set(text, "a", limits).expect_err("above");
        assert!(error.is_refusal(), "{error}");
        error.to_string()
    };
    let error = above(&plain, json!({ RATE: "11%" }));
    assert_eq!(error, format!("limit {RATE} exceeds hard limit: 11.000000 > 10.000000"));
    // The same share of more is more.
    let error = above(&text, json!({ CAPACITY: 200 }));
    assert_eq!(error, format!("limit {RATE} exceeds hard limit: 15.000000 > 10.000000"));
    set(&text, "a", json!({ CAPACITY: 200, RATE: "5%" })).expect("10 of 200");
    let shares = file(&format!("{RATE}: 1%, {CAPACITY}: 1000"));
    set(&shares, "a", json!({ RATE: 10 })).expect("as much");
    above(&shares, json!({ RATE: 11 }));
    above(&shares, json!({ RATE: "11%" }));
    // Nothing that is not a rate becomes one, and no share of nothing is written.
    for wrong in [json!({ RATE: "0%" }), json!({ CAPACITY: 0, RATE: "5%" })] {
        let error = set(&plain, "a", wrong).expect_err("no rate");
        assert!(matches!(error, EditError::Invalid(_)), "{error}");
    }
}
