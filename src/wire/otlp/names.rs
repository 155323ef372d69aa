//! Names of metrics, labels and units as Prometheus' OTLP translation makes them, for names of
//! ASCII letters, digits, colons and underscores.
//!
//! The rules are those of `prometheus/otlptranslator` with suffixes or without; texts of errors
//! are its own.

use std::fmt;

use crate::labels::write_quoted;

/// Units by their UCUM code.
const UNITS: [(&str, &str); 25] = [
    ("d", "days"),
    ("h", "hours"),
    ("min", "minutes"),
    ("s", "seconds"),
    ("ms", "milliseconds"),
    ("us", "microseconds"),
    ("ns", "nanoseconds"),
    ("By", "bytes"),
    ("KiBy", "kibibytes"),
    ("MiBy", "mebibytes"),
    ("GiBy", "gibibytes"),
    ("TiBy", "tibibytes"),
    ("KBy", "kilobytes"),
    ("MBy", "megabytes"),
    ("GBy", "gigabytes"),
    ("TBy", "terabytes"),
    ("m", "meters"),
    ("V", "volts"),
    ("A", "amperes"),
    ("J", "joules"),
    ("W", "watts"),
    ("g", "grams"),
    ("Cel", "celsius"),
    ("Hz", "hertz"),
    ("%", "percent"),
];

/// Units behind a slash; here `m` is a minute.
const PER_UNITS: [(&str, &str); 7] = [
    ("s", "second"),
    ("m", "minute"),
    ("h", "hour"),
    ("d", "day"),
    ("w", "week"),
    ("mo", "month"),
    ("y", "year"),
];

/// Why there is no name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NameError {
    #[error("label name is empty")]
    EmptyLabel,
    #[error(
        "normalization for label name {} resulted in invalid name {}",
        Quoted(name),
        Quoted(made)
    )]
    Label { name: String, made: String },
    #[error("normalization for metric {} resulted in empty name", Quoted(name))]
    EmptyMetric { name: String },
    #[error("normalization for metric {} resulted in invalid name {}", Quoted(name), Quoted(made))]
    Metric { name: String, made: String },
}

/// What the suffixes of a metric's name depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Gauge,
    MonotonicSum,
    Other,
}

/// A text as Go's `%q` writes it.
pub(super) struct Quoted<'a>(pub &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_quoted(f, self.0.as_bytes())
    }
}

/// A metric's name, with its unit and kind as suffixes if asked for.
pub(super) fn metric(
    name: &str,
    unit: &str,
    kind: Kind,
    add_suffixes: bool,
) -> Result<String, NameError> {
    let is_kept = |c: char| c.is_ascii_alphanumeric() || c == ':' || (!add_suffixes && c == '_');
    let mut words: Vec<&str> =
        name.split(|c| !is_kept(c)).filter(|word| !word.is_empty()).collect();
    let (main, per) = unit_words(unit);
    let (main, per) = (plain(&main), plain(&per));
    if add_suffixes {
        add_units(&mut words, &main, &per);
        if kind == Kind::MonotonicSum {
            words.retain(|word| *word != "total");
            words.push("total");
        }
        if kind == Kind::Gauge && unit == "1" {
            words.retain(|word| *word != "ratio");
            words.push("ratio");
        }
    }
    let mut made = words.join("_");
    if made.starts_with(|c: char| c.is_ascii_digit()) {
        made.insert(0, '_');
    }
    if made.is_empty() {
        return Err(NameError::EmptyMetric { name: name.to_owned() });
    }
    if made != name && made.chars().all(|c| c == '_') {
        return Err(NameError::Metric { name: name.to_owned(), made });
    }
    Ok(made)
}

/// A label's name.
pub(super) fn label(name: &str) -> Result<String, NameError> {
    if name.is_empty() {
        return Err(NameError::EmptyLabel);
    }
    let reserved = if name.len() >= 4 {
        name.strip_prefix("__").and_then(|rest| rest.strip_suffix("__"))
    } else {
        None
    };
    let mut made = String::with_capacity(name.len() + 4);
    let mut was_other = false;
    for c in reserved.unwrap_or(name).chars() {
        let is_plain = c.is_ascii_alphanumeric();
        if is_plain {
            made.push(c);
        } else if !was_other {
            made.push('_');
        }
        was_other = !is_plain;
    }
    if reserved.is_some() {
        made = format!("__{made}__");
    }
    if made.starts_with(|c: char| c.is_ascii_digit()) {
        made.insert_str(0, "key_");
    }
    if made.chars().all(|c| c == '_') {
        return Err(NameError::Label { name: name.to_owned(), made });
    }
    Ok(made)
}

/// A unit as metadata tells it.
pub(super) fn unit(unit: &str) -> String {
    let (main, per) = unit_words(unit);
    let (main, per) = (plain(&main), plain(&per));
    let made = match (main.is_empty(), per.is_empty()) {
        (false, false) => format!("{main}_{per}"),
        (false, true) => main,
        (true, _) => per,
    };
    let made = made.strip_prefix('_').unwrap_or(&made);
    made.strip_suffix('_').unwrap_or(made).to_owned()
}

