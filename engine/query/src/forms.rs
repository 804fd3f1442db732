//! Written forms of the nodes and functions of this crate.

use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::internal_datafusion_err;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{AggregateUDF, ScalarUDF};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::{PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::ExecutionPlan;
use quiver_types::{Access, Pins, SeriesSnapshot};
use serde::{Deserialize, Serialize};

use crate::engine::QueryEngine;
use crate::error::to_datafusion;
use crate::functions::around::{sum_by_name, unregistered};
use crate::in_turn::InTurnExec;
use crate::index::{IndexExec, LookUp};
use crate::relational::grouping::{CodedGroupExec, WrittenGroups};
use crate::relational::list_pieces::ListPiecesExec;
use crate::relational::slices::SliceExec;
use crate::relational::windows::WindowsExec;
use crate::tables::{AtOnceExec, ConvertExec};
use crate::written::{Forms, Written};

pub(crate) use crate::tables::{WrittenConvert, WrittenRows};

/// The written forms of the nodes of the engine.
#[derive(Debug)]
pub struct PlanForms {
    /// Functions that nobody registers.
    functions: Vec<Arc<ScalarUDF>>,
}

impl PlanForms {
    /// Reads plans for an engine, whose memory functions of theirs take.
    pub fn new(engine: &QueryEngine) -> Self {
        Self { functions: unregistered(&engine.planning.room) }
    }
}

/// Where something is written or read.
pub(crate) struct At<'a> {
    pub(crate) forms: &'a dyn Forms,
}

/// A node. Children stand beside it.
#[derive(Debug, Serialize, Deserialize)]
enum Node {
    Slices {
        rows: usize,
    },
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

/// Says that bytes are none of a form.
pub(crate) fn damaged(error: impl std::fmt::Display) -> DataFusionError {
    internal_datafusion_err!("the written form of a node of the engine is damaged: {error}")
}

/// What a plan was planned over and names by a number (`types::Pins`).
pub(crate) fn pinned<T: ?Sized + Send + Sync + 'static>(number: u64) -> Result<Arc<T>> {
    Pins::of_process().pinned(number).map_err(to_datafusion)
}

/// Refuses expressions over columns that are not there.
pub(crate) fn within<'e>(exprs: impl IntoIterator<Item = &'e Arc<dyn PhysicalExpr>>, schema: &Schema) -> Result<()> {
    for expr in exprs {
        if collect_columns(expr).iter().any(|column| column.index() >= schema.fields().len()) {
            return Err(damaged("it is about other columns"));
        }
    }
    Ok(())
}

impl At<'_> {
    pub(crate) fn write_exprs<'e>(
        &self,
        exprs: impl IntoIterator<Item = &'e Arc<dyn PhysicalExpr>>,
    ) -> Result<Vec<Vec<u8>>> {
        exprs.into_iter().map(|expr| self.forms.write_expr(expr)).collect()
    }

    pub(crate) fn read_exprs(&self, exprs: &[Vec<u8>], schema: &Schema) -> Result<Vec<Arc<dyn PhysicalExpr>>> {
        let read = exprs.iter().map(|expr| self.forms.read_expr(expr, schema)).collect::<Result<Vec<_>>>()?;
        within(&read, schema)?;
        Ok(read)
    }

    fn write(&self, node: &dyn ExecutionPlan) -> Result<Option<Node>> {
        if let Some(slices) = node.downcast_ref::<SliceExec>() {
            return Ok(Some(Node::Slices { rows: slices.rows() }));
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
                Ok(Arc::new(ConvertExec::read(rows, Arc::clone(input), limit, self)?))
            }
            (Node::Groups(groups), [input]) => CodedGroupExec::read(groups, Arc::clone(input), self),
            (Node::AtOnce { rows, limit }, []) => Ok(Arc::new(AtOnceExec::new(rows.read(self)?, limit))),
            _ => Err(damaged("it has other inputs")),
        }
    }

    pub(crate) fn write_schema(&self, schema: &SchemaRef) -> Result<Vec<u8>> {
        self.forms.write_schema(schema)
    }
}

impl Written for PlanForms {
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
        Ok(sum_by_name(function.name()).is_some_and(|sum| *sum == *function).then(Vec::new))
    }

    fn read_aggregate_function(&self, name: &str, _: &[u8]) -> Result<Arc<AggregateUDF>> {
        sum_by_name(name).ok_or_else(|| damaged(format_args!("there is no aggregate function `{name}`")))
    }
}

#[cfg(test)]
pub(crate) mod tests;
