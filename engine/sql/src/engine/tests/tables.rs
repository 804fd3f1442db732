//! Statements over a table of the operator, and what the catalog says of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::{Float64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::{MemTable, TableProvider};
use quiver_query::tables::DomainAccess;

use super::{LITTLE, asked, check, is_refused, language, rows_of};
use crate::engine::SqlEngine;
use crate::testing::Product;

pub(super) fn columns() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("name", DataType::Utf8, false),
        Field::new("cpu", DataType::Float64, true),
        Field::new("role", DataType::Utf8, true),
    ]))
}

/// Three hosts in two batches; of the last one it is not known how much it does.
pub(super) fn hosts() -> Arc<dyn TableProvider> {
    let batch = |names: Vec<&str>, cpu: Vec<Option<f64>>, roles: Vec<&str>| {
        let columns: Vec<arrow::array::ArrayRef> = vec![
            Arc::new(StringArray::from(names)),
            Arc::new(Float64Array::from(cpu)),
            Arc::new(StringArray::from(roles)),
        ];
        RecordBatch::try_new(self::columns(), columns).expect("a batch")
    };
    let batches = vec![
        batch(vec!["a", "b"], vec![Some(0.5), Some(1.5)], vec!["web", "db"]),
        batch(vec!["c"], vec![None], vec!["web"]),
    ];
    Arc::new(MemTable::try_new(columns(), vec![batches]).expect("a table"))
}

#[test]
fn rows_of_a_table() {
    check("select * from hosts order by name", "name|cpu|role", &["a|0.5|web", "b|1.5|db", "c|-|web"]);
    check("table public.hosts", "name|cpu|role", &["a|0.5|web", "b|1.5|db", "c|-|web"]);
    check("select h.*, 1 as one from hosts h where cpu > 1", "name|cpu|role|one", &["b|1.5|db|1"]);
    check("select name from hosts where not cpu > 1", "name", &["a"]);
    check("select name from hosts where cpu is null or role = 'db' order by name desc", "name", &["c", "b"]);
    check("select name from hosts order by cpu desc nulls last fetch first 1 row only", "name", &["b"]);
    check("select name from hosts where name like any (array['a%', 'c%']) order by 1", "name", &["a", "c"]);
    check("select name from hosts where (role, name) in (values ('web', 'a'), ('db', 'x'))", "name", &["a"]);
    check(
        "select role, count(*), count(cpu), avg(cpu) from hosts group by role order by role",
        "role|count|count_2|avg",
        &["db|1|1|1.5", "web|2|1|0.5"],
    );
    check("select count(*) filter (where role = 'web') as w, count(distinct role) as r from hosts", "w|r", &["2|2"]);
    check("select distinct on (role) role, name from hosts order by role, name desc", "role|name", &["db|b", "web|c"]);
    check(
        "select coalesce(role, 'all') as r, count(*) as n from hosts group by cube (role) order by r",
        "r|n",
        &["all|3", "db|1", "web|2"],
    );
}

#[test]
fn tables_are_joined() {
    check(
        "select a.name, b.name as other from hosts a join hosts b on a.role = b.role and a.name < b.name",
        "name|other",
        &["a|c"],
    );
    check("select name from hosts natural join (select 'db' as role) r", "name", &["b"]);
    check(
        "select x, name from hosts right join (values ('web'), ('none')) v (x) on role = x order by 1, 2",
        "x|name",
        &["none|-", "web|a", "web|c"],
    );
    check(
        "select hosts.name, twice from public.hosts, lateral (select hosts.cpu * 2 as twice) l where twice > 1",
        "name|twice",
        &["b|3.0"],
    );
    check(
        "select name, (select count(*) from hosts b where b.role = a.role) as alike from hosts a order by name",
        "name|alike",
        &["a|2", "b|1", "c|2"],
    );
    check(
        "select name from hosts a where exists (select 1 from hosts b where b.role = a.role and b.name <> a.name) \
         order by 1",
        "name",
        &["a", "c"],
    );
    check(
        "select name from hosts a where not exists (select 1 from hosts b where b.role = a.role and b.name <> a.name)",
        "name",
        &["b"],
    );
    check("select name from hosts where cpu = (select max(cpu) from hosts)", "name", &["b"]);
    // Of a NULL it is not known whether it is another value.
    check("select name from hosts where 'x' not in (select role from hosts)", "name", &["a", "b", "c"]);
    check("select name from hosts where name not in (select cpu::text from hosts)", "name", &[]);
    check("select name from hosts where 'x' not in (select cpu::text from hosts)", "name", &[]);
}

