//! Functions that make much out of little (`repeat('x', 1000000000)`) with a bound on what one batch of rows may become:
//! their results are made at once, before anything counts them.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use arrow::array::{Array as _, AsArray, Int64Array, StringViewArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, FieldRef, Int64Type};
use datafusion::common::internal_err;
use datafusion::error::Result;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::registry::FunctionRegistry as _;
use datafusion::logical_expr::{
    ColumnarValue, Documentation, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
};
use quiver_types::{Error, ErrorKind};
use regex::{Captures, Regex};

use crate::error::to_datafusion;

/// Bytes at most of what a call gives for a batch.
const BYTES_MAX: i128 = 64 << 20;
/// Bytes of an item of a list.
const ITEM_BYTES: i128 = 8;

/// How the size of a result follows from arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Growth {
    /// A text so many times.
    Times,
    /// So many letters, or items, as the second argument says.
    Length(i64),
    /// So many items as the argument behind the first says.
    Items,
    /// Whole numbers from one to another.
    Series,
    /// A text with another one in it replaced; what it has more than before counts.
    Replaced,
    /// The same with what a pattern finds.
    Matched,
}

const GROWING: [(&str, Growth); 9] = [
    ("repeat", Growth::Times),
    ("lpad", Growth::Length(1)),
    ("rpad", Growth::Length(1)),
    ("array_repeat", Growth::Items),
    ("array_resize", Growth::Length(8)),
    ("generate_series", Growth::Series),
    ("range", Growth::Series),
    ("replace", Growth::Replaced),
    ("regexp_replace", Growth::Matched),
];

/// A function with its bound.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Bounded {
    inner: Arc<ScalarUDF>,
    growth: Growth,
}

/// Puts bounds on the functions of a session.
///
/// # Errors
/// Those of the registry.
pub(super) fn bound(state: &mut SessionState) -> Result<()> {
    for (name, growth) in GROWING {
        let inner = state.scalar_functions().get(name).map(Arc::clone);
        let Some(inner) = inner else { return internal_err!("there is no function `{name}`") };
        state.register_udf(Arc::new(ScalarUDF::from(Bounded { inner, growth })))?;
    }
    Ok(())
}

/// Whole numbers of an argument; none: it holds others.
fn numbers(value: &ColumnarValue, rows: usize) -> Result<Option<Int64Array>> {
    if !value.data_type().is_integer() {
        return Ok(None);
    }
    let numbers = cast(&value.to_array(rows)?, &DataType::Int64)?;
    Ok(Some(numbers.as_primitive::<Int64Type>().clone()))
}

/// Texts of an argument; none: it holds others.
fn texts(value: &ColumnarValue, rows: usize) -> Result<Option<StringViewArray>> {
    if !value.data_type().is_string() {
        return Ok(None);
    }
    let texts = cast(&value.to_array(rows)?, &DataType::Utf8View)?;
    Ok(Some(texts.as_string_view().clone()))
}

/// Bytes of the texts of an argument; items of a list of others.
fn widths(value: &ColumnarValue, rows: usize) -> Result<Vec<i128>> {
    let Some(texts) = texts(value, rows)? else { return Ok(vec![ITEM_BYTES; rows]) };
    Ok(texts.iter().map(|text| text.map_or(0, |text| text.len() as i128)).collect())
}

/// Bytes that texts have more than before when one is put for another in them.
fn added(args: &[ColumnarValue], rows: usize) -> Result<i128> {
    let [within, from, to] = args else { return Ok(0) };
    let (Some(within), Some(from), Some(to)) = (texts(within, rows)?, texts(from, rows)?, texts(to, rows)?) else {
        return Ok(0);
    };
    let sum = |places: fn(&str, &str) -> usize| -> i128 {
        let rows = within.iter().zip(from.iter()).zip(to.iter());
        rows.map(|((text, from), to)| match (text, from, to) {
            (Some(text), Some(from), Some(to)) => {
                places(text, from) as i128 * to.len().saturating_sub(from.len()) as i128
            }
            _ => 0,
        })
        .sum()
    };
    // Looking for the places costs as much as the call itself, and hardly any comes near.
    let most = sum(|text, from| text.len() / from.len().max(1) + 1);
    Ok(if most <= BYTES_MAX { most } else { sum(|text, from| text.matches(from).count()) })
}

/// Groups in a replacement as PostgreSQL writes them.
static GROUPS: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\\{1,2}(\d+)").expect("a fixed pattern"));

/// Bytes that are put in the place of one match; not made where they are too many by themselves.
fn expanded(found: &Captures<'_>, to: &str, references: i128) -> i128 {
    let width = found.get(0).map_or(0, |all| all.len() as i128);
    let most = width * references + to.len() as i128;
    if most > BYTES_MAX {
        return most;
    }
    let mut text = String::new();
    found.expand(to, &mut text);
    (text.len() as i128 - width).max(0)
}

