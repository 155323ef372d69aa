//! Edits of one tenant's overrides in the text of the runtime file. No I/O.
//!
//! The file is the operator's: comments, order and the limits of others stay as they are. The
//! tenant's block is replaced in the text, line by line, and the result is read again; only where
//! it does not say what it should (flow style, anchors, tabs) is the whole file written anew from
//! its values, which keeps all of them and loses the comments.
//!
//! Must hold: what comes out reads as what went in but for that tenant; it is a runtime file that
//! the running process would take; an edit is made whole or not at all.

mod block;

use std::sync::Arc;

use serde_json::{Map, Value};

use super::{Limits, Overrides, QUERY_CAPACITY, QUERY_RATE, RuntimeFile};
use crate::tenant::TenantId;

/// Most limits of one edit, far more than there are names.
pub const EDIT_LIMITS_MAX: usize = 1000;

/// What becomes of a tenant's overrides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Change<'a> {
    /// These are set, others stay.
    Set(&'a Map<String, Value>),
    /// None is left, so that the defaults apply.
    Delete,
}

/// What a runtime file says of a tenant.
#[derive(Clone, Debug, PartialEq)]
pub enum Told {
    /// All of the tenant's limits, defaults included.
    Limits(Map<String, Value>),
    /// Others have overrides, the tenant has none.
    UnknownTenant,
    /// Nobody has any.
    NoOverrides,
}

/// Why an edit is not made. The texts are those of Cortex's log; clients get shorter ones.
#[derive(Debug, thiserror::Error)]
pub enum EditError {
    /// The names in alphabetical order.
    #[error(
        "the following limits cannot be modified via the overrides API: {}",
        names.join(", ")
    )]
    NotAllowed { names: Vec<String> },
    #[error("limit {name} exceeds hard limit: {value:.6} > {hard:.6}")]
    AboveHardLimit { name: String, value: f64, hard: f64 },
    #[error("runtime config read error")]
    Unreadable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A value of the wrong kind, as a rule.
    #[error("invalid overrides format")]
    Invalid(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("the edit has more than {EDIT_LIMITS_MAX} limits")]
    TooMany,
    /// Ours: numbers that the value tree cannot hold would be lost.
    #[error(
        "the runtime file holds .inf or .nan and is not in plain block style, so that it cannot be \
         written anew"
    )]
    NotFinite,
    #[error("the edited file does not read as it should")]
    Garbled,
}

impl EditError {
    /// The request is at fault, not the file.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::NotAllowed { .. } | Self::AboveHardLimit { .. } | Self::TooMany)
    }
}

/// What a file's text says of a tenant.
pub fn told(text: &str, tenant: &TenantId, overrides: &Overrides) -> Result<Told, EditError> {
    let file = overrides.parse(text).map_err(|e| EditError::Unreadable(Box::new(e)))?;
    let tree = tree(text)?;
    let Some(block) = tree.get("overrides").filter(|block| !block.is_null()) else {
        return Ok(Told::NoOverrides);
    };
    let Some(limits) = file.tenants.get(tenant.as_str()) else {
        return Ok(Told::UnknownTenant);
    };
    // Names that Cortex uses and we do not are told as they are written.
    let mut told = match block.get(tenant.as_str()) {
        Some(Value::Object(written)) => written.clone(),
        _ => Map::new(),
    };
    if let Ok(Value::Object(ours)) = serde_json::to_value(&**limits) {
        told.extend(ours);
    }
    Ok(Told::Limits(told))
}

/// The file's text after a change.
pub fn edited(
    text: &str,
    tenant: &TenantId,
    change: Change<'_>,
    overrides: &Overrides,
) -> Result<String, EditError> {
    let before = tree(text)?;
    if let Change::Set(limits) = change {
        check(limits, tenant, text, overrides)?;
    }
    let after = changed(before, tenant, change);
    let limits = after.get("overrides").and_then(|block| block.get(tenant.as_str()));
    let by_lines = block::replaced(text, tenant.as_str(), limits);
    let edited = match by_lines.filter(|edited| reads_as(edited, &after)) {
        Some(edited) => edited,
        None => written_anew(text, &after)?,
    };
    let file = overrides.parse(&edited).map_err(|e| EditError::Invalid(Box::new(e)))?;
    if let Change::Set(limits) = change {
        check_query_rate(limits, tenant, &file)?;
    }
    Ok(edited)
}

