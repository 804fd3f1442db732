//! Paths of SQL/JSON as texts: steps from the document, or from the item at hand, and conditions over what they lead to.

use std::cmp::Ordering;

use quiver_types::matcher::{Patterns, affordable, builder};
use regex::Regex;

/// The last level, whichever that is.
pub(super) const LAST: u32 = u32::MAX;
/// Most conditions that stand in each other.
const DEPTH_MAX: usize = 50;

/// A path that was read.
#[derive(Debug, PartialEq)]
pub(super) enum Path {
    /// What it leads to.
    Items(Steps),
    /// Whether something holds.
    Condition(Condition),
}

/// Steps one after the other.
#[derive(Debug, PartialEq)]
pub(super) struct Steps {
    /// From the document (`$`), and not from the item at hand (`@`).
    pub(super) from_root: bool,
    pub(super) each: Vec<Step>,
    /// What is asked of that to which they lead.
    pub(super) method: Option<Method>,
}

#[derive(Debug, PartialEq)]
pub(super) enum Step {
    Member(String),
    /// The values of all members.
    Members,
    /// All items of an array (`[*]`).
    Items,
    /// Items from one place to another.
    Between(Vec<(Place, Place)>),
    /// Items of which a condition holds.
    Kept(Condition),
    /// What is within, from one level to another; it itself is on level 0.
    Deep(u32, u32),
}

/// A place in an array.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Place {
    At(i64),
    /// So many before the last one.
    BeforeLast(i64),
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Method {
    Size,
    Type,
    Abs,
    Ceiling,
    Double,
    Floor,
}

#[derive(Debug, PartialEq)]
pub(super) enum Condition {
    All(Vec<Condition>),
    Any(Vec<Condition>),
    Not(Box<Condition>),
    /// Whether steps lead to something.
    Exists(Steps),
    Compared(Steps, Operator, Scalar),
    StartsWith(Steps, String),
    Matches(Steps, Pattern),
}

/// A regular expression of a path.
#[derive(Debug)]
pub(super) struct Pattern(pub(super) Regex);

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_str() == other.0.as_str()
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Operator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Operator {
    /// Whether it holds between two values in this order.
    pub(super) fn holds(self, order: Ordering) -> bool {
        match self {
            Self::Equal => order.is_eq(),
            Self::NotEqual => order.is_ne(),
            Self::Less => order.is_lt(),
            Self::LessOrEqual => order.is_le(),
            Self::Greater => order.is_gt(),
            Self::GreaterOrEqual => order.is_ge(),
        }
    }

    /// The same with its sides exchanged.
    fn turned(self) -> Self {
        match self {
            Self::Less => Self::Greater,
            Self::LessOrEqual => Self::GreaterOrEqual,
            Self::Greater => Self::Less,
            Self::GreaterOrEqual => Self::LessOrEqual,
            same @ (Self::Equal | Self::NotEqual) => same,
        }
    }
}

/// A value that is written out.
#[derive(Debug, PartialEq)]
pub(super) enum Scalar {
    Null,
    Flag(bool),
    Number(String),
    Text(String),
}

/// What is read, or why it cannot be read.
type PathResult<T> = Result<T, String>;

/// Reads a path.
pub(super) fn read(text: &str) -> PathResult<Path> {
    let mut reader = Reader { whole: text, rest: text, within: 0, patterns: Patterns::default() };
    if reader.takes_word("strict") {
        return Err(reader.fault("`strict` is not supported: paths are read as `lax` ones"));
    }
    let _ = reader.takes_word("lax");
    let path = reader.any(0)?;
    if reader.rest.trim().is_empty() { Ok(path) } else { Err(reader.fault("this is not supported here")) }
}

struct Reader<'p> {
    whole: &'p str,
    rest: &'p str,
    /// In how many conditions of items it reads.
    within: usize,
    /// Its regular expressions, which are bounded together.
    patterns: Patterns,
}

impl<'p> Reader<'p> {
    fn fault(&self, what: &str) -> String {
        let before = self.whole.len() - self.rest.trim_start().len();
        let at = self.whole.get(..before).map_or(0, |before| before.chars().count());
        format!("cannot read the JSON path at character {}: {what}", at + 1)
    }

