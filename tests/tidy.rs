//! The house rules that a program can check: layers, lengths, leftovers, and that the docs list
//! every flag and metric.
//!
//! Each test collects everything it finds before it fails, so that one run shows all of it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use regex::Regex;

/// Longest file in lines, without its tests. Past 500 one looks for the noun that was missed.
const LINES_MAX: usize = 600;

/// Names that say nothing about what is inside.
const DRAWERS: &[&str] =
    &["util", "utils", "common", "helper", "helpers", "type", "types", "misc", "manager"];

/// What must not be left behind in a source file, and why.
const LEFTOVERS: &[(&str, &str)] = &[
    (r"\b(TODO|FIXME|XXX|HACK)\b", "a marker is no plan; do it or write a decision"),
    (r"\b(todo|unimplemented|dbg)!\(", "unfinished"),
    (r"\.unwrap\(\)", "return an error, or say with expect why it cannot fail"),
    (r"\bunsafe\b", "no unsafe code"),
    (r"\bmacro_rules!", "no macros of our own"),
    (r"#!?\[allow\(", "use #[expect(…, reason = \"…\")], which ends when its cause does"),
    (r"\bstatic mut\b", "no globals"),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Layer {
    Words,
    Mechanisms,
    Core,
    Formats,
    Reach,
    Services,
    Edge,
    Shell,
}

use Layer::*;

/// Layer of each file by the longest prefix that fits; `docs/architecture.md` explains them.
const LAYERS: &[(&str, Layer)] = &[
    ("go_text", Words),
    ("keys", Words),
    ("labels", Words),
    ("sync", Words),
    ("tenant", Words),
    ("units", Words),
    ("exposition", Mechanisms),
    ("ratelimit", Mechanisms),
    ("ring", Core),
    ("ring/kv", Reach),
    ("ring/kv/memberlist/history", Core),
    ("ring/kv/memberlist/merge", Core),
    ("ring/kv/memberlist/outbox", Core),
    ("ring/kv/memberlist/tombstones", Core),
    ("ring/lifecycler", Reach),
    ("ring/watcher", Reach),
    ("series", Core),
    ("limits", Core),
    ("limits/reload", Reach),
    ("clients", Core),
    ("clients/peers", Reach),
    ("front_door", Core),
    ("gossip", Core),
    ("gossip/discovery", Reach),
    ("gossip/transport", Reach),
    ("wire", Formats),
    ("clock", Reach),
    ("tls", Reach),
    ("trail", Reach),
    ("trail/context", Core),
    ("trail/request_id", Core),
    ("upstream", Reach),
    ("store", Reach),
    ("ingester", Services),
    ("distributor", Services),
    ("frontend", Services),
    ("explain", Services),
    ("server", Edge),
    ("admin", Edge),
    ("app", Shell),
    ("config", Shell),
    ("load", Shell),
    ("load/latency", Core),
    ("load/schedule", Core),
    ("load/series", Core),
    ("load/tally", Core),
    ("output", Shell),
    ("plan", Shell),
    ("query", Shell),
    ("telemetry", Shell),
    ("main", Shell),
    ("lib", Shell),
];

/// Arrows beyond the layers: (from, to) by prefix. Each has its line in `docs/architecture.md`.
const ARROWS: &[(&str, &str)] = &[
    ("wire", "ring/model"),
    ("wire/budgets", "clients/account"),
    ("wire/budgets", "clients/exchange"),
    ("wire/budgets", "clients/key"),
    ("wire/budgets", "clients/owner"),
    ("clients/peers", "clock"),
    ("clients/peers", "tls"),
    ("clients/peers", "upstream"),
    ("explain", "distributor"),
    ("explain", "ingester"),
    ("gossip/transport", "tls"),
    ("ring/kv", "tls"),
    ("ring/kv/memberlist", "gossip"),
    ("trail", "clock"),
    ("trail", "tls"),
    ("trail", "upstream"),
    ("upstream", "tls"),
    ("upstream/ingesters", "trail"),
];

/// What files of some layers must not name: (layers, pattern, why).
const NEVER: &[(&[Layer], &str, &str)] = &[
    (BELOW_REACH, r"\b(Instant|SystemTime)::now\b", "time is a parameter below layer 3"),
    (BELOW_REACH, r"\btokio(_stream)?::", "no tasks below layer 3"),
    (BELOW_REACH, r"\basync (fn|move|\{)", "no async below layer 3"),
    (BELOW_REACH, r"\bstd::(fs|thread|net::(Tcp|Udp))", "no input or output below layer 3"),
    (&[Words, Mechanisms, Core], r"\b(prost|tonic)::", "protobuf belongs to the formats"),
    (
        &[Words, Mechanisms, Core, Services],
        r"\b(axum|http|hyper|tonic|tower)::",
        "HTTP and gRPC types belong to the edge",
    ),
];

const BELOW_REACH: &[Layer] = &[Words, Mechanisms, Core, Formats];

struct Source {
    /// Path below `src`, with `/` and without `.rs` or `/mod.rs`.
    name: String,
    path: PathBuf,
    text: String,
    /// The text without its tests, comments and strings' contents kept.
    body: String,
    is_test: bool,
}

#[test]
fn every_import_follows_the_layers() {
    let sources = sources();
    let names: BTreeSet<&str> = sources.iter().map(|source| source.name.as_str()).collect();
    let mut wrong = Vec::new();
    for source in sources.iter().filter(|source| !source.is_test) {
        let Some(from) = layer(&source.name) else {
            wrong.push(format!("{}: give this room a layer in tests/tidy.rs", source.name));
            continue;
        };
        for target in imports(source, &names) {
            let Some(to) = layer(&target) else { continue };
            if !may_import(&source.name, from, &target, to) {
                wrong.push(format!("{} ({from:?}) imports {target} ({to:?})", source.name));
            }
        }
    }
    report("arrows against the layers (STYLE: what may depend on what)", wrong);
}

#[test]
fn lower_layers_hold_no_clocks_tasks_or_protocols() {
    let mut wrong = Vec::new();
    for source in sources().iter().filter(|source| !source.is_test) {
        let code = without_comments(&source.body);
        for (layers, pattern, why) in NEVER {
            let is_bound = layer(&source.name).is_some_and(|layer| layers.contains(&layer));
            if let (true, Some(found)) = (is_bound, Regex::new(pattern).unwrap().find(&code)) {
                wrong.push(format!("{}: {} ({why})", source.name, found.as_str()));
            }
        }
    }
    report("what a layer never contains", wrong);
}

#[test]
fn files_are_short_well_named_and_open_with_their_purpose() {
    let mut wrong = Vec::new();
    for source in sources() {
        let lines = source.body.lines().count();
        if lines > LINES_MAX && !source.is_test {
            wrong.push(format!("{}: {lines} lines without tests", source.name));
        }
        if !source.text.starts_with("//!") {
            wrong.push(format!("{}: does not open with //!", source.name));
        }
        if source.name.split('/').any(|part| DRAWERS.contains(&part)) {
            wrong.push(format!("{}: name the noun", source.name));
        }
    }
    report("files", wrong);
}

#[test]
fn nothing_is_left_behind() {
    let patterns: Vec<_> =
        LEFTOVERS.iter().map(|(pattern, why)| (Regex::new(pattern).unwrap(), why)).collect();
    let mut wrong = Vec::new();
    for source in sources().iter().filter(|source| !source.is_test) {
        for (number, line) in source.body.lines().enumerate() {
            // Markers hide in comments, so comments count for those; code habits do not.
            let is_comment = line.trim_start().starts_with("//");
            for (index, (pattern, why)) in patterns.iter().enumerate() {
                if (index == 0 || !is_comment) && pattern.is_match(line) {
                    let place = format!("{}:{}", source.path.display(), number + 1);
                    wrong.push(format!("{place}: {} ({why})", line.trim()));
                }
            }
        }
    }
    report("leftovers", wrong);
}

#[test]
fn the_top_level_shows_only_what_the_house_knows() {
    let known = [
        "Cargo.toml",
        "Cargo.lock",
        "src",
        "proto",
        "benches",
        "tests",
        "docs",
        "README.md",
        "LICENSE",
        // Units, manifests and what makes packages; nothing in it is built by Cargo.
        "packaging",
        // What running and building leave behind; ignored by git.
        "target",
        "data",
    ];
    let wrong = fs::read_dir(root())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| !name.starts_with('.') && !known.contains(&name.as_str()))
        .collect();
    report("visible files at the top", wrong);
}

