//! The front door, and the API of overrides.

use super::{Entry, Group};

pub(super) const GROUP: Group = Group {
    title: "The front door",
    about: "Checked before everything else on HTTP. Texts tell nothing about whether a credential \
            exists.",
    entries: &[
        Entry {
            id: "front-door-failures",
            texts: &["too many failed requests from this address"],
            status: "429",
            cause: "Requests from this address failed more often than its budget of failures \
                    allows: wrong credentials, mostly.",
            effect: "Requests of the address are refused until credit is back; `Retry-After` \
                     says when. Pairs of address and credential that succeeded lately pass.",
            cure: "Find the failing sender behind the address: `/front-door`. If many share one \
                   address, `-front-door.trusted-proxies` is missing.",
            metric: "freehold_front_door_refused_total{limiter=\"failures\"}",
            keys: &["front_door.trusted_proxies"],
        },
        Entry {
            id: "front-door-address",
            texts: &["too many requests from this address"],
            status: "429",
            cause: "One address has sent more requests than its rate allows.",
            effect: "Its requests are refused; `Retry-After` says until when.",
            cure: "Raise the rate per address, or name the proxies that many come through in \
                   `-front-door.trusted-proxies`.",
            metric: "freehold_front_door_refused_total{limiter=\"address\"}",
            keys: &["front_door.trusted_proxies"],
        },
        Entry {
            id: "front-door-credential",
            texts: &["too many requests with this credential"],
            status: "429",
            cause: "Requests with one credential came more often than its rate allows, from \
                    whatever addresses.",
            effect: "Requests with it are refused; `Retry-After` says until when.",
            cure: "Raise the rate per credential, or give senders credentials of their own.",
            metric: "freehold_front_door_refused_total{limiter=\"credential\"}",
            keys: &[],
        },
        Entry {
            id: "front-door-denied",
            texts: &["forbidden"],
            status: "403",
            cause: "The address is on `-front-door.deny`.",
            effect: "Nothing of the request is looked at.",
            cure: "Take the network off the list, if it is there by mistake.",
            metric: "freehold_front_door_denied_total",
            keys: &["front_door.deny"],
        },
        Entry {
            id: "front-door-no-address",
            texts: &["the address of the sender is not known"],
            status: "400",
            cause: "The listener does not know whom it talks to, so there is no budget to put \
                    the request on.",
            effect: "The request is refused.",
            cure: "Report it: no listener of ours is without addresses.",
            metric: "",
            keys: &[],
        },
    ],
};

pub(super) const OVERRIDES: Group = Group {
    title: "The API of overrides",
    about: "Answers of `/api/v1/user-overrides`. The sender reads the short text; the log has the \
            reason.",
    entries: &[
        Entry {
            id: "overrides-refused",
            texts: &[
                "Invalid overrides",
                "the following limits cannot be modified via the overrides API: {names}",
                "limit {name} exceeds hard limit: {value#} > {hard#}",
                "invalid overrides format",
                "the edit has more than {limit#} limits",
                "the overrides of tenant {tenant} were not changed",
            ],
            status: "400",
            cause: "The edit names limits that `api_allowed_limits` does not list, goes beyond \
                    `hard_overrides`, or holds a value that no limit can have.",
            effect: "Nothing is changed.",
            cure: "See the log line for which; change `api_allowed_limits` or `hard_overrides` in \
                   the runtime file.",
            metric: "",
            keys: &["runtime_config.file"],
        },
        Entry {
            id: "overrides-not-written",
            texts: &[
                "Internal server error",
                "runtime config read error",
                "there is no runtime file; -runtime-config.file names none",
                "runtime file {path} is a symbolic link, as in a mounted ConfigMap; change what \
                 it is made of",
                "runtime file {path} is not a regular file",
                "runtime file {path} is or would be longer than {limit#} bytes",
                "runtime file {path} is changed by others all the time",
                "cannot {act} runtime file {path}",
                "the runtime file holds .inf or .nan and is not in plain block style, so that it \
                 cannot be written anew",
                "the edited file does not read as it should",
            ],
            status: "500",
            cause: "The runtime file cannot be read or written by this process.",
            effect: "Nothing is changed; the limits in force stay.",
            cure: "Let the process own a plain file, or change the ConfigMap that it is mounted \
                   from.",
            metric: "",
            keys: &["runtime_config.file"],
        },
        Entry {
            id: "overrides-not-there",
            texts: &["user not found", "invalid JSON"],
            status: "400",
            cause: "The runtime file has no overrides of the tenant, or the body is no JSON.",
            effect: "Nothing is changed.",
            cure: "Set overrides first, with a JSON object of limits.",
            metric: "",
            keys: &["runtime_config.file"],
        },
    ],
};