    fn takes(&mut self, mark: &str) -> bool {
        match self.rest.trim_start().strip_prefix(mark) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    /// A word, which ends where no letter follows.
    fn takes_word(&mut self, word: &str) -> bool {
        match self.rest.trim_start().strip_prefix(word) {
            Some(rest) if !rest.starts_with(is_letter) => {
                self.rest = rest;
                true
            }
            _ => false,
        }
    }

    fn wants(&mut self, mark: &str) -> PathResult<()> {
        if self.takes(mark) { Ok(()) } else { Err(self.fault(&format!("`{mark}` is missing"))) }
    }

    fn starts_with(&self, mark: &str) -> bool {
        self.rest.trim_start().starts_with(mark)
    }

    /// What is read as far as all letters are of a kind.
    fn while_is(&mut self, is_part: impl Fn(char) -> bool) -> &'p str {
        let rest = self.rest.trim_start();
        let (found, rest) = rest.split_at(rest.find(|letter: char| !is_part(letter)).unwrap_or(rest.len()));
        self.rest = rest;
        found
    }

    fn condition(&self, path: Path) -> PathResult<Condition> {
        match path {
            Path::Condition(condition) => Ok(condition),
            Path::Items(_) => Err(self.fault("a comparison is missing")),
        }
    }

    fn any(&mut self, depth: usize) -> PathResult<Path> {
        let first = self.all(depth)?;
        if !self.starts_with("||") {
            return Ok(first);
        }
        let mut conditions = vec![self.condition(first)?];
        while self.takes("||") {
            let next = self.all(depth)?;
            conditions.push(self.condition(next)?);
        }
        Ok(Path::Condition(Condition::Any(conditions)))
    }

    fn all(&mut self, depth: usize) -> PathResult<Path> {
        let first = self.one(depth)?;
        if !self.starts_with("&&") {
            return Ok(first);
        }
        let mut conditions = vec![self.condition(first)?];
        while self.takes("&&") {
            let next = self.one(depth)?;
            conditions.push(self.condition(next)?);
        }
        Ok(Path::Condition(Condition::All(conditions)))
    }

    fn one(&mut self, depth: usize) -> PathResult<Path> {
        if depth > DEPTH_MAX {
            return Err(self.fault(&format!("at most {DEPTH_MAX} conditions stand in each other")));
        }
        if self.takes("!") {
            if !self.starts_with("(") && !self.starts_with("exists") {
                return Err(self.fault("behind `!` stands a condition in brackets"));
            }
            let inner = self.one(depth + 1)?;
            return Ok(Path::Condition(Condition::Not(Box::new(self.condition(inner)?))));
        }
        if self.takes("(") {
            let inner = self.any(depth + 1)?;
            self.wants(")")?;
            return match inner {
                Path::Items(steps) => self.compared(steps),
                condition @ Path::Condition(_) => Ok(condition),
            };
        }
        if self.takes_word("exists") {
            self.wants("(")?;
            let steps = self.steps(depth)?;
            self.wants(")")?;
            return Ok(Path::Condition(Condition::Exists(steps)));
        }
        if self.starts_with("$") || self.starts_with("@") {
            let steps = self.steps(depth)?;
            return self.compared(steps);
        }
        let value = self.scalar()?;
        let operator = self.operator().ok_or_else(|| self.fault("a comparison is missing"))?;
        let steps = self.steps(depth)?;
        Ok(Path::Condition(Condition::Compared(steps, operator.turned(), value)))
    }

    /// What is asked of that to which steps lead, if anything.
    fn compared(&mut self, steps: Steps) -> PathResult<Path> {
        if self.takes_word("starts") {
            if !self.takes_word("with") {
                return Err(self.fault("`with` is missing"));
            }
            let Scalar::Text(text) = self.scalar()? else { return Err(self.fault("a text is missing")) };
            return Ok(Path::Condition(Condition::StartsWith(steps, text)));
        }
        if self.takes_word("like_regex") {
            let Scalar::Text(pattern) = self.scalar()? else { return Err(self.fault("a text is missing")) };
            let flags = if self.takes_word("flag") { self.quoted()? } else { String::new() };
            return Ok(Path::Condition(Condition::Matches(steps, self.pattern(&pattern, &flags)?)));
        }
        let Some(operator) = self.operator() else { return Ok(Path::Items(steps)) };
        Ok(Path::Condition(Condition::Compared(steps, operator, self.scalar()?)))
    }

