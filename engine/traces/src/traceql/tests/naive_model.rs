//! Queries over made-up traces, against what they say of each span, or of each pair of spans.

use super::*;

/// Numbers that are the same in each run.
struct Draw(u64);

impl Draw {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    fn one_of<'t>(&mut self, texts: &[&'t str]) -> &'t str {
        texts[self.below(texts.len() as u64) as usize]
    }
}

/// A trace, and of each span, by its id from 1 on, the parent and the number `a`.
struct Made {
    trace: Trace,
    parents: Vec<u64>,
    numbers: Vec<i64>,
}

/// A tree of up to 12 spans, of which each stands below one that came before it.
fn made(draw: &mut Draw) -> Made {
    let (mut parents, mut numbers, mut spans) = (vec![0], vec![0], Vec::new());
    for id in 1..=1 + draw.below(12) {
        let parent = if id == 1 { 0 } else { 1 + draw.below(id - 1) };
        let number = draw.below(4) as i64 - 1;
        let mut span = span(id, parent, "s", 2, id as i64, id as i64 + 100);
        span.attributes = Attributes::of([("a", Value::Int(number))]);
        spans.push(span);
        parents.push(parent);
        numbers.push(number);
    }
    Made { trace: assemble([1; 16], spans), parents, numbers }
}

impl Made {
    fn ids(&self) -> std::ops::Range<u64> {
        1..self.parents.len() as u64
    }

    /// The spans that a query finds, by their ids.
    fn found(&self, text: &str) -> Vec<u64> {
        let query = Query::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
        let mut found = ids(&self.trace, query.find(&self.trace));
        found.sort_unstable();
        found
    }

    fn number(&self, id: u64) -> i64 {
        self.numbers[id as usize]
    }

    fn is_below(&self, id: u64, above: u64) -> bool {
        let mut at = self.parents[id as usize];
        while at != 0 && at != above {
            at = self.parents[at as usize];
        }
        at == above && above != 0
    }

    /// Whether the right span lies so to the left one.
    fn lies(&self, sign: &str, left: u64, right: u64) -> bool {
        let parent = |id: u64| self.parents[id as usize];
        match sign {
            ">>" => self.is_below(right, left),
            ">" => parent(right) == left,
            "<<" => self.is_below(left, right),
            "<" => parent(left) == right,
            "~" => left != right && parent(left) != 0 && parent(left) == parent(right),
            other => panic!("{other}"),
        }
    }
}

/// As in Tempo (`block_traceql.go`: `SiblingOf`), where each root has -1 as its parent, and who lost it has 0.
#[test]
fn roots_lie_beside_each_other() {
    let trace = |parents: &[u64]| {
        let spans = parents.iter().zip(1_u64..).map(|(parent, id)| span(id, *parent, "s", 2, id as i64, 100));
        assemble([1; 16], spans.collect())
    };
    let check = |parents: &[u64], text: &str, expected: &[u64]| {
        let query = Query::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
        let trace = trace(parents);
        assert_eq!(ids(&trace, query.find(&trace)), expected, "{text} over {parents:?}");
    };
    check(&[0, 0, 1], "{ name = `op1` } ~ {}", &[2]);
    check(&[0, 0, 1], "{} ~ {}", &[1, 2]);
    check(&[0, 0, 1], "{ name = `op1` } !~ {}", &[1, 3]);
    check(&[0, 0, 1], "{ name = `op1` } &~ { name = `op2` }", &[1, 2]);
    check(&[0, 1], "{} ~ {}", &[]);
    // Of neither is known whose child it is.
    check(&[9, 8, 0], "{} ~ {}", &[]);
}