/// Appends a unit's words, each unless the name has it already.
fn add_units<'a>(words: &mut Vec<&'a str>, main: &'a str, per: &'a str) {
    let mut main = if words.contains(&main) { "" } else { main };
    let mut per = match per {
        "per_" => "",
        per => per.strip_suffix('_').unwrap_or(per),
    };
    if words.contains(&per) {
        per = "";
    }
    if !per.is_empty() {
        main = main.strip_suffix('_').unwrap_or(main);
    }
    words.extend([main, per].into_iter().filter(|word| !word.is_empty()));
}

/// The words of a unit in front of its slash and behind it, the latter with `per_` in front.
fn unit_words(unit: &str) -> (String, String) {
    let (main, per) = match unit.split_once('/') {
        Some((main, per)) => (main.trim(), per.trim()),
        None => (unit.trim(), ""),
    };
    // In braces stands what is counted, which is no unit.
    let is_unit = |text: &str| !text.is_empty() && !text.contains(['{', '}']);
    let named = |text: &str, names: &[(&str, &str)]| {
        let name = names.iter().find(|(code, _)| *code == text);
        name.map_or(text, |(_, name)| name).to_owned()
    };
    let main = match main {
        "1" => String::new(),
        main if is_unit(main) => named(main, &UNITS),
        _ => String::new(),
    };
    let per = if is_unit(per) { format!("per_{}", named(per, &PER_UNITS)) } else { String::new() };
    (main, per)
}

/// A unit's word with underscores for all else, none of them in front and no two in a row.
fn plain(unit: &str) -> String {
    let mut made = String::with_capacity(unit.len());
    for c in unit.chars() {
        let c = if c.is_ascii_alphanumeric() || c == ':' { c } else { '_' };
        if c != '_' || !(made.is_empty() || made.ends_with('_')) {
            made.push(c);
        }
    }
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_get_their_unit_and_kind() {
        let check = |name: &str, unit: &str, kind: Kind, expect: &str| {
            assert_eq!(metric(name, unit, kind, true).as_deref(), Ok(expect), "{name} {unit}");
        };
        check("http.server.duration", "ms", Kind::Other, "http_server_duration_milliseconds");
        check("system.io", "By", Kind::MonotonicSum, "system_io_bytes_total");
        check("system.io.total", "By", Kind::MonotonicSum, "system_io_bytes_total");
        check("total.requests", "{requests}", Kind::MonotonicSum, "requests_total");
        check("cpu.utilization", "1", Kind::Gauge, "cpu_utilization_ratio");
        check("ratio.of.cpu", "1", Kind::Gauge, "of_cpu_ratio");
        check("items", "1", Kind::MonotonicSum, "items_total");
        check("speed", "m/s", Kind::Gauge, "speed_meters_per_second");
        check("speed_meters", "m/s", Kind::Gauge, "speed_meters_per_second");
        check("faults", "{faults}/s", Kind::Gauge, "faults_per_second");
        check("rate", "By/m", Kind::Gauge, "rate_bytes_per_minute");
        check("disk", "%", Kind::Gauge, "disk_percent");
        check("odd", "a//b c", Kind::Gauge, "odd_a_per_b_c");
        check("bytes.sent", "By", Kind::Gauge, "bytes_sent");
        check("5xx", "", Kind::Other, "_5xx");
        check("a:b__c", "", Kind::Other, "a:b_c");
        check("grüße", "", Kind::Other, "gr_e");
        let empty = metric("___", "", Kind::Other, true).expect_err("nothing left").to_string();
        assert_eq!(empty, r#"normalization for metric "___" resulted in empty name"#);
    }

    #[test]
    fn metrics_without_suffixes_keep_their_underscores() {
        let check = |name: &str, expect: &str| {
            let made = metric(name, "ms", Kind::MonotonicSum, false);
            assert_eq!(made.as_deref(), Ok(expect), "{name}");
        };
        check("http.server..duration", "http_server_duration");
        check("a__b", "a__b");
        check("5xx", "_5xx");
        check("___", "___");
        let invalid = metric("_._", "", Kind::Other, false).expect_err("invalid").to_string();
        assert_eq!(invalid, r#"normalization for metric "_._" resulted in invalid name "___""#);
    }

    #[test]
    fn labels_are_made_plain() {
        let check = |name: &str, expect: &str| {
            assert_eq!(label(name).as_deref(), Ok(expect), "{name}");
        };
        check("http.method", "http_method");
        check("a..b", "a_b");
        check("a__b", "a_b");
        check("_a", "_a");
        check("__a", "_a");
        check("5xx", "key_5xx");
        check("__name__", "__name__");
        check("__a.b__", "__a_b__");
        check("größe", "gr_e");
        assert_eq!(label(""), Err(NameError::EmptyLabel));
        let invalid = label("..").expect_err("nothing left").to_string();
        let text = r#"normalization for label name ".." resulted in invalid name "_""#;
        assert_eq!(invalid, text);
        assert!(label("____").is_err());
    }

    #[test]
    fn units_are_spelled_out() {
        let check = |code: &str, expect: &str| assert_eq!(unit(code), expect, "{code}");
        check("By", "bytes");
        check("m/s", "meters_per_second");
        check("1", "");
        check("{x}/s", "per_second");
        check(" s ", "seconds");
        check("a b_", "a_b");
    }
}
