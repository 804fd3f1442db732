//! SELECTs over models, cut: what the compiler is asked, and what is left of the statement.

use arrow::datatypes::{DataType, Schema};
use quiver_query::tables::models::as_measure;
use quiver_query::tables::{DomainAccess, TableEntry};

use super::*;
use crate::dialect;
use crate::parse::{Params, ReadStatement, parse};
use crate::session::Session;
use crate::testing::{EMPTY, Product};

/// Models of which only the names are there.
const LISTED: Product = Product {
    models: |_| {
        let model = |name: &str, dimensions: &[&str]| {
            let dimensions = dimensions.iter().map(|name| Field::new(*name, DataType::Utf8, true));
            let measures = ["count", "avgMs"].map(|name| as_measure(Field::new(name, DataType::Int64, true)));
            let columns = Arc::new(Schema::new(dimensions.chain(measures).collect::<Vec<_>>()));
            TableEntry { schema: OLAP_SCHEMA, name: name.to_owned(), columns }
        };
        vec![model("Spans", &["service", "name", "startTime"]), model("Services", &["service", "tier"])]
    },
    finds: |model, member| model == "Spans" && member.starts_with("attr_"),
    ..EMPTY
};

/// What is left of a statement, and what is asked.
fn cut(text: &str) -> Result<(String, Vec<String>)> {
    let session = Session::default();
    let catalog = Catalog::new(Models::list(&LISTED, &DomainAccess::full()), &session);
    let aggregates = |name: &str| matches!(name, "count" | "sum" | "max");
    let ReadStatement::Query(mut query) = parse(text, &Params::default())?.statement else { panic!("{text}") };
    dialect::name_outputs(&mut query)?;
    let finder = Finder { catalog: &catalog, models: &LISTED, aggregates: &aggregates };
    let asked = found(&mut query, &finder)?;
    let plain = |text: String| text.replace(&format!("\"{DIMENSION_MARK}\"."), "").replace("__model_", "m");
    let shown = asked.iter().map(|asked| {
        let list = |of: Vec<String>| of.join(", ");
        plain(format!(
            "{} | {} | {} | {}",
            asked.models.join(","),
            list(asked.columns.iter().map(|(name, expr)| format!("{name}={expr}")).collect()),
            list(asked.measures.iter().map(|(name, of)| format!("{name}={}.{}", of.model, of.member)).collect()),
            list(asked.filters.iter().map(ToString::to_string).collect()),
        ))
    });
    Ok((plain(query.to_string()).replace('"', ""), shown.map(|text| text.replace('"', "")).collect()))
}

fn check(text: &str, left: &str, asked: &[&str]) {
    let (found, shown) = cut(text).unwrap_or_else(|e| panic!("{text}: {e}"));
    assert_eq!(
        (found.as_str(), shown.iter().map(String::as_str).collect::<Vec<_>>()),
        (left, asked.to_vec()),
        "{text}"
    );
}

fn refused(text: &str, says: &str) {
    let error = cut(text).expect_err(text);
    assert!(error.message.contains(says), "{text}: {}", error.message);
}

#[test]
fn measures_are_asked_by_groups() {
    check(
        r#"select "service", measure("count") from olap."Spans" where "name" = 'a' and "startTime" > 'b' group by 1"#,
        "SELECT m0.service AS service, m0.count AS count FROM olap.m0",
        &["Spans | service=Spans.service | count=Spans.count | Spans.name = 'a', Spans.startTime > 'b'"],
    );
    check(
        r#"select date_trunc('day', s."startTime") d, 1.0 * MEASURE(s."avgMs") / nullif(measure("count"), 0) q
           from olap."Spans" s group by d having measure("count") > 3 order by q desc, d limit 5"#,
        "SELECT m0.__group_0 AS d, 1.0 * m0.avgMs / nullif(m0.count, 0) AS q FROM olap.m0 WHERE m0.count > 3 \
         ORDER BY q DESC, d LIMIT 5",
        &["Spans | __group_0=date_trunc('day', Spans.startTime) | avgMs=Spans.avgMs, count=Spans.count | "],
    );
    check(
        r#"select measure("count") n from olap."Spans" having n > 1 and measure("avgMs") < 9"#,
        "SELECT m0.count AS n FROM olap.m0 WHERE (m0.count) > 1 AND m0.avgMs < 9",
        &["Spans |  | count=Spans.count, avgMs=Spans.avgMs | "],
    );
    // Windows are computed over groups, and an expression in an order is that of the select.
    check(
        r#"select "service", rank() over (order by measure("count") desc) r from olap."Spans" group by all
           order by measure("count"), "service""#,
        "SELECT m0.service AS service, rank() OVER (ORDER BY m0.count DESC) AS r FROM olap.m0 ORDER BY m0.count, service",
        &["Spans | service=Spans.service | count=Spans.count | "],
    );
}

