//! Text to [`Query`], straight from its characters.

mod literal;
mod math;
mod metric;
mod query;
mod scalar;
mod term;
mod token;

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use quiver_types::brief_text;
use quiver_types::matcher::{Patterns, WatchedRegex, affordable, compile};
use quiver_types::spans::{AttributeTest, KIND_NAMES, Place, TextTest};
use quiver_types::text::EXACT_INTEGERS_MAX;
use regex::Regex;

use self::literal::Literal;
pub(super) use self::math::numbers;
use self::term::{Node, always_there};
use super::ast::{Check, Expr, Query, Relation, Spanset, Stage, Structure};
use super::error::TraceqlError;
use super::expressions::{Compare, ExprValue, Term};
use super::fields::{Field, Intrinsic, TagName, scope_name};

/// Deepest nesting of parentheses and negations.
const DEPTH_MAX: usize = 64;
/// Most conditions of a query, those of all its parts together.
const CONDITIONS_MAX: usize = 256;
const REGEX_BYTES_MAX: usize = 1024;
/// Most stages of a query, and those of them that group: each may make a set of every span, and of each set again.
const STAGES_MAX: usize = 32;
const GROUPS_MAX: usize = 3;

type Result<T> = std::result::Result<T, TraceqlError>;

impl Query {
    /// Reads a query.
    ///
    /// # Errors
    /// Not TraceQL, or more of it than is supported; the reason names it.
    pub fn parse(text: &str) -> std::result::Result<Self, TraceqlError> {
        query::parse(text)
    }
}

impl TagName {
    /// Reads a name as it stands in conditions; `None`: it is none in this language.
    pub fn parse(text: &str) -> Option<Self> {
        query::field(text).map(Self::from)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Op {
    Number(Compare),
    Matches,
    MatchesNot,
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
    conditions: usize,
    /// Stages so far, those in parentheses among them.
    stages: usize,
    /// How many of these are `by(…)`.
    groups: usize,
    /// Numbers over time that are being read are constants, and no queries.
    only_constants: bool,
    /// Regular expressions so far, which are bounded together, and each compiled once.
    regexes: RefCell<(Patterns, HashMap<String, Regex>)>,
}

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn is_end(&self) -> bool {
        self.at == self.text.len()
    }

    fn error_at(&self, at: usize, reason: impl Into<String>) -> TraceqlError {
        let before = &self.text[..at];
        let line_start = before.rfind('\n').map_or(0, |n| n + 1);
        TraceqlError {
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            reason: brief_text(reason.into()),
        }
    }

    /// Passes blanks, and comments, which go to the end of their line.
    fn blank(&mut self) {
        loop {
            self.at += self.rest().len() - self.rest().trim_start().len();
            if !self.rest().starts_with("//") {
                return;
            }
            self.at += self.rest().find('\n').unwrap_or(self.rest().len());
        }
    }

    /// Takes a sign, and the blanks behind it.
    fn eat(&mut self, sign: &str) -> bool {
        let there = self.rest().starts_with(sign);
        if there {
            self.at += sign.len();
            self.blank();
        }
        there
    }

    fn deeper<T>(&mut self, f: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(self.error_at(self.at, format!("nested deeper than {DEPTH_MAX}")));
        }
        let out = f(self);
        self.depth -= 1;
        out
    }

    // Sets of spans.

    /// Reads what `&&` and `||` join. Neither binds closer than the other, as in Tempo's grammar.
    fn spanset(&mut self) -> Result<Spanset> {
        let mut left = self.spanset_structure(false)?;
        loop {
            let relation = if self.eat("&&") {
                Relation::And
            } else if self.eat("||") {
                Relation::Or
            } else {
                return Ok(left);
            };
            let right = self.spanset_structure(true)?;
            left = Spanset::Both(relation, Box::new(left), Box::new(right));
        }
    }

    fn spanset_structure(&mut self, is_right: bool) -> Result<Spanset> {
        let mut left = self.spanset_one(is_right)?;
        while let Some(relation) = self.structure() {
            let right = self.spanset_one(true)?;
            left = Spanset::Both(relation, Box::new(left), Box::new(right));
        }
        Ok(left)
    }

