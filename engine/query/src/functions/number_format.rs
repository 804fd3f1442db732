//! `to_char` of numbers, and `to_number`, with PostgreSQL's patterns: `9`, `0`, `.`, `,`, `D`, `G`, `S`, `MI`, `PL`,
//! `SG`, `PR`, `FM`, `RN`, `TH`, `V`, `EEEE`, and literal text between them. `quiver_sql` translates calls to these
//! functions, and rejects other patterns.
//!
//! Source: PostgreSQL's formatting.c, `NUM_processor` and `NUM_numpart_to_char`, node by node.

mod forms;

use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, AsArray, Float64Builder, StringBuilder, StringViewArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type};
use datafusion::common::{exec_err, internal_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

use super::result_memory::Room;
use super::row_builder::OutputMemory;
use super::text_views::text_views;
use forms::{ROMAN_WIDTH, exponent_of, exponent_of_digits, ordinal, roman, shifted};

/// Digits behind the point of a double, at most: the least is 2 to the power of -1074.
const DIGITS_MAX: usize = 1_074;

/// Which of the two it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum NumberFormatOperation {
    Text,
    Number,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct NumberFormatFunction {
    asked: NumberFormatOperation,
    room: Room,
    signature: Signature,
}

pub(super) fn functions(room: &Room) -> impl Iterator<Item = Arc<ScalarUDF>> {
    [NumberFormatOperation::Text, NumberFormatOperation::Number].into_iter().map(|asked| made(asked, room))
}

/// Gives the one that writes numbers.
pub(super) fn to_char(room: &Room) -> Arc<ScalarUDF> {
    made(NumberFormatOperation::Text, room)
}

fn made(asked: NumberFormatOperation, room: &Room) -> Arc<ScalarUDF> {
    let signature = Signature::user_defined(Volatility::Immutable);
    Arc::new(ScalarUDF::from(NumberFormatFunction { asked, room: room.clone(), signature }))
}

impl ScalarUDFImpl for NumberFormatFunction {
    fn name(&self) -> &'static str {
        match self.asked {
            NumberFormatOperation::Text => "number_to_char",
            NumberFormatOperation::Number => "to_number",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let [value, pattern] = types else { return plan_err!("a value and a pattern are taken, not {types:?}") };
        if !pattern.is_string() && !pattern.is_null() {
            return plan_err!("a pattern is a text, not `{pattern}`");
        }
        let value = match self.asked {
            NumberFormatOperation::Text if value.is_numeric() => value.clone(),
            NumberFormatOperation::Text if value.is_null() => DataType::Float64,
            NumberFormatOperation::Number if value.is_string() || value.is_null() => DataType::Utf8View,
            NumberFormatOperation::Text => return plan_err!("a pattern of numbers is for a number, not for `{value}`"),
            NumberFormatOperation::Number => return plan_err!("`to_number` reads a text, not `{value}`"),
        };
        Ok(vec![value, DataType::Utf8View])
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        Ok(match self.asked {
            NumberFormatOperation::Text => DataType::Utf8,
            NumberFormatOperation::Number => DataType::Float64,
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [values, patterns] = args.args.as_slice() else { return internal_err!("a value and a pattern are taken") };
        let is_constant = matches!(patterns, ColumnarValue::Scalar(_));
        let (values, patterns) = (values.to_array(args.number_rows)?, patterns.to_array(args.number_rows)?);
        let patterns = text_views(&patterns)?;
        Ok(ColumnarValue::Array(match self.asked {
            NumberFormatOperation::Text => self.texts(&values, &patterns, is_constant)?,
            NumberFormatOperation::Number => numbers(&values, &patterns)?,
        }))
    }
}

impl NumberFormatFunction {
    fn texts(&self, values: &ArrayRef, patterns: &StringViewArray, is_constant: bool) -> Result<ArrayRef> {
        let doubles = match values.data_type() {
            DataType::Float16 | DataType::Float32 | DataType::Float64 => Some(cast(values, &DataType::Float64)?),
            _ => None,
        };
        let doubles = doubles.as_ref().map(AsArray::as_primitive::<Float64Type>);
        // Whole numbers and decimals have all their digits as texts.
        let digits = if doubles.is_none() { Some(text_views(values)?) } else { None };
        let mut making = OutputMemory::new("to_char", &self.room);
        let (mut out, mut text) = (StringBuilder::new(), String::new());
        let mut known: Option<Pattern> = None;
        for row in 0..values.len() {
            if values.is_null(row) || patterns.is_null(row) {
                out.append_null();
                continue;
            }
            if known.is_none() || !is_constant {
                known = Some(Pattern::read(patterns.value(row)));
            }
            let Some(pattern) = &known else { return internal_err!("a pattern is lacking") };
            if let Some(wrong) = pattern.wrong {
                return exec_err!("{wrong} in the pattern `{}`", patterns.value(row));
            }
            making.add(2 * patterns.value(row).len() + ROMAN_WIDTH)?;
            text.clear();
            match (doubles, &digits) {
                (Some(doubles), _) => pattern.double(doubles.value(row), &mut text),
                (None, Some(digits)) => pattern.digits(digits.value(row), &mut text),
                (None, None) => return internal_err!("a number is lacking"),
            }
            out.append_value(&text);
        }
        Ok(Arc::new(out.finish()))
    }
}

/// A double with so many digits behind its point.
fn printed(number: f64, behind: usize) -> String {
    // Behind these there are zeros alone, and the precision of `format!` has 16 bits.
    let exact = behind.min(DIGITS_MAX);
    let mut text = format!("{number:.exact$}");
    text.extend(std::iter::repeat_n('0', behind - exact));
    text
}

/// A number as it is printed with so many digits behind its point; a half goes away from zero.
fn rounded(number: &str, behind: usize) -> String {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.len() <= behind {
        let point = if behind > 0 { "." } else { "" };
        return format!("{whole}{point}{fraction}{}", "0".repeat(behind - fraction.len()));
    }
    let mut digits: Vec<u8> = whole.bytes().chain(fraction.bytes().take(behind)).collect();
    if fraction.as_bytes()[behind] >= b'5' {
        let first = usize::from(digits.first() == Some(&b'-'));
        let last = digits.iter().rposition(|digit| *digit != b'9').filter(|at| *at >= first);
        let from = last.map_or(first, |last| last + 1);
        digits[from..].fill(b'0');
        match last {
            Some(last) => digits[last] += 1,
            None => digits.insert(first, b'1'),
        }
    }
    let mut text: String = digits.iter().map(|digit| char::from(*digit)).collect();
    if behind > 0 {
        text.insert(text.len() - behind, '.');
    }
    text
}

/// The numbers that texts hold: digits, a sign and a point, whatever is between them.
fn numbers(values: &ArrayRef, patterns: &StringViewArray) -> Result<ArrayRef> {
    let texts = text_views(values)?;
    let mut out = Float64Builder::with_capacity(texts.len());
    for (text, pattern) in texts.iter().zip(patterns.iter()) {
        let Some((text, _)) = text.zip(pattern) else {
            out.append_null();
            continue;
        };
        let mut number: String = text.chars().filter(|c| c.is_ascii_digit() || *c == '.').collect();
        let is_below = text.contains('-') || (text.contains('<') && text.contains('>'));
        if is_below {
            number.insert(0, '-');
        }
        match number.parse() {
            Ok(number) => out.append_value(number),
            Err(_) => return exec_err!("`to_number` finds no number in `{text}`"),
        }
    }
    Ok(Arc::new(out.finish()))
}

/// A part of a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Node {
    Nine,
    Zero,
    Point,
    Comma,
    Minus,
    Plus,
    Sign,
    /// `TH`, in small letters or large ones.
    Ordinal(bool),
    /// `RN`, the same.
    Roman(bool),
    Other(char),
}

/// Where a sign stands that moves with the number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SignPlace {
    Before,
    Behind,
}

/// See `NUMDesc` of PostgreSQL.
#[derive(Debug, Default)]
#[allow(clippy::struct_excessive_bools, reason = "the flags of PostgreSQL's `NUMDesc`")]
struct Pattern {
    nodes: Vec<Node>,
    /// Digits before and behind the point.
    before: usize,
    behind: usize,
    /// The first digit that is a zero where the number has none, counted from 0.
    zeros_from: Option<usize>,
    /// How many digits end with the last such one.
    zeros_to: usize,
    has_point: bool,
    /// `FM`: without padding.
    is_short: bool,
    sign: Option<SignPlace>,
    /// Digits in front of the last `S` before the point.
    digits_before_sign: usize,
    has_minus: bool,
    has_plus: bool,
    has_brackets: bool,
    is_roman: bool,
    /// `EEEE`: with an exponent.
    has_exponent: bool,
    /// `V`, and by how many powers of ten the number is multiplied.
    multiplies: bool,
    places: usize,
    /// What is wrong with it.
    wrong: Option<&'static str>,
}

/// Words of patterns.
const WORDS: [&str; 18] =
    ["EEEE", "RN", "TH", "V", "FM", "MI", "PL", "SG", "PR", "S", "D", "G", "L", "B", ".", ",", "9", "0"];

impl Pattern {
    fn read(text: &str) -> Self {
        let mut pattern = Self::default();
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            if let Some((quoted, behind)) = rest.strip_prefix('"').and_then(|rest| rest.split_once('"')) {
                pattern.nodes.extend(quoted.chars().map(Node::Other));
                rest = behind;
                continue;
            }
            let begins = |word: &&&str| rest.get(..word.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(word));
            let Some(word) = WORDS.iter().find(begins) else {
                pattern.nodes.push(Node::Other(first));
                rest = &rest[first.len_utf8()..];
                continue;
            };
            rest = &rest[word.len()..];
            pattern.word(word, first.is_ascii_lowercase());
        }
        pattern.finish();
        pattern
    }

    /// Adds one of [`WORDS`].
    fn word(&mut self, word: &str, is_small: bool) {
        if self.has_exponent {
            self.wrong = Some("`EEEE` is not the last word");
        }
        match word {
            "EEEE" => self.has_exponent = true,
            "RN" => {
                self.is_roman = true;
                self.nodes.push(Node::Roman(is_small));
            }
            "TH" => self.nodes.push(Node::Ordinal(is_small)),
            "V" => self.multiplies = true,
            "FM" => self.is_short = true,
            "PR" => self.has_brackets = true,
            "S" if !self.has_point => {
                (self.sign, self.digits_before_sign) = (Some(SignPlace::Before), self.before);
            }
            "S" => self.sign = self.sign.or(Some(SignPlace::Behind)),
            "MI" => {
                self.has_minus = true;
                self.nodes.push(Node::Minus);
            }
            "PL" => {
                self.has_plus = true;
                self.nodes.push(Node::Plus);
            }
            "SG" => {
                (self.has_minus, self.has_plus) = (true, true);
                self.nodes.push(Node::Sign);
            }
            "." | "D" => {
                self.has_point = true;
                self.nodes.push(Node::Point);
            }
            "," | "G" => self.nodes.push(Node::Comma),
            "L" => self.nodes.push(Node::Other(' ')),
            // PostgreSQL reads it, and does nothing with it.
            "B" => {}
            digit => self.digit(digit == "0"),
        }
    }

    /// Draws conclusions that take all words.
    fn finish(&mut self) {
        let is_free = !self.has_plus && !self.has_minus;
        // An `S` that no digit follows before the point stands behind the number.
        if is_free && self.sign == Some(SignPlace::Before) && self.digits_before_sign == self.before {
            self.sign = Some(SignPlace::Behind);
        }
        if self.multiplies && self.has_point {
            self.wrong = Some("`V` stands together with a point");
        }
        let has_others = self.is_short || self.has_brackets || self.is_roman || self.multiplies;
        if self.has_exponent && (has_others || !is_free || self.sign.is_some()) {
            self.wrong = Some("`EEEE` stands together with words that are none of digits");
        }
        self.before += self.places;
    }

    /// Writes a double.
    fn double(&self, number: f64, out: &mut String) {
        let scaled = number * 10_f64.powi(self.places as i32);
        if self.has_exponent && number.is_finite() {
            out.push_str(&exponent_of(number, self.behind));
        } else if self.has_exponent {
            self.no_exponent(out);
        } else if self.is_roman {
            // A half is rounded to the even neighbour.
            self.write(&format!("{number:.0}"), out);
        } else if scaled.is_finite() {
            // What is rounded to zero keeps its sign.
            self.write_signed(&printed(scaled, self.behind), scaled < 0.0, out);
        } else if scaled.is_nan() {
            self.write("NaN", out);
        } else {
            // It has more digits than there is room for.
            let sign = if scaled < 0.0 { "-" } else { "" };
            self.write(&format!("{sign}{}", "9".repeat(self.before + 1)), out);
        }
    }

    /// Writes a number as it is printed.
    fn digits(&self, number: &str, out: &mut String) {
        if self.has_exponent {
            out.push_str(&exponent_of_digits(number, self.behind));
        } else if self.is_roman {
            self.write(&rounded(number, 0), out);
        } else if self.places > 0 {
            self.write(&rounded(&shifted(number, self.places), self.behind), out);
        } else {
            self.write(&rounded(number, self.behind), out);
        }
    }

    /// What stands for a number that has no exponent.
    fn no_exponent(&self, out: &mut String) {
        out.push(' ');
        out.push_str(&"#".repeat(self.before));
        out.push('.');
        out.push_str(&"#".repeat(self.behind + "e+00".len()));
    }

    fn digit(&mut self, is_zero: bool) {
        self.nodes.push(if is_zero { Node::Zero } else { Node::Nine });
        if self.multiplies && !is_zero {
            self.places += 1;
            return;
        }
        if is_zero && !self.has_point && self.zeros_from.is_none() {
            self.zeros_from = Some(self.before);
        }
        if self.has_point {
            self.behind += 1;
        } else {
            self.before += 1;
        }
        if is_zero {
            self.zeros_to = self.before + self.behind;
        }
    }

    /// Writes a number that has as many digits behind its point.
    fn write(&self, number: &str, out: &mut String) {
        let is_zero = !number.bytes().any(|digit| matches!(digit, b'1'..=b'9'));
        self.write_signed(number, number.starts_with('-') && !is_zero, out);
    }

    /// Writes the same with a sign of its own.
    fn write_signed(&self, number: &str, is_below: bool, out: &mut String) {
        let digits = number.trim_start_matches('-');
        let whole = digits.split('.').next().unwrap_or_default().len();
        // What has no room is not shown.
        let digits = if whole > self.before {
            format!("{}.{}", "#".repeat(self.before), "#".repeat(self.behind))
        } else {
            digits.to_owned()
        };
        let blanks = self.before.saturating_sub(whole);
        let mut writing = NumberWriter::new(self, digits.as_bytes(), blanks, is_below);
        for node in &self.nodes {
            match node {
                Node::Nine | Node::Zero | Node::Point | Node::Comma if self.is_roman => {}
                Node::Roman(is_small) => {
                    let width = if self.is_short { 0 } else { ROMAN_WIDTH };
                    let letters = roman(number);
                    let letters = if *is_small { letters.to_lowercase() } else { letters };
                    out.extend(std::iter::repeat_n(' ', width.saturating_sub(letters.len())));
                    out.push_str(&letters);
                }
                // What is below zero, has a fraction or no room is no ordinal.
                Node::Ordinal(_) if self.is_roman || is_below || self.has_point || whole > self.before => {}
                Node::Ordinal(is_small) => {
                    let end = ordinal(number);
                    out.push_str(&if *is_small { end.to_owned() } else { end.to_uppercase() });
                }
                Node::Nine | Node::Zero | Node::Point => writing.digit(*node == Node::Zero, out),
                Node::Comma if writing.is_within => out.push(','),
                Node::Minus if is_below => out.push('-'),
                Node::Plus if !is_below => out.push('+'),
                Node::Sign => out.push(if is_below { '-' } else { '+' }),
                Node::Comma | Node::Minus | Node::Plus if self.is_short => {}
                Node::Comma | Node::Minus | Node::Plus => out.push(' '),
                Node::Other(other) => out.push(*other),
            }
        }
    }
}

