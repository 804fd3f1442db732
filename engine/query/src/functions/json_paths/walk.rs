//! Evaluates a path on one document.
//!
//! If evaluation fails at an item, the items found before it are kept together with the error.

use std::borrow::Cow;
use std::cmp::Ordering;

use datafusion::common::exec_err;
use datafusion::error::{DataFusionError, Result};
use quiver_types::cancellation;

use super::super::json::{member, parts, unquoted};
use super::super::row_builder::OutputMemory;
use super::numbers::Number;
use super::path::{Arithmetic, Base, Body, Condition, Expression, LAST, Method, Operator, Path, Step, Steps};

/// Bytes that an item takes while it is looked at.
pub(super) const ITEM: usize = 32;

/// A way through one document, which counts what it looks at.
pub(super) struct Walk<'r> {
    making: OutputMemory<'r>,
    is_strict: bool,
}

/// What a path leads to: the items before a fault, if there is one.
#[derive(Debug, Default)]
pub(super) struct Found<'d> {
    pub(super) items: Vec<Cow<'d, str>>,
    pub(super) fault: Option<String>,
}

impl<'d> Found<'d> {
    fn one(item: Cow<'d, str>) -> Self {
        Self { items: vec![item], fault: None }
    }

    fn fault(fault: String) -> Self {
        Self { items: Vec::new(), fault: Some(fault) }
    }
}

/// Bytes of items: parts of the document are only referred to.
fn bytes(items: &[Cow<'_, str>]) -> usize {
    let made = |item: &Cow<'_, str>| if let Cow::Owned(text) = item { text.len() } else { 0 };
    items.iter().map(|item| ITEM + made(item)).sum()
}

/// What a step stops at.
enum Stop {
    Fault(String),
    /// The query has ended, or there is no memory.
    Ended(Box<DataFusionError>),
}

impl From<DataFusionError> for Stop {
    fn from(error: DataFusionError) -> Self {
        Self::Ended(Box::new(error))
    }
}

type Stepped = Result<(), Stop>;

fn fault(text: impl Into<String>) -> Stepped {
    Err(Stop::Fault(text.into()))
}

/// Where a walk is.
#[derive(Debug, Clone, Copy)]
struct Here<'d> {
    root: &'d str,
    /// The item that a condition is about.
    item: &'d str,
    /// The last place of the array in whose brackets it is.
    last: i64,
    /// Whether what is not there is left out.
    is_lenient: bool,
}

impl<'r> Walk<'r> {
    pub(super) fn new(making: OutputMemory<'r>) -> Self {
        Self { making, is_strict: false }
    }

    /// What a path leads to.
    ///
    /// # Errors
    /// LimitExceeded: there is no memory. Execution: the query has ended.
    pub(super) fn items<'d>(&mut self, path: &'d Path, document: &'d str) -> Result<Found<'d>> {
        self.is_strict = path.is_strict;
        let here = Here { root: document, item: document, last: 0, is_lenient: !path.is_strict };
        match &path.body {
            Body::Items(expression) => self.value(expression, here),
            Body::Condition(condition) => Ok(Found::one(Cow::Borrowed(truth(self.holds(condition, here)?)))),
        }
    }

    /// Looks at items of which none is kept.
    fn passing<T>(&mut self, look: impl FnOnce(&mut Self) -> T) -> T {
        let before = self.making.bytes();
        let told = look(self);
        self.making.keep(before);
        told
    }

