//! `span_tree_of(packed)` and `critical_path_of(packed)`: the results of `span_tree` and `critical_path`, computed from
//! the bytes that `packed_spans` returns. Only plans use them: a rule replaces each of the two aggregates by
//! `packed_spans` and one of these functions above it.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, LargeBinaryArray};
use arrow::datatypes::DataType;
use datafusion::common::exec_err;
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

use super::outcome::Outcome;

/// The most traces that are unpacked at once: each of a thousand spans, they take some 50 MB.
pub(crate) const UNPACKED_ROWS: usize = 256;
/// The functions: the aggregate that they stand for, their name, and what they give.
const ALL: [(&str, &str, Outcome); 2] =
    [("span_tree", "span_tree_of", Outcome::Tree), ("critical_path", "critical_path_of", Outcome::Path)];

#[derive(Debug, PartialEq, Eq, Hash)]
struct TreeUnpackFunction {
    name: &'static str,
    outcome: Outcome,
    signature: Signature,
}

fn function(name: &'static str, outcome: Outcome) -> Arc<ScalarUDF> {
    let signature = Signature::exact(vec![DataType::LargeBinary], Volatility::Immutable);
    Arc::new(ScalarUDF::new_from_impl(TreeUnpackFunction { name, outcome, signature }))
}

pub(super) fn functions() -> impl Iterator<Item = Arc<ScalarUDF>> {
    ALL.iter().map(|(_, name, outcome)| function(name, *outcome))
}

/// The function that gives what an aggregate does, from packed spans; `None`: there is none for it.
pub(crate) fn unpacking(aggregate: &str) -> Option<Arc<ScalarUDF>> {
    let found = ALL.iter().find(|(of, ..)| *of == aggregate);
    found.map(|(_, name, outcome)| function(name, *outcome))
}

/// Whether a function is one of these.
pub(crate) fn is_unpacking(name: &str) -> bool {
    ALL.iter().any(|(_, own, _)| *own == name)
}

/// States of groups of spans.
pub(super) fn states(array: &ArrayRef) -> Result<&LargeBinaryArray> {
    if let Some(states) = array.as_binary_opt::<i64>() { Ok(states) } else { exec_err!("a state of spans is no bytes") }
}

impl ScalarUDFImpl for TreeUnpackFunction {
    fn name(&self) -> &'static str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(self.outcome.data_type())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let packed = args.args[0].to_array(args.number_rows)?;
        let packed = states(&packed)?;
        let group = |row| if packed.is_valid(row) { packed.value(row) } else { &[] };
        let groups: Vec<&[u8]> = (0..packed.len()).map(group).collect();
        Ok(ColumnarValue::Array(self.outcome.of(&groups)?))
    }
}
