//! Flags of the component "General".

use super::super::flags::Group;
use super::flag;

pub(super) const FLAGS: Group = Group {
    heading: "General",
    flags: &[
        flag(
            "target",
            "target",
            "What runs here: all; ingester, behind distributors; distributor, before Cortex's distributors \
             or the ring's ingesters; or query-frontend, before those who answer queries. All but \
             the first have Cortex's ring defaults (replication factor 3, for an \
             ingester 15s until ready and 30s after LEAVING).",
        ),
        flag(
            "auth.enabled",
            "auth_enabled",
            "Take the tenant from X-Scope-OrgID. Off, one tenant owns every request.",
        ),
        flag(
            "auth.no-auth-tenant",
            "no_auth_tenant",
            "The tenant of every request while -auth.enabled is off.",
        ),
        flag(
            "name-validation-scheme",
            "name_validation_scheme",
            "What names of metrics and labels may be made of: legacy (ASCII) or utf8.",
        ),
        flag("log.level", "server.log_level", "Least severity logged: debug, info, warn, error."),
        flag("log.format", "server.log_format", "How log lines are written: logfmt or json."),
        flag(
            "limits.parity",
            "ingester.limits_parity",
            "Cortex's behaviour wherever ours differs on purpose; docs/compatibility.md lists it.",
        ),
    ],
};
