//! Plans function calls.

use std::sync::Arc;

use quiver_types::label::METRIC_NAME;
use quiver_types::series::{LabelColumn, SeriesTableBuilder};
use quiver_types::{Error, MatchOp, Matcher, Result, SeriesTable};

use super::invariant::unparen;
use super::labels::{self, Order, Values};
use super::memory::Room;
use super::select::RollupParams;
use super::{ExprPlan, Planner, ScalarPlan, Scope, VectorPlan, failed};
use crate::annotation::AnnotationPlace;
use crate::ast::{Expr, ExprKind, PosRange, Text};
use crate::functions::function_reference::NamedKernel;
use crate::functions::{
    ElementwiseKernel, FunctionDef, Kernel, RangeFunction, ScalarKernel, SpecialKind, annotations, lookup, names_where,
};
use crate::nodes::absent::Absent;
use crate::nodes::map::Stage;
use crate::nodes::rollup::RollupFunction;
use crate::nodes::scalar::ToScalar;
use crate::nodes::sort::{Sort, SortBy};
use crate::range_ends::RangeEnds;
use crate::window::InstantValue;

/// The position that annotations of a range function refer to.
fn place(args: &[Expr]) -> AnnotationPlace {
    let (Some(first), Some(last)) = (args.first(), args.last()) else { return PosRange::default().into() };
    let shown = match unparen(first) {
        // As in Prometheus, what a subquery gave has no place.
        Expr { kind: ExprKind::Subquery(_), .. } => PosRange::default(),
        first => first.pos,
    };
    AnnotationPlace { shown, evaluated: PosRange { start: first.pos.start, end: last.pos.end } }
}

/// Says which functions take a modifier that this one does not.
fn not_extended(ends: RangeEnds, function: &str) -> Error {
    let names = names_where(|range| range.takes(ends));
    failed(format!("{} modifier can only be used with: {names} - not with {function}", ends.word()))
}

impl Planner {
    /// Plans a call.
    pub(crate) async fn call(&self, name: &str, args: &[Expr], pos: PosRange, scope: Scope) -> Result<ExprPlan> {
        let function = lookup(name).ok_or_else(|| failed(format!("unknown function {name}")))?;
        let scope = scope.within(name);
        match &function.kernel {
            Kernel::Range(range) => self.range_call(function, range, args, scope).await.map(ExprPlan::Vector),
            Kernel::Elementwise(kernel) => {
                let function = NamedKernel { name: function.name, kernel: *kernel };
                self.elementwise(function, args, scope).await.map(ExprPlan::Vector)
            }
            Kernel::Scalar(kernel) => {
                let function = NamedKernel { name: function.name, kernel: *kernel };
                self.scalar_call(function, args, scope.with_labels()).await.map(ExprPlan::Scalar)
            }
            Kernel::Special(kind) => self.special(*kind, args, pos, scope.with_labels()).await,
        }
    }

    async fn range_call(
        &self,
        function: &'static FunctionDef,
        range: &RangeFunction,
        args: &[Expr],
        scope: Scope,
    ) -> Result<VectorPlan> {
        let matrix = args.get(range.matrix_arg).map(unparen).ok_or_else(|| super::unexpected("range vector"))?;
        let samples = match &matrix.kind {
            ExprKind::MatrixSelector { selector, range: length } => {
                if !range.takes(selector.ends) {
                    return Err(not_extended(selector.ends, function.name));
                }
                self.range_samples(selector, length, scope, range.start_timestamps).await?
            }
            ExprKind::Subquery(subquery) => self.subquery_samples(subquery, scope).await?,
            _ => return Err(super::unexpected("range vector")),
        };
        let (mut params, mut inputs) = (Vec::new(), Vec::new());
        for (i, arg) in args.iter().enumerate() {
            if i != range.matrix_arg {
                params.push(Self::param(self.scalar(arg, scope.with_labels()).await?, &mut inputs, 1));
            }
        }
        let params = RollupParams { params, inputs };
        let mut vector = self.rollup(RollupFunction::Range(function), samples, params, place(args), scope)?;
        if !range.keeps_name {
            vector.drop_names();
        }
        Ok(vector)
    }

