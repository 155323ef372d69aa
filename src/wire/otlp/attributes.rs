//! Attributes as texts: what a label holds of a value that may be anything.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};

/// The first attribute of that name.
pub(super) fn get<'a>(attributes: &'a [KeyValue], key: &str) -> Option<&'a KeyValue> {
    attributes.iter().find(|attribute| attribute.key == key)
}

/// An attribute's value as the protocol's own tools print it: plain, or as JSON where it nests.
pub(super) fn text(attribute: &KeyValue) -> String {
    match value(attribute.value.as_ref()) {
        None => String::new(),
        Some(Value::StringValue(text)) => text.clone(),
        Some(Value::BoolValue(flag)) => flag.to_string(),
        Some(Value::IntValue(number)) => number.to_string(),
        Some(Value::DoubleValue(number)) => number_text(*number),
        Some(Value::BytesValue(bytes)) => BASE64_STANDARD.encode(bytes),
        // Of another signal's form; metrics have no table of strings to look in.
        Some(Value::StringValueStrindex(_)) => String::new(),
        Some(nested @ (Value::ArrayValue(_) | Value::KvlistValue(_))) => {
            let mut json = String::new();
            // What JSON has no number for makes the whole text empty.
            match write_json(&mut json, Some(nested)) {
                Ok(()) => json,
                Err(NoJson) => String::new(),
            }
        }
    }
}

/// Bytes that the value's text takes at least; for bounds, before it is made.
pub(super) fn text_len(attribute: &KeyValue) -> usize {
    match value(attribute.value.as_ref()) {
        Some(Value::StringValue(text)) => text.len(),
        Some(Value::BytesValue(bytes)) => bytes.len(),
        _ => 0,
    }
}

fn value(value: Option<&AnyValue>) -> Option<&Value> {
    value.and_then(|value| value.value.as_ref())
}

/// A value that JSON cannot hold.
struct NoJson;

/// The depth is bounded by the decoder's own.
fn write_json(out: &mut String, value: Option<&Value>) -> Result<(), NoJson> {
    match value {
        None | Some(Value::StringValueStrindex(_)) => out.push_str("null"),
        Some(Value::StringValue(text)) => write_json_text(out, text),
        Some(Value::BoolValue(flag)) => {
            let _ = write!(out, "{flag}");
        }
        Some(Value::IntValue(number)) => {
            let _ = write!(out, "{number}");
        }
        Some(Value::DoubleValue(number)) if number.is_finite() => {
            out.push_str(&number_text(*number));
        }
        Some(Value::DoubleValue(_)) => return Err(NoJson),
        Some(Value::BytesValue(bytes)) => write_json_text(out, &BASE64_STANDARD.encode(bytes)),
        Some(Value::ArrayValue(list)) => {
            out.push('[');
            for (index, element) in list.values.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_json(out, element.value.as_ref())?;
            }
            out.push(']');
        }
        Some(Value::KvlistValue(map)) => {
            // By name, and of a name that is there twice the last.
            let pairs: BTreeMap<&str, Option<&Value>> = map
                .values
                .iter()
                .map(|pair| (pair.key.as_str(), self::value(pair.value.as_ref())))
                .collect();
            out.push('{');
            for (index, (key, element)) in pairs.into_iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_json_text(out, key);
                out.push(':');
                write_json(out, element)?;
            }
            out.push('}');
        }
    }
    Ok(())
}

/// As Go's encoder without the escapes for HTML.
fn write_json_text(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\x08' => out.push_str("\\b"),
            '\x0c' => out.push_str("\\f"),
            '\u{2028}' | '\u{2029}' | ..' ' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

/// A number as JavaScript prints it.
fn number_text(number: f64) -> String {
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    let size = number.abs();
    if size == 0.0 || (1e-6..1e21).contains(&size) {
        return number.to_string();
    }
    let text = format!("{number:e}");
    match text.split_once('e') {
        Some((digits, exponent)) if !exponent.starts_with('-') => format!("{digits}e+{exponent}"),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use opentelemetry_proto::tonic::common::v1::{ArrayValue, KeyValueList};

    fn pair(key: &str, value: Value) -> KeyValue {
        let value = Some(AnyValue { value: Some(value) });
        KeyValue { key: key.to_owned(), value, ..KeyValue::default() }
    }

    #[test]
    fn values_print_as_the_protocols_tools_print_them() {
        let check = |value: Value, expect: &str| assert_eq!(text(&pair("k", value)), expect);
        check(Value::StringValue("<a>".to_owned()), "<a>");
        check(Value::BoolValue(true), "true");
        check(Value::IntValue(-5), "-5");
        check(Value::DoubleValue(1.0), "1");
        check(Value::DoubleValue(-0.0), "-0");
        check(Value::DoubleValue(1e21), "1e+21");
        check(Value::DoubleValue(1e20), "100000000000000000000");
        check(Value::DoubleValue(0.000_001), "0.000001");
        check(Value::DoubleValue(1.5e-9), "1.5e-9");
        check(Value::DoubleValue(f64::NAN), "NaN");
        check(Value::DoubleValue(f64::NEG_INFINITY), "-Infinity");
        check(Value::BytesValue(vec![1, 2, 3]), "AQID");
        let element = |value| AnyValue { value };
        let list = |values| Value::ArrayValue(ArrayValue { values });
        check(list(vec![]), "[]");
        let values = vec![
            element(Some(Value::StringValue("a\"\u{1}<\u{7f}".to_owned()))),
            element(Some(Value::DoubleValue(0.5))),
            element(None),
            element(Some(Value::BytesValue(vec![255]))),
        ];
        check(list(values), "[\"a\\\"\\u0001<\u{7f}\",0.5,null,\"/w==\"]");
        check(list(vec![element(Some(Value::DoubleValue(f64::NAN)))]), "");
        let values = vec![
            pair("b", Value::IntValue(1)),
            pair("a", Value::BoolValue(false)),
            pair("b", Value::IntValue(2)),
        ];
        check(Value::KvlistValue(KeyValueList { values }), "{\"a\":false,\"b\":2}");
        assert_eq!(text(&KeyValue { value: None, ..pair("k", Value::IntValue(1)) }), "");
    }
}
