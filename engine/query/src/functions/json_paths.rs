//! SQL/JSON paths over documents (`jsonb_path_exists`, `jsonb_path_query` and similar): members, items, filters,
//! arithmetic. In `lax` mode, the default, an array may stand for its items, and missing members are skipped; in
//! `strict` mode both are errors.
//!
//! A document is first put into the normal form of `jsonb`; results are pieces of that text.

mod numbers;
mod path;
mod walk;

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanBuilder, ListBuilder, StringBuilder};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{ScalarValue, exec_err, plan_err};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::json::{document_of, field};
use super::json_values::push_normal;
use super::maps;
use super::result_memory::Room;
use super::row_builder::OutputMemory;
use path::Path;
use walk::{Found, ITEM, Walk};

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
        let (texts, silent) = types.split_at(types.len().min(2));
        let ([document, path], [] | [DataType::Boolean]) = (texts, silent) else {
            return plan_err!("`{}` takes a document and a path: write values of variables into the path", self.name);
        };
        let other = match maps::document_type(document) {
            Some(read) if path.is_string() || path.is_null() => {
                return Ok([vec![read, DataType::Utf8View], silent.to_vec()].concat());
            }
            Some(_) => path,
            None => document,
        };
        plan_err!("`{}` reads texts that hold JSON, and a path, not `{other}`", self.name)
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
        let texts = |value: &ColumnarValue| maps::documents(&value.to_array(args.number_rows)?);
        let [documents, paths, silent @ ..] = args.args.as_slice() else {
            return exec_err!("`{}` takes a path", self.name);
        };
        let is_silent = matches!(silent, [ColumnarValue::Scalar(ScalarValue::Boolean(Some(true)))]);
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
            let items = Walk::new(OutputMemory::new(self.name, &self.room)).items(path, &normal)?;
            making.add(kept(self.asked, &items))?;
            found.add(&items, path.is_strict, is_silent)?;
        }
        Ok(ColumnarValue::Array(found.finish()))
    }
}

/// Bytes that stay of what a path found: none of what is only a truth.
fn kept(asked: JsonPathOperation, found: &Found<'_>) -> usize {
    let stay = match asked {
        JsonPathOperation::Exists | JsonPathOperation::Match => 0,
        JsonPathOperation::First => 1,
        JsonPathOperation::Array | JsonPathOperation::Items => found.items.len(),
    };
    found.items.iter().take(stay).map(|item| item.len() + ITEM).sum()
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

    /// Takes what a path found. A fault is an error, unless it is silent, or something before it tells enough.
    fn add(&mut self, found: &Found<'_>, is_strict: bool, is_silent: bool) -> Result<()> {
        let items = &found.items;
        if let Some(fault) = &found.fault {
            let is_told = matches!(self, Self::Exists(_)) && !is_strict && !items.is_empty();
            if !is_told && !is_silent {
                return exec_err!("{fault}");
            }
            if !is_told && matches!(self, Self::Exists(_) | Self::Match(_)) {
                self.nothing();
                return Ok(());
            }
        }
        match self {
            Self::Exists(out) => out.append_value(!items.is_empty()),
            Self::Match(out) => match items.iter().map(AsRef::as_ref).collect::<Vec<&str>>().as_slice() {
                ["true"] => out.append_value(true),
                ["false"] => out.append_value(false),
                ["null"] => out.append_null(),
                _ if is_silent => out.append_null(),
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

#[cfg(test)]
mod tests;
