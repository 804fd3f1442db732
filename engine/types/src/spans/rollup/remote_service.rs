//! Determines from the attributes of a span which remote service it calls, and by which protocol.

use std::borrow::Cow;

use crate::spans::{Attributes, RawAttribute, Value};

/// The kind of the other end of an edge of the service graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum EdgeKind {
    /// A service that sends spans itself.
    Service,
    /// A database that sends none.
    Database,
    /// A queue that sends none.
    Queue,
    /// Something else that sends none.
    External,
    /// Somebody calls a service from outside; `peer` is empty.
    User,
}

impl EdgeKind {
    /// Reads its number.
    pub fn of(number: u8) -> Option<Self> {
        [Self::Service, Self::Database, Self::Queue, Self::External, Self::User]
            .into_iter()
            .find(|k| *k as u8 == number)
    }
}

/// Names of the protocols of calls, by number; none has no name.
pub const PROTOCOLS: [&str; 5] = ["", "db", "messaging", "rpc", "http"];

/// Tags that name a peer, the best first.
const ADDRESSES: [&str; 5] =
    ["peer.service", "service.peer.name", "server.address", "net.peer.name", "network.peer.address"];

/// Tags that name a database, what holds its name first.
const DATABASES: [&str; 2] = ["db.namespace", "db.name"];
/// Tags that name the software of a database.
const SYSTEMS: [&str; 2] = ["db.system.name", "db.system"];
/// Tags that name a queue, and its software.
const QUEUES: [&str; 2] = ["messaging.destination.name", "messaging.system"];

/// Gives the number of a span's protocol ([`PROTOCOLS`]), and of a caller the other side's name and sort.
pub fn remote_of<'a>(attributes: &'a [u8], caller: bool) -> (u8, Option<(Cow<'a, str>, EdgeKind)>) {
    let mut protocol = 0u8;
    let mut addresses: [Option<RawAttribute<'a>>; 5] = [None; 5];
    let (mut databases, mut systems, mut queues) = ([None; 2], [None; 2], [None; 2]);
    for raw in Attributes::raw(attributes) {
        let number = match raw.key {
            [b'd', b'b', b'.', ..] => {
                if caller {
                    note(raw, &DATABASES, &mut databases);
                    note(raw, &SYSTEMS, &mut systems);
                }
                1
            }
            [b'm', b'e', b's', b's', b'a', b'g', b'i', b'n', b'g', b'.', ..] => {
                if caller {
                    note(raw, &QUEUES, &mut queues);
                }
                2
            }
            [b'r', b'p', b'c', b'.', ..] => 3,
            [b'h', b't', b't', b'p', b'.', ..] | [b'u', b'r', b'l', b'.', ..] => 4,
            [b'p' | b's' | b'n', b'e', ..] if caller => {
                note(raw, &ADDRESSES, &mut addresses);
                continue;
            }
            _ => continue,
        };
        protocol = if protocol == 0 { number } else { protocol.min(number) };
    }
    if !caller {
        return (protocol, None);
    }
    let first = |all: &[Option<RawAttribute<'a>>]| all.iter().find_map(|&raw| text(raw));
    let remote = match protocol {
        1 => text(addresses[0])
            .or_else(|| first(&databases))
            .or_else(|| first(&addresses))
            .or_else(|| first(&systems))
            .map(|name| (name, EdgeKind::Database)),
        2 => text(queues[0])
            .or_else(|| first(&addresses))
            .or_else(|| text(queues[1]))
            .map(|name| (name, EdgeKind::Queue)),
        _ => first(&addresses).map(|name| (name, EdgeKind::External)),
    };
    (protocol, remote)
}

fn text(raw: Option<RawAttribute<'_>>) -> Option<Cow<'_, str>> {
    raw.and_then(RawAttribute::value).map(Value::text).filter(|text| !text.is_empty())
}

/// Keeps an attribute at the place of its key.
fn note<'a, const N: usize>(raw: RawAttribute<'a>, keys: &[&str; N], found: &mut [Option<RawAttribute<'a>>; N]) {
    if let Some(at) = keys.iter().position(|key| key.as_bytes() == raw.key) {
        found[at].get_or_insert(raw);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Protocol, name and sort of the other side, of attributes that are texts.
    fn told(pairs: &[(&str, &str)], caller: bool) -> (u8, Option<(String, EdgeKind)>) {
        let attributes = Attributes::of(pairs.iter().map(|(key, value)| (*key, Value::Text(value))));
        let (protocol, remote) = remote_of(attributes.bytes(), caller);
        (protocol, remote.map(|(name, kind)| (name.into_owned(), kind)))
    }

    #[test]
    fn who_is_called() {
        use EdgeKind::{Database, External, Queue};
        let check = |pairs: &[(&str, &str)], protocol: u8, name: &str, kind: EdgeKind| {
            assert_eq!(told(pairs, true), (protocol, Some((name.to_owned(), kind))), "{pairs:?}");
            assert_eq!(told(pairs, false), (protocol, None), "who is called names nobody: {pairs:?}");
        };
        check(&[("db.system", "mysql")], 1, "mysql", Database);
        check(&[("db.system", "mysql"), ("server.address", "h1")], 1, "h1", Database);
        check(&[("db.system", "mysql"), ("server.address", "h1"), ("db.name", "shop")], 1, "shop", Database);
        check(&[("db.name", "old"), ("db.namespace", "new")], 1, "new", Database);
        check(&[("db.namespace", "shop"), ("peer.service", "orders-db")], 1, "orders-db", Database);
        check(&[("messaging.system", "kafka")], 2, "kafka", Queue);
        check(&[("messaging.system", "kafka"), ("net.peer.name", "h1")], 2, "h1", Queue);
        check(&[("messaging.destination.name", "q"), ("peer.service", "x")], 2, "q", Queue);
        check(&[("http.method", "GET"), ("server.address", "h1")], 4, "h1", External);
        check(&[("rpc.system", "grpc"), ("network.peer.address", "10.0.0.1")], 3, "10.0.0.1", External);
        check(&[("peer.service", "a"), ("server.address", "b")], 0, "a", External);
        // Of several protocols the least one counts.
        check(&[("http.url", "x"), ("db.system", "es")], 1, "es", Database);
    }

    #[test]
    fn what_names_nobody() {
        for (pairs, protocol) in [
            (&[("http.method", "GET"), ("url.path", "/")][..], 4),
            (&[], 0),
            (&[("db.operation", "SELECT")], 1),
            (&[("server.address", "")], 0),
            (&[("dbx", "1"), ("httpx", "1"), ("personal", "x"), ("messaging", "x")], 0),
        ] {
            assert_eq!(told(pairs, true), (protocol, None), "{pairs:?}");
        }
        // An empty name is none, and the next one counts.
        let next = told(&[("peer.service", ""), ("server.address", "h1")], true);
        assert_eq!(next, (0, Some(("h1".to_owned(), EdgeKind::External))));
        let number = Attributes::of([("server.address", Value::Int(7))]);
        assert_eq!(remote_of(number.bytes(), true), (0, Some((Cow::Borrowed("7"), EdgeKind::External))));
    }

    #[test]
    fn sorts_by_number() {
        for kind in [EdgeKind::Service, EdgeKind::Database, EdgeKind::Queue, EdgeKind::External, EdgeKind::User] {
            assert_eq!(EdgeKind::of(kind as u8), Some(kind));
        }
        assert_eq!([5, u8::MAX].map(EdgeKind::of), [None, None]);
    }
}