/// See `NUMProc` of PostgreSQL.
#[allow(clippy::struct_excessive_bools, reason = "the flags of PostgreSQL's `NUMProc`")]
struct NumberWriter<'p> {
    pattern: &'p Pattern,
    digits: &'p [u8],
    /// Places before the first digit.
    blanks: usize,
    is_below: bool,
    has_brackets: bool,
    is_signed: bool,
    /// Places in all, but one.
    count: usize,
    /// The last digit that says something, of a number without padding.
    last: Option<usize>,
    /// The place and the digit that come next.
    place: usize,
    at: usize,
    /// Whether the node before was a digit that was written.
    is_within: bool,
}

impl<'p> NumberWriter<'p> {
    fn new(pattern: &'p Pattern, digits: &'p [u8], blanks: usize, is_below: bool) -> Self {
        let is_marked = pattern.has_plus || pattern.has_minus;
        let is_signed =
            if is_marked { pattern.has_minus } else { !is_below && pattern.is_short && pattern.sign.is_none() };
        let has_brackets = pattern.has_brackets && (is_marked || is_below || !pattern.is_short);
        let point = digits.iter().position(|byte| *byte == b'.');
        let last = point.filter(|_| pattern.is_short && pattern.has_point).map(|point| {
            let said = digits.iter().rposition(|byte| *byte != b'0').map_or(point, |at| at.max(point));
            let zeros = (digits.len() - 1).min(pattern.zeros_to.saturating_sub(blanks));
            if pattern.zeros_to > blanks { said.max(zeros) } else { said }
        });
        let count = (pattern.before + pattern.behind).saturating_sub(1);
        let count = count + usize::from(!is_signed && blanks == 0);
        let (place, at, is_within) = (0, 0, false);
        Self { pattern, digits, blanks, is_below, has_brackets, is_signed, count, last, place, at, is_within }
    }

