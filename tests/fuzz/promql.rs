//! The PromQL parser: accepts everything that the grammar generates, reports positions of errors, and reads back what it
//! prints. Stack and memory stay bounded: the loop runs on a thread as small as the server's.

use quiver_promql::ast::Expr;
use quiver_promql::ast_json::to_json;
use quiver_promql::parser::{parse, parse_selectors};
use quiver_promql::print::{pretty, print};
use quiver_types::ErrorKind;
use rand::RngExt;
use rand::rngs::StdRng;

use crate::drive::Target;
use crate::expression::{any, mutate};

/// A text, and whether the grammar made it.
#[derive(Debug)]
struct Case {
    text: String,
    valid: bool,
}

fn make(random: &mut StdRng) -> Case {
    let text = any(random);
    let valid = random.random_bool(0.4);
    Case { text: if valid { text } else { mutate(&text, random) }, valid }
}

/// Writes an expression back; what is read from that is written alike, on one line and on several.
fn check_written_back(expr: &Expr) {
    let line = print(expr);
    for shown in [&line, &pretty(expr)] {
        let again = parse(shown).unwrap_or_else(|e| panic!("written back as {shown:?}, which is refused: {e}"));
        // As upstream writes it: a signed infinity is no literal to the left of `^`, so one more sign comes with it.
        if !line.contains("Inf ^") {
            assert_eq!(print(&again), line, "written back as {shown:?}");
        }
    }
    to_json(expr).expect("every expression has a tree");
}

fn check(case: &Case) {
    let text = &case.text;
    match parse(text) {
        Ok(expr) => check_written_back(&expr),
        Err(e) if e.kind() == ErrorKind::Execution => {}
        Err(e) => {
            assert!(!case.valid, "{e}");
            assert_eq!(e.kind(), ErrorKind::Invalid);
            let lines: Vec<&str> = text.split('\n').collect();
            let line = lines.get((e.line as usize).wrapping_sub(1));
            let inside = line.is_some_and(|line| (1..=line.len() + 1).contains(&(e.column as usize)));
            assert!(inside || text.is_empty(), "no such place: {e}");
            assert!(
                !e.message.is_empty() && e.message.len() <= 4 * text.len() + 500,
                "{} bytes of error",
                e.message.len()
            );
        }
    }
    let _ = parse_selectors([text.as_str()], None);
}

#[test]
fn expressions() {
    // A node is some 200 bytes, checked, written and read twice; patterns of matchers cost the most.
    let bytes_max = |len: usize| (48 << 20) + 64 * 1024 * len as u64;
    let target = Target { name: "promql", make, size: |case: &Case| case.text.len(), bytes_max };
    assert!(target.run(check) > 0);
}