#[test]
fn models_are_joined_as_they_say() {
    check(
        r#"select v."tier", measure(s."count") a, measure(v."count") b from olap."Spans" s, olap."Services" v group by 1"#,
        "SELECT m0.tier AS tier, m0.count AS a, m0.Services.count AS b FROM olap.m0",
        &["Spans,Services | tier=Services.tier | count=Spans.count, Services.count=Services.count | "],
    );
    refused(r#"select "service" from olap."Spans", olap."Services""#, "write which one is meant");
    refused(r#"select measure("count") from olap."Spans" a cross join olap."Spans" b"#, "once");
    refused(
        r#"select measure(a."count") from olap."Spans" a join olap."Services" b on a."service" = b."service""#,
        "CROSS JOIN",
    );
}

#[test]
fn rows_of_models_are_rows() {
    check(
        r#"select "service", count(*) from olap."Spans" where "name" in (select n from x) and "attr_a" is null
           group by "service" order by 2"#,
        "SELECT m0.service AS service, count(*) AS count FROM olap.m0 WHERE m0.name IN (SELECT n FROM x) \
         GROUP BY m0.service ORDER BY 2",
        &["Spans | service=Spans.service, name=Spans.name |  | Spans.attr_a IS NULL"],
    );
    check(
        r#"select * from olap."Services" limit 1"#,
        "SELECT m0.service AS service, m0.tier AS tier FROM olap.m0 LIMIT 1",
        &["Services | service=Services.service, tier=Services.tier |  | "],
    );
    check(r#"select count(*) from olap."Spans""#, "SELECT count(*) AS count FROM olap.m0", &["Spans |  |  | "]);
    // Beside other tables each model is a table.
    check(
        r#"select l.message, "tier" from logs l join olap."Services" on l.service_name = "Services"."service""#,
        "SELECT l.message, tier FROM logs l JOIN olap.m0 AS Services ON l.service_name = Services.service",
        &["Services | service=Services.service, tier=Services.tier |  | "],
    );
    // `*` of another table contains no columns of the model.
    check(
        r#"select l.* from logs l join olap."Services" s on l.service_name = s."service""#,
        "SELECT l.* FROM logs l JOIN olap.m0 s ON l.service_name = s.service",
        &["Services | service=Services.service |  | "],
    );
    check(
        r#"with "Spans" as (select 1 a) select a from "Spans" union select measure("count") from olap."Spans""#,
        "WITH Spans AS (SELECT 1 AS a) SELECT a FROM Spans UNION SELECT m0.count AS count FROM olap.m0",
        &["Spans |  | count=Spans.count | "],
    );
}

#[test]
fn measures_stand_where_they_may() {
    refused(r#"select "count" from olap."Spans""#, "it stands in MEASURE(\"count\") alone");
    refused(r#"select sum("count") from olap."Spans""#, "is a measure of `Spans`");
    refused(r#"select "Spans"."count" from olap."Spans" join logs l on true"#, "is a measure of `Spans`");
    refused(r#"select measure("service") from olap."Spans""#, "is a dimension of `Spans`");
    refused(r#"select measure("cuont") from olap."Spans""#, "did you mean `\"count\"`");
    refused(r#"select measure(1) from olap."Spans""#, "takes the name of a measure");
    refused(r#"select measure("count") over () from olap."Spans""#, "takes the name of a measure");
    refused(r#"select "service", measure("count") from olap."Spans""#, "must be in `GROUP BY`");
    refused(r#"select measure("count"), count(*) from olap."Spans""#, "stands beside `MEASURE`");
    let aggregate = r#"select "service", measure("count"), max("name") from olap."Spans" group by 1"#;
    refused(aggregate, "`max(\"name\")` stands beside `MEASURE`");
    refused(r#"select *, measure("count") from olap."Spans" group by 1"#, "`*` stands beside `MEASURE`");
    refused(r#"select measure("count") from olap."Spans" where measure("count") > 1"#, "stands in `HAVING`");
    refused(r#"select measure("count") from olap."Spans" where max("name") > 'a'"#, "a value of one row");
    refused(r#"select measure("count") from olap."Spans" where "name" in (select 'a')"#, "subquery");
    refused(r#"select measure("count") from olap."Spans" where "nmae" = 'a'"#, "did you mean `\"name\"`");
    refused(r#"select measure("count") from olap."Spans" group by rollup("name")"#, "is not supported");
    refused(r#"select measure("count") n from olap."Spans" group by n"#, "not by measures");
    refused(r#"select s."x" from olap."Spans" s"#, "there is no column `s.x`");
}

#[test]
fn all_columns_are_those_of_a_model_that_is_there() {
    check(
        r#"select s.* from olap."Spans" s"#,
        "SELECT m0.service AS service, m0.name AS name, m0.startTime AS startTime FROM olap.m0",
        &["Spans | service=Spans.service, name=Spans.name, startTime=Spans.startTime |  | "],
    );
    refused(r#"select t.* from olap."Spans" s"#, "there is no table `t` in this `FROM`");
    refused(r#"select "Spans".* from olap."Spans" s"#, "there is no table `\"Spans\"` in this `FROM`");
}

#[test]
fn groups_are_kept_and_ordered_by_measures() {
    let asked = ["Spans | service=Spans.service | count=Spans.count | "];
    check(
        r#"select "service" from olap."Spans" group by "service" having measure("count") > 3"#,
        "SELECT m0.service AS service FROM olap.m0 WHERE m0.count > 3",
        &asked,
    );
    check(
        r#"select "service" from olap."Spans" group by 1 order by measure("count") desc limit 3"#,
        "SELECT m0.service AS service FROM olap.m0 ORDER BY m0.count DESC LIMIT 3",
        &asked,
    );
    // A measure is asked for once, however often it stands there; a dimension that is grouped by twice is one group.
    check(
        r#"select "service", measure("count") a, measure("count") + 1 b from olap."Spans" group by 1, "service""#,
        "SELECT m0.service AS service, m0.count AS a, m0.count + 1 AS b FROM olap.m0",
        &asked,
    );
    check(
        r#"select count(*) as c from (select measure("count") n from olap."Spans" group by "service") t"#,
        "SELECT count(*) AS c FROM (SELECT m0.count AS n FROM olap.m0) t",
        &asked,
    );
    for (group, says) in [
        ("3", "`GROUP BY 3`: the SELECT has no column of that number"),
        ("0", "`GROUP BY 0`: the SELECT has no column of that number"),
        ("2", "not by measures"),
        ("max(\"name\")", "is computed over several rows"),
        ("(\"service\", \"name\")", "is not supported"),
        ("\"nmae\"", "did you mean `\"name\"`"),
        ("upper(\"nmae\")", "did you mean `\"name\"`"),
    ] {
        refused(&format!(r#"select "service", measure("count") from olap."Spans" group by {group}"#), says);
    }
}

#[test]
fn conditions_are_cut_at_each_and() {
    check(
        r#"select measure("count") n from olap."Spans"
           where ("name" = 'a' or "name" = 'b') and ("service" > 'c' and (not "attr_x" = 'd'))"#,
        "SELECT m0.count AS n FROM olap.m0",
        &["Spans |  | count=Spans.count | \
           Spans.name = 'a' OR Spans.name = 'b', Spans.service > 'c', NOT Spans.attr_x = 'd'"],
    );
    // What is no name of the model stays where rows come one by one, each condition by itself.
    check(
        r#"select "service" from olap."Spans" where "name" = 'a' and nosuch = 1 and nosuch < "name""#,
        "SELECT m0.service AS service FROM olap.m0 WHERE (nosuch = 1) AND (nosuch < m0.name)",
        &["Spans | service=Spans.service, name=Spans.name |  | Spans.name = 'a'"],
    );
    refused(
        r#"select measure("count") from olap."Spans" where row_number() over () = 1"#,
        "is computed over several rows, where a value of one row is wanted",
    );
}

#[test]
fn each_select_has_a_table_of_its_own() {
    check(
        r#"select measure("count") n from olap."Spans" union all select measure("count") n from olap."Services""#,
        "SELECT m0.count AS n FROM olap.m0 UNION ALL SELECT m1.count AS n FROM olap.m1",
        &["Spans |  | count=Spans.count | ", "Services |  | count=Services.count | "],
    );
    refused(r#"select "x" from olap."Spans" as s ("x", "y")"#, "stands in a `FROM` with an alias at most");
    refused(r#"select 1 from logs l join olap."Spans" s (a) on true"#, "columns of model `Spans` keep their names");
    refused(
        r#"select measure("count") from olap."Spans" join logs l on true"#,
        "`MEASURE` stands in a SELECT from models alone",
    );
}
