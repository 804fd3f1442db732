//! Attributes by the newest names of the semantic conventions, whatever the sender calls them (`olap-models.md` 4.2).
//!
//! A column `"@http.route"` is the attribute of the span, else of its resource; `"res@host.name"` that of the resource alone.
//! Older names stand in for newer ones, and are brought into their form. What the conventions have as a number is one here, and
//! NULL where a sender wrote something else: no row can make a statement fail.

use std::borrow::Cow;

use quiver_types::spans::Place;

use crate::tables::cells::CellKind;

/// Numbers of the span kinds that call others.
const CALLING: &[u8] = &[3, 4];
/// Numbers of the span kinds that are called.
const CALLED: &[u8] = &[2, 5];
/// Number of the span kind that serves requests.
const SERVER: &[u8] = &[2];

/// How the value of an older attribute is converted to that of the newer one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// Unchanged.
    Same,
    /// The host of `host:port`.
    Host,
    /// A path without its query.
    Path,
    /// Renamed database systems.
    System,
    /// `publish` became `send`.
    Send,
    /// gRPC status numbers become names.
    Status,
    /// Appended to the value of another attribute behind a separator, unless it contains the separator already.
    Behind(&'static str, &'static str),
}

/// An older attribute that is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Older {
    pub(super) key: &'static str,
    pub(super) form: Form,
    /// Span kinds for which it is read; empty for all.
    pub(super) kinds: &'static [u8],
}

const fn of(key: &'static str) -> Older {
    Older { key, form: Form::Same, kinds: &[] }
}

const fn formed(key: &'static str, form: Form) -> Older {
    Older { key, form, kinds: &[] }
}

impl Older {
    const fn by(self, kinds: &'static [u8]) -> Self {
        Self { kinds, ..self }
    }
}

/// For each attribute its older names in the order in which they are tried. The attribute itself comes first unless
/// it is listed.
pub(super) const OLDER: &[(&str, &[Older])] = &[
    ("http.request.method", &[of("http.method")]),
    ("http.response.status_code", &[of("http.status_code")]),
    ("http.request.body.size", &[of("http.request_content_length")]),
    ("http.response.body.size", &[of("http.response_content_length")]),
    ("http.request.resend_count", &[of("http.resend_count")]),
    ("url.full", &[of("http.url")]),
    ("url.path", &[formed("http.target", Form::Path)]),
    ("url.scheme", &[of("http.scheme")]),
    (
        "server.address",
        &[
            formed("net.peer.name", Form::Host).by(CALLING),
            formed("net.peer.ip", Form::Host).by(CALLING),
            formed("net.host.name", Form::Host).by(CALLED),
            formed("http.host", Form::Host).by(CALLED),
        ],
    ),
    ("server.port", &[of("net.peer.port").by(CALLING), of("net.host.port").by(CALLED)]),
    ("client.address", &[of("http.client_ip"), of("net.peer.ip").by(SERVER)]),
    ("network.peer.address", &[of("net.sock.peer.addr"), of("net.peer.ip")]),
    ("network.protocol.version", &[of("net.protocol.version"), of("http.flavor")]),
    ("user_agent.original", &[of("http.user_agent")]),
    ("db.system.name", &[formed("db.system", Form::System)]),
    (
        "db.namespace",
        &[of("db.name"), of("db.redis.database_index"), of("postgresql.database.name"), of("sqlserver.database.name")],
    ),
    (
        "db.collection.name",
        &[of("db.sql.table"), of("db.mongodb.collection"), of("db.cassandra.table"), of("postgresql.table.name")],
    ),
    ("db.operation.name", &[of("db.operation")]),
    ("db.query.text", &[of("db.statement")]),
    ("rpc.system.name", &[of("rpc.system")]),
    ("rpc.method", &[formed("rpc.method", Form::Behind("rpc.service", "/"))]),
    (
        "rpc.status_code",
        &[
            formed("rpc.status_code", Form::Status),
            formed("rpc.response.status_code", Form::Status),
            formed("rpc.grpc.status_code", Form::Status),
            of("rpc.connect_rpc.error_code"),
        ],
    ),
    (
        "messaging.operation.type",
        &[formed("messaging.operation.type", Form::Send), formed("messaging.operation", Form::Send)],
    ),
    ("messaging.destination.name", &[of("messaging.destination")]),
    ("messaging.destination.partition.id", &[of("messaging.kafka.destination.partition")]),
    ("messaging.destination.subscription.name", &[of("messaging.servicebus.destination.subscription_name")]),
    (
        "messaging.consumer.group.name",
        &[
            of("messaging.kafka.consumer.group"),
            of("messaging.eventhubs.consumer.group"),
            of("messaging.rocketmq.client_group"),
        ],
    ),
    ("messaging.message.body.size", &[of("messaging.message.payload_size_bytes")]),
    ("service.peer.name", &[of("peer.service")]),
    ("deployment.environment.name", &[of("deployment.environment")]),
    ("code.function.name", &[formed("code.function", Form::Behind("code.namespace", "."))]),
    ("code.file.path", &[of("code.filepath")]),
    ("code.line.number", &[of("code.lineno")]),
    ("container.runtime.name", &[of("container.runtime")]),
    ("container.image.tags", &[of("container.image.tag")]),
    ("feature_flag.result.variant", &[of("feature_flag.variant")]),
    ("feature_flag.provider.name", &[of("feature_flag.provider_name")]),
    ("feature_flag.result.reason", &[of("feature_flag.evaluation.reason")]),
    ("vcs.ref.head.name", &[of("vcs.repository.ref.name")]),
    ("vcs.ref.head.revision", &[of("vcs.repository.ref.revision")]),
    ("vcs.change.id", &[of("vcs.repository.change.id")]),
];