#[test]
fn relations_are_those_of_each_pair() {
    let mut draw = Draw(11);
    for round in 0..400 {
        let made = made(&mut draw);
        let (left, right) = (draw.below(4) as i64 - 1, draw.below(4) as i64 - 1);
        let lefts: Vec<u64> = made.ids().filter(|&id| made.number(id) == left).collect();
        let rights: Vec<u64> = made.ids().filter(|&id| made.number(id) >= right).collect();
        for sign in [">>", ">", "<<", "<", "~"] {
            let lies = |left: u64, right: u64| made.lies(sign, left, right);
            let lies_to_any = |&right: &u64| lefts.iter().any(|&left| lies(left, right));
            let plain: Vec<u64> = rights.iter().copied().filter(lies_to_any).collect();
            let negated: Vec<u64> = rights.iter().copied().filter(|right| !lies_to_any(right)).collect();
            let has_any = |&left: &u64| rights.iter().any(|&right| lies(left, right));
            let mut both: Vec<u64> = lefts.iter().copied().filter(has_any).chain(plain.iter().copied()).collect();
            both.sort_unstable();
            both.dedup();
            for (prefix, expected) in [("", plain), ("!", negated), ("&", both)] {
                let text = format!("{{ .a = {left} }} {prefix}{sign} {{ .a >= {right} }}");
                assert_eq!(
                    made.found(&text),
                    expected,
                    "round {round}: {text} over {:?} {:?}",
                    made.parents,
                    made.numbers
                );
            }
        }
        let either = |id: &u64| lefts.contains(id) || rights.contains(id);
        let all: Vec<u64> = made.ids().filter(either).collect();
        let and = if lefts.is_empty() || rights.is_empty() { vec![] } else { all.clone() };
        assert_eq!(made.found(&format!("{{ .a = {left} }} && {{ .a >= {right} }}")), and, "round {round}");
        assert_eq!(made.found(&format!("{{ .a = {left} }} || {{ .a >= {right} }}")), all, "round {round}");
    }
}

/// A chain of relations is read from the left; parentheses change that.
#[test]
fn relations_follow_each_other() {
    let mut draw = Draw(12);
    for round in 0..200 {
        let made = made(&mut draw);
        let of = |number: i64| made.ids().filter(|&id| made.number(id) == number).collect::<Vec<_>>();
        let (first, second, third) = (of(-1), of(0), of(1));
        let below = |left: &[u64], right: &[u64]| {
            let is_below = |&id: &u64| left.iter().any(|&above| made.is_below(id, above));
            right.iter().copied().filter(is_below).collect::<Vec<_>>()
        };
        let from_left = below(&below(&first, &second), &third);
        let text = "{ .a = -1 } >> { .a = 0 } >> { .a = 1 }";
        assert_eq!(made.found(text), from_left, "round {round}: {:?} {:?}", made.parents, made.numbers);
        let from_right = below(&first, &below(&second, &third));
        let text = "{ .a = -1 } >> ({ .a = 0 } >> { .a = 1 })";
        assert_eq!(made.found(text), from_right, "round {round}: {:?} {:?}", made.parents, made.numbers);
    }
}

type Holds = Box<dyn Fn(i64) -> bool>;
type Gives = Box<dyn Fn(i64) -> i64>;

/// Arithmetic of whole numbers, in parentheses wherever that could matter.
fn term(draw: &mut Draw, depth: u32) -> (String, Gives) {
    if depth == 0 || draw.below(3) == 0 {
        if draw.below(2) == 0 {
            return (".a".to_owned(), Box::new(|a: i64| a));
        }
        let number = draw.below(9) as i64;
        return (number.to_string(), Box::new(move |_: i64| number));
    }
    let ((left, of_left), (right, of_right)) = (term(draw, depth - 1), term(draw, depth - 1));
    match draw.one_of(&["+", "-", "*"]) {
        "+" => (format!("({left} + {right})"), Box::new(move |a: i64| of_left(a) + of_right(a))),
        "-" => (format!("({left} - {right})"), Box::new(move |a: i64| of_left(a) - of_right(a))),
        _ => (format!("({left} * {right})"), Box::new(move |a: i64| of_left(a) * of_right(a))),
    }
}

