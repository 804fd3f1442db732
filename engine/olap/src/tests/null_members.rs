//! NULL members: in results, and in conditions on them.

use quiver_query::tables::DomainAccess;
use serde_json::{Value, json};

use super::rollups::{MODEL, ask, olap, on_a_deep_stack};
use crate::model::load::{SourceFile, load};

/// The values of a member beside the count, for all rows or those of a condition.
async fn values(name: &str, own: &str, filters: &Value) -> Value {
    let (olap, _folders) = olap(name);
    let text = MODEL.replace("    dimensions:\n", &format!("    dimensions:\n      - {{name: own, {own}}}\n"));
    let file = SourceFile { name: "calls.yml".to_owned(), text, builtin: false };
    olap.replace(load(&[file]).unwrap().0);
    let query = json!({
        "dimensions": ["Calls.own"], "measures": ["Calls.count"], "order": [["Calls.own", "asc"]], "filters": filters,
        "responseFormat": "compact",
    });
    ask(&olap, &query, &DomainAccess::full()).await["data"]["dataset"].clone()
}

/// Breaks if a column without a type, which has no bitmap of nulls, is written as empty texts.
#[test]
fn a_member_without_a_type_is_null() {
    on_a_deep_stack(async {
        for own in ["sql: 'NULL', type: string", "sql: 'NULL', type: number"] {
            assert_eq!(values("untyped", own, &json!([])).await, json!([[null, "6"]]), "{own}");
            let unset = json!([{"member": "Calls.own", "operator": "notSet"}]);
            assert_eq!(values("untyped", own, &unset).await, json!([[null, "6"]]), "{own}");
        }
    });
}

/// Breaks if a place with one coordinate is a text, so that it counts as set.
#[test]
fn a_place_lacks_no_part() {
    on_a_deep_stack(async {
        let own = "type: geo, latitude: {sql: ms}, longitude: {sql: 'CASE WHEN ms > 4 THEN cost END'}";
        let set = json!([{"member": "Calls.own", "operator": "set"}]);
        let places = json!([["40,0.10", "1"], ["5,2.00", "1"], ["7,3.05", "1"], ["9,1.00", "1"]]);
        assert_eq!(values("places", own, &set).await, places);
        let unset = json!([{"member": "Calls.own", "operator": "notSet"}]);
        assert_eq!(values("places", own, &unset).await, json!([[null, "2"]]));
    });
}
