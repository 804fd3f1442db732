//! Serialized forms of the nodes and functions of this crate.

use std::sync::Arc;

use datafusion::error::Result;
use datafusion::logical_expr::{AggregateUDF, ScalarUDF};
use datafusion::physical_expr::PhysicalSortExpr;
use datafusion::physical_plan::ExecutionPlan;
use quiver_types::{Access, Pins, SeriesSnapshot};
use serde::{Deserialize, Serialize};

use crate::encoding::context::{At, damaged, pinned};
use crate::encoding::{Forms, NodeCodec};
use crate::engine::QueryEngine;
use crate::functions::exact_doubles;
use crate::functions::wrappers::{sum_by_name, unregistered};
use crate::index::{IndexExec, LookUp};
use crate::relational::exchanged_rows::ExchangedRowsExec;
use crate::relational::grouping::node::{CodedGroupExec, WrittenGroups};
use crate::relational::held_inputs::HeldRowsExec;
use crate::relational::join_reruns::RerunExec;
use crate::relational::list_pieces::ListPiecesExec;
use crate::relational::long_constants::SliceExec;
use crate::relational::text_views::{TextViewsExec, Values, ViewDirection};
use crate::relational::windows::WindowsExec;
use crate::sequential_union::InTurnExec;
use crate::tables::convert::ConvertExec;
use crate::tables::decoding;
use crate::tables::encoding::{WrittenConvert, WrittenRows};
use crate::tables::materialized::AtOnceExec;

/// The written form of an aggregate over doubles, where there is another function of its name.
const OF_DOUBLES: &[u8] = b"doubles";

/// The written forms of the nodes of the engine.
#[derive(Debug)]
pub struct PlanForms {
    /// Functions that are not in the registry of the session.
    functions: Vec<Arc<ScalarUDF>>,
}

impl PlanForms {
    /// Reads plans for an engine, whose memory functions of theirs take.
    pub fn new(engine: &QueryEngine) -> Self {
        Self { functions: unregistered(&engine.planning.room) }
    }
}

/// A node. Children stand beside it.
#[derive(Debug, Serialize, Deserialize)]
enum Node {
    Slices {
        rows: usize,
    },
    /// Columns by place, and the schema with values.
    TextViews {
        columns: Vec<(usize, Values)>,
        to: ViewDirection,
        values: Vec<u8>,
    },
    HeldRows,
    Rerun {
        may_spill: bool,
    },
    ExchangedRows,
    /// Places of lists, and how deep they are.
    ListPieces {
        lists: Vec<(usize, usize)>,
    },
    Windows {
        calls: Vec<Vec<u8>>,
        keys: Vec<Key>,
    },
    Index {
        look_up: LookUp,
        snapshot: u64,
        access: Access,
        projection: Option<Vec<usize>>,
        limit: Option<usize>,
    },
    Convert {
        rows: WrittenConvert,
        limit: Option<usize>,
    },
    Groups(WrittenGroups),
    AtOnce {
        rows: WrittenRows,
        limit: Option<usize>,
    },
    InTurn {
        partitions: usize,
    },
}

/// What rows are ordered by.
#[derive(Debug, Serialize, Deserialize)]
struct Key {
    expr: Vec<u8>,
    descending: bool,
    nulls_first: bool,
}