fn condition(draw: &mut Draw, depth: u32) -> (String, Holds) {
    if depth == 0 || draw.below(4) == 0 {
        let ((left, of_left), (right, of_right)) = (term(draw, 2), term(draw, 2));
        let sign = draw.one_of(&["=", "!=", "<", "<=", ">", ">="]);
        let holds: fn(i64, i64) -> bool = match sign {
            "=" => |left, right| left == right,
            "!=" => |left, right| left != right,
            "<" => |left, right| left < right,
            "<=" => |left, right| left <= right,
            ">" => |left, right| left > right,
            _ => |left, right| left >= right,
        };
        return (format!("{left} {sign} {right}"), Box::new(move |a: i64| holds(of_left(a), of_right(a))));
    }
    let (left, of_left) = condition(draw, depth - 1);
    match draw.below(4) {
        0 => (format!("!({left})"), Box::new(move |a: i64| !of_left(a))),
        1 => (format!("({left}) = false"), Box::new(move |a: i64| !of_left(a))),
        sign => {
            let (right, of_right) = condition(draw, depth - 1);
            if sign == 2 {
                (format!("({left}) && ({right})"), Box::new(move |a: i64| of_left(a) && of_right(a)))
            } else {
                (format!("({left}) || ({right})"), Box::new(move |a: i64| of_left(a) || of_right(a)))
            }
        }
    }
}

#[test]
fn conditions_are_worked_out_for_each_span() {
    let mut draw = Draw(13);
    for round in 0..600 {
        let made = made(&mut draw);
        let (text, holds) = condition(&mut draw, 3);
        let expected: Vec<u64> = made.ids().filter(|&id| holds(made.number(id))).collect();
        assert_eq!(made.found(&format!("{{ {text} }}")), expected, "round {round}: {text} over {:?}", made.numbers);
        // What is filtered twice is filtered once, whichever place it stands in.
        let (more, is_more) = condition(&mut draw, 1);
        let both: Vec<u64> = expected.iter().copied().filter(|&id| is_more(made.number(id))).collect();
        assert_eq!(made.found(&format!("{{ {text} }} | {{ {more} }}")), both, "round {round}: {text} | {more}");
    }
}

#[test]
fn aggregates_are_over_all_that_was_found() {
    let mut draw = Draw(14);
    for round in 0..400 {
        let made = made(&mut draw);
        let least = draw.below(4) as i64 - 1;
        let found: Vec<u64> = made.ids().filter(|&id| made.number(id) >= least).collect();
        let numbers: Vec<i64> = found.iter().map(|&id| made.number(id)).collect();
        let sum: i64 = numbers.iter().sum();
        for (call, value) in [
            ("count()", Some(numbers.len() as i64)),
            ("sum(.a)", Some(sum)),
            ("min(.a)", numbers.iter().copied().min()),
            ("max(.a)", numbers.iter().copied().max()),
            ("count() * 2 - sum(.a)", Some(2 * numbers.len() as i64 - sum)),
        ] {
            // Of no span there is no set, whatever it would be compared with.
            let Some(value) = value.filter(|_| !found.is_empty()) else {
                assert_eq!(made.found(&format!("{{ .a >= {least} }} | {call} >= -100")), Vec::<u64>::new());
                continue;
            };
            for (sign, holds) in [("=", true), ("!=", false), (">", false), ("<", false), (">=", true), ("<=", true)] {
                let text = format!("{{ .a >= {least} }} | {call} {sign} {value}");
                let expected = if holds { found.clone() } else { vec![] };
                assert_eq!(made.found(&text), expected, "round {round}: {text} over {:?}", made.numbers);
            }
        }
    }
}

#[test]
fn groups_are_of_equal_values() {
    let mut draw = Draw(15);
    for round in 0..200 {
        let made = made(&mut draw);
        let least = 1 + draw.below(3);
        let count = |number: i64| made.ids().filter(|&id| made.number(id) == number).count() as u64;
        let expected: Vec<u64> = made.ids().filter(|&id| count(made.number(id)) >= least).collect();
        let text = format!("{{}} | by(.a) | count() >= {least}");
        assert_eq!(made.found(&text), expected, "round {round}: {text} over {:?}", made.numbers);
        // Put together again they are one set, which is there if any of them is.
        let whole = if expected.len() as u64 > 2 { expected } else { vec![] };
        assert_eq!(
            made.found(&format!("{text} | coalesce() | count() > 2")),
            whole,
            "round {round}: {:?}",
            made.numbers
        );
    }
}
