//! The table against itself, the docs, and every error text that the sources and Cortex know.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use proptest::prelude::*;

use super::markdown::shown;
use super::*;
use crate::config::FLAGS;
use crate::limits::{Limits, OWN_NAMES};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// Rooms whose errors senders and readers see.
const ROOMS: [&str; 13] = [
    "admin/user_overrides.rs",
    "clients",
    "distributor",
    "front_door",
    "frontend",
    "ingester",
    "labels.rs",
    "limits",
    "ring/batches.rs",
    "ring/walk.rs",
    "server",
    "tenant.rs",
    "upstream",
];

/// Files of the formats and of the store whose errors become answers.
const FORMATS: [&str; 9] = [
    "store/error.rs",
    "store/matchers.rs",
    "wire/cursor.rs",
    "wire/encoding.rs",
    "wire/histogram/validation.rs",
    "wire/otlp",
    "wire/remote_read.rs",
    "wire/remote_write.rs",
    "wire/selector.rs",
];

/// Errors that no client sees: of a file, or of one text in it, and why.
const NOT_TOLD: &[(&str, &str, &str)] = &[
    ("config", "", "stops the start, or a reload"),
    ("limits/reload.rs", "", "stops a reload, in the log"),
    ("limits/runtime_file.rs", "", "warnings of a reload, in the log"),
    ("limits/label_sets.rs", "", "refuses a configuration"),
    ("limits/mod.rs", "", "refuses a configuration"),
    ("clients/peers", "", "what gates say to each other, and pages to operators"),
    ("front_door/networks.rs", "", "refuses a configuration"),
    ("ingester/following", "", "of our own questions, in the log"),
    ("ingester/settings_check", "", "of our own questions, in the log"),
    ("ingester/standing.rs", "", "why ownership is unknown, for pages"),
    ("upstream/page.rs", "", "of our own questions, in the log"),
    ("upstream/mod.rs", "cannot prepare TLS", "stops the start"),
    ("upstream/ingesters/mod.rs", "cannot prepare TLS", "stops the start"),
    ("upstream/queries/mod.rs", "cannot prepare TLS", "stops the start"),
    ("upstream/distributor/mod.rs", "-distributor.upstream-url", "stops the start"),
    ("upstream/distributor/mod.rs", "cannot prepare TLS", "stops the start"),
    ("upstream/queries/address.rs", "", "refuses a configuration"),
    ("upstream/ask.rs", "", "of our own questions, in the log"),
    ("upstream/dial.rs", "", "the cause behind `cannot be reached`"),
    ("upstream/queries/body.rs", "", "the cause behind `broken off`"),
    ("frontend/flights", "broke off", "of a test"),
    ("server/listen.rs", "", "stops the start"),
    ("store/error.rs", "the store at", "stops the start"),
    ("store/error.rs", "cannot open the store", "stops the start"),
    ("store/error.rs", "cannot make the store", "stops the start"),
    ("store/error.rs", "cannot start the store", "stops the start"),
];

fn sources() -> Vec<(String, String)> {
    fn walk(dir: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(dir).expect("src can be read") {
            let path = entry.expect("an entry").path();
            if path.is_dir() { walk(&path, found) } else { found.push(path) }
        }
    }
    let root = Path::new(ROOT).join("src");
    let mut paths = Vec::new();
    walk(&root, &mut paths);
    let source = |path: PathBuf| {
        let name = path.strip_prefix(&root).expect("below src").to_string_lossy().into_owned();
        (name, fs::read_to_string(&path).unwrap_or_default())
    };
    let mut sources: Vec<_> = paths.into_iter().map(source).collect();
    sources.retain(|(name, _)| name.ends_with(".rs") && !name.contains("tests"));
    sources.sort();
    sources
}

/// A text of the sources as it would be told, with sevens for what varies.
fn filled(literal: &str) -> String {
    let continued = Regex::new(r"\\\n\s*").expect("a pattern").replace_all(literal, "");
    let plain = continued.replace("\\\"", "\"").replace("\\\\", "\\");
    let debug = Regex::new(r"\{[^{}]*:\?\}").expect("a pattern");
    let holes = Regex::new(r"\{[^{}]*\}").expect("a pattern");
    let plain = plain.replace("{{", "\u{1}").replace("}}", "\u{2}");
    let plain = debug.replace_all(&plain, "\"7\"");
    holes.replace_all(&plain, "7").replace('\u{1}', "{").replace('\u{2}', "}")
}

/// One table for all: making it is most of a test's time.
static CATALOGUE: LazyLock<Catalogue> = LazyLock::new(Catalogue::new);

/// Fillings for what varies: a number stands for a word too, a text in quotes for another.
fn is_known(text: &str) -> bool {
    let quoted = || CATALOGUE.recognise(&text.replace('7', "\"7\""));
    !CATALOGUE.recognise(text).is_empty() || !quoted().is_empty()
}