/// A share cannot be compared as it is written, and what it is of may be edited too: what counts
/// is what a client may in the end.
fn check_query_rate(
    limits: &Map<String, Value>,
    tenant: &TenantId,
    file: &RuntimeFile,
) -> Result<(), EditError> {
    if !limits.contains_key(QUERY_RATE) && !limits.contains_key(QUERY_CAPACITY) {
        return Ok(());
    }
    let rate = |limits: &Arc<Limits>| limits.query_client_budget().map(|budget| budget.rate);
    let value = file.tenants.get(tenant.as_str()).and_then(rate);
    let hard = file.hard_overrides.get(tenant.as_str()).and_then(rate);
    match (value, hard) {
        (Some(value), Some(hard)) if value > hard => {
            Err(EditError::AboveHardLimit { name: QUERY_RATE.to_owned(), value, hard })
        }
        _ => Ok(()),
    }
}

/// All of the names are allowed, and no value is above the tenant's hard limit.
fn check(
    limits: &Map<String, Value>,
    tenant: &TenantId,
    text: &str,
    overrides: &Overrides,
) -> Result<(), EditError> {
    if limits.len() > EDIT_LIMITS_MAX {
        return Err(EditError::TooMany);
    }
    let file = overrides.parse(text).map_err(|e| EditError::Unreadable(Box::new(e)))?;
    let is_allowed = |name: &&String| file.api_allowed_limits.contains(*name);
    let mut names: Vec<String> = limits.keys().filter(|name| !is_allowed(name)).cloned().collect();
    if !names.is_empty() {
        names.sort();
        return Err(EditError::NotAllowed { names });
    }
    let Some(hard) = file.hard_overrides.get(tenant.as_str()) else { return Ok(()) };
    let hard = serde_json::to_value(&**hard).unwrap_or_default();
    for (name, value) in limits {
        let bounds = (number(value), hard.get(name).and_then(number));
        if let (Some(value), Some(hard)) = bounds
            && value > hard
        {
            return Err(EditError::AboveHardLimit { name: name.clone(), value, hard });
        }
    }
    Ok(())
}

/// A value that Cortex compares; switches, lists and durations are none.
fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    }
}

/// The file's values after a change.
fn changed(mut tree: Value, tenant: &TenantId, change: Change<'_>) -> Value {
    let Value::Object(file) = &mut tree else { return tree };
    let block = file.entry("overrides").or_insert(Value::Null);
    match change {
        Change::Set(limits) => {
            if block.is_null() {
                *block = Value::Object(Map::new());
            }
            let Value::Object(block) = block else { return tree };
            let own = block.entry(tenant.as_str()).or_insert(Value::Null);
            if own.is_null() {
                *own = Value::Object(Map::new());
            }
            if let Value::Object(own) = own {
                own.extend(limits.iter().map(|(name, value)| (name.clone(), value.clone())));
            }
        }
        Change::Delete => {
            if let Value::Object(block) = block {
                block.remove(tenant.as_str());
            }
        }
    }
    tree
}

/// The file as a tree of values; an empty file is one without any.
fn tree(text: &str) -> Result<Value, EditError> {
    let unreadable = |e: serde_saphyr::Error| EditError::Unreadable(Box::new(e));
    let tree: Option<Value> =
        serde_saphyr::from_str_with_options(text, super::runtime_file::yaml_options())
            .map_err(unreadable)?;
    Ok(match tree {
        None | Some(Value::Null) => Value::Object(Map::new()),
        Some(tree) => tree,
    })
}

/// A block that holds nothing may be written as nothing, or not at all.
fn reads_as(text: &str, expect: &Value) -> bool {
    tree(text).is_ok_and(|tree| normal(tree) == normal(expect.clone()))
}

fn normal(mut tree: Value) -> Value {
    if let Value::Object(file) = &mut tree
        && file.get("overrides").is_some_and(Value::is_null)
    {
        file.remove("overrides");
    }
    tree
}

fn written_anew(text: &str, tree: &Value) -> Result<String, EditError> {
    let lower = text.to_ascii_lowercase();
    if lower.contains(".inf") || lower.contains(".nan") {
        return Err(EditError::NotFinite);
    }
    let written = serde_saphyr::to_string(tree).map_err(|e| EditError::Invalid(Box::new(e)))?;
    if reads_as(&written, tree) { Ok(written) } else { Err(EditError::Garbled) }
}

#[cfg(test)]
mod tests;
