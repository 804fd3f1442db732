//! How tables of ours answer `TableProvider::scan`: by a method `plan` that boxes its future itself.
//!
//! `#[async_trait]` gives a method bounds on its lifetimes, and under bounds rustc proves anew, method by method, that whatever the future
//! holds is `Send`. For expressions and plans that is a walk through the whole tree of SQL's grammar, more than two seconds each
//! time: two thirds of what this crate took to compile. A method without bounds shares the proof with all others. So traits of
//! ours return a [`BoxFuture`](futures::future::BoxFuture), and those of DataFusion hand on to a method that does.

/// Implements `TableProvider::scan` by the method `plan(state, projection, filters, limit)` of the type.
macro_rules! scan_by_plan {
    () => {
        fn scan<'life0, 'life1, 'life2, 'life3, 'async_trait>(
            &'life0 self,
            state: &'life1 dyn ::datafusion::catalog::Session,
            projection: Option<&'life2 Vec<usize>>,
            filters: &'life3 [::datafusion::logical_expr::Expr],
            limit: Option<usize>,
        ) -> ::futures::future::BoxFuture<
            'async_trait,
            ::datafusion::error::Result<::std::sync::Arc<dyn ::datafusion::physical_plan::ExecutionPlan>>,
        >
        where
            'life0: 'async_trait,
            'life1: 'async_trait,
            'life2: 'async_trait,
            'life3: 'async_trait,
            Self: 'async_trait,
        {
            self.plan(state, projection, filters, limit)
        }
    };
}

pub(crate) use scan_by_plan;
