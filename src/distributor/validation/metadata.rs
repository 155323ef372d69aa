//! The rules of a metric's metadata.

use super::text::Shown;
use crate::limits::Limits;
use crate::wire::write_request::Metadata;

/// Why metadata is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetadataViolation<'a> {
    NameMissing,
    TooLong { part: Part, text: &'a [u8], metric: &'a [u8] },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Name,
    Help,
    Unit,
}

pub fn check_metadata<'a>(
    metadata: &Metadata<'a>,
    limits: &Limits,
) -> Result<(), MetadataViolation<'a>> {
    let metric = metadata.metric_family_name;
    if limits.enforce_metadata_metric_name && metric.is_empty() {
        return Err(MetadataViolation::NameMissing);
    }
    let parts = [(Part::Name, metric), (Part::Help, metadata.help), (Part::Unit, metadata.unit)];
    let is_too_long = |(_, text): &(Part, &[u8])| text.len() as u64 > limits.max_metadata_length;
    match parts.into_iter().find(is_too_long) {
        Some((part, text)) => Err(MetadataViolation::TooLong { part, text, metric }),
        None => Ok(()),
    }
}

impl MetadataViolation<'_> {
    /// Value of the label `reason` of Cortex's counter.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NameMissing => "missing_metric_name",
            Self::TooLong { part: Part::Name, .. } => "metric_name_too_long",
            Self::TooLong { part: Part::Help, .. } => "help_too_long",
            Self::TooLong { part: Part::Unit, .. } => "unit_too_long",
        }
    }

    /// Cortex's answer.
    pub fn text(&self) -> String {
        match self {
            Self::NameMissing => "metadata missing metric name".to_owned(),
            Self::TooLong { part, text, metric } => {
                let part = match part {
                    Part::Name => "METRIC_NAME",
                    Part::Help => "HELP",
                    Part::Unit => "UNIT",
                };
                let (text, metric) = (Shown(text), Shown(metric));
                format!("metadata '{part}' value too long: {text} metric {metric}")
            }
        }
    }
}
