//! Remote read: valid requests are decoded unchanged, with time ranges no wider than their hints; invalid ones get a
//! client error.

use quiver_api::fuzz::read_request;
use quiver_types::{ErrorKind, MillisRange};
use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

use crate::drive::Target;
use crate::protobuf::{Field, encode, encode_mutated, int, message, packed, text};

const NAMES: &[&str] = &["__name__", "job", "", "le", "grün"];
const VALUES: &[&str] = &["", "up", "a.*", "(a|b)+", "[0-9]{3}", "\\d+", "(", "a{1000}{1000}", "\\w{50}"];

/// A request and, when nothing is broken, what it asks for.
#[derive(Debug)]
struct Case {
    body: Vec<u8>,
    expected: Option<Vec<(usize, MillisRange)>>,
}

fn make(random: &mut StdRng) -> Case {
    let (mut fields, mut expected): (Vec<Field>, _) = (Vec::new(), Vec::new());
    for _ in 0..random.random_range(0..4) {
        let range = MillisRange::new(random.random_range(-1000..1000), random.random());
        let mut query = vec![int(1, range.min as u64), int(2, range.max as u64)];
        let matchers = random.random_range(0..4);
        for _ in 0..matchers {
            let name = NAMES.choose(random).expect("names");
            // Texts that are no patterns stand behind `=` and `!=` only.
            let (kind, value) = match random.random_range(0..4) {
                kind @ 0..2 => (kind, VALUES.choose(random).expect("values")),
                kind => (kind, VALUES[..6].choose(random).expect("values")),
            };
            query.push(message(3, vec![int(1, kind), text(2, name), text(3, value)]));
        }
        let mut hints = vec![int(1, 15_000), text(2, "rate")];
        let mut inside = range;
        if random.random() {
            let start: i64 = random.random_range(-1000..1000);
            hints.push(int(3, start as u64));
            inside.min = inside.min.max(start);
        }
        if random.random() {
            let end: i64 = random.random_range(-1000..1000);
            hints.push(int(4, end as u64));
            inside.max = inside.max.min(end);
        }
        query.push(message(4, hints));
        fields.push(message(1, query));
        expected.push((matchers, inside));
    }
    fields.push(packed(2, &[1, 0]));
    if random.random_bool(0.3) {
        return Case { body: encode(&fields), expected: Some(expected) };
    }
    let value = VALUES.choose(random).expect("values");
    let matcher = message(3, vec![int(1, random.random_range(0..6)), text(2, "a"), text(3, value)]);
    fields.push(message(1, vec![matcher]));
    Case { body: encode_mutated(fields, random), expected: None }
}

fn check(case: &Case) {
    match (read_request(&case.body), &case.expected) {
        (Ok(got), Some(expected)) => assert_eq!(&got, expected),
        (Ok(_), None) => {}
        (Err(e), None) => {
            assert!(matches!(e.kind, ErrorKind::Invalid | ErrorKind::LimitExceeded), "{e}");
            assert!(e.message.len() < 16 << 10, "a long error");
        }
        (Err(e), Some(_)) => panic!("a valid request: {e}"),
    }
}

#[test]
fn requests() {
    let target = Target {
        name: "remote_read",
        make,
        size: |case: &Case| case.body.len(),
        // Patterns are compiled, to at most 10 MiB together; what that allocates and frees on the way is a multiple.
        bytes_max: |_| 512 << 20,
    };
    assert!(target.run(check) > 0);
}
