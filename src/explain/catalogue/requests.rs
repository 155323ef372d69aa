//! Requests that cannot be read, or that do not say whose they are.

use super::{Entry, Group};

pub(super) const IDENTITY: Group = Group {
    title: "Whose request it is",
    about: "Told before anything of the request is looked at.",
    entries: &[
        Entry {
            id: "tenant-missing",
            texts: &["no org id"],
            status: "401",
            cause: "The request has no `X-Scope-OrgID`, an empty one, or two.",
            effect: "It is refused; senders do not repeat it.",
            cure: "Let the gateway set the header once, or turn off `auth_enabled` where there \
                   is one tenant.",
            metric: "",
            keys: &["auth_enabled"],
        },
        Entry {
            id: "tenant-invalid",
            texts: &[
                "tenant ID '{tenant}' contains unsupported character '{character}'",
                "tenant ID is too long: max {limit#} characters",
                "tenant ID '{tenant}' is not allowed",
                "tenant ID is '.' or '..'",
            ],
            status: "401, 400 or 500, as in Cortex",
            cause: "No tenant can have the name in `X-Scope-OrgID`.",
            effect: "The request is refused.",
            cure: "Use letters, digits and `!-_.*'()`, 150 at most.",
            metric: "",
            keys: &[],
        },
        Entry {
            id: "client-invalid",
            texts: &[
                "client ID is empty",
                "client ID is too long: max {limit#} characters",
                "client ID contains unsupported byte 0x{byte}",
                "client ID starts or ends with a space",
                "the request has more than one client ID",
            ],
            status: "400",
            cause: "The header that names the client holds no name that one can have.",
            effect: "The request is refused, since its budget could not be told.",
            cure: "Let the gateway set `-client-identity.header` once, to 1 to 256 printable \
                   ASCII characters.",
            metric: "",
            keys: &["client_identity.header"],
        },
        Entry {
            id: "stream-signature",
            texts: &[
                "signature not present",
                "signature mismatch",
                "tenant ID mismatch: stream authenticated as {stream\"} but request specifies \
                 {message\"}",
            ],
            status: "Unknown or PermissionDenied over gRPC",
            cause: "A push stream is not signed with a key that is known here, or a message is \
                    for another tenant than its stream.",
            effect: "The stream ends; distributors fall back to calls.",
            cure: "Give distributors and ingesters the same \
                   `-distributor.sign-write-requests-keys`.",
            metric: "",
            keys: &["distributor.sign_write_requests_keys"],
        },
    ],
};

