//! Pipes: what happens to the rows, one after the other.

use quiver_types::logs::TIME;

use super::{FieldPattern, Filter, GroupBy, Literal, MathExpr, Overwrite, PatternPair, Query, StatsCall};

/// One pipe.
#[derive(Debug, Clone, PartialEq)]
pub enum Pipe {
    /// `fields a, b*`
    Fields(Vec<FieldPattern>),
    /// `delete a, b*`
    Delete(Vec<FieldPattern>),
    /// `copy a as b`
    Copy(Vec<PatternPair>),
    /// `rename a as b`
    Rename(Vec<PatternPair>),
    /// `filter f`
    Filter(Filter),
    /// `sort`, `first`, `last`
    Sort(Sort),
    /// `limit N`
    Limit(u64),
    /// `offset N`
    Offset(u64),
    /// `uniq by (...)`
    Uniq(Uniq),
    /// `top N by (...)`
    Top(Top),
    /// `field_names`
    FieldNames {
        /// The column of the names.
        name: String,
        /// Only names that hold this text.
        filter: Option<String>,
    },
    /// `field_values f`
    FieldValues {
        /// The field.
        field: String,
        /// At most so many.
        limit: Option<u64>,
        /// Only values that hold this text.
        filter: Option<String>,
    },
    /// `facets`
    Facets(Facets),
    /// `stats`
    Stats(Stats),
    /// `running_stats`, `total_stats`
    WindowStats {
        /// Up to the row (running) or over all rows (total).
        running: bool,
        /// Groups.
        by: Vec<String>,
        /// `count sum min max first last`.
        calls: Vec<WindowCall>,
    },
    /// `join by (...) (query)`, `join by (...) rows(...)`
    Join(Join),
    /// `union (query)` or `union rows(...)`
    Union(Box<Query>),
    /// `stream_context`
    StreamContext(StreamContext),
    /// `sample N`
    Sample(u64),
    /// `rows({name:value, ..}, ..)`: what `join` and `union` may take instead of a query; the one pipe of that query.
    Rows(Vec<Vec<(String, String)>>),
    /// `generate_sequence N`
    GenerateSequence(u64),
    /// `block_stats`
    BlockStats,
    /// `blocks_count [as x]`
    BlocksCount(String),
    /// `query_stats`
    QueryStats,
    /// `set_stream_fields a, b`
    SetStreamFields {
        /// Which become the stream.
        fields: Vec<FieldPattern>,
        /// Only for rows that fit.
        condition: Option<Filter>,
    },
    /// Pipes that work on one row at a time and need nothing but it.
    Row {
        /// What it does.
        pipe: RowPipe,
        /// Only for rows that fit.
        condition: Option<Filter>,
    },
}

/// A pipe over one row at a time.
#[derive(Debug, Clone, PartialEq)]
pub enum RowPipe {
    /// `extract "p" [from f]`
    Extract {
        /// Text with `<name>`; checked when parsed.
        pattern: String,
        /// The source field.
        from: String,
        /// What happens to old values.
        overwrite: Overwrite,
    },
    /// `extract_regexp "re" [from f]`
    ExtractRegexp {
        /// RE2 text with named groups; checked when parsed.
        pattern: String,
        /// The source field.
        from: String,
        /// What happens to old values.
        overwrite: Overwrite,
    },
    /// `format "t" [as f]`
    Format {
        /// Text with `<field>` and `<prefix:field>`; checked when parsed.
        template: String,
        /// The result field.
        to: String,
        /// What happens to old values.
        overwrite: Overwrite,
    },
    /// `math e as r, ..`
    Math(Vec<(MathExpr, String)>),
    /// `replace ("a", "b")`
    Replace {
        /// What is replaced.
        old: String,
        /// By what.
        new: String,
        /// The field.
        at: String,
        /// Only the first so many.
        limit: Option<u64>,
    },
    /// `replace_regexp ("re", "b")`
    ReplaceRegexp {
        /// RE2 text.
        pattern: String,
        /// Text with `$1`, `${1}`, `${name}`.
        new: String,
        /// The field.
        at: String,
        /// Only the first so many.
        limit: Option<u64>,
    },
    /// `collapse_nums`
    CollapseNums {
        /// The field.
        at: String,
        /// Name common groups.
        prettify: bool,
    },
    /// `pack_json`
    PackJson {
        /// Which fields; all when empty.
        fields: Vec<FieldPattern>,
        /// The result field.
        to: String,
    },
    /// `pack_logfmt`
    PackLogfmt {
        /// Which fields; all when empty.
        fields: Vec<FieldPattern>,
        /// The result field.
        to: String,
    },
    /// `unpack_json`
    UnpackJson(Unpack),
    /// `unpack_logfmt`
    UnpackLogfmt(Unpack),
    /// `unpack_syslog [offset d]`
    UnpackSyslog {
        /// Source and results; `fields` is empty.
        unpack: Unpack,
        /// Zone of times without one, nanoseconds; the server's when absent.
        offset: Option<Literal<i64>>,
    },
    /// `unpack_words`
    UnpackWords {
        /// The source field.
        from: String,
        /// The result field.
        to: String,
        /// Each word once.
        drop_duplicates: bool,
    },
    /// `unroll by (a, b)`
    Unroll(Vec<String>),
    /// `json_array_len(f) as r`
    JsonArrayLen {
        /// The source field.
        from: String,
        /// The result field.
        to: String,
    },
    /// `json_array_concat "s" [from f] [as r]`
    JsonArrayConcat {
        /// Between the items.
        separator: String,
        /// The source field.
        from: String,
        /// The result field.
        to: String,
    },
    /// `len(f) as r`
    Len {
        /// The source field.
        from: String,
        /// The result field.
        to: String,
    },
    /// `hash(f) as r`
    Hash {
        /// The source field.
        from: String,
        /// The result field.
        to: String,
    },
    /// `decolorize [f]`
    Decolorize(String),
    /// `drop_empty_fields`
    DropEmptyFields,
    /// `coalesce(a, b) [default v] [as r]`
    Coalesce {
        /// In this order.
        fields: Vec<FieldPattern>,
        /// When all are empty.
        default: String,
        /// The result field.
        to: String,
    },
    /// `split "s" [from f] [as r]`
    Split {
        /// Between the items.
        separator: String,
        /// The source field.
        from: String,
        /// The result field.
        to: String,
    },
    /// `time_add d [at f]`
    TimeAdd {
        /// Nanoseconds.
        shift: Literal<i64>,
        /// The field.
        at: String,
    },
}

