//! Serialized forms of functions: most are looked up by name where a plan is read.

use std::sync::Arc;

use arrow::datatypes::Schema;
use datafusion::error::Result;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::registry::FunctionRegistry as _;
use datafusion::logical_expr::{AggregateUDF, ScalarUDF, WindowUDF};
use datafusion::physical_expr::aggregate::{AggregateExprBuilder, AggregateFunctionExpr};
use quiver_query::{FunctionWrapper, NodeCodec, aggregate_within, over_aggregate};
use serde::{Deserialize, Serialize};

use crate::codec_state::Pass;
use crate::extension_messages::{SortKey, broken, of_bytes, to_bytes};

/// A function in a serialized plan.
#[derive(Debug, Serialize, Deserialize)]
enum Function {
    /// The session's function of that name.
    Known(String),
    /// DataFusion's function, although the session has another one of that name.
    Plain(String),
    /// A function that a crate serializes.
    Of { of: String, name: String, bytes: Vec<u8> },
    /// One of the engine's functions that wraps another one.
    Around { bytes: Vec<u8>, inner: Vec<u8> },
    /// A function that the planner has told that its input is sorted as it requires.
    InOrder(Vec<u8>),
    /// One of the engine's window functions over an aggregate.
    OfAggregate { bytes: Vec<u8>, inner: Vec<u8> },
}

/// A kind of functions: scalar, aggregate or window.
pub(crate) trait FunctionKind: FunctionWrapper + PartialEq {
    fn name(&self) -> &str;

    /// The session's function of a name.
    fn of_session(session: &SessionState, name: &str) -> Option<Arc<Self>>;

    /// The function for input that is sorted as it requires; `None` if that makes no difference to it.
    fn in_order(&self) -> Option<Arc<Self>> {
        None
    }

    /// The state and the aggregate of a window function over an aggregate; `None` if it is none.
    fn aggregate_within(&self) -> Result<Option<(Vec<u8>, Arc<AggregateUDF>)>> {
        Ok(None)
    }

    fn over_aggregate(_bytes: &[u8], inner: Arc<AggregateUDF>) -> Result<Arc<Self>> {
        Err(broken(format_args!("no such function is of the aggregate `{}`", inner.name())))
    }

    fn written_by(&self, written: &dyn NodeCodec) -> Result<Option<Vec<u8>>>;

    fn read_by(written: &dyn NodeCodec, name: &str, bytes: &[u8]) -> Result<Arc<Self>>;
}

impl FunctionKind for ScalarUDF {
    fn name(&self) -> &str {
        self.name()
    }

    fn of_session(session: &SessionState, name: &str) -> Option<Arc<Self>> {
        session.udf(name).ok()
    }

    fn written_by(&self, written: &dyn NodeCodec) -> Result<Option<Vec<u8>>> {
        written.write_function(self)
    }

    fn read_by(written: &dyn NodeCodec, name: &str, bytes: &[u8]) -> Result<Arc<Self>> {
        written.read_function(name, bytes)
    }
}

impl FunctionKind for AggregateUDF {
    fn name(&self) -> &str {
        self.name()
    }

    fn of_session(session: &SessionState, name: &str) -> Option<Arc<Self>> {
        session.udaf(name).ok()
    }

    fn in_order(&self) -> Option<Arc<Self>> {
        self.clone().with_beneficial_ordering(true).ok().flatten().map(Arc::new)
    }

    fn written_by(&self, written: &dyn NodeCodec) -> Result<Option<Vec<u8>>> {
        written.write_aggregate_function(self)
    }

    fn read_by(written: &dyn NodeCodec, name: &str, bytes: &[u8]) -> Result<Arc<Self>> {
        written.read_aggregate_function(name, bytes)
    }
}

impl FunctionKind for WindowUDF {
    fn name(&self) -> &str {
        self.name()
    }

    fn of_session(session: &SessionState, name: &str) -> Option<Arc<Self>> {
        session.udwf(name).ok()
    }

    fn aggregate_within(&self) -> Result<Option<(Vec<u8>, Arc<AggregateUDF>)>> {
        aggregate_within(self)
    }

    fn over_aggregate(bytes: &[u8], inner: Arc<AggregateUDF>) -> Result<Arc<Self>> {
        over_aggregate(bytes, inner)
    }

    fn written_by(&self, _: &dyn NodeCodec) -> Result<Option<Vec<u8>>> {
        Ok(None)
    }

    fn read_by(written: &dyn NodeCodec, name: &str, _: &[u8]) -> Result<Arc<Self>> {
        Err(broken(format_args!("`{}` has no window function `{name}`", written.of())))
    }
}

