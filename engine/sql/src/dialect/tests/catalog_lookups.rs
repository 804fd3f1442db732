//! Statements about the session and the catalog: settings, names, numbers of relations, and what there is none of.

use super::*;

#[test]
fn what_is_asked_about_the_session() {
    check("select current_user, current_database()", "SELECT 'ann', 'quiver'");
    check("select current_schema, pg_catalog.current_schema()", "SELECT 'public', 'public'");
    check(
        "select current_schemas(true), current_schemas(false)",
        "SELECT make_array('pg_catalog', 'public', 'quiver'), make_array('public', 'quiver')",
    );
    check("select current_setting('server_version_num')::int / 100", "SELECT '150000'::INT / 100");
    check("select current_setting('nothing', true)", "SELECT NULL");
    let refused = translated("select set_config('jit', 'off', false)").unwrap_err();
    assert!(refused.message.contains("`set_config`"), "{refused}");
    assert!(translated("select word from pg_catalog.pg_get_keywords()").unwrap().contains("abort:U:true"));
    assert!(translated("select current_setting('nothing')").unwrap_err().message.contains("`nothing`"));
    check(
        "select name from pg_show_all_settings()",
        "SELECT name FROM (SELECT * FROM pg_catalog.pg_settings) AS pg_show_all_settings",
    );
    check("select pg_is_wal_replay_paused(), pg_blocking_pids(1)", "SELECT false, make_array()");
    check(
        "select * from current_schema()",
        "SELECT * FROM (SELECT 'public' AS \"current_schema\") AS \"current_schema\"",
    );
    check("select d.* from pg_catalog.current_database() d", "SELECT d.* FROM (SELECT 'quiver' AS d) d");
}

#[test]
fn functions_that_read_types() {
    let shown = translated("select typreceive::text, t.typreceive::regproc from pg_type t").unwrap();
    assert_eq!(shown.matches("WHEN 2400 THEN 'array_recv'").count(), 2, "{shown}");
    check("select 1 from pg_type t where t.typreceive <> 0", "SELECT 1 FROM pg_type t WHERE t.typreceive <> 0");
    check("select typreceive::text from t", "SELECT typreceive::TEXT FROM t");
}

#[test]
fn names_with_their_schema() {
    check("select pg_catalog.upper(a::pg_catalog.text) from t", "SELECT upper(a::TEXT) FROM t");
    check(
        "select 1 from t where a OPERATOR(pg_catalog.~) '^(x)$' COLLATE pg_catalog.default",
        "SELECT 1 FROM t WHERE a ~ '^(x)$'",
    );
    check("select a::pg_catalog.int4[] from t", "SELECT as_list(a)::INTEGER[] FROM t");
}

#[test]
fn relations_are_numbers() {
    let logs = crate::catalog::schemas::number(&["quiver", "logs"]);
    check("select 'logs'::regclass", &format!("SELECT {logs}"));
    check("select to_regclass('public.logs')", &format!("SELECT {logs}"));
    let hosts = crate::catalog::schemas::number(&["public", "hosts"]);
    check("select 'public.hosts'::regclass::oid", &format!("SELECT CAST('{hosts}' AS BIGINT)"));
    check("select 'quiver.logs'::pg_catalog.regclass::oid", &format!("SELECT CAST('{logs}' AS BIGINT)"));
    assert!(translated("select 'lgos'::regclass").unwrap_err().message.contains("did you mean `logs`"));
    assert!(translated("select oid::regclass from pg_class").unwrap().contains(&format!("WHEN {logs} THEN 'logs'")));
    check("select 'int4'::regtype, 'pg_catalog.trigger'::regtype", "SELECT 23, 2279");
    check("select '{int,_text,NULL}'::regtype[]", "SELECT make_array(23, 1009, NULL)");
    check("select '{logs}'::regclass[] from t", &format!("SELECT make_array({logs}) FROM t"));
    let computed = translated("select (a || '.' || b)::regclass from t").unwrap();
    assert!(computed.starts_with("SELECT CASE replace((a || '.' || b), '\"', '') WHEN "), "{computed}");
    assert!(computed.contains(&format!("WHEN 'quiver.logs' THEN {logs}")), "{computed}");
    assert!(computed.contains(&format!("WHEN 'logs' THEN {logs} WHEN 'public.logs' THEN {logs}")), "{computed}");
    // The operator's table has the bare name.
    assert!(computed.contains(&format!("WHEN 'public.hosts' THEN {hosts} WHEN 'hosts' THEN {hosts}")), "{computed}");
    assert_eq!(computed.matches("WHEN 'public.hosts'").count(), 1, "{computed}");
    check("select oid::regclass::oid from pg_class", "SELECT CAST(oid AS BIGINT) FROM pg_class");
}

/// pgcli asks so for the functions that it completes.
#[test]
fn what_is_named_is_compared_by_number() {
    let logs = crate::catalog::schemas::number(&["quiver", "logs"]);
    check("select 1 from t where a::regtype <> 'trigger'::regtype", "SELECT 1 FROM t WHERE CAST(a AS BIGINT) <> 2279");
    check(
        "select 1 from t where a::pg_catalog.regclass = 'logs'::regclass",
        &format!("SELECT 1 FROM t WHERE CAST(a AS BIGINT) = {logs}"),
    );
    check(
        "select 1 from t where a::regtype in ('int4'::regtype, b::regtype)",
        "SELECT 1 FROM t WHERE CAST(a AS BIGINT) IN (23, CAST(b AS BIGINT))",
    );
    // A text that is compared with it is a name.
    assert!(
        translated("select 1 from t where a::regclass = 'logs'").unwrap().contains(&format!("WHEN {logs} THEN 'logs'"))
    );
    let list = translated("select coalesce(a::regtype[], b::regtype[])::text[] from t").unwrap();
    assert!(list.starts_with("SELECT as_list(coalesce(named_items(a, '16=boolean;"), "{list}");
    assert!(list.contains(";25=text;") && list.contains(";1009=text[];"), "{list}");
}

#[test]
fn what_there_is_none_of() {
    check(
        "select conname, pg_get_constraintdef(oid) as def from pg_constraint where conrelid = 5 order by 1",
        "SELECT NULL AS conname, NULL AS def FROM pg_constraint WHERE false",
    );
    check(
        "select exists (select 1 from pg_index where indrelid = c.oid) from pg_class c",
        "SELECT false FROM pg_class c",
    );
    check(
        "select (select d.x from pg_catalog.pg_attrdef d, pg_type t where d.adrelid = c.oid) from pg_class c",
        "SELECT NULL FROM pg_class c",
    );
    check("select count(*) from pg_index", "SELECT count(*) FROM pg_index");
    // Rows of the left side stay.
    check(
        "select c.oid from pg_class c left join pg_am a on c.relam = a.oid",
        "SELECT c.oid FROM pg_class c LEFT JOIN pg_am a ON c.relam = a.oid",
    );
}

#[test]
fn rows_of_the_catalog_are_looked_up() {
    check(
        "select (select nspname from pg_namespace n where n.oid = c.relnamespace) from pg_class c",
        "SELECT (SELECT max(nspname) FROM pg_namespace n WHERE n.oid = c.relnamespace) FROM pg_class c",
    );
}

#[test]
fn the_catalog_is_asked_so_often() {
    let many = vec!["oid::regclass"; 300].join(", ");
    assert_eq!(translated(&format!("select {many} from pg_class")).unwrap_err().kind, ErrorKind::LimitExceeded);
}
