//! The pure functions of LogsQL: types and order of values, patterns, templates, expressions, unpacking. For any bytes,
//! each target must end, satisfy its properties, and stay within its memory limit.

use quiver_logsql::fuzz;
use rand::RngExt;
use rand::rngs::StdRng;

use crate::drive::Target;

/// Pieces that mean something to one reader or another.
const PIECES: [&str; 64] = [
    "0",
    "1",
    "42",
    "-",
    "+",
    ".",
    "_",
    "e9",
    "0x",
    "ff",
    "inf",
    "NaN",
    "1h",
    "5m3s",
    "µs",
    "KiB",
    "MB",
    "T",
    "Z",
    ":",
    "2025-03-10",
    "T09:46:41",
    ".5Z",
    "+01:00",
    "10.0.0.1",
    "::ffff:",
    "/24",
    "{",
    "}",
    "[",
    "]",
    "\"",
    "'",
    "`",
    "\\",
    "\\u00e9",
    "\\ud83d",
    "\\x41",
    ",",
    "=",
    " ",
    "\n",
    "<",
    ">",
    "<N>",
    "<IP4>",
    "<W>",
    "<a>",
    "<_>",
    "<plain:b>",
    "&lt;",
    "*",
    ".*",
    "(?i)",
    "(?P<x>",
    ")",
    "|",
    "[a-z]+",
    "\\d",
    "$",
    "<165>1 ",
    "Jun  3 12:08:33 ",
    "\u{1b}[1m",
    "б",
];

fn make(random: &mut StdRng) -> Vec<u8> {
    let mut data = Vec::new();
    for _ in 0..random.random_range(0..40) {
        if random.random_bool(0.9) {
            data.extend_from_slice(PIECES[random.random_range(0..PIECES.len())].as_bytes());
        } else {
            data.push(random.random());
        }
    }
    if random.random_bool(0.01) {
        // Deep nesting and long runs.
        data = data.repeat(random.random_range(1..2000));
        data.truncate(100_000);
    }
    data
}

#[test]
fn logsql_values() {
    // Expressions may have a megabyte each, compiled twice; everything else is a few copies of the text.
    let bytes_max = |size: usize| (64 << 20) + 4096 * size as u64;
    let target = Target { name: "logsql values", make, size: Vec::len, bytes_max };
    let cases = target.run(|data| {
        fuzz::values(data);
        fuzz::patterns(data);
        fuzz::unpackers(data);
    });
    assert!(cases > 0);
}