    fn pad(&self, out: &mut String) {
        if !self.pattern.is_short {
            out.push(' ');
        }
    }

    /// The sign before the number.
    fn sign(&mut self, out: &mut String) {
        match self.pattern.sign {
            Some(SignPlace::Before) => out.push(if self.is_below { '-' } else { '+' }),
            Some(SignPlace::Behind) => return,
            None if self.has_brackets => out.push(if self.is_below { '<' } else { ' ' }),
            None if self.is_below => out.push('-'),
            None => self.pad(out),
        }
        self.is_signed = true;
    }

    fn digit(&mut self, is_zero: bool, out: &mut String) {
        self.is_within = false;
        let zeros_from = self.pattern.zeros_from;
        let digit = self.digits.get(self.at).copied();
        // `.1` of `9.9`.
        let is_left_out =
            zeros_from.is_none() && self.at == 0 && self.digits.first() == Some(&b'0') && self.pattern.behind > 0;
        let ends_with_point = self.last.is_some_and(|last| self.digits.get(last) == Some(&b'.'));
        let begins = self.place >= self.blanks || zeros_from == Some(self.place);
        if !self.is_signed && begins && (!is_left_out || ends_with_point) {
            self.sign(out);
        }
        let is_before = self.place < self.blanks;
        if is_before && zeros_from.is_none_or(|from| from > self.place) {
            self.pad(out);
        } else if is_before {
            out.push('0');
            self.is_within = true;
        } else {
            match digit {
                Some(b'.') if !ends_with_point || self.pattern.is_short => out.push('.'),
                Some(b'.') | None => {}
                Some(_) if self.last.is_some_and(|last| self.at > last) && !is_zero => {}
                Some(_) if is_left_out && self.pattern.is_short && ends_with_point => out.push('0'),
                Some(_) if is_left_out => self.pad(out),
                Some(digit) => {
                    out.push(char::from(digit));
                    self.is_within = true;
                }
            }
            self.at += usize::from(digit.is_some());
        }
        let all = self.count + usize::from(self.blanks > 0) + usize::from(self.pattern.has_point);
        let end = if self.last == Some(self.at) { self.place } else { all };
        if self.place + 1 == end {
            if self.is_signed && self.has_brackets {
                out.push(if self.is_below { '>' } else { ' ' });
            } else if self.pattern.sign == Some(SignPlace::Behind) {
                out.push(if self.is_below { '-' } else { '+' });
            }
        }
        self.place += 1;
    }
}

#[cfg(test)]
mod tests;
