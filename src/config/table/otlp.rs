//! Flags of the component "OTLP and overrides".

use super::super::flags::Group;
use super::flag;

pub(super) const FLAGS: Group = Group {
    heading: "OTLP and overrides",
    flags: &[
        flag(
            "distributor.otlp-max-recv-msg-size",
            "distributor.otlp_max_recv_msg_size",
            "Longest OTLP body in bytes, before and after decompression.",
        ),
        flag(
            "distributor.otlp.convert-all-attributes",
            "distributor.otlp.convert_all_attributes",
            "All attributes of a resource become labels of its metrics.",
        ),
        flag(
            "distributor.otlp.disable-target-info",
            "distributor.otlp.disable_target_info",
            "Write no target_info series for OTLP resources.",
        ),
        flag(
            "distributor.otlp.allow-delta-temporality",
            "distributor.otlp.allow_delta_temporality",
            "Take OTLP sums and histograms with delta temporality as they are.",
        ),
        flag(
            "distributor.otlp.add-metric-suffixes",
            "distributor.otlp.add_metric_suffixes",
            "Append units and _total to the names of OTLP metrics.",
        ),
        flag(
            "distributor.overrides-exporter-enabled",
            "distributor.overrides_exporter_enabled",
            "Export limits of tenants and their defaults as metrics, as Cortex's target \
             overrides-exporter does.",
        ),
    ],
};