    async fn elementwise(
        &self,
        function: NamedKernel<ElementwiseKernel>,
        args: &[Expr],
        scope: Scope,
    ) -> Result<VectorPlan> {
        let Some((first, rest)) = args.split_first() else {
            // Without an argument, date functions use the time of the step.
            let mut vector = Self::unlabelled(self.time(scope)?);
            vector.push(Stage::Function { function, params: vec![] });
            return Ok(vector);
        };
        let mut vector = self.vector(first, scope).await?;
        let mut scalars = Vec::with_capacity(rest.len());
        for arg in rest {
            scalars.push(self.scalar(arg, scope.with_labels()).await?);
        }
        vector.push_with(scalars, |params| Stage::Function { function, params });
        vector.drop_names();
        Ok(vector)
    }

    async fn scalar_call(
        &self,
        function: NamedKernel<ScalarKernel>,
        args: &[Expr],
        scope: Scope,
    ) -> Result<ScalarPlan> {
        let [l, r] = args else { return Err(super::unexpected("scalar")) };
        match (self.scalar(l, scope).await?, self.scalar(r, scope).await?) {
            (ScalarPlan::Const(l), ScalarPlan::Const(r)) => Ok(ScalarPlan::Const((function.kernel)(l, r))),
            (l, r) => {
                let main = self.scalar_plan(l, scope)?;
                let mut more = vec![];
                let param = Self::param(r, &mut more, 1);
                let stages = vec![Stage::ScalarFunction(function, param)];
                self.scalar_map(main, stages, more, scope).map(ScalarPlan::Steps)
            }
        }
    }

    async fn special(&self, kind: SpecialKind, args: &[Expr], pos: PosRange, scope: Scope) -> Result<ExprPlan> {
        use SpecialKind as K;
        let seconds = |ms: i64| ms as f64 / 1000.0;
        let constant = |v: f64| Ok(ExprPlan::Scalar(ScalarPlan::Const(v)));
        let times = self.times;
        match kind {
            K::Pi => constant(std::f64::consts::PI),
            K::Start => constant(seconds(times.start_ms)),
            K::End => constant(seconds(times.end_ms)),
            K::Step => constant(if times.start_ms == times.end_ms { 0.0 } else { seconds(times.step_ms) }),
            K::Range => constant(seconds(times.end_ms - times.start_ms)),
            K::Time => Ok(ExprPlan::Scalar(ScalarPlan::Steps(self.time(scope)?))),
            K::Vector => {
                let scalar = self.scalar(argument(args, 0)?, scope).await?;
                Ok(ExprPlan::Vector(Self::unlabelled(self.scalar_plan(scalar, scope)?)))
            }
            K::Scalar => {
                let vector = self.vector(argument(args, 0)?, scope).await?;
                let plan = self.node(ToScalar { steps: scope.grid.steps }, vec![self.finish(vector, scope)?])?;
                Ok(ExprPlan::Scalar(ScalarPlan::Steps(plan)))
            }
            K::Absent | K::AbsentOverTime => self.absent(kind, args, scope).await.map(ExprPlan::Vector),
            K::Timestamp | K::StartTimestamp => self.timestamp(kind, argument(args, 0)?, scope).await,
            K::LabelReplace | K::LabelJoin => {
                let texts = texts(&args[1..])?;
                // An error in a call is reported before one in its argument.
                self.check_relabelling(kind, &texts)?;
                let vector = self.vector(argument(args, 0)?, scope).await?;
                let relabelled = if kind == K::LabelReplace {
                    self.label_replace(vector, &texts, scope)
                } else {
                    self.label_join(vector, &texts, scope)
                };
                relabelled.map(ExprPlan::Vector)
            }
            K::Sort | K::SortDesc | K::SortByLabel | K::SortByLabelDesc => {
                self.sort(kind, args, pos, scope).await.map(ExprPlan::Vector)
            }
            K::HistogramQuantile | K::HistogramQuantiles | K::HistogramFraction => {
                self.histogram(kind, args, scope).await.map(ExprPlan::Vector)
            }
            K::Info => self.info(args, scope).await.map(ExprPlan::Vector),
        }
    }