    fn value<'d>(&mut self, expression: &'d Expression, here: Here<'d>) -> Result<Found<'d>> {
        let before = self.making.bytes();
        match expression {
            Expression::Steps(steps) => self.found(steps, here),
            Expression::Signed { turns, of } => {
                let Found { items, mut fault } = self.value(of, here)?;
                let sign = if *turns { '-' } else { '+' };
                let mut signed: Vec<Cow<'d, str>> = Vec::with_capacity(items.len());
                let stopped = self.each_item(&items, |item| {
                    let number = Number::read(item);
                    match number.and_then(|number| if *turns { number.turned() } else { Some(number) }) {
                        Some(number) => signed.push(Cow::Owned(number.to_string())),
                        None if is_number(item) => return Some(too_long()),
                        None => {
                            return Some(format!("operand of unary jsonpath operator {sign} is not a numeric value"));
                        }
                    }
                    None
                });
                self.making.add(bytes(&signed))?;
                self.making.keep(before + bytes(&signed));
                fault = stopped.or(fault);
                Ok(Found { items: signed, fault })
            }
            Expression::Calculated(first, others) => {
                let sign = others.first().map_or('+', |(operator, _)| operator.sign());
                let mut total = match self.operand(first, here, "left", sign)? {
                    Ok(number) => number,
                    Err(fault) => return Ok(Found::fault(fault)),
                };
                for (operator, right) in others {
                    let right = match self.operand(right, here, "right", operator.sign())? {
                        Ok(number) => number,
                        Err(fault) => return Ok(Found::fault(fault)),
                    };
                    if right.is_zero() && matches!(operator, Arithmetic::Divided | Arithmetic::Modulo) {
                        return Ok(Found::fault(crate::BY_ZERO.to_owned()));
                    }
                    match total.calculated(*operator, right) {
                        Some(number) => total = number,
                        None => return Ok(Found::fault(too_long())),
                    }
                }
                Ok(Found::one(Cow::Owned(total.to_string())))
            }
        }
    }

    /// The one number that an operand is, or what is wrong with it.
    fn operand(&mut self, of: &Expression, here: Here<'_>, side: &str, sign: char) -> Result<Result<Number, String>> {
        self.passing(|walk| walk.one_number(of, here, side, sign))
    }

    fn one_number(
        &mut self,
        of: &Expression,
        here: Here<'_>,
        side: &str,
        sign: char,
    ) -> Result<Result<Number, String>> {
        let Found { items, fault } = self.value(of, here)?;
        if let Some(fault) = fault {
            return Ok(Err(fault));
        }
        let (mut one, mut count) = (None, 0_usize);
        let _ = self.each_item(&items, |item| {
            count += 1;
            one = (count == 1).then(|| (Number::read(item), is_number(item)));
            (count > 1).then_some(())
        });
        Ok(match one {
            Some((Some(number), _)) => Ok(number),
            Some((None, true)) => Err(too_long()),
            _ => Err(format!("{side} operand of jsonpath operator {sign} is not a single numeric value")),
        })
    }

    fn found<'d>(&mut self, steps: &'d Steps, mut here: Here<'d>) -> Result<Found<'d>> {
        let before = self.making.bytes();
        let mut found = match &steps.base {
            Base::Root => Found::one(Cow::Borrowed(here.root)),
            Base::Item => Found::one(Cow::Borrowed(here.item)),
            Base::Last => Found::one(Cow::Owned(here.last.to_string())),
            Base::Written(value) => Found::one(Cow::Borrowed(value.as_str())),
            Base::Items(expression) => self.value(expression, here)?,
            Base::Truth(condition) => Found::one(Cow::Borrowed(truth(self.holds(condition, here)?))),
        };
        for step in &steps.each {
            let mut next = Vec::new();
            for item in std::mem::take(&mut found.items) {
                let stepped = match item {
                    Cow::Borrowed(item) => self.step(step, here, item, &mut next),
                    Cow::Owned(item) => {
                        let mut own = Vec::new();
                        let stepped = self.step(step, here, &item, &mut own);
                        self.making.add(own.iter().map(|item| item.len() + ITEM).sum())?;
                        next.extend(own.into_iter().map(|item| Cow::Owned(item.into_owned())));
                        stepped
                    }
                };
                match stepped {
                    Ok(()) => {}
                    // What stands before the fault goes on.
                    Err(Stop::Fault(text)) => {
                        found.fault = Some(text);
                        break;
                    }
                    Err(Stop::Ended(error)) => return Err(*error),
                }
            }
            found.items = next;
            // Those that the step was taken from are gone.
            self.making.keep(before + bytes(&found.items));
            here.is_lenient |= matches!(step, Step::Deep(..));
        }
        Ok(found)
    }