/// Attributes that are integers by the conventions.
const INTEGERS: &[&str] = &[
    "code.line.number",
    "db.operation.batch.size",
    "db.response.returned_rows",
    "faas.max_memory",
    "http.request.body.size",
    "http.request.resend_count",
    "http.response.body.size",
    "http.response.status_code",
    "messaging.batch.message_count",
    "messaging.gcp_pubsub.message.delivery_attempt",
    "messaging.message.body.size",
    "messaging.servicebus.message.delivery_count",
    "process.pid",
    "server.port",
];

/// Renamed database systems, old and new, from the conventions' migration guide.
const SYSTEMS: &[(&str, &str)] = &[
    ("adabas", "softwareag.adabas"),
    ("cache", "intersystems.cache"),
    ("cosmosdb", "azure.cosmosdb"),
    ("db2", "ibm.db2"),
    ("dynamodb", "aws.dynamodb"),
    ("firebird", "firebirdsql"),
    ("h2", "h2database"),
    ("hanadb", "sap.hana"),
    ("informix", "ibm.informix"),
    ("ingres", "actian.ingres"),
    ("maxdb", "sap.maxdb"),
    ("mssql", "microsoft.sql_server"),
    ("netezza", "ibm.netezza"),
    ("oracle", "oracle.db"),
    ("redshift", "aws.redshift"),
    ("spanner", "gcp.spanner"),
];

/// Names of the gRPC status numbers.
const STATUSES: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];

impl Form {
    /// Converts a value to the newer form. `before` is the value of the attribute that it is appended to.
    pub(super) fn apply<'v>(self, value: &'v str, before: &str) -> Cow<'v, str> {
        match self {
            Self::Same => value.into(),
            Self::Host => host(value).into(),
            Self::Path => value.split(['?', '#']).next().unwrap_or(value).into(),
            Self::System => SYSTEMS.iter().find(|(old, _)| *old == value).map_or(value, |(_, new)| *new).into(),
            Self::Send => if value == "publish" { "send" } else { value }.into(),
            Self::Status => {
                let named = value.parse::<usize>().ok().and_then(|number| STATUSES.get(number));
                named.copied().unwrap_or(value).into()
            }
            Self::Behind(_, separator) if before.is_empty() || value.contains(separator) => value.into(),
            Self::Behind(_, separator) => format!("{before}{separator}{value}").into(),
        }
    }
}

