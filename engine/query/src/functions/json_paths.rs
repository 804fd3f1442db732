//! Paths of SQL/JSON over documents (`jsonb_path_exists`, `jsonb_path_query` and the like): members, items, filters. They are
//! read as `lax` ones, in which an array is as good as its items, and what is not there is left out.
//!
//! A document is put into the form of `jsonb` first; what is found are pieces of that.

mod path;

use std::borrow::Cow;
use std::cmp::Ordering;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray as _, BooleanBuilder, ListBuilder, StringBuilder, StringViewArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{exec_err, plan_err};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use quiver_types::cancellation;

use super::json::{document_of, field, member, parts, unquoted};
use super::json_values::push_normal;
use super::result_memory::Room;
use super::row_builder::OutputMemory;
use path::{Condition, LAST, Method, Operator, Path, Place, Scalar, Step, Steps};

/// Bytes that an item takes while it is looked at.
const ITEM: usize = 32;

/// What is asked of what a path leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum JsonPathOperation {
    /// Whether it is anything.
    Exists,
    /// The truth that it is.
    Match,
    /// The first item.
    First,
    /// All as a JSON array.
    Array,
    /// All as a list, of which a statement makes rows.
    Items,
}

/// Names of the functions.
const FUNCTIONS: [(&str, JsonPathOperation); 5] = [
    ("jsonb_path_exists", JsonPathOperation::Exists),
    ("jsonb_path_match", JsonPathOperation::Match),
    ("jsonb_path_query_first", JsonPathOperation::First),
    ("jsonb_path_query_array", JsonPathOperation::Array),
    ("jsonb_path_items", JsonPathOperation::Items),
];

#[derive(Debug, PartialEq, Eq, Hash)]
struct JsonPath {
    name: &'static str,
    asked: JsonPathOperation,
    room: Room,
    signature: Signature,
}

pub(super) fn functions(room: &Room) -> impl Iterator<Item = Arc<ScalarUDF>> {
    FUNCTIONS.into_iter().map(|(name, asked)| {
        let signature = Signature::user_defined(Volatility::Immutable);
        Arc::new(ScalarUDF::from(JsonPath { name, asked, room: room.clone(), signature }))
    })
}

impl ScalarUDFImpl for JsonPath {
    fn name(&self) -> &'static str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        if types.len() != 2 {
            return plan_err!("`{}` takes a document and a path: write values of variables into the path", self.name);
        }
        match types.iter().find(|kind| !kind.is_string() && !kind.is_null()) {
            Some(other) => plan_err!("`{}` reads texts that hold JSON, and a path, not `{other}`", self.name),
            None => Ok(vec![DataType::Utf8View; 2]),
        }
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        Ok(match self.asked {
            JsonPathOperation::Exists | JsonPathOperation::Match => DataType::Boolean,
            JsonPathOperation::First | JsonPathOperation::Array => DataType::Utf8,
            JsonPathOperation::Items => DataType::new_list(DataType::Utf8, true),
        })
    }

    fn return_field_from_args(&self, _args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let kind = self.return_type(&[])?;
        let is_json = matches!(self.asked, JsonPathOperation::First | JsonPathOperation::Array);
        Ok(if is_json { field(self.name, kind) } else { Arc::new(Field::new(self.name, kind, true)) })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let texts = |value: &ColumnarValue| -> Result<StringViewArray> {
            let texts = cast(&value.to_array(args.number_rows)?, &DataType::Utf8View)?;
            Ok(texts.as_string_view().clone())
        };
        let [documents, paths] = args.args.as_slice() else { return exec_err!("`{}` takes a path", self.name) };
        let mut found = JsonPathResults::new(self.asked);
        let mut making = OutputMemory::new(self.name, &self.room);
        // The same path is read once.
        let mut last: Option<(&str, Path)> = None;
        let (documents, paths) = (texts(documents)?, texts(paths)?);
        for (text, path) in documents.iter().zip(paths.iter()) {
            let Some((text, path)) = text.zip(path) else {
                found.nothing();
                continue;
            };
            if last.as_ref().is_none_or(|(known, _)| *known != path) {
                last = Some((path, path::read(path).map_err(DataFusionError::Execution)?));
            }
            let mut normal = String::new();
            let is_document = match document_of(text) {
                Some(piece) => push_normal(piece, 0, &mut normal, &mut OutputMemory::new(self.name, &self.room))?,
                None => false,
            };
            let Some((_, path)) = last.as_ref().filter(|_| is_document) else {
                found.nothing();
                continue;
            };
            let mut walk = Walk { making: OutputMemory::new(self.name, &self.room) };
            let items = walk.items(path, &normal)?;
            making.add(items.iter().map(|item| item.len() + ITEM).sum())?;
            found.add(&items)?;
        }
        Ok(ColumnarValue::Array(found.finish()))
    }
}