    fn step<'d>(&mut self, step: &'d Step, here: Here<'d>, item: &'d str, out: &mut Vec<Cow<'d, str>>) -> Stepped {
        goes_on(item)?;
        match step {
            Step::Items if item.starts_with('[') => self.parts(item, out),
            Step::Items if !self.is_strict => self.keep(Cow::Borrowed(item), out),
            Step::Items if here.is_lenient => Ok(()),
            Step::Items => fault("jsonpath wildcard array accessor can only be applied to an array"),
            Step::Between(places) => self.between(places, here, item, out),
            Step::Deep(from, to) => self.deep(item, 0, (*from, *to), out),
            Step::Method(Method::Size) => {
                if self.is_strict && !item.starts_with('[') {
                    return if here.is_lenient {
                        Ok(())
                    } else {
                        fault("jsonpath item method .size() can only be applied to an array")
                    };
                }
                self.keep(Cow::Owned(size_of_array(item).to_string()), out)
            }
            Step::Method(Method::Type) => self.keep(Cow::Borrowed(type_of(item)), out),
            Step::Member(_) | Step::Members | Step::Kept(_) | Step::Method(_) => {
                // An array is as good as its items.
                if !self.is_strict && item.starts_with('[') {
                    let stopped = parts(item, |_, item| self.of_one(step, here, item, out).err());
                    return stopped.map_or(Ok(()), Err);
                }
                self.of_one(step, here, item, out)
            }
        }
    }

    /// A step from what is no array, or is taken for one value.
    fn of_one<'d>(&mut self, step: &'d Step, here: Here<'d>, item: &'d str, out: &mut Vec<Cow<'d, str>>) -> Stepped {
        let is_object = item.starts_with('{');
        match step {
            Step::Member(name) => match member(item, name) {
                Some(value) => self.keep(Cow::Borrowed(value), out),
                None if here.is_lenient => Ok(()),
                None if is_object => fault(format!("JSON object does not contain key \"{name}\"")),
                None => fault("jsonpath member accessor can only be applied to an object"),
            },
            Step::Members if is_object => self.parts(item, out),
            Step::Members if here.is_lenient => Ok(()),
            Step::Members => fault("jsonpath wildcard member accessor can only be applied to an object"),
            Step::Kept(condition) => match self.holds(condition, Here { item, ..here })? {
                Some(true) => self.keep(Cow::Borrowed(item), out),
                Some(false) | None => Ok(()),
            },
            Step::Method(Method::KeyValue) if is_object => {
                // Objects are distinguished by their position.
                let (begin, whole) = (item.as_ptr().addr(), here.root.as_ptr().addr());
                let place = begin.checked_sub(whole).filter(|place| *place < here.root.len()).unwrap_or(0);
                let stopped = parts(item, |name, value| {
                    let pair = format!("{{\"id\": {place}, \"key\": {}, \"value\": {value}}}", name.unwrap_or("\"\""));
                    self.keep(Cow::Owned(pair), out).err()
                });
                stopped.map_or(Ok(()), Err)
            }
            Step::Method(Method::KeyValue) => {
                fault("jsonpath item method .keyvalue() can only be applied to an object")
            }
            Step::Method(method) => match number_of(item, *method) {
                Some(number) => self.keep(Cow::Owned(number), out),
                None if *method == Method::Double && item.starts_with('"') => fault(
                    "string argument of jsonpath item method .double() is not a valid representation of a double precision number",
                ),
                None => fault(format!(
                    "jsonpath item method .{}() can only be applied to a {}numeric value",
                    method.name(),
                    if *method == Method::Double { "string or " } else { "" }
                )),
            },
            Step::Items | Step::Between(_) | Step::Deep(..) => Ok(()),
        }
    }

    fn parts<'d>(&mut self, item: &'d str, out: &mut Vec<Cow<'d, str>>) -> Stepped {
        parts(item, |_, value| self.keep(Cow::Borrowed(value), out).err()).map_or(Ok(()), Err)
    }

    fn between<'d>(
        &mut self,
        places: &'d [(Expression, Option<Expression>)],
        here: Here<'d>,
        item: &'d str,
        out: &mut Vec<Cow<'d, str>>,
    ) -> Stepped {
        let is_array = item.starts_with('[');
        if self.is_strict && !is_array {
            return if here.is_lenient {
                Ok(())
            } else {
                fault("jsonpath array accessor can only be applied to an array")
            };
        }
        let last = i64::try_from(size_of_array(item)).unwrap_or(i64::MAX) - 1;
        let within = Here { last, ..here };
        for (from, to) in places {
            goes_on(item)?;
            let from = self.place(from, within)?;
            let to = to.as_ref().map_or(Ok(from), |to| self.place(to, within))?;
            if !here.is_lenient && (from < 0 || from > to || to > last) {
                return fault("jsonpath array subscript is out of bounds");
            }
            let mut at = 0_i64;
            let stopped = unwrapped(item, |part| {
                let place = at;
                at += 1;
                if place > to {
                    return Some(Ok(()));
                }
                if place < from { None } else { self.keep(Cow::Borrowed(part), out).err().map(Err) }
            });
            stopped.unwrap_or(Ok(()))?;
        }
        Ok(())
    }

    /// The place in an array that an expression says.
    fn place(&mut self, of: &Expression, here: Here<'_>) -> Result<i64, Stop> {
        self.passing(|walk| walk.one_place(of, here))
    }

    fn one_place(&mut self, of: &Expression, here: Here<'_>) -> Result<i64, Stop> {
        let Found { items, fault } = self.value(of, here)?;
        if let Some(fault) = fault {
            return Err(Stop::Fault(fault));
        }
        let [one] = items.as_slice() else { return Err(Stop::Fault(NO_PLACE.to_owned())) };
        if let Ok(place) = one.parse::<i32>() {
            return Ok(place.into());
        }
        if !is_number(one) {
            return Err(Stop::Fault(NO_PLACE.to_owned()));
        }
        let place = Number::read(one).and_then(Number::place);
        place.ok_or_else(|| Stop::Fault("jsonpath array subscript is out of integer range".to_owned()))
    }

    /// What is within an item, from one level to another.
    fn deep<'d>(&mut self, item: &'d str, level: u32, range: (u32, u32), out: &mut Vec<Cow<'d, str>>) -> Stepped {
        goes_on(item)?;
        // Of a value that holds no others the path goes nowhere.
        let is_last = range == (LAST, LAST) && level > 0 && !item.starts_with(['{', '[']);
        if level >= range.0 || is_last {
            self.keep(Cow::Borrowed(item), out)?;
        }
        if level >= range.1 {
            return Ok(());
        }
        // A document that was read nests no deeper than its reader.
        parts(item, |_, value| self.deep(value, level + 1, range, out).err()).map_or(Ok(()), Err)
    }

    fn keep<'d>(&mut self, item: Cow<'d, str>, out: &mut Vec<Cow<'d, str>>) -> Stepped {
        self.making.add(bytes(std::slice::from_ref(&item)))?;
        out.push(item);
        Ok(())
    }

    /// Whether a condition holds; none: that cannot be known.
    fn holds(&mut self, condition: &Condition, here: Here<'_>) -> Result<Option<bool>> {
        self.passing(|walk| walk.truth_of(condition, here))
    }

    fn truth_of(&mut self, condition: &Condition, here: Here<'_>) -> Result<Option<bool>> {
        let (conditions, decides) = match condition {
            Condition::All(conditions) => (conditions, false),
            Condition::Any(conditions) => (conditions, true),
            Condition::Not(inner) => return Ok(self.holds(inner, here)?.map(|holds| !holds)),
            Condition::IsUnknown(inner) => return Ok(Some(self.holds(inner, here)?.is_none())),
            Condition::Exists(of) => {
                let Found { items, fault } = self.value(of, here)?;
                let is_known = fault.is_none() || (!self.is_strict && !items.is_empty());
                return Ok(is_known.then_some(!items.is_empty()));
            }
            Condition::Compared(left, operator, right) => {
                let (left, right) = (self.value(left, here)?, self.value(right, here)?);
                if left.fault.is_some() || right.fault.is_some() {
                    return Ok(None);
                }
                let is_so = |left: &str| self.one_of(&right.items, |right| Ok(compared(left, *operator, right)));
                return self.one_of(&left.items, is_so);
            }
            Condition::StartsWith(of, begin) => {
                let of = self.value(of, here)?;
                return self.known(&of, |item| Some(text_of(item)?.starts_with(begin.as_str())));
            }
            Condition::Matches(of, pattern) => {
                let of = self.value(of, here)?;
                return self.known(&of, |item| Some(pattern.0.is_match(&text_of(item)?)));
            }
        };
        let mut whole = Some(!decides);
        for condition in conditions {
            match self.holds(condition, here)? {
                Some(holds) if holds == decides => return Ok(Some(decides)),
                Some(_) => {}
                None => whole = None,
            }
        }
        Ok(whole)
    }

    fn known(&self, found: &Found<'_>, is_so: impl Fn(&str) -> Option<bool>) -> Result<Option<bool>> {
        if found.fault.is_some() { Ok(None) } else { self.one_of(&found.items, |item| Ok(is_so(item))) }
    }

    /// Whether one of the items is as it should be; none: of none it is known, but of one it cannot be. In a strict path that
    /// decides, wherever it stands.
    fn one_of(
        &self,
        items: &[Cow<'_, str>],
        mut is_so: impl FnMut(&str) -> Result<Option<bool>>,
    ) -> Result<Option<bool>> {
        let (mut is_one, mut is_unknown) = (false, false);
        let stopped = self.each_item(items, |item| {
            let one = goes_on(item).and_then(|()| is_so(item));
            match one {
                Ok(Some(true)) if self.is_strict => is_one = true,
                Ok(None) if !self.is_strict => is_unknown = true,
                Ok(Some(false)) => {}
                decided => return Some(decided),
            }
            None
        });
        let whole = if is_unknown { None } else { Some(is_one) };
        stopped.unwrap_or(Ok(whole))
    }

    /// Goes through items until one gives something; an array is as good as its items, but in strict paths.
    fn each_item<T>(&self, items: &[Cow<'_, str>], mut take: impl FnMut(&str) -> Option<T>) -> Option<T> {
        items.iter().find_map(|item| if self.is_strict { take(item) } else { unwrapped(item, &mut take) })
    }
}

const NO_PLACE: &str = "jsonpath array subscript is not a single numeric value";

fn too_long() -> String {
    "a number of a JSON path is out of range for type numeric of 76 digits".to_owned()
}

fn truth(holds: Option<bool>) -> &'static str {
    match holds {
        Some(true) => "true",
        Some(false) => "false",
        None => "null",
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

fn is_number(piece: &str) -> bool {
    piece.starts_with(|first: char| first == '-' || first.is_ascii_digit())
}

/// What a method of numbers gives; `None` of what is none.
fn number_of(piece: &str, method: Method) -> Option<String> {
    let written = text_of(piece).filter(|_| method == Method::Double);
    let digits = written.as_deref().unwrap_or(piece);
    let number: f64 = digits.parse().ok().filter(|number: &f64| number.is_finite())?;
    let whole = |number: f64| if number == 0.0 { "0".to_owned() } else { format!("{number}") };
    let exact = |of: fn(Number) -> Option<Number>| Number::read(digits).and_then(of).map(|number| number.to_string());
    Some(match method {
        Method::Abs => digits.strip_prefix('-').unwrap_or(digits).to_owned(),
        Method::Ceiling => exact(Number::ceiling).unwrap_or_else(|| whole(number.ceil())),
        Method::Floor => exact(Number::floor).unwrap_or_else(|| whole(number.floor())),
        Method::Double | Method::Size | Method::Type | Method::KeyValue => whole(number),
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

/// Compares two values; none: they are of types between which there is no order.
fn compared(left: &str, operator: Operator, right: &str) -> Option<bool> {
    let (is_null, is_other) = (left == "null", right == "null");
    if is_null || is_other {
        // What is null is no other value, and not known to be less than it.
        return Some(if is_null && is_other {
            operator.holds(Ordering::Equal)
        } else {
            operator == Operator::NotEqual
        });
    }
    let order = if is_number(left) && is_number(right) {
        // Whole numbers are told apart to their last digit.
        match (left.parse::<i128>(), right.parse::<i128>()) {
            (Ok(left), Ok(right)) => left.cmp(&right),
            _ => match Number::read(left).zip(Number::read(right)).and_then(|(left, right)| left.order(right)) {
                Some(order) => order,
                None => left.parse::<f64>().ok()?.partial_cmp(&right.parse::<f64>().ok()?)?,
            },
        }
    } else if let (Some(left), Some(right)) = (text_of(left), text_of(right)) {
        left.cmp(&right)
    } else {
        left.parse::<bool>().ok()?.cmp(&right.parse::<bool>().ok()?)
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