impl At<'_> {
    fn write(&self, node: &dyn ExecutionPlan) -> Result<Option<Node>> {
        if let Some(slices) = node.downcast_ref::<SliceExec>() {
            return Ok(Some(Node::Slices { rows: slices.rows() }));
        }
        if let Some(views) = node.downcast_ref::<TextViewsExec>() {
            let (columns, to, values) = views.parts();
            let (columns, values) = (columns.to_vec(), self.write_schema(&values)?);
            return Ok(Some(Node::TextViews { columns, to, values }));
        }
        if node.is::<HeldRowsExec>() {
            return Ok(Some(Node::HeldRows));
        }
        if let Some(rerun) = node.downcast_ref::<RerunExec>() {
            return Ok(Some(Node::Rerun { may_spill: rerun.may_spill() }));
        }
        if node.is::<ExchangedRowsExec>() {
            return Ok(Some(Node::ExchangedRows));
        }
        if let Some(turns) = node.downcast_ref::<InTurnExec>() {
            return Ok(Some(Node::InTurn { partitions: turns.partitions() }));
        }
        if let Some(pieces) = node.downcast_ref::<ListPiecesExec>() {
            let lists = pieces.lists().iter().map(|list| (list.index_in_input_schema, list.depth));
            return Ok(Some(Node::ListPieces { lists: lists.collect() }));
        }
        if let Some(windows) = node.downcast_ref::<WindowsExec>() {
            let calls = windows.calls().iter().map(|call| self.forms.write_window(call));
            let key = |key: &PhysicalSortExpr| -> Result<Key> {
                let (expr, options) = (self.forms.write_expr(&key.expr)?, key.options);
                Ok(Key { expr, descending: options.descending, nulls_first: options.nulls_first })
            };
            let keys = windows.keys().iter().map(key).collect::<Result<_>>()?;
            return Ok(Some(Node::Windows { calls: calls.collect::<Result<_>>()?, keys }));
        }
        if let Some(index) = node.downcast_ref::<IndexExec>() {
            let (look_up, source, projection, limit) = index.parts();
            let (look_up, projection) = (look_up.clone(), projection.map(<[usize]>::to_vec));
            let (snapshot, access) = (Pins::of_process().pin(&source.snapshot), source.access.clone());
            return Ok(Some(Node::Index { look_up, snapshot, access, projection, limit }));
        }
        if let Some(convert) = node.downcast_ref::<ConvertExec>() {
            let rows = convert.written(self)?;
            return Ok(rows.map(|rows| Node::Convert { rows, limit: convert.limit() }));
        }
        if let Some(groups) = node.downcast_ref::<CodedGroupExec>() {
            return Ok(Some(Node::Groups(groups.written(self)?)));
        }
        if let Some(rows) = node.downcast_ref::<AtOnceExec>() {
            let (rows, limit) = rows.written(self)?;
            return Ok(Some(Node::AtOnce { rows, limit }));
        }
        Ok(None)
    }

    fn read(&self, node: Node, children: &[Arc<dyn ExecutionPlan>]) -> Result<Arc<dyn ExecutionPlan>> {
        match (node, children) {
            (Node::Slices { rows }, [input]) if rows > 0 => Ok(Arc::new(SliceExec::new(Arc::clone(input), rows))),
            (Node::TextViews { columns, to, values }, [input]) => {
                let values = self.forms.read_schema(&values)?;
                Ok(Arc::new(TextViewsExec::new(Arc::clone(input), columns, to, &values)?))
            }
            (Node::HeldRows, [input]) => Ok(Arc::new(HeldRowsExec::new(Arc::clone(input)))),
            (Node::Rerun { may_spill }, [input]) => Ok(Arc::new(RerunExec::new(Arc::clone(input), may_spill))),
            (Node::ExchangedRows, [input]) => Ok(Arc::new(ExchangedRowsExec::new(Arc::clone(input)))),
            (Node::InTurn { partitions }, [input]) if partitions > 0 => {
                Ok(Arc::new(InTurnExec::new(Arc::clone(input), partitions)))
            }
            (Node::ListPieces { lists }, [input]) => {
                let columns = input.schema().fields().len();
                if lists.is_empty() || lists.iter().any(|(at, _)| *at >= columns) {
                    return Err(damaged("it is about other columns"));
                }
                Ok(Arc::new(ListPiecesExec::new(Arc::clone(input), lists)))
            }
            (Node::Windows { calls, keys }, [input]) => {
                let schema = input.schema();
                let calls =
                    calls.iter().map(|call| self.forms.read_window(call, &schema)).collect::<Result<Vec<_>>>()?;
                let key = |key: Key| -> Result<PhysicalSortExpr> {
                    let options =
                        arrow::compute::SortOptions { descending: key.descending, nulls_first: key.nulls_first };
                    Ok(PhysicalSortExpr { expr: self.forms.read_expr(&key.expr, &schema)?, options })
                };
                let keys = keys.into_iter().map(key).collect::<Result<Vec<_>>>()?;
                if calls.is_empty() {
                    return Err(damaged("windows without a call"));
                }
                Ok(Arc::new(WindowsExec::new(Arc::clone(input), calls, keys)?))
            }
            (Node::Index { look_up, snapshot, access, projection, limit }, []) => {
                let snapshot = pinned::<dyn SeriesSnapshot>(snapshot)?;
                Ok(Arc::new(IndexExec::new(look_up, snapshot, access, projection, limit)?))
            }
            (Node::Convert { rows, limit }, [input]) => {
                Ok(Arc::new(decoding::conversion(rows, Arc::clone(input), limit, self)?))
            }
            (Node::Groups(groups), [input]) => CodedGroupExec::read(groups, Arc::clone(input), self),
            (Node::AtOnce { rows, limit }, []) => Ok(Arc::new(AtOnceExec::new(decoding::rows(rows, self)?, limit))),
            _ => Err(damaged("it has other inputs")),
        }
    }
}

impl NodeCodec for PlanForms {
    fn of(&self) -> &'static str {
        "query"
    }

    fn write(&self, node: &dyn ExecutionPlan, forms: &dyn Forms) -> Result<Option<Vec<u8>>> {
        let written = At { forms }.write(node)?;
        written.map(|node| postcard::to_allocvec(&node).map_err(damaged)).transpose()
    }

    fn read(
        &self,
        bytes: &[u8],
        children: Vec<Arc<dyn ExecutionPlan>>,
        forms: &dyn Forms,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        At { forms }.read(postcard::from_bytes(bytes).map_err(damaged)?, &children)
    }

    fn write_function(&self, function: &ScalarUDF) -> Result<Option<Vec<u8>>> {
        Ok(self.functions.iter().any(|known| **known == *function).then(Vec::new))
    }

    fn read_function(&self, name: &str, _: &[u8]) -> Result<Arc<ScalarUDF>> {
        let found = self.functions.iter().find(|known| known.name() == name);
        found.cloned().ok_or_else(|| damaged(format_args!("there is no function `{name}`")))
    }

    fn write_aggregate_function(&self, function: &AggregateUDF) -> Result<Option<Vec<u8>>> {
        let is = |of: Option<Arc<AggregateUDF>>| of.is_some_and(|of| *of == *function);
        if is(exact_doubles(function.name())) {
            return Ok(Some(OF_DOUBLES.to_vec()));
        }
        Ok(is(sum_by_name(function.name())).then(Vec::new))
    }

    fn read_aggregate_function(&self, name: &str, bytes: &[u8]) -> Result<Arc<AggregateUDF>> {
        let found = if bytes == OF_DOUBLES { exact_doubles(name) } else { sum_by_name(name) };
        found.ok_or_else(|| damaged(format_args!("there is no aggregate function `{name}`")))
    }
}

#[cfg(test)]
pub(crate) mod tests;
