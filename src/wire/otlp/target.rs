//! A resource and the labels that its metrics get: their own attributes under plain names, what
//! is promoted of the resource, and who it is.

use std::collections::{BTreeMap, HashSet};

use opentelemetry_proto::tonic::common::v1::KeyValue;

use super::names::{self, NameError};
use super::output::{LabelSet, Metadata, Output};
use super::translate::Stop;
use super::{OtlpOptions, attributes};
use crate::wire::proto::cortexpb::metric_metadata::MetricType;

const SERVICE_NAME: &str = "service.name";
const SERVICE_NAMESPACE: &str = "service.namespace";
const SERVICE_INSTANCE_ID: &str = "service.instance.id";

/// Attributes that become `job` and `instance`.
pub(super) const IDENTIFYING: [&str; 3] = [SERVICE_NAMESPACE, SERVICE_NAME, SERVICE_INSTANCE_ID];

/// What is the same for all metrics of a resource, worked out once.
pub(super) struct Target<'a> {
    pub attributes: &'a [KeyValue],
    job: Option<String>,
    instance: Option<String>,
    /// Attributes that become labels under these names, where no other label has the name.
    promoted: Vec<(String, String)>,
    /// The first of them with a name that no label can have fails every metric, as in Cortex.
    promotion_failure: Option<NameError>,
    /// Attributes that each point gets in the place of its own of that name.
    joined: BTreeMap<&'a str, &'a KeyValue>,
    texts_bytes: usize,
}

impl<'a> Target<'a> {
    pub(super) fn new(attributes: &'a [KeyValue], options: &OtlpOptions<'_>) -> Self {
        let text = |key: &str| attributes::get(attributes, key).map(attributes::text);
        let job = text(SERVICE_NAME).map(|service| match text(SERVICE_NAMESPACE) {
            Some(namespace) => format!("{namespace}/{service}"),
            None => service,
        });
        let mut promoted: Vec<(String, String)> = Vec::new();
        let mut promotion_failure = None;
        let mut joined = BTreeMap::new();
        if options.convert_all_attributes {
            // Of a name that is there twice the last counts.
            joined.extend(attributes.iter().map(|a| (a.key.as_str(), a)));
        } else if !options.promote_resource_attributes.is_empty() {
            let names: HashSet<&str> =
                options.promote_resource_attributes.iter().map(String::as_str).collect();
            let mut seen = HashSet::new();
            for attribute in attributes.iter().filter(|a| names.contains(a.key.as_str())) {
                match names::label(&attribute.key) {
                    Ok(name) => {
                        let text = attributes::text(attribute);
                        // Of names that fall together the first with a text counts.
                        if !text.is_empty() && seen.insert(name.clone()) {
                            promoted.push((name, text));
                        }
                    }
                    Err(failure) => {
                        promotion_failure = Some(failure);
                        break;
                    }
                }
            }
        }
        let joined_bytes: usize =
            joined.values().map(|a| a.key.len() + attributes::text_len(a)).sum();
        let promoted_bytes: usize =
            promoted.iter().map(|(name, text)| name.len() + text.len()).sum();
        Self {
            attributes,
            job,
            instance: text(SERVICE_INSTANCE_ID),
            promoted,
            promotion_failure,
            joined,
            texts_bytes: joined_bytes + promoted_bytes,
        }
    }

    /// Who it is, and nothing else.
    pub(super) fn bare(&self) -> Self {
        Self {
            attributes: self.attributes,
            job: self.job.clone(),
            instance: self.instance.clone(),
            promoted: Vec::new(),
            promotion_failure: None,
            joined: BTreeMap::new(),
            texts_bytes: 0,
        }
    }

    /// The labels of a point without its metric's name; no attribute that is `ignored`, and no
    /// type unless it is `told`. Accounts for them first.
    pub(super) fn labels(
        &self,
        output: &mut Output,
        point_attributes: &[KeyValue],
        ignored: &[&str],
        told: Option<&Metadata>,
    ) -> Result<LabelSet, Stop> {
        let texts = |attributes: &[KeyValue]| -> usize {
            attributes.iter().map(|a| a.key.len() + attributes::text_len(a)).sum()
        };
        output.account(texts(point_attributes) + self.texts_bytes)?;
        let own = point_attributes.iter().filter(|a| {
            !ignored.contains(&a.key.as_str()) && !self.joined.contains_key(a.key.as_str())
        });
        let mut attributes: Vec<&KeyValue> = own.chain(self.joined.values().copied()).collect();
        // Names that fall together are joined in the order of the names they had.
        attributes.sort_by(|a, b| a.key.cmp(&b.key));
        let mut labels = LabelSet::default();
        for attribute in attributes {
            let name = names::label(&attribute.key)?;
            let text = attributes::text(attribute);
            let text = match labels.get(&name) {
                Some(before) => format!("{before};{text}"),
                None => text,
            };
            labels.set(&name, text);
        }
        for (name, text) in &self.promoted {
            if labels.get(name).is_none() {
                labels.set(name, text.clone());
            }
        }
        if let Some(failure) = &self.promotion_failure {
            return Err(failure.clone().into());
        }
        if let Some(metadata) = told {
            let name = match metadata.kind {
                MetricType::Counter => "counter",
                MetricType::Gauge => "gauge",
                MetricType::Histogram => "histogram",
                MetricType::Summary => "summary",
                _ => "",
            };
            if !name.is_empty() {
                labels.set("__type__", name.to_owned());
            }
            if !metadata.unit.is_empty() {
                labels.set("__unit__", names::unit(&metadata.unit));
            }
        }
        if let Some(job) = &self.job {
            labels.set("job", job.clone());
        }
        if let Some(instance) = &self.instance {
            labels.set("instance", instance.clone());
        }
        Ok(labels)
    }
}
