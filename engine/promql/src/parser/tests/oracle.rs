//! Another parser as oracle: what it accepts and writes back, ours must accept and write back alike.

use super::corpus::expressions;
use crate::parser::parse;
use crate::print::print;

#[test]
fn agrees_with_promql_parser() {
    let mut agreed = 0;
    for query in expressions() {
        let Ok(theirs) = promql_parser::parser::parse(&query) else { continue };
        // The oracle takes escaped bytes for characters, drops unary plus, and writes durations as numbers.
        if query.contains("\\x") || query.starts_with('+') || query.contains(", 1h)") {
            continue;
        }
        let ours = print(&parse(&query).expect(&query));
        let theirs = theirs.to_string();
        let theirs = parse(&theirs).map_or_else(|e| panic!("{query}\n{theirs}\n{e}"), |e| print(&e));
        assert_eq!(ours, theirs, "{query}");
        agreed += 1;
    }
    assert!(agreed == 0 || agreed > 500, "{agreed}");
}