    fn time(&self, scope: Scope) -> Result<datafusion::logical_expr::LogicalPlan> {
        self.reserve_matrix(1, scope.grid.steps)?;
        self.row("time()", (0..scope.grid.steps).map(|s| scope.grid.at(s) as f64 / 1000.0).collect())
    }

    fn unlabelled(plan: datafusion::logical_expr::LogicalPlan) -> VectorPlan {
        VectorPlan::of_floats(plan, Arc::new(SeriesTable::unlabelled()), Arc::new(vec![false]))
    }

    async fn absent(&self, kind: SpecialKind, args: &[Expr], scope: Scope) -> Result<VectorPlan> {
        let arg = unparen(argument(args, 0)?);
        let (vector, matchers): (_, &[Matcher]) = if kind == SpecialKind::AbsentOverTime {
            let present = lookup("present_over_time").ok_or_else(|| super::unexpected("function"))?;
            let Kernel::Range(range) = &present.kernel else { return Err(super::unexpected("function")) };
            if let ExprKind::MatrixSelector { selector, .. } = &arg.kind
                && selector.ends.are_extended()
            {
                return Err(not_extended(selector.ends, "absent_over_time"));
            }
            let vector = self.range_call(present, range, args, scope).await?;
            let matchers = match &arg.kind {
                ExprKind::MatrixSelector { selector, .. } => &selector.matchers[..],
                _ => &[],
            };
            (vector, matchers)
        } else {
            let matchers = match &arg.kind {
                ExprKind::VectorSelector(selector) => &selector.matchers[..],
                _ => &[],
            };
            (self.vector(arg, scope).await?, matchers)
        };
        let plan = self.node(Absent { steps: scope.grid.steps }, vec![self.finish(vector, scope)?])?;
        let mut table = SeriesTableBuilder::default();
        table.push(absent_labels(matchers));
        let drop = kind == SpecialKind::AbsentOverTime;
        Ok(VectorPlan::of_floats(plan, Arc::new(table.finish()), Arc::new(vec![drop])))
    }

    async fn timestamp(&self, kind: SpecialKind, arg: &Expr, scope: Scope) -> Result<ExprPlan> {
        let arg = unparen(arg);
        if let ExprKind::VectorSelector(selector) = &arg.kind {
            let what =
                if kind == SpecialKind::Timestamp { InstantValue::Timestamp } else { InstantValue::StartTimestamp };
            return self.selector_time(selector, arg.pos, scope, what).await;
        }
        let mut vector = self.vector(arg, scope).await?;
        vector.push(if kind == SpecialKind::Timestamp { Stage::StepTime } else { Stage::Nothing });
        vector.drop_names();
        Ok(ExprPlan::Vector(vector))
    }

    async fn sort(&self, kind: SpecialKind, args: &[Expr], pos: PosRange, scope: Scope) -> Result<VectorPlan> {
        use SpecialKind as K;
        let vector = self.vector(argument(args, 0)?, scope).await?;
        let labels = texts(&args[1..])?;
        if !scope.single {
            self.annotate(|a| a.warn(pos, annotations::sort_in_range_query()));
            // In a range query, values are not reordered, but `sort` still drops histograms.
            let mut vector = vector;
            if matches!(kind, K::Sort | K::SortDesc) {
                vector.push(Stage::FloatsOnly);
            }
            return Ok(vector);
        }
        let by = match kind {
            K::Sort => SortBy::Value { descending: false },
            K::SortDesc => SortBy::Value { descending: true },
            _ => SortBy::Rank(label_ranks(&self.room, &vector.table, &labels, kind == K::SortByLabelDesc)?),
        };
        let (table, drop_name, histograms) =
            (Arc::clone(&vector.table), Arc::clone(&vector.drop_name), vector.histograms);
        let sort = Sort { by, histograms, rows: table.len() };
        let plan = self.node(sort, vec![self.finish(vector, scope)?])?;
        Ok(VectorPlan { ordered: true, ..VectorPlan::new(plan, table, drop_name, histograms) })
    }
}

