//! No text makes the parser panic, and whatever it accepts reads the same after being written back.

use proptest::prelude::*;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};

use super::corpus::{check_written_back, expressions};
use crate::ast_json::to_json;
use crate::parser::{parse, parse_selectors};
use crate::print::pretty;

const PARTS: &[&str] = &[
    "foo",
    "bar{a=\"b\"}",
    "sum",
    "by",
    "without",
    "(",
    ")",
    "{",
    "}",
    "[",
    "]",
    "5m",
    "1",
    "0x1f",
    "+",
    "-",
    "*",
    "^",
    "/",
    "%",
    "==",
    "!=",
    "=~",
    "</",
    ">/",
    "bool",
    "on(x)",
    "ignoring",
    "group_left",
    "fill(1)",
    "and",
    "or",
    "unless",
    "offset",
    "@",
    "start()",
    "end",
    "step()",
    "range()",
    "min_of(",
    "max_of",
    "anchored",
    "smoothed",
    ",",
    ":",
    "rate(",
    "abs(",
    "topk(2,",
    "\"x\"",
    "'\\xff'",
    "`",
    "#",
    "\n",
    "NaN",
    "Inf",
    "[5m]",
    "[1h:1m]",
    "{}",
    "_",
];

fn read(text: &str) {
    let _ = parse_selectors([text], None);
    if let Ok(expr) = parse(text) {
        let _ = to_json(&expr);
        let _ = pretty(&expr);
        check_written_back(text, expr);
    }
}

proptest! {
    #[test]
    fn any_text(text in any::<String>()) {
        read(&text);
    }

    #[test]
    fn any_ascii(text in "[ -~\n]{0,40}") {
        read(&text);
    }

    #[test]
    fn any_parts(parts in prop::collection::vec(prop::sample::select(PARTS), 0..12), tight in any::<bool>()) {
        read(&parts.join(if tight { "" } else { " " }));
    }
}

#[test]
fn changed_expressions() {
    let mut random = SmallRng::seed_from_u64(7);
    for query in expressions() {
        for _ in 0..10 {
            let mut chars: Vec<char> = query.chars().collect();
            for _ in 0..random.random_range(1..4) {
                let at = random.random_range(0..=chars.len());
                let part = PARTS.choose(&mut random).expect("there are parts");
                match random.random_range(0..3) {
                    0 => drop(chars.splice(at..at, part.chars())),
                    1 => chars.truncate(at),
                    _ if at < chars.len() => drop(chars.remove(at)),
                    _ => {}
                }
            }
            read(&chars.iter().collect::<String>());
        }
    }
}
