//! Who is called and how, as far as a span says it.

use std::borrow::Cow;

use crate::spans::{Attributes, RawAttribute, Value};

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