/// An argument; its existence was checked with the types.
pub(crate) fn argument(args: &[Expr], i: usize) -> Result<&Expr> {
    args.get(i).ok_or_else(|| super::unexpected("argument"))
}

/// Arguments that are strings.
pub(crate) fn texts(args: &[Expr]) -> Result<Vec<&Text>> {
    args.iter()
        .map(|arg| match &unparen(arg).kind {
            ExprKind::String(text) => Ok(text),
            _ => Err(super::unexpected("string")),
        })
        .collect()
}

/// The labels that a selector fixes: an `=` matcher sets one; another matcher of the same label removes it again.
fn absent_labels(matchers: &[Matcher]) -> Vec<(&str, &str)> {
    let mut seen: Vec<&str> = Vec::new();
    let mut labels: Vec<(&str, &str)> = Vec::new();
    for m in matchers.iter().filter(|m| m.name != METRIC_NAME) {
        if m.op == MatchOp::Equal && !seen.contains(&m.name.as_str()) {
            seen.push(&m.name);
            labels.push((&m.name, &m.value));
        } else {
            labels.retain(|(name, _)| *name != m.name);
        }
    }
    labels
}

/// The rank of each row when sorted by some labels in natural order, then by all labels.
fn label_ranks(room: &Room, table: &SeriesTable, names: &[&Text], descending: bool) -> Result<Vec<u32>> {
    let order = Order::new(room, table)?;
    let columns: Vec<_> = names.iter().filter_map(|name| table.column(name.name()?)).collect();
    let rows = labels::sort_numbers(room, table.len(), |a, b| {
        let by_labels = columns
            .iter()
            .map(|column| natural(column.value(a as usize), column.value(b as usize)))
            .find(|o| o.is_ne())
            .unwrap_or_else(|| order.compare(a, b));
        if descending { by_labels.reverse() } else { by_labels }
    })?;
    room.take_codes(rows.len())?;
    let mut ranks = vec![0; rows.len()];
    rows.into_iter().enumerate().for_each(|(rank, row)| ranks[row as usize] = rank as u32);
    Ok(ranks)
}

/// Compares strings with runs of digits as numbers (`natsort`): `a2` before `a10`.
fn natural(a: &str, b: &str) -> std::cmp::Ordering {
    let (mut of_a, mut of_b) = (chunks(a).into_iter(), chunks(b).into_iter());
    loop {
        match (of_a.next(), of_b.next()) {
            (None, None) => return a.cmp(b),
            (None, Some(_)) => return std::cmp::Ordering::Less,
            (Some(_), None) => return std::cmp::Ordering::Greater,
            (Some(p), Some(q)) => {
                let digits = |chunk: &str| chunk.as_bytes()[0].is_ascii_digit();
                let order = if digits(p) && digits(q) {
                    let (p0, q0) = (p.trim_start_matches('0'), q.trim_start_matches('0'));
                    p0.len().cmp(&q0.len()).then_with(|| p0.cmp(q0)).then_with(|| p.len().cmp(&q.len()))
                } else {
                    p.cmp(q)
                };
                if order.is_ne() {
                    return order;
                }
            }
        }
    }
}

fn chunks(text: &str) -> Vec<&str> {
    let mut out = Vec::new();
    let mut start = 0;
    let bytes = text.as_bytes();
    for i in 1..=bytes.len() {
        if i == bytes.len() || bytes[i].is_ascii_digit() != bytes[start].is_ascii_digit() {
            out.push(&text[start..i]);
            start = i;
        }
    }
    out
}

