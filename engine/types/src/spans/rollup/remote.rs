//! Who is called and how, as far as a span says it.

use crate::spans::Attributes;

/// Sort of the other end of an edge.
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

/// Gives the number of a span's protocol ([`PROTOCOLS`]), and of a caller the other side's name and sort.
pub fn remote_of(attributes: &[u8], caller: bool) -> (u8, Option<(String, EdgeKind)>) {
    let mut protocol = 0u8;
    for raw in Attributes::raw(attributes) {
        let number = match raw.key {
            [b'd', b'b', b'.', ..] => 1,
            key if key.starts_with(b"messaging.") => 2,
            [b'r', b'p', b'c', b'.', ..] => 3,
            key if key.starts_with(b"http.") || key.starts_with(b"url.") => 4,
            _ => continue,
        };
        protocol = if protocol == 0 { number } else { protocol.min(number) };
    }
    if !caller {
        return (protocol, None);
    }
    let get = |wanted: &str| -> Option<String> {
        let raw = Attributes::raw(attributes).find(|raw| raw.key == wanted.as_bytes())?;
        raw.value().map(|v| v.text().into_owned()).filter(|t| !t.is_empty())
    };
    let first = |keys: &[&str]| keys.iter().find_map(|key| get(key));
    let remote = match protocol {
        1 => get("peer.service")
            .or_else(|| first(&["db.namespace", "db.name"]))
            .or_else(|| first(&ADDRESSES))
            .or_else(|| first(&["db.system.name", "db.system"]))
            .map(|name| (name, EdgeKind::Database)),
        2 => get("messaging.destination.name")
            .or_else(|| first(&ADDRESSES))
            .or_else(|| get("messaging.system"))
            .map(|name| (name, EdgeKind::Queue)),
        _ => first(&ADDRESSES).map(|name| (name, EdgeKind::External)),
    };
    (protocol, remote)
}