/// The host of `host:port`, `[v6]:port`, or of a host alone.
fn host(text: &str) -> &str {
    if let Some(inner) = text.strip_prefix('[') {
        return inner.split(']').next().unwrap_or(inner);
    }
    match text.split_once(':') {
        // An IPv6 address contains more than one colon.
        Some((host, port)) if !port.contains(':') => host,
        _ => text,
    }
}

/// An attribute that a column reads: its place, key and form, and the span kinds for which it is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) place: Place,
    pub(super) key: String,
    pub(super) form: Form,
    pub(super) kinds: &'static [u8],
}

/// The attribute that a column name refers to, and whether it is read from the resource alone.
fn key_of(column: &str) -> Option<(&str, bool)> {
    let own = column.strip_prefix('@').map(|key| (key, false));
    own.or_else(|| column.strip_prefix("res@").map(|key| (key, true))).filter(|(key, _)| !key.is_empty())
}

/// The attributes that a column reads, in order; `None` if the name is none by the conventions.
pub(super) fn steps(column: &str) -> Option<Vec<Step>> {
    let (key, of_resource) = key_of(column)?;
    let older = OLDER.iter().find(|(name, _)| *name == key).map_or(&[][..], |(_, older)| older);
    let first = (!older.iter().any(|o| o.key == key)).then_some((key, Form::Same, &[][..]));
    let names: Vec<_> = first.into_iter().chain(older.iter().map(|o| (o.key, o.form, o.kinds))).collect();
    let places: &[Place] = if of_resource { &[Place::Resource] } else { &[Place::Span, Place::Resource] };
    let step =
        |place, (key, form, kinds): (&str, Form, &'static [u8])| Step { place, key: key.to_owned(), form, kinds };
    Some(places.iter().flat_map(|place| names.iter().map(move |name| step(*place, *name))).collect())
}

/// The kind of values in a column by the conventions; `None` if the name is none.
pub(super) fn kind_of(column: &str) -> Option<CellKind> {
    let (key, _) = key_of(column)?;
    Some(if INTEGERS.contains(&key) { CellKind::Int } else { CellKind::Text })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apply(key: &str, old: &str, value: &str, before: &str) -> String {
        let steps = steps(&format!("@{key}")).unwrap();
        let step = steps.iter().find(|s| s.key == old).unwrap();
        step.form.apply(value, before).into_owned()
    }

    #[test]
    fn each_older_name_is_read() {
        for (name, older) in OLDER {
            let steps = steps(&format!("@{name}")).unwrap();
            for old in *older {
                let found = steps.iter().filter(|s| s.key == old.key).map(|s| s.place).collect::<Vec<_>>();
                assert_eq!(found, [Place::Span, Place::Resource], "{name} reads {}", old.key);
            }
            assert!(steps[0].key == *name || older[0].key == *name || *name == "rpc.method", "{name}");
        }
        let one = steps("res@host.name").unwrap();
        assert_eq!(one, [Step { place: Place::Resource, key: "host.name".into(), form: Form::Same, kinds: &[] }]);
        assert_eq!((steps("host.name"), steps("@")), (None, None));
    }

    #[test]
    fn forms() {
        let check = |key, old, value, before, expected| {
            assert_eq!(apply(key, old, value, before), expected, "{key} of {old}");
        };
        check("server.address", "http.host", "shop.example:8080", "", "shop.example");
        check("server.address", "net.peer.name", "[::1]:80", "", "::1");
        check("server.address", "net.peer.ip", "fe80::1", "", "fe80::1");
        check("url.path", "http.target", "/a/b?c=d#e", "", "/a/b");
        check("db.system.name", "db.system", "mssql", "", "microsoft.sql_server");
        check("db.system.name", "db.system", "mysql", "", "mysql");
        check("rpc.method", "rpc.method", "Get", "shop.Cart", "shop.Cart/Get");
        check("rpc.method", "rpc.method", "shop.Cart/Get", "shop.Cart", "shop.Cart/Get");
        check("rpc.method", "rpc.method", "Get", "", "Get");
        check("rpc.status_code", "rpc.grpc.status_code", "14", "", "UNAVAILABLE");
        check("rpc.status_code", "rpc.grpc.status_code", "99", "", "99");
        check("messaging.operation.type", "messaging.operation", "publish", "", "send");
        check("code.function.name", "code.function", "run", "shop.Cart", "shop.Cart.run");
    }

    #[test]
    fn numbers() {
        assert_eq!(kind_of("@http.response.status_code"), Some(CellKind::Int));
        assert_eq!(kind_of("@http.route"), Some(CellKind::Text));
        assert_eq!(kind_of("attributes.http.route"), None);
    }

    #[test]
    fn hosts_and_paths_of_any_text() {
        let cases: [(Form, &[(&str, &str)]); 4] = [
            (
                Form::Host,
                &[
                    ("a", "a"),
                    ("a:80", "a"),
                    ("[::1]", "::1"),
                    ("[fe80::1]:443", "fe80::1"),
                    ("fe80::1", "fe80::1"),
                    ("[", ""),
                    (":80", ""),
                    ("", ""),
                    ("ü:1", "ü"),
                ],
            ),
            (Form::Path, &[("/a", "/a"), ("/a#b?c", "/a"), ("?", ""), ("", ""), ("/ü?x", "/ü")]),
            (Form::Send, &[("publish", "send"), ("Publish", "Publish"), ("receive", "receive"), ("", "")]),
            (
                Form::Status,
                &[
                    ("0", "OK"),
                    ("16", "UNAUTHENTICATED"),
                    ("17", "17"),
                    ("-1", "-1"),
                    ("NOT_FOUND", "NOT_FOUND"),
                    ("", ""),
                ],
            ),
        ];
        for (form, values) in cases {
            for (value, expected) in values {
                assert_eq!(form.apply(value, "before"), *expected, "{form:?} of {value:?}");
            }
        }
        let behind = Form::Behind("code.namespace", ".");
        for (value, before, expected) in
            [("run", "a.B", "a.B.run"), ("a.run", "b", "a.run"), ("run", "", "run"), ("", "a", "a.")]
        {
            assert_eq!(behind.apply(value, before), expected, "{value:?} behind {before:?}");
        }
    }

    #[test]
    fn newer_names_come_first_in_spans_and_then_in_resources() {
        let read = |column: &str| {
            steps(column).map(|steps| steps.iter().map(|s| (s.place, s.key.clone())).collect::<Vec<_>>())
        };
        let of = |place, keys: &[&str]| keys.iter().map(|key| (place, (*key).to_owned())).collect::<Vec<_>>();
        let keys = ["http.request.method", "http.method"];
        let both = [of(Place::Span, &keys), of(Place::Resource, &keys)].concat();
        assert_eq!(read("@http.request.method"), Some(both));
        assert_eq!(read("res@http.request.method"), Some(of(Place::Resource, &keys)));
        assert_eq!(
            read("@rpc.method"),
            Some([of(Place::Span, &["rpc.method"]), of(Place::Resource, &["rpc.method"])].concat())
        );
        assert_eq!(read("@made.up"), Some([of(Place::Span, &["made.up"]), of(Place::Resource, &["made.up"])].concat()));
        for other in ["", "@", "res@", "res", "http.method", "attributes.@a"] {
            assert_eq!((read(other), kind_of(other)), (None, None), "{other}");
        }
    }
}