/// What the rows of a batch give.
enum JsonPathResults {
    Exists(BooleanBuilder),
    Match(BooleanBuilder),
    First(StringBuilder),
    Array(StringBuilder),
    Items(ListBuilder<StringBuilder>),
}

impl JsonPathResults {
    fn new(asked: JsonPathOperation) -> Self {
        match asked {
            JsonPathOperation::Exists => Self::Exists(BooleanBuilder::new()),
            JsonPathOperation::Match => Self::Match(BooleanBuilder::new()),
            JsonPathOperation::First => Self::First(StringBuilder::new()),
            JsonPathOperation::Array => Self::Array(StringBuilder::new()),
            JsonPathOperation::Items => Self::Items(ListBuilder::new(StringBuilder::new())),
        }
    }

    /// Of a document or path that is NULL, and of what is no document.
    fn nothing(&mut self) {
        match self {
            Self::Exists(out) | Self::Match(out) => out.append_null(),
            Self::First(out) | Self::Array(out) => out.append_null(),
            Self::Items(out) => out.append(false),
        }
    }

    fn add(&mut self, items: &[Cow<'_, str>]) -> Result<()> {
        match self {
            Self::Exists(out) => out.append_value(!items.is_empty()),
            Self::Match(out) => match items.iter().map(AsRef::as_ref).collect::<Vec<&str>>().as_slice() {
                ["true"] => out.append_value(true),
                ["false"] => out.append_value(false),
                ["null"] => out.append_null(),
                _ => return exec_err!("`jsonb_path_match` takes a path that gives one truth, such as `$.a == 1`"),
            },
            Self::First(out) => out.append_option(items.first()),
            Self::Array(out) => out.append_value(format!("[{}]", items.join(", "))),
            Self::Items(out) => {
                for item in items {
                    out.values().append_value(item);
                }
                out.append(true);
            }
        }
        Ok(())
    }

    fn finish(self) -> ArrayRef {
        match self {
            Self::Exists(mut out) | Self::Match(mut out) => Arc::new(out.finish()),
            Self::First(mut out) | Self::Array(mut out) => Arc::new(out.finish()),
            Self::Items(mut out) => Arc::new(out.finish()),
        }
    }
}

/// A way through one document, which counts what it looks at.
struct Walk<'r> {
    making: OutputMemory<'r>,
}