pub(super) const BODIES: Group = Group {
    title: "Requests that cannot be read",
    about: "Senders do not repeat what is answered with 4xx.",
    entries: &[
        Entry {
            id: "message-too-large",
            texts: &[
                "received message larger than max ({bytes#} vs {limit#})",
                "grpc: received message larger than max ({bytes#} vs. {limit#})",
                "grpc: received message after decompression larger than max {limit#}",
                "trying to send message larger than max ({bytes#} vs. {limit#})",
                "message of {bytes#} bytes is too large",
                "decompressed data is larger than {limit#} bytes",
                "received message holds more than {limit#} values",
                "the labels of the translated message are larger than max ({limit#})",
                "http: request body too large",
            ],
            status: "400 or 413; ResourceExhausted over gRPC",
            cause: "The message is larger than it may be, packed or unpacked.",
            effect: "It is refused and not repeated.",
            cure: "Send smaller requests (`max_samples_per_send`), or raise the limit on every \
                   hop.",
            metric: "",
            keys: &["distributor.max_recv_msg_size", "server.grpc_server_max_recv_msg_size"],
        },
        Entry {
            id: "no-room",
            texts: &[
                "too many bytes of requests under way",
                "too many bytes of requests under way: {limit#}",
            ],
            status: "503; Unavailable over gRPC",
            cause: "All requests under way hold as many bytes together as \
                    `-server.max-inflight-bytes` allows.",
            effect: "The request is refused before it is read, and tried again.",
            cure: "Look why requests take long. If memory allows, raise the bound.",
            metric: "freehold_server_refused_requests_total",
            keys: &["server.max_inflight_bytes"],
        },
        Entry {
            id: "body-slow",
            texts: &[
                "the request body did not arrive in time",
                "the message did not arrive in time",
                "the body of the request did not go on within {wait#} ms",
            ],
            status: "408; DeadlineExceeded over gRPC",
            cause: "The sender, or the network, is too slow to deliver the body.",
            effect: "The request is given up.",
            cure: "Look at the sender's network; raise `-server.http-read-timeout` for slow \
                   lines.",
            metric: "",
            keys: &["server.http_server_read_timeout"],
        },
        Entry {
            id: "sender-gone",
            texts: &[
                "context canceled",
                "the request was broken off",
                "the body of the request was broken off",
                "unexpected EOF",
            ],
            status: "499; 400 where the body ends early",
            cause: "The sender hung up, or its body ends before it is complete.",
            effect: "Nothing of the request is used.",
            cure: "A timeout of the sender that is shorter than ours, mostly.",
            metric: "",
            keys: &[],
        },
        Entry {
            id: "compression",
            texts: &[
                "snappy: corrupt input",
                "gzip: invalid data",
                "compressed data is damaged",
                "{encoding} encoding (compression) is not accepted by this server; only snappy is \
                 acceptable",
                "unsupported compression: {encoding}, Supported compression types are \"gzip\" or \
                 '' (no compression)",
                "grpc: Decompressor is not installed for grpc-encoding {name\"}",
                "grpc: compressed flag set with identity or empty encoding",
                "grpc: failed to decompress the message: {encoding}: corrupt input",
                "grpc: failed to compress the answer",
            ],
            status: "400 or 415; Internal or Unimplemented over gRPC",
            cause: "The body is not packed as its headers say, or in a way that is not spoken \
                    here.",
            effect: "The request is refused and not repeated.",
            cure: "Something between changes bodies or headers, or the sender is no remote write.",
            metric: "",
            keys: &[],
        },
        Entry {
            id: "protobuf",
            texts: &[
                "proto: integer overflow",
                "proto: negative length found during unmarshaling",
                "proto: wrong wireType = {wire_type#} for field {field}",
                "proto: {message}: wiretype end group for non-group",
                "proto: {message}: illegal tag {number#} (wire type {tag#})",
                "proto: illegal wireType {wire_type#}",
                "grpc: error unmarshalling request: {error}",
            ],
            status: "400; Internal over gRPC",
            cause: "The body is no write request.",
            effect: "It is refused and not repeated.",
            cure: "The sender speaks something else, or something between changes bodies.",
            metric: "",
            keys: &[],
        },
        Entry {
            id: "content-type",
            texts: &[
                "expected application/x-protobuf as the first (media) part, got {type} \
                 content-type",
                "as per https://www.rfc-editor.org/rfc/rfc9110#parameter expected parameters to \
                 be key-values, got {parameter} in {type} content-type",
                "got {type} content type; unknown type for remote write protobuf message {name}, \
                 supported: prometheus.WriteRequest, io.prometheus.write.v2.Request",
                "io.prometheus.write.v2.Request protobuf message is not accepted by this server; \
                 only accepts prometheus.WriteRequest",
                "{message} protobuf message is not accepted by this server; only accepts {other}",
                "unsupported content type: {type}, supported: [application/json, \
                 application/x-protobuf]",
            ],
            status: "415; 400 for OTLP",
            cause: "The request says that it is something that is not taken here.",
            effect: "It is refused. Prometheus falls back from version 2 to 1 where it is told so.",
            cure: "Set `-distributor.remote-writev2-enabled` for version 2; else set the sender \
                   to remote write.",
            metric: "",
            keys: &["distributor.remote_writev2_enabled"],
        },
        Entry {
            id: "remote-write-v2",
            texts: &[
                "invalid labelRefs length {length#}",
                "labelRefs {name#} (name) = {value#} (value) outside of symbols table (size \
                 {symbols#})",
                "TimeSeries must contain at least one sample or histogram for series {series}",
                "invalid UnitRef {reference#}: exceeds symbols length {symbols#}",
                "invalid HelpRef {reference#}: exceeds symbols length {symbols#}",
            ],
            status: "400",
            cause: "A request of version 2 points to texts that it does not hold, or has a series \
                    without samples.",
            effect: "The whole request is refused.",
            cure: "It is a fault of the sender; version 1 may do meanwhile.",
            metric: "",
            keys: &["distributor.remote_writev2_enabled"],
        },
        Entry {
            id: "otlp",
            texts: &[
                "cannot convert exponential to native histogram. Scale must be >= {least#}, was \
                 {scale#}",
                "label name is empty",
                "normalization for label name {label\"} resulted in invalid name {made\"}",
                "normalization for metric {metric\"} resulted in empty name",
                "normalization for metric {metric\"} resulted in invalid name {made\"}",
                "unsupported exemplar value type: Empty",
                "could not get aggregation temporality for {metric} as it has unsupported metric \
                 type Empty",
                "invalid temporality and type combination for metric {metric}",
                "empty data points. {metric} is dropped",
            ],
            status: "400",
            cause: "Metrics of OpenTelemetry that cannot be turned into series; of delta \
                    temporality, mostly.",
            effect: "What can be translated is taken and the rest told in the log; the request \
                     is refused only where nothing can.",
            cure: "Let the collector send cumulative sums (`cumulativetodelta` the other way \
                   round: `deltatocumulative`), or allow deltas.",
            metric: "",
            keys: &["distributor.otlp.allow_delta_temporality"],
        },
        Entry {
            id: "grpc-frames",
            texts: &[
                "grpc: received unexpected payload format {flag#}",
                "the request has no message",
                "the request has more than one message",
                "unknown service {service}",
                "unknown method {method} for service {service}",
                "malformed method name: {path\"}",
                "received a method {method}, not POST",
                "invalid gRPC request content-type {type\"}",
                "server is shutting down",
            ],
            status: "Internal or Unimplemented over gRPC; Unavailable while it ends",
            cause: "The call is none that is known here: something else than a distributor calls, \
                    or this instance has no such service.",
            effect: "The call fails.",
            cure: "Look whether the port and the target are those that were meant.",
            metric: "",
            keys: &["target"],
        },
        Entry {
            id: "http-head",
            texts: &[
                "400 Bad Request: missing required Host header",
                "400 Bad Request: too many Host headers",
                "unsupported transfer encoding",
                "404 page not found",
            ],
            status: "400, 404 or 501",
            cause: "The head of the request is no sound HTTP, or names a path that this target \
                    does not have.",
            effect: "The request is refused; after an unsound one the connection is closed.",
            cure: "See [pages](pages.md) for what each target serves.",
            metric: "",
            keys: &["target"],
        },
    ],
};