/// Source and results of the unpacking pipes.
#[derive(Debug, Clone, PartialEq)]
pub struct Unpack {
    /// The source field.
    pub from: String,
    /// Which keys; all when empty.
    pub fields: Vec<FieldPattern>,
    /// Before the name of each result.
    pub result_prefix: String,
    /// Keys of JSON whose values stay as they are written, objects too.
    pub preserve_keys: Vec<String>,
    /// What happens to old values.
    pub overwrite: Overwrite,
}

/// `sort`, `first`, `last`. `first` and `last` are sorts with a limit; the name is kept for printing.
#[derive(Debug, Clone, PartialEq)]
pub struct Sort {
    /// Which of the three was written.
    pub form: SortForm,
    /// Field and whether descending; all fields when empty.
    pub by: Vec<(String, bool)>,
    /// Turns the whole order around.
    pub descending: bool,
    /// Rows left out at the beginning (of each partition).
    pub offset: u64,
    /// At most so many rows (of each partition).
    pub limit: Option<u64>,
    /// Groups with an order and limit of their own.
    pub partition_by: Vec<String>,
    /// The column of the position, from 1.
    pub rank: Option<String>,
}

impl Sort {
    /// `sort by (_time)`
    pub(crate) fn by_time() -> Self {
        Self {
            form: SortForm::Sort,
            by: vec![(TIME.to_owned(), false)],
            descending: false,
            offset: 0,
            limit: None,
            partition_by: Vec::new(),
            rank: None,
        }
    }
}

/// How a sort was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SortForm {
    /// `sort`
    Sort,
    /// `first N`
    First,
    /// `last N`: turned around.
    Last,
}

impl Sort {
    /// Whether the order is turned around as a whole.
    pub fn is_reversed(&self) -> bool {
        self.descending != matches!(self.form, SortForm::Last)
    }
}

/// `uniq by (...)`.
#[derive(Debug, Clone, PartialEq)]
pub struct Uniq {
    /// The combination.
    pub by: Vec<String>,
    /// The column of the counts.
    pub hits: Option<String>,
    /// At most so many rows.
    pub limit: Option<u64>,
    /// Only values that hold this text.
    pub filter: Option<String>,
}

/// `top N by (...)`.
#[derive(Debug, Clone, PartialEq)]
pub struct Top {
    /// The combination; all fields when empty.
    pub by: Vec<String>,
    /// At most so many rows.
    pub limit: u64,
    /// Whether the limit was written.
    pub limit_text: Option<String>,
    /// The column of the counts.
    pub hits: String,
    /// The column of the position, from 1.
    pub rank: Option<String>,
}

/// `facets`.
#[derive(Debug, Clone, PartialEq)]
pub struct Facets {
    /// Values per field.
    pub limit: u64,
    /// Fields with more values are left out.
    pub max_values_per_field: u64,
    /// Longer values are left out.
    pub max_value_len: u64,
    /// Fields with one value stay.
    pub keep_const_fields: bool,
}

/// `stats`.
#[derive(Debug, Clone, PartialEq)]
pub struct Stats {
    /// Groups.
    pub by: Vec<GroupBy>,
    /// Functions, at least one.
    pub calls: Vec<StatsCall>,
}

/// One function of `running_stats` and `total_stats`.
#[derive(Debug, Clone, PartialEq)]
pub struct WindowCall {
    /// The function.
    pub func: WindowFunc,
    /// Its fields; `*` for `count()`.
    pub fields: Vec<FieldPattern>,
    /// Of `first` and `last`: so many rows from there.
    pub offset: usize,
    /// The name of the result.
    pub name: String,
}

/// Functions of `running_stats` and `total_stats`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WindowFunc {
    /// `count(...)`
    Count,
    /// `sum(...)`
    Sum,
    /// `min(...)`
    Min,
    /// `max(...)`
    Max,
    /// `first(...)`
    First,
    /// `last(...)`
    Last,
}

/// `join by (...) (query)`.
#[derive(Debug, Clone, PartialEq)]
pub struct Join {
    /// Equal in both.
    pub by: Vec<String>,
    /// The right side.
    pub query: Box<Query>,
    /// Rows without a match are left out.
    pub inner: bool,
    /// Before the names of the right side's fields.
    pub prefix: String,
}

/// `stream_context`.
#[derive(Debug, Clone, PartialEq)]
pub struct StreamContext {
    /// Rows before.
    pub before: Option<u64>,
    /// Rows after.
    pub after: Option<u64>,
    /// How far away a neighbour may be; nanoseconds.
    pub time_window: Option<Literal<i64>>,
    /// What binds neighbours too; no part of the text, a request lays it upon the query.
    pub within: Vec<Filter>,
}
