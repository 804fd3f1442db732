//! Text to [`Query`], straight from its characters.

mod metric;
mod scalar;
mod term;

use std::sync::Arc;

use quiver_types::matcher::{affordable, builder};
use quiver_types::spans::{AttributeTest, KIND_NAMES, Place, TextTest};

use self::term::Node;
use super::{
    Check, Compare, Expr, Field, Fixed, Intrinsic, Query, Relation, Spanset, Stage, Structure, Term, TraceqlError,
};
use crate::params::duration;

/// Deepest nesting of parentheses and negations.
const DEPTH_MAX: usize = 64;
/// Most conditions.
const CONDITIONS_MAX: usize = 256;
const REGEX_BYTES_MAX: usize = 1024;
/// Most stages behind the spans, and those of them that group: each may make a set of every span, and of each set again.
const STAGES_MAX: usize = 32;
const GROUPS_MAX: usize = 3;

type Result<T> = std::result::Result<T, TraceqlError>;

pub(super) fn parse(text: &str) -> Result<Query> {
    let mut p = Parser { text, at: 0, depth: 0, conditions: 0 };
    p.blank();
    // What is done with all spans may stand alone.
    let is_stage = p.rest().starts_with(char::is_alphabetic) && !p.is_hint();
    let spans = if p.is_end() || is_stage { Spanset::Filter(Expr::True) } else { p.spanset()? };
    let mut query = Query { spans, stages: Vec::new(), metric: None, exemplars: None };
    if is_stage {
        p.stage(&mut query)?;
    }
    // Hints stand behind a pipe, too, as they did in older queries.
    while p.eat("|") && !p.is_hint() {
        p.stage(&mut query)?;
    }
    query.exemplars = p.hints()?;
    if !p.is_end() {
        return Err(p.unexpected());
    }
    Ok(query)
}