#[test]
fn the_docs_list_every_flag() {
    let text = fs::read_to_string(root().join("docs/configuration.md")).unwrap();
    let wrong = freehold::config::FLAGS
        .iter()
        .flat_map(|group| group.flags)
        .flat_map(|flag| std::iter::once(&flag.name).chain(flag.aliases))
        .filter(|name| !text.contains(&format!("`-{name}`")))
        .map(|name| (*name).to_owned())
        .collect();
    report("flags missing from docs/configuration.md", wrong);
}

#[test]
fn the_docs_list_every_metric_and_no_other() {
    let docs = fs::read_to_string(root().join("docs/metrics.md")).unwrap();
    let row = Regex::new(r"(?m)^\| `([a-z0-9_]+)`").unwrap();
    let listed: BTreeSet<String> =
        row.captures_iter(&docs).map(|found| found[1].to_owned()).collect();
    // Ours and Cortex's by their prefix; others by the constructor they are handed to.
    let name = Regex::new(
        r#"(?x)"((?:cortex|freehold|memberlist_client|memberlist_tcp_transport|process)_[a-z0-9_]+)"
           | (?:Opts|Gauge|Counter|Histogram|Desc)::new\(\s*"([a-z][a-z0-9_]+)""#,
    )
    .unwrap();
    let mut used = BTreeSet::new();
    for source in sources().iter().filter(|source| !source.is_test) {
        let code = without_comments(&source.body);
        for found in name.captures_iter(&code) {
            used.insert(found.get(1).or(found.get(2)).unwrap().as_str().to_owned());
        }
    }
    let missing = used.difference(&listed).map(|name| format!("{name}: add it to the docs"));
    let gone = listed.difference(&used).map(|name| format!("{name}: no code has it"));
    report("metrics in src and in docs/metrics.md differ", missing.chain(gone).collect());
}

#[test]
fn imports_are_found_in_every_form() {
    let names: BTreeSet<&str> = ["keys", "ring", "ring/walk", "ring/kv", "ring/kv/file"].into();
    let source = |name: &str, body: &str| Source {
        name: name.into(),
        path: PathBuf::new(),
        text: String::new(),
        body: body.into(),
        is_test: false,
    };
    let check = |name: &str, body: &str, expected: &[&str]| {
        let found: Vec<_> = imports(&source(name, body), &names).into_iter().collect();
        assert_eq!(found, expected, "{body}");
    };
    check("series", "use crate::keys::RingKey;", &["keys"]);
    check(
        "series",
        "use crate::{keys::{A, B}, ring::{self, walk::W}};",
        &["keys", "ring", "ring/walk"],
    );
    check("series", "fn f(x: crate::ring::kv::file::File) {}", &["ring/kv/file"]);
    check("series", "// use crate::keys::RingKey;", &[]);
    check("ring/walk", "use super::kv::file::X;", &["ring/kv/file"]);
    check("ring/kv/file", "use super::super::walk::{X, Y};", &["ring/walk"]);
}

/// Whether the table of layers, or an arrow of its own, allows the import.
fn may_import(from_name: &str, from: Layer, to_name: &str, to: Layer) -> bool {
    let is_arrow =
        ARROWS.iter().any(|(one, other)| is_below(from_name, one) && is_below(to_name, other));
    if is_arrow || from == Shell {
        return true;
    }
    // Inside a room the layers of its files still hold: a driver knows its core, never the reverse.
    if room(from_name) == room(to_name) {
        return to <= from;
    }
    match from {
        Words => to == Words,
        Mechanisms => to == Words,
        Core => matches!(to, Words | Mechanisms),
        Formats => to == Words,
        Reach => to <= Formats,
        Services => to <= Reach,
        Edge => to <= Services,
        Shell => true,
    }
}

fn room(name: &str) -> &str {
    name.split('/').next().unwrap_or(name)
}

fn is_below(name: &str, prefix: &str) -> bool {
    name == prefix || name.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('/'))
}