    fn structure(&mut self) -> Option<Relation> {
        const KINDS: [(&str, Structure); 5] = [
            (">>", Structure::Descendant),
            ("<<", Structure::Ancestor),
            (">", Structure::Child),
            ("<", Structure::Parent),
            ("~", Structure::Sibling),
        ];
        let rest = self.rest();
        for (prefix, negated, union) in [("", false, false), ("!", true, false), ("&", false, true)] {
            let Some(rest) = rest.strip_prefix(prefix) else { continue };
            if let Some((sign, kind)) = KINDS.into_iter().find(|(sign, _)| rest.starts_with(sign)) {
                self.at += prefix.len() + sign.len();
                self.blank();
                return Some(Relation::Structure { kind, negated, union });
            }
        }
        None
    }

    /// Reads one set; right behind a sign it can be nothing else.
    fn spanset_one(&mut self, is_right: bool) -> Result<Spanset> {
        if self.eat("(") {
            return self.deeper(|p| {
                let spans = p.spanset()?;
                let mut inner = Query { spans, stages: Vec::new(), metric: None, exemplars: None };
                while p.eat("|") {
                    let begin = p.at;
                    p.stage(&mut inner)?;
                    if inner.metric.is_some() {
                        return Err(p.error_at(begin, "a function of metrics inside of parentheses is not supported"));
                    }
                }
                p.expect_of(")", ") or |")?;
                let Query { spans, stages, .. } = inner;
                Ok(if stages.is_empty() { spans } else { Spanset::Piped(Box::new(spans), stages) })
            });
        }
        if is_right && !self.rest().starts_with('{') {
            return Err(self.unexpected_for("{ or ("));
        }
        Ok(Spanset::Filter(self.filter()?))
    }

    /// Reads `{ … }`.
    fn filter(&mut self) -> Result<Expr> {
        self.expect("{")?;
        let expr = if self.rest().starts_with('}') { Expr::True } else { self.expr()? };
        self.expect("}")?;
        Ok(expr)
    }

    // Conditions on a span.

    fn expr(&mut self) -> Result<Expr> {
        let begin = self.at;
        let node = self.any()?;
        self.as_condition(node, begin)
    }

    /// Reads what `&&` and `||` join, from left to right: neither binds closer than the other, as in Tempo's grammar.
    /// Of one part it is that part, which need not be a condition.
    fn any(&mut self) -> Result<Node> {
        let begin = self.at;
        let mut left = self.one()?;
        while self.rest().starts_with("&&") || self.rest().starts_with("||") {
            let first = self.as_condition(left, begin)?;
            let is_all = self.eat("&&");
            if !is_all {
                self.eat("||");
            }
            let at = self.at;
            let next = self.one()?;
            let next = self.as_condition(next, at)?;
            left = Node::Condition(match (first, is_all) {
                (Expr::And(parts), true) => Expr::And(with(parts, next)),
                (Expr::Or(parts), false) => Expr::Or(with(parts, next)),
                (first, true) => Expr::And(vec![first, next]),
                (first, false) => Expr::Or(vec![first, next]),
            });
        }
        Ok(left)
    }

    fn one(&mut self) -> Result<Node> {
        let begin = self.at;
        // What is in parentheses is counted there.
        if !self.rest().starts_with('(') {
            self.conditions += 1;
            if self.conditions > CONDITIONS_MAX {
                return Err(self.error_at(self.at, format!("more than {CONDITIONS_MAX} conditions")));
            }
        }
        let mut left = self.side()?;
        while let Some(op) = self.op() {
            let at = self.at;
            // Each negation of one is nested deeper.
            if matches!(left, Node::Condition(_)) {
                self.count_part(at)?;
            }
            let right = self.side()?;
            left = Node::Condition(self.compared(left, op, right, (begin, at))?);
        }
        Ok(left)
    }

    /// Takes what was read from a place on as a condition.
    fn as_condition(&self, node: Node, begin: usize) -> Result<Expr> {
        let side = match node {
            Node::Condition(expr) => return Ok(expr),
            Node::Side(side) => side,
        };
        match side {
            // A field alone is a condition when it holds a boolean, which no intrinsic does.
            Ok(Term::Field(field @ Field::Attribute(..))) => {
                Ok(Expr::Is(field, Check::Passes(AttributeTest::equals("true"))))
            }
            // Arithmetic with attributes alone could be one for all that is known, and never is.
            Ok(term) if is_of_attributes(&term) => Ok(Expr::False),
            Err(Literal::Bool(true)) => Ok(Expr::True),
            Err(Literal::Bool(false)) => Ok(Expr::False),
            Err(Literal::Word(word)) => Err(self.error_at(begin, format!("unknown identifier: {word}"))),
            Ok(_) | Err(_) => {
                let text =
                    format!("span filter field expressions must resolve to a boolean: {{ {} }}", self.since(begin));
                Err(self.error_at(begin, text))
            }
        }
    }

