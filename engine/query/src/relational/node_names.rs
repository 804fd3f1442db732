//! Names of plan nodes, by which rules tell what a plan is made of.
//!
//! A rule that looks for a node by a text would silently do nothing once DataFusion calls it otherwise. So names are
//! written as types: one that is renamed or taken away no longer compiles.

/// The names of some nodes; their types must be imported where it stands.
macro_rules! node_names {
    ($($node:ident),+ $(,)?) => {
        [$({
            const _: fn(&$node) -> &str = <$node as ::datafusion::physical_plan::ExecutionPlan>::name;
            stringify!($node)
        }),+]
    };
}

pub(super) use node_names;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::datatypes::Schema;
    use datafusion::physical_plan::ExecutionPlan as _;
    use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
    use datafusion::physical_plan::empty::EmptyExec;

    #[test]
    fn nodes_are_called_as_their_types() {
        let empty = Arc::new(EmptyExec::new(Arc::new(Schema::empty())));
        let merged = CoalescePartitionsExec::new(Arc::clone(&empty) as _);
        assert_eq!([empty.name(), merged.name()], node_names![EmptyExec, CoalescePartitionsExec]);
    }
}