/// Bytes that texts have more than before when something is put for what patterns find; what is no pattern adds nothing.
fn added_by_patterns(args: &[ColumnarValue], rows: usize) -> Result<i128> {
    let [within, pattern, to, options @ ..] = args else { return Ok(0) };
    let (Some(within), Some(pattern), Some(to)) = (texts(within, rows)?, texts(pattern, rows)?, texts(to, rows)?)
    else {
        return Ok(0);
    };
    let options = options.first().map(|options| texts(options, rows)).transpose()?.flatten();
    let options = |at: usize| options.as_ref().filter(|all| all.is_valid(at)).map_or("", |all| all.value(at));
    let references = |to: &str| to.bytes().filter(|b| matches!(b, b'\\' | b'$')).count() as i128;
    let whole = |at: &usize| within.is_valid(*at) && pattern.is_valid(*at) && to.is_valid(*at);
    let whole: Vec<usize> = (0..rows).filter(whole).collect();
    let most: i128 = whole
        .iter()
        .map(|&at| {
            let (width, to) = (within.value(at).len() as i128, to.value(at));
            let places = if options(at).contains('g') { width + 1 } else { 1 };
            places * to.len() as i128 + width * references(to)
        })
        .sum();
    if most <= BYTES_MAX {
        return Ok(most);
    }
    let (mut added, mut patterns) = (0, HashMap::new());
    for at in whole {
        let (options, pattern) = (options(at), pattern.value(at));
        let compiled = patterns.entry((options, pattern)).or_insert_with(|| {
            let others = options.replace('g', "");
            let text = if others.is_empty() { Cow::from(pattern) } else { format!("(?{others}){pattern}").into() };
            Regex::new(&text).ok()
        });
        let Some(compiled) = compiled else { continue };
        let to = GROUPS.replace_all(to.value(at), "$${$1}");
        let references = references(&to);
        let places = if options.contains('g') { usize::MAX } else { 1 };
        for found in compiled.captures_iter(within.value(at)).take(places) {
            added += expanded(&found, &to, references);
            if added > BYTES_MAX {
                return Ok(added);
            }
        }
    }
    Ok(added)
}

impl Growth {
    /// Bytes that the result has, at least.
    fn bytes(self, args: &[ColumnarValue], rows: usize) -> Result<i128> {
        match self {
            Self::Replaced => return added(args, rows),
            Self::Matched => return added_by_patterns(args, rows),
            _ => {}
        }
        let [first, second, ..] = args else {
            // `range(n)` begins at 0.
            let stops = args.first().filter(|_| self == Self::Series).map(|stop| numbers(stop, rows));
            let stops = stops.transpose()?.flatten();
            let items = |stops: Int64Array| stops.iter().flatten().map(|n| i128::from(n.max(0))).sum::<i128>();
            return Ok(stops.map_or(0, items) * ITEM_BYTES);
        };
        let Some(counts) = numbers(second, rows)? else { return Ok(0) };
        let count = |at: usize| if counts.is_null(at) { 0 } else { i128::from(counts.value(at)) };
        Ok(match self {
            Self::Times | Self::Items => {
                let widths = widths(first, rows)?;
                (0..rows).map(|at| count(at).max(0) * widths[at]).sum::<i128>()
            }
            Self::Length(width) => (0..rows).map(|at| count(at).max(0) * i128::from(width)).sum::<i128>(),
            Self::Series => {
                let Some(starts) = numbers(first, rows)? else { return Ok(0) };
                let steps = args.get(2).map(|step| numbers(step, rows)).transpose()?.flatten();
                let items = |at: usize| {
                    if starts.is_null(at) || counts.is_null(at) {
                        return 0;
                    }
                    let step = steps.as_ref().map_or(1, |steps| i128::from(steps.value(at)));
                    let span = count(at) - i128::from(starts.value(at));
                    if step == 0 { 0 } else { (span / step).max(0) }
                };
                (0..rows).map(|at| items(at) * ITEM_BYTES).sum::<i128>()
            }
            // Above.
            Self::Replaced | Self::Matched => 0,
        })
    }
}

impl ScalarUDFImpl for Bounded {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.inner.inner().return_type(types)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        self.inner.inner().return_field_from_args(args)
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.inner().coerce_types(types)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_constant = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if is_constant { 1 } else { args.number_rows };
        let bytes = self.growth.bytes(&args.args, rows)?;
        if bytes > BYTES_MAX {
            let text =
                format!("`{}` would give {bytes} bytes at once, at most {BYTES_MAX} are allowed", self.inner.name());
            return Err(to_datafusion(Error::new(ErrorKind::LimitExceeded, text)));
        }
        self.inner.inner().invoke_with_args(args)
    }
}