#[test]
fn the_catalog_knows_it() {
    check(
        "select column_name, data_type, is_nullable, ordinal_position from information_schema.columns \
         where table_name = 'hosts' order by ordinal_position",
        "column_name|data_type|is_nullable|ordinal_position",
        &["name|text|NO|1", "cpu|double precision|YES|2", "role|text|YES|3"],
    );
    check(
        "describe hosts",
        "column_name|data_type|is_nullable",
        &["name|text|NO", "cpu|double precision|YES", "role|text|YES"],
    );
    check(
        "select a.attname, format_type(a.atttypid, a.atttypmod) as type, a.attnotnull from pg_attribute a \
         where a.attrelid = 'hosts'::regclass and a.attnum > 0 order by a.attnum",
        "attname|type|attnotnull",
        &["name|text|true", "cpu|double precision|false", "role|text|false"],
    );
    check(
        "select c.relname, n.nspname, c.relkind from pg_class c join pg_namespace n on n.oid = c.relnamespace \
         where n.nspname = 'public'",
        "relname|nspname|relkind",
        &["hosts|public|r"],
    );
    check(
        "select table_schema, table_name, table_type from information_schema.tables where table_schema = 'public'",
        "table_schema|table_name|table_type",
        &["public|hosts|BASE TABLE"],
    );
    check("select tablename from pg_tables where schemaname = 'public'", "tablename", &["hosts"]);
    check("show tables", "table_schema|table_name", &["public|hosts"]);
    check(
        "select pg_table_is_visible('hosts'::regclass) as v, to_regclass('nosuch') as n, current_schema as s",
        "v|n|s",
        &["true|-|public"],
    );
}

#[test]
fn the_catalog_knows_types_and_schemas() {
    check(
        "select typname, typlen, typtype, typcategory, typarray, typelem from pg_type where oid in (16, 23, 25, 1009) \
         order by oid",
        "typname|typlen|typtype|typcategory|typarray|typelem",
        &["bool|1|b|B|1000|0", "int4|4|b|N|1007|0", "text|-1|b|S|1009|0", "_text|-1|b|A|0|25"],
    );
    check(
        "select format_type(23, -1) as a, format_type(1009, -1) as b, to_regtype('int4') as c",
        "a|b|c",
        &["integer|text[]|23"],
    );
    let schemas = ["information_schema", "olap", "pg_catalog", "public", "quiver"];
    check("select nspname from pg_namespace order by 1", "nspname", &schemas);
    check("select schema_name from information_schema.schemata order by 1", "schema_name", &schemas);
    check("select datname from pg_database", "datname", &["quiver"]);
    check("select rolname, rolsuper from pg_roles", "rolname|rolsuper", &["anonymous|false"]);
    check("select setting from pg_settings where name = 'server_version'", "setting", &["15.0"]);
    check("select count(*) as n from pg_index", "n", &["0"]);
}

#[test]
fn names_that_are_not_there() {
    is_refused("select nme from hosts", "there is no column `nme` at line 1, column 8; did you mean `name`?");
    is_refused("select * from hots", "there is no table `hots` at line 1, column 15; did you mean `hosts`?");
    is_refused("select hosts.x from hosts", "there is no column `hosts.x` at line 1, column 8");
    let absent = "there is no table `a` in the `FROM` for `a.name` at line 1, column 8; did you mean `name`?";
    is_refused("select a.name from hosts b", absent);
    is_refused("select (select b.nosuch) from hosts b", "there is no column `b.nosuch`");
    is_refused(
        "select name from hosts a, hosts b",
        "Ambiguous reference to unqualified field name at line 1, column 8",
    );
    is_refused("select a from (select 1 as a, 2 as a) s", "column reference \"a\" is ambiguous at line 1, column 8");
    is_refused("select role, name from hosts group by role", "must appear in the GROUP BY clause");
    is_refused("select name from hosts order by 4", "`ORDER BY` position 4 is not in the list of outputs");
    is_refused("select sum(name) from hosts", "No function matches");
    is_refused("select * from quiver.hosts", "there is no table `quiver.hosts` at line 1, column 15");
    is_refused("describe nosuch", "there is no table `nosuch`");
}

#[test]
fn tables_are_listed_once_a_statement() {
    static LISTS: AtomicUsize = AtomicUsize::new(0);
    const COUNTED: Product = Product {
        tables: |access| {
            LISTS.fetch_add(1, Ordering::Relaxed);
            (LITTLE.tables)(access)
        },
        ..LITTLE
    };
    let engine = Arc::clone(&language().1.engine);
    let sql = SqlEngine::new(engine, Arc::new(COUNTED), Arc::new(COUNTED), Arc::new(COUNTED));
    let found = rows_of(&sql, asked("select name from hosts where cpu < 1"), &DomainAccess::full());
    assert_eq!(found.expect("rows").1, [[Some("a".to_owned())]]);
    assert_eq!(LISTS.load(Ordering::Relaxed), 1);
}