    /// A regular expression with its flags: `i`, `s`, `m`, `x`, and `q` for a text that is no pattern.
    fn pattern(&mut self, pattern: &str, flags: &str) -> PathResult<Pattern> {
        if let Some(other) = flags.chars().find(|flag| !"ismxq".contains(*flag)) {
            return Err(self.fault(&format!("`{other}` is no flag of `like_regex`: `i`, `s`, `m`, `x` and `q` are")));
        }
        let is_text = flags.contains('q');
        let pattern = if is_text { regex::escape(pattern) } else { pattern.to_owned() };
        affordable(&pattern).map_err(|refused| self.fault(&refused.message))?;
        let mut builder = builder(&pattern);
        builder.case_insensitive(flags.contains('i')).ignore_whitespace(flags.contains('x') && !is_text);
        builder.dot_matches_new_line(flags.contains('s')).multi_line(flags.contains('m'));
        let regex = builder.build().map_err(|_| self.fault("this is no regular expression"))?;
        let written = if flags.contains('i') { format!("(?i){pattern}") } else { pattern };
        self.patterns.count(&written).map_err(|refused| self.fault(&refused.message))?;
        Ok(Pattern(regex))
    }

    fn operator(&mut self) -> Option<Operator> {
        // A longer one stands before its beginning.
        let operators = [
            ("==", Operator::Equal),
            ("!=", Operator::NotEqual),
            ("<>", Operator::NotEqual),
            ("<=", Operator::LessOrEqual),
            (">=", Operator::GreaterOrEqual),
            ("<", Operator::Less),
            (">", Operator::Greater),
        ];
        operators.into_iter().find(|(mark, _)| self.takes(mark)).map(|(_, operator)| operator)
    }

    fn no_variable(&self) -> PathResult<()> {
        let name = self.rest.trim_start().strip_prefix('$');
        if name.is_some_and(|name| name.starts_with(|next: char| is_letter(next) || next == '"')) {
            return Err(self.fault("variables are not supported: write their values into the path"));
        }
        Ok(())
    }

    fn scalar(&mut self) -> PathResult<Scalar> {
        self.no_variable()?;
        if self.starts_with("\"") {
            return self.quoted().map(Scalar::Text);
        }
        for (word, value) in [("null", Scalar::Null), ("true", Scalar::Flag(true)), ("false", Scalar::Flag(false))] {
            if self.takes_word(word) {
                return Ok(value);
            }
        }
        let before = self.rest;
        let sign = if self.takes("-") { "-" } else { "" };
        let digits = self.while_is(|letter: char| letter.is_ascii_alphanumeric() || letter == '.');
        let number = format!("{sign}{digits}");
        if digits.starts_with(|first: char| first.is_ascii_digit()) && number.parse::<f64>().is_ok() {
            return Ok(Scalar::Number(number));
        }
        self.rest = before;
        Err(self.fault("a number, a text in double quotes, `true`, `false` or `null` is missing"))
    }

    /// A text in double quotes.
    fn quoted(&mut self) -> PathResult<String> {
        let rest = self.rest.trim_start();
        let mut is_escaped = false;
        let end = rest.char_indices().skip(1).find(|(_, letter)| {
            let is_end = *letter == '"' && !is_escaped;
            is_escaped = *letter == '\\' && !is_escaped;
            is_end
        });
        let parts = end.and_then(|(at, _)| rest.split_at_checked(at + 1));
        let read = parts.and_then(|(text, rest)| Some((serde_json::from_str(text).ok()?, rest)));
        let (text, rest) = read.ok_or_else(|| self.fault("this text cannot be read"))?;
        self.rest = rest;
        Ok(text)
    }