fn layer(name: &str) -> Option<Layer> {
    LAYERS
        .iter()
        .filter(|(prefix, _)| is_below(name, prefix))
        .max_by_key(|(prefix, _)| prefix.len())
        .map(|(_, layer)| *layer)
}

/// Names of the files that `source` reaches by `crate::` and `super::` paths.
fn imports(source: &Source, names: &BTreeSet<&str>) -> BTreeSet<String> {
    let code = without_comments(&source.body);
    let path = Regex::new(r"\b(crate|(?:super::)*super)::").unwrap();
    let mut found = BTreeSet::new();
    for start in path.find_iter(&code) {
        // `super` in `a/b` is `a`; in a folder's own file (`a/mod.rs`, called `a`) it is the root.
        let mut base: Vec<&str> = Vec::new();
        if start.as_str().starts_with("super") {
            base = source.name.split('/').collect();
            base.truncate(base.len().saturating_sub(start.as_str().matches("super").count()));
        }
        let mut leaves = Vec::new();
        expand(&code[start.end()..], String::new(), &mut leaves);
        for leaf in leaves {
            let mut parts = base.clone();
            parts.extend(leaf.split("::").filter(|part| !part.is_empty()));
            // The longest beginning that is a file is what is imported; the rest is inside it.
            while !parts.is_empty() && !names.contains(parts.join("/").as_str()) {
                parts.pop();
            }
            if !parts.is_empty() {
                found.insert(parts.join("/"));
            }
        }
    }
    found.remove(&source.name);
    found
}