/// Adds a label with one value to all rows of a table.
pub(crate) fn with_label(room: &Room, table: &SeriesTable, name: &str, value: &str) -> Result<SeriesTable> {
    let mut values = Values::new(room);
    let code = values.code(value)?;
    room.take_codes(table.len())?;
    room.take(table.names().len() * size_of::<LabelColumn>())?;
    Ok(table.with_column(name, Some(values.column(vec![code; table.len()]))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn natural_order() {
        let mut texts = vec!["a10", "a2", "b", "a", "a02", "10", "9", ""];
        texts.sort_by(|a, b| natural(a, b));
        assert_eq!(texts, ["", "9", "10", "a", "a2", "a02", "a10", "b"]);
    }

    #[test]
    fn pinned_labels() {
        let m = |n: &str, op, v: &str| Matcher::new(n, op, v).unwrap();
        let matchers = [
            m("__name__", MatchOp::Equal, "x"),
            m("a", MatchOp::Equal, "1"),
            m("b", MatchOp::Equal, "1"),
            m("b", MatchOp::NotEqual, "2"),
            m("c", MatchOp::Regex, "x"),
        ];
        assert_eq!(absent_labels(&matchers), [("a", "1")]);
    }

    #[test]
    fn natural_order_of_numbers_within_texts() {
        use std::cmp::Ordering::{Equal, Greater, Less};

        for (a, b, expected) in [
            ("", "", Equal),
            ("", "0", Less),
            ("1", "1", Equal),
            ("2", "10", Less),
            ("1.9", "1.10", Less),
            ("v1.2.3", "v1.2", Greater),
            ("01", "1", Greater),
            ("0", "00", Less),
            ("a1b", "a1c", Less),
            ("a1", "a1b", Less),
            ("a", "1", Greater),
            ("disk9", "disk10", Less),
            ("é2", "é10", Less),
            ("99999999999999999999999", "100000000000000000000000", Less),
            ("²", "2", Greater),
        ] {
            assert_eq!((natural(a, b), natural(b, a)), (expected, expected.reverse()), "{a} {b}");
        }
        assert_eq!(chunks("ab12c003"), ["ab", "12", "c", "003"]);
        assert_eq!((chunks(""), chunks("7")), (vec![], vec!["7"]));
    }

    #[test]
    fn ranks_by_labels_then_by_all() {
        let mut builder = SeriesTableBuilder::default();
        builder.push([("host", "h10"), ("x", "1")]);
        builder.push([("host", "h9"), ("x", "2")]);
        builder.push([("x", "3")]);
        builder.push([("host", "h9"), ("x", "1")]);
        let (table, room) = (builder.finish(), Room::unbounded());
        let text = |name: &str| Text::new(name.as_bytes().to_vec());
        let ranked = |names: &[&Text], descending| label_ranks(&room, &table, names, descending).unwrap();
        let host = text("host");
        assert_eq!(ranked(&[&host], false), [3, 2, 0, 1]);
        assert_eq!(ranked(&[&host], true), [0, 1, 3, 2]);
        // Names of no label, and such as can be none, tell nothing apart: all labels decide.
        let (other, broken) = (text("y"), Text::new(vec![0xff]));
        assert_eq!(ranked(&[&other, &broken], false), ranked(&[], false));
        assert_eq!(ranked(&[&text("x"), &host], false), [1, 2, 3, 0]);
    }

    #[test]
    fn labels_that_are_pinned_twice_are_not() {
        let pinned = |query: &str| {
            let expr = crate::parser::parse(query).expect(query);
            let ExprKind::VectorSelector(selector) = expr.kind else { panic!("{query}") };
            let labels = absent_labels(&selector.matchers);
            labels.into_iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(",")
        };
        for (query, expected) in [
            ("m", ""),
            ("m{a='1',b='2'}", "a=1,b=2"),
            ("m{a='1',a='1'}", ""),
            ("m{a='1',a='2',a='3'}", ""),
            ("m{a!='1',a='2'}", "a=2"),
            ("m{a='2',a!='1'}", ""),
            ("m{a=~'x',b='y'}", "b=y"),
            ("{'a b'='c d', __name__='m'}", "a b=c d"),
        ] {
            assert_eq!(pinned(query), expected, "{query}");
        }
    }
}