impl Walk<'_> {
    fn items<'d>(&mut self, path: &Path, document: &'d str) -> Result<Vec<Cow<'d, str>>> {
        match path {
            Path::Items(steps) => {
                let found = self.found(steps, document, document)?;
                if found.iter().any(|piece| *piece == NO_NUMBER) {
                    return exec_err!(
                        "a jsonpath item method of numbers, such as `floor()`, is applied to another value"
                    );
                }
                Ok(found)
            }
            Path::Condition(condition) => Ok(vec![Cow::Borrowed(match self.holds(condition, document, document)? {
                Some(true) => "true",
                Some(false) => "false",
                None => "null",
            })]),
        }
    }

    /// What steps lead to, from the document or from the item at hand.
    fn found<'d>(&mut self, steps: &Steps, root: &'d str, at: &'d str) -> Result<Vec<Cow<'d, str>>> {
        let mut pieces = vec![if steps.from_root { root } else { at }];
        for step in &steps.each {
            let mut next = Vec::new();
            for piece in pieces {
                self.step(step, root, piece, &mut next)?;
            }
            pieces = next;
        }
        let mut found = Vec::with_capacity(pieces.len());
        for piece in pieces {
            match steps.method {
                None => found.push(Cow::Borrowed(piece)),
                Some(Method::Size) => found.push(Cow::Owned(size_of_array(piece).to_string())),
                Some(Method::Type) => found.push(Cow::Borrowed(type_of(piece))),
                Some(method) => {
                    let _ = unwrapped(piece, |item| {
                        found.push(number_of(item, method).map_or(Cow::Borrowed(NO_NUMBER), Cow::Owned));
                        None::<()>
                    });
                }
            }
        }
        Ok(found)
    }

    fn step<'d>(&mut self, step: &Step, root: &'d str, piece: &'d str, out: &mut Vec<&'d str>) -> Result<()> {
        goes_on(piece)?;
        let stopped = match step {
            Step::Items => unwrapped(piece, |item| self.keep([item], out).err()),
            Step::Member(name) => unwrapped(piece, |item| self.keep(member(item, name), out).err()),
            Step::Members => unwrapped(piece, |item| {
                let is_object = item.starts_with('{');
                if is_object { parts(item, |_, value| self.keep([value], out).err()) } else { None }
            }),
            Step::Between(places) => {
                let last = i64::try_from(size_of_array(piece)).unwrap_or(i64::MAX) - 1;
                let index = |place: Place| match place {
                    Place::At(at) => at,
                    Place::BeforeLast(before) => last - before,
                };
                for (from, to) in places {
                    goes_on(piece)?;
                    let (from, to, mut at) = (index(*from), index(*to), 0_i64);
                    let stopped = unwrapped(piece, |item| {
                        let here = at;
                        at += 1;
                        if here > to {
                            return Some(Ok(()));
                        }
                        if here < from { None } else { self.keep([item], out).err().map(Err) }
                    });
                    stopped.unwrap_or(Ok(()))?;
                }
                None
            }
            Step::Deep(from, to) => return self.deep(piece, 0, (*from, *to), out),
            Step::Kept(condition) => unwrapped(piece, |item| match self.holds(condition, root, item) {
                Ok(Some(true)) => self.keep([item], out).err(),
                Ok(_) => None,
                Err(stopped) => Some(stopped),
            }),
        };
        stopped.map_or(Ok(()), Err)
    }

    /// What is within a piece, from one level to another.
    fn deep<'d>(&mut self, piece: &'d str, level: u32, range: (u32, u32), out: &mut Vec<&'d str>) -> Result<()> {
        goes_on(piece)?;
        // Of a value that holds no others the path goes nowhere.
        let is_last = range == (LAST, LAST) && level > 0 && !piece.starts_with(['{', '[']);
        if level >= range.0 || is_last {
            self.keep([piece], out)?;
        }
        if level >= range.1 {
            return Ok(());
        }
        // A document that was read nests no deeper than its reader.
        parts(piece, |_, value| self.deep(value, level + 1, range, out).err()).map_or(Ok(()), Err)
    }

    fn keep<'d>(&mut self, found: impl IntoIterator<Item = &'d str>, out: &mut Vec<&'d str>) -> Result<()> {
        for piece in found {
            self.making.add(ITEM)?;
            out.push(piece);
        }
        Ok(())
    }

    /// Whether a condition holds; none: that cannot be known.
    fn holds(&mut self, condition: &Condition, root: &str, at: &str) -> Result<Option<bool>> {
        let (conditions, decides) = match condition {
            Condition::All(conditions) => (conditions, false),
            Condition::Any(conditions) => (conditions, true),
            Condition::Not(inner) => return Ok(self.holds(inner, root, at)?.map(|holds| !holds)),
            Condition::Exists(steps) => return Ok(Some(!self.found(steps, root, at)?.is_empty())),
            Condition::Compared(steps, operator, value) => {
                return self.one_of(steps, root, at, |piece| compared(piece, *operator, value));
            }
            Condition::StartsWith(steps, begin) => {
                return self.one_of(steps, root, at, |piece| Some(text_of(piece)?.starts_with(begin.as_str())));
            }
            Condition::Matches(steps, pattern) => {
                return self.one_of(steps, root, at, |piece| Some(pattern.0.is_match(&text_of(piece)?)));
            }
        };
        let mut whole = Some(!decides);
        for condition in conditions {
            match self.holds(condition, root, at)? {
                Some(holds) if holds == decides => return Ok(Some(decides)),
                Some(_) => {}
                None => whole = None,
            }
        }
        Ok(whole)
    }

    /// Whether one of the values to which steps lead is as it should be; none: of none it is known, but of one it cannot be.
    fn one_of(
        &mut self,
        steps: &Steps,
        root: &str,
        at: &str,
        is_so: impl Fn(&str) -> Option<bool>,
    ) -> Result<Option<bool>> {
        let mut whole = Some(false);
        for piece in self.found(steps, root, at)? {
            goes_on(&piece)?;
            let one = unwrapped(&piece, |item| match is_so(item) {
                Some(true) => Some(()),
                Some(false) => None,
                None => {
                    whole = None;
                    None
                }
            });
            if one.is_some() {
                return Ok(Some(true));
            }
        }
        Ok(whole)
    }
}