/// Serializes a function.
pub(crate) fn write<F: FunctionKind>(pass: &Pass, function: &F) -> Result<Vec<u8>> {
    let name = function.name();
    let is_of = |session: &SessionState| F::of_session(session, name).is_some_and(|known| *known == *function);
    if is_of(pass.shared.engine.relational()) {
        return to_bytes(&Function::Known(name.to_owned()));
    }
    if let Some((bytes, inner)) = function.taken_apart()? {
        return to_bytes(&Function::Around { bytes, inner: write(pass, &*inner)? });
    }
    if let Some((bytes, inner)) = function.aggregate_within()? {
        return to_bytes(&Function::OfAggregate { bytes, inner: write(pass, &*inner)? });
    }
    for written in &pass.shared.written {
        if let Some(bytes) = function.written_by(&**written)? {
            let (of, name) = (written.of().to_owned(), name.to_owned());
            return to_bytes(&Function::Of { of, name, bytes });
        }
    }
    if is_of(&pass.shared.plain) {
        return to_bytes(&Function::Plain(name.to_owned()));
    }
    for session in [pass.shared.engine.relational(), &pass.shared.plain] {
        let known = F::of_session(session, name);
        if let Some(known) = known.filter(|known| known.in_order().is_some_and(|other| *other == *function)) {
            return to_bytes(&Function::InOrder(write(pass, &*known)?));
        }
    }
    Err(pass.refuse(format!("function `{name}`")))
}

/// Deserializes a function.
pub(crate) fn read<F: FunctionKind>(pass: &Pass, bytes: &[u8]) -> Result<Arc<F>> {
    let _level = pass.functions.enter()?;
    let missing = |name: &str| broken(format_args!("there is no function `{name}`"));
    match of_bytes(bytes)? {
        Function::Known(name) => F::of_session(pass.shared.engine.relational(), &name).ok_or_else(|| missing(&name)),
        Function::Plain(name) => F::of_session(&pass.shared.plain, &name).ok_or_else(|| missing(&name)),
        Function::Of { of, name, bytes } => match pass.shared.written.iter().find(|written| written.of() == of) {
            Some(written) => F::read_by(&**written, &name, &bytes),
            None => Err(missing(&name)),
        },
        Function::InOrder(inner) => {
            let inner: Arc<F> = read(pass, &inner)?;
            inner.in_order().ok_or_else(|| broken(format_args!("`{}` takes rows in any order", inner.name())))
        }
        Function::Around { bytes, inner } => F::put_around(&pass.shared.engine, &bytes, read(pass, &inner)?),
        Function::OfAggregate { bytes, inner } => F::over_aggregate(&bytes, read(pass, &inner)?),
    }
}

/// An aggregate function with its arguments.
#[derive(Debug, Serialize, Deserialize)]
struct Aggregate {
    function: Vec<u8>,
    args: Vec<Vec<u8>>,
    order: Vec<SortKey>,
    name: String,
    shown: Option<String>,
    shown_alias: Option<String>,
    is_distinct: bool,
    ignores_nulls: bool,
    is_reversed: bool,
}

/// Serializes an aggregate function with its arguments.
pub(crate) fn write_aggregate(pass: &Pass, aggregate: &AggregateFunctionExpr) -> Result<Vec<u8>> {
    to_bytes(&Aggregate {
        function: write(pass, aggregate.fun())?,
        args: pass.write_exprs(&aggregate.expressions())?,
        order: pass.write_keys(aggregate.order_bys())?,
        name: aggregate.name().to_owned(),
        shown: aggregate.human_display().map(str::to_owned),
        shown_alias: aggregate.human_display_alias().map(str::to_owned),
        is_distinct: aggregate.is_distinct(),
        ignores_nulls: aggregate.ignore_nulls(),
        is_reversed: aggregate.is_reversed(),
    })
}

/// Deserializes an aggregate function over columns of a schema.
pub(crate) fn read_aggregate(pass: &Pass, bytes: &[u8], schema: &Schema) -> Result<Arc<AggregateFunctionExpr>> {
    let read_form: Aggregate = of_bytes(bytes)?;
    let args = pass.read_exprs(&read_form.args, schema)?;
    let mut builder = AggregateExprBuilder::new(read(pass, &read_form.function)?, args)
        .schema(Arc::new(schema.clone()))
        .alias(read_form.name)
        .order_by(pass.read_keys(&read_form.order, schema)?)
        .with_distinct(read_form.is_distinct)
        .with_ignore_nulls(read_form.ignores_nulls)
        .with_reversed(read_form.is_reversed);
    if let Some(shown) = read_form.shown {
        builder = builder.human_display(shown);
    }
    if let Some(alias) = read_form.shown_alias {
        builder = builder.human_display_alias(alias);
    }
    builder.build().map(Arc::new)
}
