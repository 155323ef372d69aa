//! Flags of the component "Clients of tenants".

use super::super::flags::Group;
use super::flag;

pub(super) const FLAGS: Group = Group {
    heading: "Clients of tenants",
    flags: &[
        flag(
            "client-identity.enabled",
            "client_identity.enabled",
            "Look for the client of a request, so that limits of clients apply; off, they are \
             without effect. Distributors join their ring then.",
        ),
        flag(
            "client-identity.header",
            "client_identity.header",
            "Header that names the client. A gateway must strip and set it, as it does with \
             X-Scope-OrgID.",
        ),
        flag(
            "client-identity.owner-lost",
            "client_identity.owner_lost",
            "What a client may while the owner of its budget cannot be asked: standing_reserve, \
             local_share, allow or deny.",
        ),
        flag(
            "client-identity.cold-start",
            "client_identity.cold_start",
            "What a budget starts with at an owner that was told nothing of it: empty, one_second \
             or full.",
        ),
        flag(
            "client-identity.owner-timeout",
            "client_identity.owner_timeout",
            "Longest wait of a request for the owner of its client's budget, up to 5s.",
        ),
        flag(
            "client-identity.owner-overdue",
            "client_identity.owner_overdue",
            "Age of an owner's heartbeat from which the next member owns its budgets, at least 3s.",
        ),
        flag(
            "client-identity.secret-file",
            "client_identity.secret_file",
            "File with the key by which budgets are placed on the ring, the same at all members; \
             empty takes one that everybody knows.",
        ),
    ],
};