    /// What was read from a place on, as it is written.
    fn since(&self, begin: usize) -> &'a str {
        self.text[begin..self.at].trim_end()
    }

    fn op(&mut self) -> Option<Op> {
        const OPS: [(&str, Op); 8] = [
            ("=~", Op::Matches),
            ("!~", Op::MatchesNot),
            ("!=", Op::Number(Compare::NotEqual)),
            (">=", Op::Number(Compare::GreaterEqual)),
            ("<=", Op::Number(Compare::LessEqual)),
            ("=", Op::Number(Compare::Equal)),
            (">", Op::Number(Compare::Greater)),
            ("<", Op::Number(Compare::Less)),
        ];
        OPS.into_iter().find(|(sign, _)| self.eat(sign)).map(|(_, op)| op)
    }

    /// Reads a field, or else a literal.
    fn operand(&mut self) -> Result<std::result::Result<Field, Literal>> {
        let begin = self.at;
        let out = match self.rest().chars().next() {
            Some('"' | '`') => Err(Literal::Text(self.quoted()?)),
            Some(_) if self.is_number() => Err(self.number()?),
            Some('.') => {
                self.at += 1;
                Ok(Field::Attribute(None, self.key(begin)?))
            }
            Some(c) if c.is_alphabetic() => self.word(begin)?,
            _ => return Err(self.unexpected()),
        };
        self.blank();
        Ok(out)
    }

    fn word(&mut self, begin: usize) -> Result<std::result::Result<Field, Literal>> {
        let word = self.take(|c| c.is_alphanumeric() || c == '_');
        let scopes = Place::ALL.into_iter().find(|place| scope_name(*place) == word);
        if let (Some(place), true) = (scopes, self.rest().starts_with('.')) {
            self.at += 1;
            return Ok(Ok(Field::Attribute(Some(place), self.key(begin)?)));
        }
        if word == "parent" && self.rest().starts_with('.') {
            return Err(self.error_at(begin, "`parent.` is not supported"));
        }
        let mut name = word.to_owned();
        if self.rest().starts_with(':') {
            self.at += 1;
            name.push(':');
            name.push_str(self.take(char::is_alphanumeric));
        }
        if let Some(intrinsic) = Intrinsic::find(&name) {
            return Ok(Ok(Field::Intrinsic(intrinsic)));
        }
        Ok(Err(match name.as_str() {
            "true" => Literal::Bool(true),
            "false" => Literal::Bool(false),
            "nil" => Literal::Nil,
            "minInt" => Literal::Number(i64::MIN as f64, i64::MIN.to_string()),
            "maxInt" => Literal::Number(i64::MAX as f64, i64::MAX.to_string()),
            "error" | "ok" | "unset" | "unspecified" | "internal" | "server" | "client" | "producer" | "consumer" => {
                Literal::Word(name)
            }
            _ => return Err(self.error_at(begin, format!("unknown identifier: {name}"))),
        }))
    }

    fn take(&mut self, like: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let end = rest.find(|c| !like(c)).unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    /// Reads the key of an attribute whose place begins there; parts of it may stand in quotes.
    fn key(&mut self, begin: usize) -> Result<String> {
        let mut key = String::new();
        loop {
            key.push_str(self.take(|c| !c.is_whitespace() && !"{}()=~!<>&|,^\"`".contains(c)));
            if !self.rest().starts_with('"') {
                break;
            }
            key.push_str(&self.quoted()?);
        }
        if key.is_empty() {
            return Err(self.error_at(begin, "syntax error: unexpected END_ATTRIBUTE, expecting IDENTIFIER"));
        }
        Ok(key)
    }

    /// Makes the condition of a comparison, which is written so; errors have Tempo's words (`ast_validate.go`).
    fn condition(&self, field: Field, op: Op, literal: Literal, at: usize, written: &str) -> Result<Expr> {
        let wrong = |reason: String| Err(self.error_at(at, reason));
        let differ = || wrong(format!("binary operations must operate on the same type: {written}"));
        let illegal = || wrong(format!("illegal operation for the given types: {written}"));
        // A duration is a number here.
        let literal = literal.or_number();
        let (Op::Number(compare), literal) = (op, literal.clone()) else {
            let Literal::Text(pattern) = literal else {
                return if matches!(field, Field::Intrinsic(_)) { differ() } else { illegal() };
            };
            if !has_texts(&field) {
                return differ();
            }
            let test = AttributeTest::Text(TextTest::Regex(Arc::new(WatchedRegex::new(self.regex(&pattern, at)?))));
            let check = if op == Op::Matches { Check::Passes(test) } else { Check::Fails(test) };
            return Ok(Expr::Is(field, check));
        };
        let is_equal = match (compare, &literal) {
            (Compare::Equal, _) => true,
            (Compare::NotEqual, _) => false,
            (_, Literal::Number(number, text)) if is_number(&field) || !matches!(field, Field::Intrinsic(_)) => {
                return Ok(ordered(field, compare, *number, text));
            }
            (_, Literal::Text(text)) if has_texts(&field) => {
                let text = Term::Fixed(ExprValue::Text(text.clone()));
                return Ok(Expr::Compare(Term::Field(field), compare, text));
            }
            (_, Literal::Number(..) | Literal::Nanos(_) | Literal::Text(_)) => return differ(),
            (_, Literal::Bool(_) | Literal::Nil | Literal::Word(_)) => return illegal(),
        };
        let equals = |test: AttributeTest| if is_equal { Check::Passes(test) } else { Check::Fails(test) };
        let check = match (&field, literal) {
            (field, Literal::Nil) if is_equal => match always_there(field) {
                Some(what) => return wrong(format!("{field}=nil is not valid because {what} cannot be nil")),
                None => Check::Missing,
            },
            (_, Literal::Nil) => Check::There,
            (Field::Intrinsic(Intrinsic::Status), Literal::Word(word)) if is_status(&word) => {
                equals(AttributeTest::equals(&word))
            }
            (Field::Intrinsic(Intrinsic::Kind), Literal::Word(word)) if is_kind(&word) => {
                equals(AttributeTest::equals(&word))
            }
            (Field::Intrinsic(Intrinsic::Status | Intrinsic::Kind), _) | (_, Literal::Nanos(_)) => return differ(),
            (_, Literal::Word(word)) => return wrong(format!("unknown identifier: {word}")),
            (_, Literal::Number(number, _)) if is_number(&field) => equals(AttributeTest::Number(number, number)),
            (field, _) if is_number(field) => return differ(),
            (Field::Intrinsic(_), Literal::Number(..) | Literal::Bool(_)) => return differ(),
            (Field::Intrinsic(Intrinsic::TraceId | Intrinsic::LinkTraceId), Literal::Text(id)) => {
                equals(AttributeTest::Text(TextTest::Is(whole_id(id))))
            }
            // What every span has is a text even where it looks like a number: `1e3` is another id than `1000`.
            (Field::Intrinsic(_), Literal::Text(text)) => equals(AttributeTest::Text(TextTest::Is(text))),
            (_, Literal::Number(number, text)) => equals(AttributeTest::Equals(text, Some(number))),
            (_, Literal::Text(text)) => equals(AttributeTest::equals(&text)),
            (_, Literal::Bool(value)) => equals(AttributeTest::equals(if value { "true" } else { "false" })),
        };
        Ok(Expr::Is(field, check))
    }

    /// Compiles a pattern as Tempo does, whose matchers are those of Prometheus: a dot matches new lines, too.
    fn regex(&self, pattern: &str, at: usize) -> Result<Regex> {
        let (all, seen) = &mut *self.regexes.borrow_mut();
        if let Some(regex) = seen.get(pattern) {
            return Ok(regex.clone());
        }
        if pattern.len() > REGEX_BYTES_MAX {
            return Err(self.error_at(at, format!("a regular expression is longer than {REGEX_BYTES_MAX} bytes")));
        }
        affordable(pattern).map_err(|e| self.error_at(at, e.message))?;
        let regex = compile(pattern).map_err(|_| self.error_at(at, format!("invalid regex: `{pattern}`")))?;
        all.count(pattern).map_err(|e| self.error_at(at, e.message))?;
        seen.insert(pattern.to_owned(), regex.clone());
        Ok(regex)
    }

    // Stages behind `|`.

    fn stage(&mut self, query: &mut Query) -> Result<()> {
        let begin = self.at;
        let name = self.take(|c| c.is_alphanumeric() || c == '_');
        self.blank();
        if let Some(metric) = &mut query.metric {
            return self.pick(name, begin, metric);
        }
        if self.stages >= STAGES_MAX || (name == "by" && self.groups >= GROUPS_MAX) {
            let text = format!("more than {STAGES_MAX} stages, or {GROUPS_MAX} `by` among them");
            return Err(self.error_at(begin, text));
        }
        self.stages += 1;
        self.groups += usize::from(name == "by");
        match name {
            // What else begins with a parenthesis is arithmetic with aggregates.
            "" if self.rest().trim_start_matches(|c: char| c == '(' || c.is_whitespace()).starts_with('{') => {
                query.stages.push(match self.spanset()? {
                    Spanset::Filter(expr) => Stage::Filter(expr),
                    spans => Stage::Within(spans),
                });
            }
            "select" => {
                self.expect_only("(")?;
                let mut fields = vec![self.field()?];
                while self.eat(",") {
                    fields.push(self.field()?);
                }
                self.expect_of(")", ") or ,")?;
                query.stages.push(Stage::Select(fields));
            }
            "by" => {
                self.expect_only("(")?;
                let by = self.by_stage()?;
                query.stages.push(by);
                self.expect(")")?;
            }
            "coalesce" => {
                self.expect_only("(")?;
                self.expect_only(")")?;
                query.stages.push(Stage::Coalesce);
            }
            "rate"
            | "count_over_time"
            | "min_over_time"
            | "max_over_time"
            | "avg_over_time"
            | "sum_over_time"
            | "quantile_over_time"
            | "histogram_over_time"
            | "compare" => query.metric = Some(self.metric(name)?),
            _ => {
                self.at = begin;
                query.stages.push(self.compared_scalars()?);
            }
        }
        Ok(())
    }

    fn field(&mut self) -> Result<Field> {
        let begin = self.at;
        self.operand()?.map_err(|_| self.error_at(begin, "expected a field"))
    }
}

