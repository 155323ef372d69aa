//! Flags of the component "Front door".

use super::super::flags::Group;
use super::flag;

pub(super) const FLAGS: Group = Group {
    heading: "Front door",
    flags: &[
        flag(
            "front-door.trusted-proxies",
            "front_door.trusted_proxies",
            "Networks of proxies whose lists of hops are believed, from the right up to the \
             first hop that is none of them; without, the connection's other end is the \
             sender.",
        ),
        flag(
            "front-door.use-forwarded",
            "front_door.use_forwarded",
            "Those proxies write Forwarded (RFC 7239), and not X-Forwarded-For.",
        ),
        flag(
            "front-door.ipv6-prefix",
            "front_door.ipv6_prefix",
            "Bits of an IPv6 address that tell senders apart, 32 to 128.",
        ),
        flag(
            "front-door.nat64",
            "front_door.nat64",
            "Take addresses in 64:ff9b::/96 for the IPv4 addresses in them.",
        ),
        flag(
            "front-door.allow",
            "front_door.allow",
            "Networks that no limiter of the front door looks at.",
        ),
        flag(
            "front-door.deny",
            "front_door.deny",
            "Networks that are answered 403 and nothing else.",
        ),
        flag(
            "front-door.salt-file",
            "front_door.salt_file",
            "File with the salt that addresses are hashed under, at least 16 bytes, read \
             again when it changes; empty makes one at the start.",
        ),
        flag(
            "front-door.basic-user",
            "front_door.basic_user",
            "The user of Basic authentication is a credential too, as a bearer token is.",
        ),
        flag(
            "front-door.proven-for",
            "front_door.proven_for",
            "How long a success lets its address and credential in although the address has \
             failed too often, up to 1h; 0 never does.",
        ),
        flag(
            "front-door.write-failures",
            "front_door.write_failures",
            "Answers to writes that are failures: auth is 401, 403 and bodies that cannot \
             be read; all is 400 and more, and requests that are broken off.",
        ),
        flag(
            "front-door.charge-own-refusals",
            "front_door.charge_own_refusals",
            "The 429 of this process' own limiters are failures too.",
        ),
        flag(
            "front-door.ratelimit-headers",
            "front_door.ratelimit_headers",
            "Tell senders what is left of the front door's limits on requests: off, draft \
             (RateLimit and RateLimit-Policy) or legacy (X-RateLimit-Limit, -Remaining and \
             -Reset).",
        ),
        flag(
            "front-door.max-addresses",
            "front_door.max_addresses",
            "Addresses that are kept per class of routes; at the bound the one used least \
             lately is forgotten.",
        ),
        flag(
            "front-door.max-credentials",
            "front_door.max_credentials",
            "Credentials that are kept per class of routes.",
        ),
        flag(
            "front-door.max-proven-pairs",
            "front_door.max_proven_pairs",
            "Pairs of address and credential that are kept per class of routes.",
        ),
        flag(
            "front-door.write.failures-per-minute",
            "front_door.write.failures_per_minute",
            "Requests of an address to remote write and OTLP that may fail at once, and per \
             minute; 0 is no limit.",
        ),
        flag(
            "front-door.write.requests-per-address-per-minute",
            "front_door.write.requests_per_address_per_minute",
            "Requests of an address to remote write and OTLP that are admitted at once, and \
             per minute; 0 is no limit.",
        ),
        flag(
            "front-door.write.requests-per-credential-per-minute",
            "front_door.write.requests_per_credential_per_minute",
            "Requests with one credential, or of an address without one, to remote write \
             and OTLP that are admitted at once, and per minute; 0 is no limit.",
        ),
        flag(
            "front-door.write.shadow",
            "front_door.write.shadow",
            "Limiters of this class that count whom they would refuse, and refuse nobody: \
             failures, address, credential.",
        ),
        flag(
            "front-door.query.failures-per-minute",
            "front_door.query.failures_per_minute",
            "Requests of an address to the query API that may fail at once, and per minute; \
             0 is no limit.",
        ),
        flag(
            "front-door.query.requests-per-address-per-minute",
            "front_door.query.requests_per_address_per_minute",
            "Requests of an address to the query API that are admitted at once, and per \
             minute; 0 is no limit.",
        ),
        flag(
            "front-door.query.requests-per-credential-per-minute",
            "front_door.query.requests_per_credential_per_minute",
            "Requests with one credential, or of an address without one, to the query API \
             that are admitted at once, and per minute; 0 is no limit.",
        ),
        flag(
            "front-door.query.shadow",
            "front_door.query.shadow",
            "Limiters of this class that count whom they would refuse, and refuse nobody: \
             failures, address, credential.",
        ),
        flag(
            "front-door.admin.failures-per-minute",
            "front_door.admin.failures_per_minute",
            "Requests of an address to every other page, /ready and /metrics aside that may \
             fail at once, and per minute; 0 is no limit.",
        ),
        flag(
            "front-door.admin.requests-per-address-per-minute",
            "front_door.admin.requests_per_address_per_minute",
            "Requests of an address to every other page, /ready and /metrics aside that are \
             admitted at once, and per minute; 0 is no limit.",
        ),
        flag(
            "front-door.admin.requests-per-credential-per-minute",
            "front_door.admin.requests_per_credential_per_minute",
            "Requests with one credential, or of an address without one, to every other \
             page, /ready and /metrics aside that are admitted at once, and per minute; 0 \
             is no limit.",
        ),
        flag(
            "front-door.admin.shadow",
            "front_door.admin.shadow",
            "Limiters of this class that count whom they would refuse, and refuse nobody: \
             failures, address, credential.",
        ),
    ],
};