/// Expands the use tree at the start of `text` into its leaves; returns what follows it.
fn expand<'a>(mut text: &'a str, mut path: String, leaves: &mut Vec<String>) -> &'a str {
    loop {
        text = text.trim_start();
        if let Some(rest) = text.strip_prefix('{') {
            text = rest;
            loop {
                text = expand(text, path.clone(), leaves).trim_start();
                match text.strip_prefix(',') {
                    Some(rest) if !rest.trim_start().starts_with('}') => text = rest,
                    _ => break,
                }
            }
            return text.trim_start_matches([',', ' ', '\n']).strip_prefix('}').unwrap_or(text);
        }
        let len = text.find(|c: char| !c.is_alphanumeric() && c != '_' && c != '*');
        let (name, rest) = text.split_at(len.unwrap_or(text.len()));
        path.push_str("::");
        path.push_str(name);
        match rest.strip_prefix("::") {
            Some(rest) if !name.is_empty() => text = rest,
            _ => {
                leaves.push(path);
                let alias = rest.trim_start().strip_prefix("as ");
                return alias.map_or(rest, |alias| {
                    alias.trim_start().trim_start_matches(|c: char| c.is_alphanumeric() || c == '_')
                });
            }
        }
    }
}

/// The text with line comments cut off; a `//` inside a string goes too, which only hides more
/// of that string.
fn without_comments(text: &str) -> String {
    let lines = text.lines().map(|line| line.split("//").next().unwrap_or(line));
    lines.collect::<Vec<_>>().join("\n")
}

fn sources() -> Vec<Source> {
    let mut paths = Vec::new();
    walk(&root().join("src"), &mut paths);
    assert!(paths.len() > 10, "the sources are found");
    paths.sort();
    paths.into_iter().map(source).collect()
}

fn source(path: PathBuf) -> Source {
    let text = fs::read_to_string(&path).unwrap();
    let below = path.strip_prefix(root().join("src")).unwrap().with_extension("");
    let mut name = below.to_str().unwrap().replace('\\', "/");
    if let Some(folder) = name.strip_suffix("/mod") {
        name = folder.to_owned();
    }
    // Tests are a module at the file's end, or files of their own.
    let tests = Regex::new(r"(?m)^#\[cfg\((all\()?test\b.*\n(#\[.*\n)*(pub )?mod \w+ \{").unwrap();
    let body = tests.find(&text).map_or(text.as_str(), |start| &text[..start.start()]).to_owned();
    let is_test =
        name.rsplit('/').next().is_some_and(|last| last.ends_with("tests") || last == "testing")
            || name.contains("tests/");
    Source { name, path, text, body, is_test }
}

fn walk(folder: &Path, paths: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            walk(&path, paths);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            paths.push(path);
        }
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn report(what: &str, wrong: Vec<String>) {
    assert!(wrong.is_empty(), "{what}:\n  {}", wrong.join("\n  "));
}