/// Gives the id of a trace all its digits: Tempo shows ids, and finds them, without leading zeros
/// (`TraceIDToHexString`). Other texts stay as they are, and are no id.
fn whole_id(text: String) -> String {
    let is_id = !text.is_empty() && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    if is_id { format!("{text:0>32}") } else { text }
}

/// The condition that a number lies so beside another.
fn ordered(field: Field, compare: Compare, number: f64, written: &str) -> Expr {
    // As doubles, whole numbers of this size equal others. Of several events one may pass that is not the first.
    let is_large = number.abs() >= EXACT_INTEGERS_MAX as f64
        && matches!(field, Field::Attribute(None | Some(Place::Span | Place::Resource | Place::Scope), _));
    if let (true, Ok(whole)) = (is_large, written.parse()) {
        return Expr::Compare(Term::Field(field), compare, Term::Fixed(ExprValue::Whole(whole)));
    }
    let test = match compare {
        Compare::Less => AttributeTest::Number(f64::NEG_INFINITY, number.next_down()),
        Compare::LessEqual => AttributeTest::Number(f64::NEG_INFINITY, number),
        Compare::Greater => AttributeTest::Number(number.next_up(), f64::INFINITY),
        _ => AttributeTest::Number(number, f64::INFINITY),
    };
    Expr::Is(field, Check::Passes(test))
}