/// Asks whether the query goes on, at a piece that is looked at.
fn goes_on(piece: &str) -> Result<()> {
    if cancellation::goes_on(piece.len()) { Ok(()) } else { exec_err!("the query has ended") }
}

/// Goes through the items of an array until one gives something; anything else is the only one of its own. A list of them
/// would take more than the document.
fn unwrapped<'d, T>(piece: &'d str, mut take: impl FnMut(&'d str) -> Option<T>) -> Option<T> {
    if piece.starts_with('[') { parts(piece, |_, item| take(item)) } else { take(piece) }
}

/// What a method gives of what is no number: no piece of a document, with which nothing is compared.
const NO_NUMBER: &str = "";

/// What a method of numbers gives.
fn number_of(piece: &str, method: Method) -> Option<String> {
    let written = text_of(piece).filter(|_| method == Method::Double);
    let digits = written.as_deref().unwrap_or(piece);
    let number: f64 = digits.parse().ok().filter(|number: &f64| number.is_finite())?;
    let whole = |number: f64| if number == 0.0 { "0".to_owned() } else { format!("{number}") };
    Some(match method {
        Method::Abs => digits.strip_prefix('-').unwrap_or(digits).to_owned(),
        // Whole numbers keep all their digits.
        Method::Ceiling | Method::Floor if !digits.contains(['.', 'e', 'E']) => digits.to_owned(),
        Method::Ceiling => whole(number.ceil()),
        Method::Floor => whole(number.floor()),
        Method::Double | Method::Size | Method::Type => whole(number),
    })
}

/// How many items an array has; anything else is one.
fn size_of_array(piece: &str) -> usize {
    let mut count = 0;
    let _ = unwrapped(piece, |_| {
        count += 1;
        None::<()>
    });
    count
}

fn text_of(piece: &str) -> Option<Cow<'_, str>> {
    if piece.starts_with('"') { unquoted(piece) } else { None }
}

/// Compares a value with one that is written out; none: they are of types between which there is no order.
fn compared(piece: &str, operator: Operator, value: &Scalar) -> Option<bool> {
    if piece == NO_NUMBER {
        return None;
    }
    let (is_null, is_other) = (piece == "null", *value == Scalar::Null);
    if is_null || is_other {
        // What is null is no other value, and not known to be less than it.
        return Some(if is_null && is_other {
            operator.holds(Ordering::Equal)
        } else {
            operator == Operator::NotEqual
        });
    }
    let order = match value {
        Scalar::Null => return None,
        Scalar::Flag(flag) => piece.parse::<bool>().ok()?.cmp(flag),
        Scalar::Text(text) => Ord::cmp(&*text_of(piece)?, text.as_str()),
        Scalar::Number(number) => {
            if !piece.starts_with(|first: char| first == '-' || first.is_ascii_digit()) {
                return None;
            }
            // Whole numbers are told apart to their last digit.
            match (piece.parse::<i128>(), number.parse::<i128>()) {
                (Ok(piece), Ok(number)) => piece.cmp(&number),
                _ => piece.parse::<f64>().ok()?.partial_cmp(&number.parse::<f64>().ok()?)?,
            }
        }
    };
    Some(operator.holds(order))
}

/// The type of a value, as a JSON text.
fn type_of(piece: &str) -> &'static str {
    match piece.as_bytes().first() {
        Some(b'{') => "\"object\"",
        Some(b'[') => "\"array\"",
        Some(b'"') => "\"string\"",
        Some(b't' | b'f') => "\"boolean\"",
        Some(b'n') => "\"null\"",
        _ => "\"number\"",
    }
}

#[cfg(test)]
mod tests;