    fn steps(&mut self, depth: usize) -> PathResult<Steps> {
        self.no_variable()?;
        let from_root = self.takes("$");
        if !from_root && (self.within == 0 || !self.takes("@")) {
            return Err(self.fault("a path begins with `$`, within conditions of items also with `@`"));
        }
        let mut read = Steps { from_root, each: Vec::new(), method: None };
        loop {
            if self.takes("[") {
                read.each.push(self.items()?);
            } else if self.takes("?") {
                self.wants("(")?;
                self.within += 1;
                let path = self.any(depth + 1)?;
                self.within -= 1;
                read.each.push(Step::Kept(self.condition(path)?));
                self.wants(")")?;
            } else if self.takes(".") {
                if self.starts_with("\"") {
                    read.each.push(Step::Member(self.quoted()?));
                } else if self.takes("**") {
                    let (from, to) = self.levels()?;
                    read.each.push(Step::Deep(from, to));
                } else if self.takes("*") {
                    read.each.push(Step::Members);
                } else {
                    let name = self.while_is(is_letter);
                    if name.is_empty() || name.starts_with(|first: char| first.is_ascii_digit()) {
                        return Err(self.fault("the name of a member is missing"));
                    }
                    if self.takes("(") {
                        self.wants(")")?;
                        read.method = Some(self.method(name)?);
                        return Ok(read);
                    }
                    read.each.push(Step::Member(name.to_owned()));
                }
            } else {
                return Ok(read);
            }
        }
    }

    /// Levels behind `**`: all, or `{2}`, `{1 to 3}`, `{2 to last}`; `{last}` are all values that hold no others.
    fn levels(&mut self) -> PathResult<(u32, u32)> {
        if !self.takes("{") {
            return Ok((0, LAST));
        }
        let from = self.level()?;
        let to = if self.takes_word("to") { self.level()? } else { from };
        self.wants("}")?;
        Ok((from, to))
    }

    fn level(&mut self) -> PathResult<u32> {
        if self.takes_word("last") {
            return Ok(LAST);
        }
        let digits = self.while_is(|letter: char| letter.is_ascii_digit());
        digits.parse().map_err(|_| self.fault("the number of a level is missing"))
    }

    /// A method, behind which a path ends.
    fn method(&self, name: &str) -> PathResult<Method> {
        let method = match name {
            "size" => Method::Size,
            "type" => Method::Type,
            "abs" => Method::Abs,
            "ceiling" => Method::Ceiling,
            "double" => Method::Double,
            "floor" => Method::Floor,
            _ => {
                let known = "`abs()`, `ceiling()`, `double()`, `floor()`, `size()` and `type()`";
                return Err(self.fault(&format!("`{name}()` is not supported: {known} are")));
            }
        };
        if [".", "[", "?"].iter().any(|next| self.starts_with(next)) {
            return Err(self.fault(&format!("steps behind `{name}()` are not supported")));
        }
        Ok(method)
    }

    fn items(&mut self) -> PathResult<Step> {
        if self.takes("*") {
            self.wants("]")?;
            return Ok(Step::Items);
        }
        let mut between = Vec::new();
        loop {
            let from = self.place()?;
            between.push((from, if self.takes_word("to") { self.place()? } else { from }));
            if !self.takes(",") {
                break;
            }
        }
        self.wants("]")?;
        Ok(Step::Between(between))
    }

    fn place(&mut self) -> PathResult<Place> {
        if self.takes_word("last") {
            let before = if self.takes("-") { self.whole_number()? } else { 0 };
            return Ok(Place::BeforeLast(before));
        }
        let sign = if self.takes("-") { -1 } else { 1 };
        Ok(Place::At(sign * self.whole_number()?))
    }

    fn whole_number(&mut self) -> PathResult<i64> {
        let digits = self.while_is(|letter: char| letter.is_ascii_digit());
        match digits.parse::<u32>() {
            Ok(number) => Ok(i64::from(number)),
            Err(_) => Err(self.fault("a whole number, `last` or `*` is missing")),
        }
    }
}

fn is_letter(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

#[cfg(test)]
mod tests;
