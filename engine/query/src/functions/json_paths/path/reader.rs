//! Reads paths of SQL/JSON, as the grammar of PostgreSQL's `jsonpath` has them.

use quiver_types::matcher::{Patterns, affordable, builder};

use super::super::numbers::Number;
use super::{Arithmetic, Base, Body, Condition, Expression, LAST, Method, Operator, Path, Pattern, Step, Steps};

/// Most conditions and brackets that stand in each other.
pub(super) const DEPTH_MAX: usize = 50;

/// What is read, or why it cannot be read.
type PathResult<T> = Result<T, String>;

/// Reads a path.
pub(in super::super) fn read(text: &str) -> PathResult<Path> {
    let mut reader = Reader { whole: text, rest: text, within: 0, indexes: 0, patterns: Patterns::default() };
    let is_strict = reader.takes_word("strict");
    if !is_strict {
        let _ = reader.takes_word("lax");
    }
    let body = reader.any(0)?;
    if reader.rest.trim().is_empty() {
        Ok(Path { is_strict, body })
    } else {
        Err(reader.fault("the path ends before this"))
    }
}

struct Reader<'p> {
    whole: &'p str,
    rest: &'p str,
    /// In how many conditions of items, and in how many places of arrays, it reads.
    within: usize,
    indexes: usize,
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

    fn condition(&self, body: Body) -> PathResult<Condition> {
        match body {
            Body::Condition(condition) => Ok(condition),
            Body::Items(_) => Err(self.fault("a comparison is missing")),
        }
    }

    fn items_of(&self, body: Body) -> PathResult<Expression> {
        match body {
            Body::Items(expression) => Ok(expression),
            Body::Condition(_) => Err(self.fault("a condition is no value here")),
        }
    }

    fn any(&mut self, depth: usize) -> PathResult<Body> {
        let first = self.all(depth)?;
        if !self.starts_with("||") {
            return Ok(first);
        }
        let mut conditions = vec![self.condition(first)?];
        while self.takes("||") {
            let next = self.all(depth)?;
            conditions.push(self.condition(next)?);
        }
        Ok(Body::Condition(Condition::Any(conditions)))
    }

    fn all(&mut self, depth: usize) -> PathResult<Body> {
        let first = self.one(depth)?;
        if !self.starts_with("&&") {
            return Ok(first);
        }
        let mut conditions = vec![self.condition(first)?];
        while self.takes("&&") {
            let next = self.one(depth)?;
            conditions.push(self.condition(next)?);
        }
        Ok(Body::Condition(Condition::All(conditions)))
    }

    fn one(&mut self, depth: usize) -> PathResult<Body> {
        if self.takes("!") {
            if !self.starts_with("(") && !self.starts_with("exists") {
                return Err(self.fault("behind `!` stands a condition in brackets"));
            }
            let inner = self.one(depth + 1)?;
            return Ok(Body::Condition(Condition::Not(Box::new(self.condition(inner)?))));
        }
        if self.takes_word("exists") {
            self.wants("(")?;
            let inner = self.sum(depth)?;
            let inner = self.items_of(inner)?;
            self.wants(")")?;
            return Ok(Body::Condition(Condition::Exists(inner)));
        }
        match self.sum(depth)? {
            Body::Items(left) => self.compared(left, depth),
            condition @ Body::Condition(_) => Ok(condition),
        }
    }

    /// What is asked of a value, if anything.
    fn compared(&mut self, left: Expression, depth: usize) -> PathResult<Body> {
        if self.takes_word("starts") {
            if !self.takes_word("with") {
                return Err(self.fault("`with` is missing"));
            }
            return Ok(Body::Condition(Condition::StartsWith(left, self.text()?)));
        }
        if self.takes_word("like_regex") {
            let pattern = self.text()?;
            let flags = if self.takes_word("flag") { self.quoted()? } else { String::new() };
            return Ok(Body::Condition(Condition::Matches(left, self.pattern(&pattern, &flags)?)));
        }
        let Some(operator) = self.operator() else { return Ok(Body::Items(left)) };
        let right = self.sum(depth)?;
        Ok(Body::Condition(Condition::Compared(left, operator, self.items_of(right)?)))
    }

    /// Values that are added to each other.
    fn sum(&mut self, depth: usize) -> PathResult<Body> {
        self.calculated(&[("+", Arithmetic::Plus), ("-", Arithmetic::Minus)], |reader| reader.product(depth))
    }

    fn product(&mut self, depth: usize) -> PathResult<Body> {
        let operators = [("*", Arithmetic::Times), ("/", Arithmetic::Divided), ("%", Arithmetic::Modulo)];
        self.calculated(&operators, |reader| reader.signed(depth))
    }

    fn calculated(
        &mut self,
        operators: &[(&str, Arithmetic)],
        mut operand: impl FnMut(&mut Self) -> PathResult<Body>,
    ) -> PathResult<Body> {
        let first = operand(self)?;
        let mut others = Vec::new();
        while let Some((sign, operator)) = operators.iter().find(|(sign, _)| self.starts_with(sign)) {
            if matches!(first, Body::Condition(_)) {
                return Err(self.fault("a condition is no value here"));
            }
            let _ = self.takes(sign);
            let next = operand(self)?;
            others.push((*operator, self.items_of(next)?));
        }
        if others.is_empty() {
            return Ok(first);
        }
        let first = self.items_of(first)?;
        Ok(Body::Items(Expression::Calculated(Box::new(first), others)))
    }

    fn signed(&mut self, depth: usize) -> PathResult<Body> {
        if depth > DEPTH_MAX {
            return Err(self.fault(&format!("at most {DEPTH_MAX} conditions stand in each other")));
        }
        let turns = self.takes("-");
        if !turns && !self.takes("+") {
            return self.primary(depth);
        }
        let inner = self.signed(depth + 1)?;
        Ok(Body::Items(match self.items_of(inner)? {
            // A number with its sign is one that is written out.
            Expression::Steps(Steps { base: Base::Written(number), each })
                if each.is_empty() && number.starts_with(|first: char| first.is_ascii_digit()) =>
            {
                let number = if turns { format!("-{number}") } else { number };
                Expression::Steps(Steps { base: Base::Written(number), each })
            }
            other => Expression::Signed { turns, of: Box::new(other) },
        }))
    }

    /// A value and the steps from it, or a condition in brackets.
    fn primary(&mut self, depth: usize) -> PathResult<Body> {
        let base = if self.takes("(") {
            let inner = self.any(depth + 1)?;
            self.wants(")")?;
            let has_steps = [".", "[", "?"].iter().any(|next| self.starts_with(next));
            match inner {
                Body::Condition(condition) if self.takes_word("is") => {
                    if !self.takes_word("unknown") {
                        return Err(self.fault("`unknown` is missing"));
                    }
                    return Ok(Body::Condition(Condition::IsUnknown(Box::new(condition))));
                }
                inner if !has_steps => return Ok(inner),
                Body::Items(expression) => Base::Items(Box::new(expression)),
                Body::Condition(condition) => Base::Truth(Box::new(condition)),
            }
        } else if self.starts_with("$") {
            self.no_variable()?;
            let _ = self.takes("$");
            Base::Root
        } else if self.starts_with("@") {
            if self.within == 0 {
                return Err(self.fault("a path begins with `$`, within conditions of items also with `@`"));
            }
            let _ = self.takes("@");
            Base::Item
        } else if self.indexes > 0 && self.takes_word("last") {
            Base::Last
        } else {
            Base::Written(self.scalar()?)
        };
        Ok(Body::Items(Expression::Steps(self.steps(base, depth)?)))
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

    /// A value that is written out, as JSON.
    fn scalar(&mut self) -> PathResult<String> {
        if self.starts_with("\"") {
            let text = self.quoted()?;
            return Ok(serde_json::Value::String(text).to_string());
        }
        for word in ["null", "true", "false"] {
            if self.takes_word(word) {
                return Ok(word.to_owned());
            }
        }
        let before = self.rest;
        let mut number = self.while_is(|letter: char| letter.is_ascii_alphanumeric() || letter == '.').to_owned();
        // An exponent has a sign.
        if number.ends_with(['e', 'E']) && self.rest.starts_with(['-', '+']) {
            let (sign, rest) = self.rest.split_at(1);
            self.rest = rest;
            let digits = self.while_is(|letter: char| letter.is_ascii_digit());
            number = format!("{number}{sign}{digits}");
        }
        let is_number = number.starts_with(|first: char| first.is_ascii_digit() || first == '.');
        if is_number && number.parse::<f64>().is_ok_and(f64::is_finite) {
            return Ok(Number::read(&number).map_or(number, |number| number.to_string()));
        }
        self.rest = before;
        Err(self.fault("a number, a text in double quotes, `true`, `false` or `null` is missing"))
    }

    /// A text that is an operand of its own.
    fn text(&mut self) -> PathResult<String> {
        self.no_variable()?;
        if self.starts_with("\"") {
            return self.quoted();
        }
        let _ = self.scalar()?;
        Err(self.fault("a text is missing"))
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

    fn steps(&mut self, base: Base, depth: usize) -> PathResult<Steps> {
        let mut read = Steps { base, each: Vec::new() };
        loop {
            if self.takes("[") {
                read.each.push(self.items(depth)?);
            } else if self.takes("?") {
                self.wants("(")?;
                self.within += 1;
                let body = self.any(depth + 1)?;
                self.within -= 1;
                read.each.push(Step::Kept(self.condition(body)?));
                self.wants(")")?;
            } else if self.takes(".") {
                read.each.push(self.named()?);
            } else {
                return Ok(read);
            }
        }
    }

    /// What stands behind a point.
    fn named(&mut self) -> PathResult<Step> {
        if self.starts_with("\"") {
            return self.quoted().map(Step::Member);
        }
        if self.takes("**") {
            let (from, to) = self.levels()?;
            return Ok(Step::Deep(from, to));
        }
        if self.takes("*") {
            return Ok(Step::Members);
        }
        let name = self.while_is(is_letter);
        if name.is_empty() || name.starts_with(|first: char| first.is_ascii_digit()) {
            return Err(self.fault("the name of a member is missing"));
        }
        if self.takes("(") {
            self.wants(")")?;
            return self.method(name).map(Step::Method);
        }
        Ok(Step::Member(name.to_owned()))
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

    fn method(&self, name: &str) -> PathResult<Method> {
        Method::ALL.into_iter().find(|method| method.name() == name).ok_or_else(|| {
            let known: Vec<String> = Method::ALL.iter().map(|method| format!("`{}()`", method.name())).collect();
            self.fault(&format!("`{name}()` is not supported: {} are", known.join(", ")))
        })
    }

    fn items(&mut self, depth: usize) -> PathResult<Step> {
        if self.takes("*") {
            self.wants("]")?;
            return Ok(Step::Items);
        }
        let mut between = Vec::new();
        loop {
            let from = self.place(depth)?;
            let to = if self.takes_word("to") { Some(self.place(depth)?) } else { None };
            between.push((from, to));
            if !self.takes(",") {
                break;
            }
        }
        self.wants("]")?;
        Ok(Step::Between(between))
    }

    fn place(&mut self, depth: usize) -> PathResult<Expression> {
        self.indexes += 1;
        let place = self.sum(depth + 1)?;
        self.indexes -= 1;
        self.items_of(place)
    }
}

fn is_letter(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}