fn is_not_told(file: &str, text: &str) -> bool {
    NOT_TOLD.iter().any(|(part, head, _)| file.contains(part) && text.starts_with(head))
}

#[test]
fn every_error_of_the_sources_is_in_the_table() {
    let attribute = Regex::new(r#"#\[error\(\s*"((?:[^"\\]|\\(?s:.))*)""#).expect("a pattern");
    let (mut looked_at, mut missing) = (0, Vec::new());
    for (file, source) in sources() {
        let is_told = ROOMS.iter().chain(&FORMATS).any(|room| file.starts_with(room));
        if !is_told {
            continue;
        }
        for found in attribute.captures_iter(&source) {
            let text = filled(&found[1]);
            // A text that is handed through has no words of its own.
            if text.chars().filter(|c| c.is_alphabetic()).count() < 3 || is_not_told(&file, &text) {
                continue;
            }
            looked_at += 1;
            if !is_known(&text) {
                missing.push(format!("{file}: {text}"));
            }
        }
    }
    assert!(looked_at > 120, "only {looked_at} errors were found: has the attribute changed?");
    assert!(missing.is_empty(), "without an entry:\n{}", missing.join("\n"));
}

/// Files that put texts together by hand, as far as clients see them.
const BY_HAND: [&str; 15] = [
    "distributor/shared.rs",
    "distributor/validation.rs",
    "distributor/validation/metadata.rs",
    "frontend/refusal.rs",
    "ingester/acceptance.rs",
    "ingester/texts.rs",
    "limits/series_limiter.rs",
    "ratelimit/tenants.rs",
    "ring/walk.rs",
    "server/front_door/answer.rs",
    "server/http.rs",
    "server/http/serve.rs",
    "server/queries.rs",
    "server/read/mod.rs",
    "upstream/ingesters/failure.rs",
];

/// Pieces of texts there that are no error's.
const NO_ERRORS: &[&str] = &[
    // The operator's own words stand in their place.
    "please contact administrator to raise it",
    "held until recount",
    "limit in force: ",
    "owned: not known",
    "text/plain; ",
    "; charset=utf-8",
    "HTTP connection",
    "a charge that may have to be given back",
    "PRI * HTTP",
    // As Go prints any error of gRPC; what follows is the error.
    "rpc error: code = ",
    "no panic under this lock",
    // How a message is looked for.
    " larger than max ",
    "grpc: received message ",
];

#[test]
fn every_text_that_is_put_together_is_in_the_table() {
    let known: String = entries()
        .flat_map(|entry| entry.texts)
        .flat_map(|text| pieces(text))
        .map(|piece| match piece {
            Piece::Given(text) => format!("{text}\n"),
            _ => "\n".to_owned(),
        })
        .collect();
    let literal = Regex::new(r#""((?:[^"\\]|\\(?s:.))*)""#).expect("a pattern");
    let aside =
        Regex::new(r#"(?m)//.*$|reason = "[^"]*"|expect\("[^"]*"\)|tracing::\w+!\((?s:.*?)\);"#);
    let aside = aside.expect("a pattern");
    let (mut looked_at, mut missing) = (0, Vec::new());
    for (file, source) in sources() {
        if !BY_HAND.contains(&file.as_str()) {
            continue;
        }
        let source = source.split("#[cfg(test)]").next().unwrap_or_default().to_owned();
        let source = aside.replace_all(&source, "");
        for found in literal.captures_iter(&source) {
            // Holes come out as sevens, of which nothing else here is made.
            for piece in filled(&found[1]).split('7') {
                let piece = piece.trim_matches([' ', '"', '\'', '(', ')', ',', '.', ':', ';']);
                if !piece.contains(' ') || NO_ERRORS.iter().any(|none| piece.contains(none.trim()))
                {
                    continue;
                }
                looked_at += 1;
                if !known.contains(piece) {
                    missing.push(format!("{file}: {piece:?}"));
                }
            }
        }
    }
    assert!(looked_at > 80, "only {looked_at} pieces were found");
    assert!(missing.is_empty(), "in no text of the table:\n{}", missing.join("\n"));
}

#[test]
fn each_text_is_recognised_as_its_own_entry() {
    let catalogue = &*CATALOGUE;
    for entry in entries() {
        for text in entry.texts {
            let said: String = pieces(text)
                .into_iter()
                .map(|piece| match piece {
                    Piece::Given(given) => given,
                    Piece::Number(_) => "1234.5",
                    Piece::Quoted(_) => "\"a \\\" b\"",
                    Piece::Open(_) => "x",
                })
                .collect();
            for line in [said.clone(), format!("level=error user=t msg=\"{said}\" and more")] {
                let found = catalogue.recognise(&line);
                let ids: Vec<_> = found.iter().map(|one| one.entry).collect();
                assert_eq!(ids.first(), Some(&entry.id), "{line}: {ids:?}");
            }
        }
    }
}

#[test]
fn ids_are_stable_words_and_entries_are_whole() {
    let mut ids = BTreeSet::new();
    let metrics = fs::read_to_string(format!("{ROOT}/docs/metrics.md")).expect("the metrics");
    let limits = serde_json::to_value(Limits::default()).expect("a tree");
    let paths: BTreeSet<&str> =
        FLAGS.iter().flat_map(|group| group.flags).map(|flag| flag.path).collect();
    for entry in entries() {
        assert!(ids.insert(entry.id), "{} is there twice", entry.id);
        let is_plain = |c: char| c.is_ascii_lowercase() || c == '-' || c.is_ascii_digit();
        assert!(entry.id.chars().all(is_plain), "{}", entry.id);
        for text in [entry.cause, entry.effect, entry.cure] {
            assert!(text.ends_with('.') || text.ends_with('?'), "{}: {text}", entry.id);
        }
        assert!(!entry.status.is_empty() && !entry.texts.is_empty(), "{}", entry.id);
        let name = entry.metric.split('{').next().unwrap_or_default();
        assert!(
            name.is_empty() || metrics.contains(&format!("| `{name}`")),
            "{}: {name}",
            entry.id
        );
        for key in entry.keys {
            let is_limit = limits.get(key).is_some() || OWN_NAMES.contains(key);
            let is_path = paths.iter().any(|path| {
                path == key || path.strip_prefix(key).is_some_and(|rest| rest.starts_with('.'))
            });
            assert!(is_limit || is_path, "{}: nobody has a setting {key}", entry.id);
        }
    }
}

#[test]
fn an_error_inside_another_is_found_and_the_one_that_says_more_wins() {
    let catalogue = &*CATALOGUE;
    let ids = |text: &str| -> Vec<&str> {
        catalogue.recognise(text).into_iter().map(|one| one.entry).collect()
    };
    let wrapped = "maxFailure (quorum) on a given error family, addr=10.0.0.1:9095 state=ACTIVE \
                   zone=a, rpc error: code = Code(400) desc = user=t: per-user series limit of 5 \
                   exceeded, please contact administrator to raise it (local limit: 0 global \
                   limit: 5 actual local limit: 5)";
    assert_eq!(ids(wrapped), ["quorum-failed", "series-limit-tenant"]);
    let client = "ingestion rate limit (5) of client c of tenant t exceeded while adding 8 samples \
                  and 0 metadata; the rate is used up (limit over all distributors: 5 burst: 7 \
                  asked: 8), please contact administrator to raise it";
    assert_eq!(ids(client), ["client-rate"]);
    assert_eq!(ids("it is fine"), Vec::<&str>::new());
}

#[test]
fn numbers_and_names_are_taken_out_of_a_text() {
    let text = "user=t: per-metric series limit of 1e+06 exceeded for metric a_b, ask me (local \
                limit: 0 global limit: 1e+06 actual local limit: 500) for series \
                {__name__=\"a_b\", x=\"}\"} (owned: 500 in memory: 900 limit in force: flat)";
    let found = CATALOGUE.recognise(text);
    assert_eq!(found.len(), 1, "{found:?}");
    let hole = |name: &str| {
        let (_, place) = found[0].holes.iter().find(|(have, _)| *have == name).expect("a hole");
        &text[place.clone()]
    };
    assert_eq!(found[0].entry, "series-limit-metric");
    assert_eq!([hole("limit"), hole("actual"), hole("metric")], ["1e+06", "500", "a_b"]);
    assert_eq!([hole("owned"), hole("in_memory")], ["500", "900"]);
    assert_eq!(hole("series"), "{__name__=\"a_b\", x=\"}\"}");
}

#[test]
fn the_docs_are_printed_from_the_table() {
    let path = format!("{ROOT}/docs/errors.md");
    let expected = markdown();
    if std::env::var_os("FREEHOLD_BLESS").is_some() {
        fs::write(&path, &expected).expect("docs/ can be written");
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(found == expected, "docs/errors.md is old; FREEHOLD_BLESS=1 cargo test --lib explain");
    let all: Vec<String> =
        entries().flat_map(|entry| entry.texts).map(|text| shown(text)).collect();
    assert!(all.iter().all(|text| expected.contains(text.as_str())));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn no_text_breaks_the_reader(parts in prop::collection::vec((0_usize..400, "\\PC{0,30}"), 0..40)) {
        let catalogue = &*CATALOGUE;
        let texts: Vec<String> = entries().flat_map(|entry| entry.texts).map(|text| shown(text)).collect();
        let text: String =
            parts.iter().map(|(at, noise)| format!("{}{noise}", texts[at % texts.len()])).collect();
        let found = catalogue.recognise(&text);
        prop_assert!(found.len() <= RECOGNISED_MAX);
        for one in found {
            prop_assert!(text.get(one.place.clone()).is_some());
            for (_, place) in one.holes {
                prop_assert!(text.get(place).is_some());
            }
        }
    }
}
