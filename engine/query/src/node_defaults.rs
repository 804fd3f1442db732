//! Default answers to what DataFusion asks every plan node about its inputs and expressions.
//!
//! DataFusion replaces inputs through two methods, of which the older is deprecated; only this file deals with both, for the
//! nodes of the languages, too.

/// Implements what `ExecutionPlan` asks about inputs for a node that has one, `input`; the method `over(&self, input) -> Self`
/// of the type makes the same node over another.
#[macro_export]
macro_rules! one_input {
    () => {
        fn children(&self) -> Vec<&::std::sync::Arc<dyn ::datafusion::physical_plan::ExecutionPlan>> {
            vec![&self.input]
        }

        fn replace_children(
            self: ::std::sync::Arc<Self>,
            children: Vec<::std::sync::Arc<dyn ::datafusion::physical_plan::ExecutionPlan>>,
            _options: ::datafusion::physical_plan::ReplaceChildrenOptions,
        ) -> ::datafusion::error::Result<::std::sync::Arc<dyn ::datafusion::physical_plan::ExecutionPlan>> {
            let [input] = children.as_slice() else {
                return ::datafusion::common::internal_err!("{} has one input, not {}", self.name(), children.len());
            };
            Ok(::std::sync::Arc::new(self.over(::std::sync::Arc::clone(input))))
        }

        $crate::by_replacing!();
    };
}

/// The same for a node that has none: a leaf.
macro_rules! no_input {
    () => {
        fn children(&self) -> Vec<&::std::sync::Arc<dyn ::datafusion::physical_plan::ExecutionPlan>> {
            Vec::new()
        }

        fn replace_children(
            self: ::std::sync::Arc<Self>,
            children: Vec<::std::sync::Arc<dyn ::datafusion::physical_plan::ExecutionPlan>>,
            _options: ::datafusion::physical_plan::ReplaceChildrenOptions,
        ) -> ::datafusion::error::Result<::std::sync::Arc<dyn ::datafusion::physical_plan::ExecutionPlan>> {
            if !children.is_empty() {
                return ::datafusion::common::internal_err!("{} has no inputs, not {}", self.name(), children.len());
            }
            Ok(self)
        }

        $crate::by_replacing!();
    };
}

/// Implements the older way to give a node new inputs by the newer one.
#[macro_export]
macro_rules! by_replacing {
    () => {
        fn with_new_children(
            self: ::std::sync::Arc<Self>,
            children: Vec<::std::sync::Arc<dyn ::datafusion::physical_plan::ExecutionPlan>>,
        ) -> ::datafusion::error::Result<::std::sync::Arc<dyn ::datafusion::physical_plan::ExecutionPlan>> {
            let anew = ::datafusion::physical_plan::ChildrenPropertiesMode::Recompute;
            self.replace_children(children, ::datafusion::physical_plan::ReplaceChildrenOptions::new(anew))
        }
    };
}

/// Implements `apply_expressions` for a node that has none which DataFusion's rules could read or change.
#[macro_export]
macro_rules! no_expressions {
    () => {
        fn apply_expressions(
            &self,
            _visit: &mut dyn FnMut(
                &::std::sync::Arc<dyn ::datafusion::physical_expr::PhysicalExpr>,
            )
                -> ::datafusion::error::Result<::datafusion::common::tree_node::TreeNodeRecursion>,
        ) -> ::datafusion::error::Result<::datafusion::common::tree_node::TreeNodeRecursion> {
            Ok(::datafusion::common::tree_node::TreeNodeRecursion::Continue)
        }
    };
}

/// Implements what `ExecutionPlan` asks about a node without expressions that gives the rows of its one input, `input`, in
/// their order and partitions, as [`one_input`] does.
macro_rules! rows_of_input {
    () => {
        fn properties(&self) -> &::std::sync::Arc<::datafusion::physical_plan::PlanProperties> {
            self.input.properties()
        }

        fn maintains_input_order(&self) -> Vec<bool> {
            vec![true]
        }

        $crate::one_input!();
        $crate::no_expressions!();
    };
}

pub(crate) use {no_expressions, no_input, one_input, rows_of_input};

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::datatypes::Schema;
    use datafusion::physical_plan::empty::EmptyExec;
    use datafusion::physical_plan::{ChildrenPropertiesMode, ExecutionPlan, ReplaceChildrenOptions, displayable};

    use crate::relational::list_pieces::ListPiecesExec;
    use crate::relational::long_constants::SliceExec;
    use crate::sequential_union::InTurnExec;

    fn empty(partitions: usize) -> Arc<dyn ExecutionPlan> {
        Arc::new(EmptyExec::new(Arc::new(Schema::empty())).with_partitions(partitions))
    }

    #[test]
    fn nodes_keep_what_they_are_over_another_input_and_refuse_none_or_two() {
        let nodes: [Arc<dyn ExecutionPlan>; 3] = [
            Arc::new(InTurnExec::new(empty(3), 2)),
            Arc::new(SliceExec::new(empty(3), 7)),
            Arc::new(ListPiecesExec::new(empty(3), vec![(1, 1)])),
        ];
        for node in nodes {
            let replaced = |inputs: Vec<_>| {
                let anew = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
                Arc::clone(&node).replace_children(inputs, anew)
            };
            let other = empty(5);
            let over = replaced(vec![Arc::clone(&other)]).unwrap();
            assert!(over.children().into_iter().all(|input| Arc::ptr_eq(input, &other)), "{}", node.name());
            assert_eq!(over.children().len(), 1, "{}", node.name());
            let shown = |node: &dyn ExecutionPlan| displayable(node).one_line().to_string();
            assert_eq!(shown(over.as_ref()), shown(node.as_ref()));
            for inputs in [Vec::new(), vec![empty(1), empty(1)]] {
                let count = inputs.len();
                let error = replaced(inputs).unwrap_err().to_string();
                let wanted = format!("{} has one input, not {count}", node.name());
                assert!(error.contains(&wanted), "{error}");
            }
        }
    }
}
