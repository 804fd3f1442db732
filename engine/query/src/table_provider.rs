//! How our tables implement `TableProvider`; `scan` through a method `plan` that boxes its future itself.
//!
//! `#[async_trait]` puts bounds on the lifetimes of a method, and under such bounds rustc proves for each method anew
//! that its future is `Send`. For expressions and plans that walks all types of SQL's grammar, more than two seconds
//! each time: two thirds of the compile time of this crate. Methods without such bounds share the proof. So our traits
//! return a [`BoxFuture`](futures::future::BoxFuture), and implementations of DataFusion's traits call a method that
//! does.

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

/// As `scan_by_plan`, with the schema in the field `schema`.
macro_rules! table_by_plan {
    () => {
        fn schema(&self) -> ::arrow::datatypes::SchemaRef {
            ::std::sync::Arc::clone(&self.schema)
        }

        fn table_type(&self) -> ::datafusion::logical_expr::TableType {
            ::datafusion::logical_expr::TableType::Base
        }

        $crate::table_provider::scan_by_plan!();
    };
}

pub(crate) use {scan_by_plan, table_by_plan};