fn with(mut parts: Vec<Expr>, next: Expr) -> Vec<Expr> {
    parts.push(next);
    parts
}

fn is_of_attributes(term: &Term) -> bool {
    match term {
        Term::Field(field) => matches!(field, Field::Attribute(..)),
        Term::Fixed(_) => false,
        Term::Worked(left, _, right) => is_of_attributes(left) && is_of_attributes(right),
    }
}

fn is_number(field: &Field) -> bool {
    matches!(field, Field::Intrinsic(i) if i.is_number())
}

/// Whether its values are texts that have an order.
fn has_texts(field: &Field) -> bool {
    !is_number(field) && !matches!(field, Field::Intrinsic(Intrinsic::Status | Intrinsic::Kind))
}

fn is_status(word: &str) -> bool {
    matches!(word, "error" | "ok" | "unset")
}

fn is_kind(word: &str) -> bool {
    word == "unspecified" || KIND_NAMES[1..].contains(&word)
}

/// The comparison with its sides exchanged.
fn turned(op: Op) -> Op {
    match op {
        Op::Number(Compare::Less) => Op::Number(Compare::Greater),
        Op::Number(Compare::LessEqual) => Op::Number(Compare::GreaterEqual),
        Op::Number(Compare::Greater) => Op::Number(Compare::Less),
        Op::Number(Compare::GreaterEqual) => Op::Number(Compare::LessEqual),
        same => same,
    }
}