/// A literal.
#[derive(Debug, Clone, PartialEq)]
enum Literal {
    Text(String),
    /// With its text as it was written.
    Number(f64, String),
    Bool(bool),
    Nil,
    /// A word: a status or a kind.
    Word(String),
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
            reason: reason.into(),
        }
    }

    fn unexpected(&self) -> TraceqlError {
        let rest = self.rest();
        if let Some(op) = ["+", "-", "*", "/", "%", "^"].into_iter().find(|op| rest.starts_with(op)) {
            return self.error_at(self.at, format!("arithmetic is not supported: `{op}`"));
        }
        match rest.chars().next() {
            None => self.error_at(self.at, "unexpected end of the query"),
            Some(c) => self.error_at(self.at, format!("unexpected `{c}`")),
        }
    }

    fn blank(&mut self) {
        self.at += self.rest().len() - self.rest().trim_start().len();
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

    fn expect(&mut self, sign: &str) -> Result<()> {
        if self.eat(sign) {
            return Ok(());
        }
        let mut error = self.unexpected();
        if error.reason.starts_with("unexpected") {
            error.reason.push_str(&format!(", expected `{sign}`"));
        }
        Err(error)
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

    fn spanset(&mut self) -> Result<Spanset> {
        let mut left = self.spanset_and()?;
        while self.eat("||") {
            let right = self.spanset_and()?;
            left = Spanset::Both(Relation::Or, Box::new(left), Box::new(right));
        }
        Ok(left)
    }

    fn spanset_and(&mut self) -> Result<Spanset> {
        let mut left = self.spanset_structure()?;
        while !is_union(self.rest()) && self.eat("&&") {
            let right = self.spanset_structure()?;
            left = Spanset::Both(Relation::And, Box::new(left), Box::new(right));
        }
        Ok(left)
    }

    fn spanset_structure(&mut self) -> Result<Spanset> {
        let mut left = self.spanset_one()?;
        while let Some(relation) = self.structure() {
            let right = self.spanset_one()?;
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

    fn spanset_one(&mut self) -> Result<Spanset> {
        if self.eat("(") {
            return self.deeper(|p| {
                let inner = p.spanset()?;
                if p.rest().starts_with('|') {
                    return Err(p.error_at(p.at, "a pipe inside of parentheses is not supported"));
                }
                p.expect(")")?;
                Ok(inner)
            });
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

    /// Reads what `||` joins; of one part it is that part, which need not be a condition.
    fn any(&mut self) -> Result<Node> {
        self.joined("||", Self::all, Expr::Or)
    }

    fn all(&mut self) -> Result<Node> {
        self.joined("&&", Self::one, Expr::And)
    }

    fn joined(&mut self, sign: &str, part: fn(&mut Self) -> Result<Node>, join: fn(Vec<Expr>) -> Expr) -> Result<Node> {
        let begin = self.at;
        let first = part(self)?;
        if !self.rest().starts_with(sign) {
            return Ok(first);
        }
        let mut parts = vec![self.as_condition(first, begin)?];
        while self.eat(sign) {
            let at = self.at;
            let next = part(self)?;
            parts.push(self.as_condition(next, at)?);
        }
        Ok(Node::Condition(join(parts)))
    }

    fn one(&mut self) -> Result<Node> {
        let begin = self.at;
        if self.rest().starts_with('!') {
            self.eat("!");
            let at = self.at;
            let node = self.deeper(Self::one)?;
            return Ok(Node::Condition(Expr::Not(Box::new(self.as_condition(node, at)?))));
        }
        // What is in parentheses is counted there.
        if !self.rest().starts_with('(') {
            self.conditions += 1;
            if self.conditions > CONDITIONS_MAX {
                return Err(self.error_at(self.at, format!("more than {CONDITIONS_MAX} conditions")));
            }
        }
        let left = self.side()?;
        let Some(op) = self.op() else { return Ok(left) };
        let at = self.at;
        let right = self.side()?;
        self.compared(left, op, right, (begin, at)).map(Node::Condition)
    }

    /// Takes what was read from a place on as a condition.
    fn as_condition(&self, node: Node, begin: usize) -> Result<Expr> {
        let side = match node {
            Node::Condition(expr) => return Ok(expr),
            Node::Side(side) => side,
        };
        match side {
            // A field alone is a condition when it holds a boolean.
            Ok(Term::Field(field)) => self.condition(field, Op::Number(Compare::Equal), Literal::Bool(true), begin),
            Ok(_) => Err(self.unexpected()),
            Err(Literal::Bool(true)) => Ok(Expr::True),
            Err(Literal::Bool(false)) => Ok(Expr::False),
            Err(Literal::Word(word)) => Err(self.error_at(begin, format!("unknown identifier: {word}"))),
            Err(_) => Err(self.error_at(begin, "a condition needs a field")),
        }
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
            Some('.') => {
                self.at += 1;
                Ok(Field::Attribute(None, self.key()?))
            }
            Some(c) if c.is_ascii_digit() || c == '-' => Err(self.number()?),
            Some(c) if c.is_alphabetic() => self.word(begin)?,
            _ => return Err(self.unexpected()),
        };
        self.blank();
        Ok(out)
    }

    fn word(&mut self, begin: usize) -> Result<std::result::Result<Field, Literal>> {
        let word = self.take(|c| c.is_alphanumeric() || c == '_');
        let scopes = Place::ALL.into_iter().find(|place| super::scope_name(*place) == word);
        if let (Some(place), true) = (scopes, self.rest().starts_with('.')) {
            self.at += 1;
            return Ok(Ok(Field::Attribute(Some(place), self.key()?)));
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

    /// Reads the key of an attribute, parts of which may stand in quotes.
    fn key(&mut self) -> Result<String> {
        let begin = self.at;
        let mut key = String::new();
        loop {
            key.push_str(self.take(|c| !c.is_whitespace() && !"{}()=~!<>&|,^\"`".contains(c)));
            if !self.rest().starts_with('"') {
                break;
            }
            key.push_str(&self.quoted()?);
        }
        if key.is_empty() { Err(self.error_at(begin, "an attribute without a name")) } else { Ok(key) }
    }

    fn quoted(&mut self) -> Result<String> {
        let begin = self.at;
        let mut chars = self.rest().char_indices();
        let quote = chars.next().map_or('"', |c| c.1);
        let mut out = String::new();
        while let Some((i, c)) = chars.next() {
            match c {
                c if c == quote => {
                    self.at += i + c.len_utf8();
                    return Ok(out);
                }
                '\\' if quote == '"' => match chars.next().map(|c| c.1) {
                    Some('n') => out.push('\n'),
                    Some('t') => out.push('\t'),
                    Some('r') => out.push('\r'),
                    Some(c @ ('"' | '\\')) => out.push(c),
                    // Regular expressions are often written without doubling.
                    Some(c) => out.extend(['\\', c]),
                    None => break,
                },
                c => out.push(c),
            }
        }
        Err(self.error_at(begin, "a text that does not end"))
    }

    /// Reads a number, or a duration in nanoseconds.
    fn number(&mut self) -> Result<Literal> {
        let begin = self.at;
        let negative = self.rest().starts_with('-');
        self.at += usize::from(negative);
        let digits = self.take(|c| c.is_ascii_digit() || c == '.');
        let exponent = self.rest().starts_with(['e', 'E'])
            && self.rest()[1..].trim_start_matches(['+', '-']).starts_with(|c: char| c.is_ascii_digit());
        if exponent {
            self.at += 1;
            self.at += usize::from(self.rest().starts_with(['+', '-']));
            self.take(|c| c.is_ascii_digit());
        }
        let unit = self.take(|c| c.is_alphanumeric() || c == '.');
        let text = &self.text[begin..self.at];
        let wrong = || self.error_at(begin, format!("`{text}` is neither a number nor a duration"));
        if unit.is_empty() {
            let value = text.parse::<f64>().ok().filter(|n| n.is_finite() && !digits.is_empty());
            return value.map(|v| Literal::Number(v, text.to_owned())).ok_or_else(wrong);
        }
        let nanos = duration(text.trim_start_matches('-')).ok_or_else(wrong)?;
        let nanos = if negative { -nanos } else { nanos };
        Ok(Literal::Number(nanos as f64, nanos.to_string()))
    }

    /// Makes the condition of a comparison.
    fn condition(&self, field: Field, op: Op, literal: Literal, at: usize) -> Result<Expr> {
        let wrong = |reason: String| Err(self.error_at(at, reason));
        let (Op::Number(compare), literal) = (op, literal.clone()) else {
            let Literal::Text(pattern) = literal else { return wrong("a regular expression is a text".into()) };
            let test = AttributeTest::Text(TextTest::Regex(Arc::new(self.regex(&pattern, at)?)));
            let check = if op == Op::Matches { Check::Passes(test) } else { Check::Fails(test) };
            return Ok(Expr::Is(field, check));
        };
        let is_equal = match (compare, &literal) {
            (Compare::Equal, _) => true,
            (Compare::NotEqual, _) => false,
            (_, Literal::Number(number, _)) => return self.ordered(field, compare, *number, at),
            (_, Literal::Text(text)) if has_texts(&field) => {
                let text = Term::Fixed(Fixed::Text(text.clone()));
                return Ok(Expr::Compare(Term::Field(field), compare, text));
            }
            _ => return wrong("only numbers and durations can be compared by order".into()),
        };
        let equals = |test: AttributeTest| if is_equal { Check::Passes(test) } else { Check::Fails(test) };
        let check = match (&field, literal) {
            (_, Literal::Nil) if is_equal => Check::Missing,
            (_, Literal::Nil) => Check::There,
            (Field::Intrinsic(Intrinsic::Status), Literal::Word(word)) if is_status(&word) => {
                equals(AttributeTest::equals(&word))
            }
            (Field::Intrinsic(Intrinsic::Kind), Literal::Word(word)) if is_kind(&word) => {
                equals(AttributeTest::equals(&word))
            }
            (Field::Intrinsic(Intrinsic::Status), _) => return wrong("expected error, ok or unset".into()),
            (Field::Intrinsic(Intrinsic::Kind), _) => {
                let kinds = KIND_NAMES[1..].join(", ");
                return wrong(format!("expected one of unspecified, {kinds}"));
            }
            (_, Literal::Word(word)) => return wrong(format!("unknown identifier: {word}")),
            (_, Literal::Number(number, _)) if is_number(&field) => equals(AttributeTest::Number(number, number)),
            (field, _) if is_number(field) => return wrong(format!("`{field}` is a number")),
            (_, Literal::Number(number, text)) => equals(AttributeTest::Equals(text, Some(number))),
            (_, Literal::Text(text)) => equals(AttributeTest::equals(&text)),
            (_, Literal::Bool(value)) => equals(AttributeTest::equals(if value { "true" } else { "false" })),
        };
        Ok(Expr::Is(field, check))
    }

    fn ordered(&self, field: Field, compare: Compare, number: f64, at: usize) -> Result<Expr> {
        if let Field::Intrinsic(intrinsic) = field
            && !is_number(&field)
        {
            return Err(self.error_at(at, format!("`{}` has no order", intrinsic.name())));
        }
        let test = match compare {
            Compare::Less => AttributeTest::Number(f64::MIN, number.next_down()),
            Compare::LessEqual => AttributeTest::Number(f64::MIN, number),
            Compare::Greater => AttributeTest::Number(number.next_up(), f64::MAX),
            _ => AttributeTest::Number(number, f64::MAX),
        };
        Ok(Expr::Is(field, Check::Passes(test)))
    }

    fn regex(&self, pattern: &str, at: usize) -> Result<regex::Regex> {
        if pattern.len() > REGEX_BYTES_MAX {
            return Err(self.error_at(at, format!("a regular expression is longer than {REGEX_BYTES_MAX} bytes")));
        }
        affordable(pattern).map_err(|e| self.error_at(at, e.message))?;
        let built = builder(&format!("^(?:{pattern})$")).build();
        built.map_err(|_| self.error_at(at, format!("`{pattern}` is no regular expression")))
    }

    // Stages behind `|`.

    fn stage(&mut self, query: &mut Query) -> Result<()> {
        let begin = self.at;
        let name = self.take(|c| c.is_alphanumeric() || c == '_');
        self.blank();
        if let Some(metric) = &mut query.metric {
            return self.pick(name, begin, metric);
        }
        let groups = query.stages.iter().filter(|stage| matches!(stage, Stage::By(..))).count();
        if query.stages.len() >= STAGES_MAX || (name == "by" && groups >= GROUPS_MAX) {
            let text = format!("more than {STAGES_MAX} stages, or {GROUPS_MAX} `by` among them");
            return Err(self.error_at(begin, text));
        }
        match name {
            "" if self.rest().starts_with('{') => query.stages.push(Stage::Filter(self.filter()?)),
            "select" => {
                self.expect("(")?;
                let mut fields = vec![self.field()?];
                while self.eat(",") {
                    fields.push(self.field()?);
                }
                self.expect(")")?;
                query.stages.push(Stage::Select(fields));
            }
            "by" => {
                self.expect("(")?;
                let term = self.term()?;
                let name = format!("by({term})").into();
                query.stages.push(Stage::By(term, name));
                self.expect(")")?;
            }
            "coalesce" => {
                self.expect("(")?;
                self.expect(")")?;
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

/// `&&` in front of a set, and not the sign of a union such as `&>>`.
fn is_union(rest: &str) -> bool {
    rest.starts_with("&>") || rest.starts_with("&<") || rest.starts_with("&~")
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
