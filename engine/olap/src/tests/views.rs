//! Members of views, which lead to their models over the joins that the view names.

use quiver_query::QueryContext;
use quiver_query::tables::DomainAccess;
use quiver_types::Access;
use serde_json::json;

use super::open_cases::limits;
use super::rollups::{olap, on_a_deep_stack};
use crate::model::load::{SourceFile, load};
use crate::query::request::Request;

const MODEL: &str = r#"
cubes:
  - name: A
    sql_table: public.calls
    joins:
      - {name: B, relationship: many_to_one, sql: "{CUBE}.service = {B}.service"}
      - {name: C, relationship: many_to_one, sql: "{CUBE}.route = {C}.route"}
    dimensions: [{name: id, sql: id, type: number, primary_key: true}]
    measures: [{name: count, type: count}]
  - name: B
    sql_table: public.calls
    joins: [{name: D, relationship: many_to_one, sql: "{CUBE}.id = {D}.id"}]
    dimensions: [{name: id, sql: id, type: number, primary_key: true}]
  - name: C
    sql_table: public.calls
    joins: [{name: D, relationship: many_to_one, sql: "{CUBE}.id = {D}.id"}]
    dimensions: [{name: id, sql: id, type: number, primary_key: true}]
  - name: D
    sql_table: public.calls
    dimensions:
      - {name: id, sql: id, type: number, primary_key: true}
      - {name: route, sql: route, type: string}
views:
  - name: V
    cubes:
      - {join_path: A, includes: [count]}
      - {join_path: A.B.D, prefix: true, alias: b, includes: [route]}
      - {join_path: A.C.D, prefix: true, alias: c, includes: [route]}
"#;

/// Breaks if both dimensions are those of the first way.
#[test]
fn a_model_is_reached_over_one_way() {
    on_a_deep_stack(async {
        let (olap, _folders) = olap("views");
        let file = SourceFile { name: "v.yml".to_owned(), text: MODEL.to_owned(), builtin: false };
        olap.replace(load(&[file]).unwrap().0);
        let catalog = olap.catalog();
        let refused =
            "members of the query reach `D` over different joins, and a query has one way to each model".to_owned();
        for (dimensions, expected) in [
            (json!(["V.b_route"]), None),
            (json!(["V.c_route"]), None),
            (json!(["V.b_route", "V.c_route"]), Some(refused)),
        ] {
            let query = json!({"measures": ["V.count"], "dimensions": dimensions});
            let request = Request::parse(&query, &catalog, 0).unwrap();
            let ctx = QueryContext::new(Access::full(), limits());
            let told = olap.load(&catalog, &request, &DomainAccess::full(), &ctx).await.err().map(|e| e.to_string());
            assert_eq!(told, expected, "{query}");
        }
    });
}
