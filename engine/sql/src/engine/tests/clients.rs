//! Documents and texts as rows, what clients ask the catalog, names and literals.

use super::answers_are;

#[test]
fn documents_become_rows() {
    answers_are(&[
        (r#"select key, value from json_each('{"a":1,"b":[2]}') order by key"#, &["a|1", "b|[2]"]),
        (r#"select key, value from jsonb_each_text('{"a":1,"b":null}') order by key"#, &["a|1", "b|-"]),
        (r#"select value from json_array_elements('[1,{"a":2},null]')"#, &["1", r#"{"a":2}"#, "null"]),
        (r#"select value from jsonb_array_elements_text('["a","b c"]') order by value"#, &["a", "b c"]),
        (r#"select k from json_object_keys('{"b":1,"a":2}') as k order by k"#, &["a", "b"]),
        (r#"select a, b from json_to_record('{"a":1,"b":"x"}') as r (a int, b text)"#, &["1|x"]),
        (
            r#"select a::text, b::text from json_to_record('{"a":[1,2],"b":["x",null]}') as r (a int[], b text[])"#,
            &["{1,2}|{x,NULL}"],
        ),
        (
            r#"select a, b from json_to_recordset('[{"a":1,"b":"x"},{"a":2}]') as r (a int, b text) order by a"#,
            &["1|x", "2|-"],
        ),
        (
            r#"select e.value ->> 'n' from (values ('[{"n":"p"},{"n":"q"}]')) d (j), jsonb_array_elements(d.j::jsonb) e order by 1"#,
            &["p", "q"],
        ),
        (
            "select x, jsonb_agg(y order by y)::text from (values (1, 'b'), (1, 'a'), (2, 'c')) v (x, y) group \
         by x order by x",
            &[r#"1|["a", "b"]"#, r#"2|["c"]"#],
        ),
        (
            "select jsonb_build_object('k', x, 'l', array_agg(y order by y))::text from (values (1, 'b'), (1, \
         'a')) v (x, y) group by x",
            &[r#"{"k": 1, "l": ["a", "b"]}"#],
        ),
        ("select row_to_json(v)::text from (values (1, 'a')) v (x, y)", &[r#"{"x":1,"y":"a"}"#]),
        (
            r#"select j::jsonb ->> 'a' as a, count(*) from (values ('{"a":"p"}'), ('{"a":"p"}'), ('{}')) v (j) group by 1 order by 1 nulls last"#,
            &["p|2", "-|1"],
        ),
    ]);
}

#[test]
fn texts_become_rows() {
    answers_are(&[
        ("select p from regexp_split_to_table('a1b2c', '[0-9]') as p order by p", &["a", "b", "c"]),
        ("select m[1], m[2] from regexp_matches('a1b2', '([a-z])([0-9])', 'g') as m order by 1", &["a|1", "b|2"]),
        ("select p from string_to_table('a,b,c', ',') as p order by p desc", &["c", "b", "a"]),
        ("select s from unnest(string_to_array('b a', ' ')) as s order by s", &["a", "b"]),
        (
            "select x, p from (values (1, 'a,b'), (2, 'c')) v (x, t), unnest(string_to_array(v.t, ',')) as p \
         order by x, p",
            &["1|a", "1|b", "2|c"],
        ),
        ("select x, n from pg_catalog.unnest(array['a', 'b']) with ordinality u (x, n) order by 1", &["a|1", "b|2"]),
        (
            "select array(select 'a' || x from pg_catalog.unnest(v.l) x)::text from (values (array['b'])) v (l)",
            &["{ab}"],
        ),
        // What psql asks for `\\d`.
        (
            "select array_to_string(c.reloptions || array(select 'toast.' || x from pg_catalog.unnest(tc.reloptions) x), \
             ', ') from pg_class c left join pg_class tc on c.reltoastrelid = tc.oid where c.relname = 'pg_class'",
            &[""],
        ),
        (
            "select t::date::text from generate_series(date '2024-01-30', date '2024-02-01', interval '1 day') \
         as t order by 1",
            &["2024-01-30", "2024-01-31", "2024-02-01"],
        ),
        (
            "select count(*), min(t)::text, max(t)::text from generate_series(timestamp '2024-01-01', \
         timestamp '2024-01-01 01:00', interval '15 minutes') as t",
            &["5|2024-01-01 00:00:00|2024-01-01 01:00:00"],
        ),
        ("select x from generate_series(5, 1, -2) as g (x)", &["5", "3", "1"]),
        ("select count(*) from generate_series(5, 1)", &["0"]),
        ("select x::text from generate_series(1.5, 3, 0.5) as g (x)", &["1.5", "2", "2.5", "3"]),
        ("select g::text from generate_series(0.3, 0, -0.1) g", &["0.3", "0.2", "0.1", "0"]),
        ("select generate_series(-0.5, 1) as x", &["-0.5", "0.5"]),
        ("select count(*) from generate_series(1.5, 0)", &["0"]),
        ("select x from generate_series(1, 5) as g (x) order by x limit '2' offset 1.5", &["3", "4"]),
        ("select x from generate_series(1, 5) as g (x) order by x limit (1.5) offset 2.5e0", &["4", "5"]),
        ("select x from generate_series(1, 5) as g (x) order by x limit 3 / 2.0 offset -0.4", &["1", "2"]),
        ("select x from generate_series(1, 5) as g (x) order by x limit 1 + 1 offset null", &["1", "2"]),
        ("select x from generate_series(1, 5) as g (x) order by x fetch first 1.5 rows only", &["1", "2"]),
        (
            "select x / 2 from generate_series(1, 5) as g (x) order by 1 fetch first 1.5 rows with ties",
            &["0", "1", "1"],
        ),
    ]);
}

#[test]
fn what_clients_ask_the_catalog() {
    answers_are(&[
        ("select version() like 'PostgreSQL 15%'", &["true"]),
        ("select current_database(), current_schema(), current_user", &["quiver|public|anonymous"]),
        ("select current_setting('server_version_num')::int >= 150000", &["true"]),
        ("select pg_is_in_recovery(), txid_current(), pg_backend_pid()", &["false|0|0"]),
        ("select has_table_privilege('hosts', 'select'), has_table_privilege('hosts', 'insert')", &["true|false"]),
        ("select has_schema_privilege('public', 'usage'), has_database_privilege('quiver', 'create')", &["true|false"]),
        ("select pg_get_userbyid(10), pg_encoding_to_char(6)", &["anonymous|UTF8"]),
        ("select pg_char_to_encoding('utf-8'), pg_char_to_encoding('x'), pg_encoding_to_char(8)", &["6|-1|LATIN1"]),
        ("select obj_description(1), pg_get_expr(null, 1), col_description(1, 1)", &["-|-|-"]),
        (
            "select t.typname, e.typname from pg_type t left join pg_type e on e.oid = t.typelem where \
         t.typname in ('_int4', 'int4') order by 1",
            &["_int4|int4", "int4|-"],
        ),
        (
            "select oid::int, typname from pg_type where typname = any (array['bool', 'date', 'jsonb']) order \
         by 1",
            &["16|bool", "1082|date", "3802|jsonb"],
        ),
        (
            "select n.nspname, t.typname from pg_type t join pg_namespace n on n.oid = t.typnamespace where \
         t.oid = 25",
            &["pg_catalog|text"],
        ),
        ("select 'int4'::regtype::oid::int, 'text'::regtype::oid::int", &["23|25"]),
        ("select attname from pg_attribute where attrelid::regclass = 'hosts'::regclass and attnum = 2", &["cpu"]),
        (
            "select typname from pg_type where oid::regtype = any (array['int4'::regtype, 'text'::regtype]) \
         and oid::regtype <> 'text'::regtype",
            &["int4"],
        ),
        (
            "select array_to_string(coalesce(proallargtypes::regtype[], proargtypes::regtype[])::text[], ' ') \
         from pg_proc where proname = 'attr' and prorettype::regtype != 'trigger'::regtype",
            &["text text"],
        ),
        (
            "select count(*) from pg_class c where c.relname = 'hosts' and c.relkind in ('r', 'v') and \
         pg_table_is_visible(c.oid)",
            &["1"],
        ),
        ("select count(*) from pg_constraint where contype = 'p'", &["0"]),
        (
            "select count(*) from pg_attribute a where a.attrelid = 'hosts'::regclass and not a.attisdropped \
         and a.attnum > 0",
            &["3"],
        ),
        (
            "select a.attname from pg_attribute a join pg_class c on c.oid = a.attrelid where c.relname = \
         'hosts' and a.attnum = 2",
            &["cpu"],
        ),
        ("select exists (select 1 from pg_extension where extname = 'timescaledb')", &["false"]),
        (
            "select quote_ident(table_schema) || '.' || quote_ident(table_name) from information_schema.tables \
         where table_name = 'hosts'",
            &["public.hosts"],
        ),
        (
            "select column_name from information_schema.columns where table_schema = 'public' and table_name = \
         'hosts' order by ordinal_position",
            &["name", "cpu", "role"],
        ),
        ("select count(*) from information_schema.key_column_usage", &["0"]),
        (
            "select count(p.data_type) from information_schema.routines r \
             left join information_schema.parameters p on r.specific_name = p.specific_name",
            &["0"],
        ),
        ("select count(*) from information_schema.element_types, information_schema.column_privileges", &["0"]),
        (
            "select catalog_name, schema_name from information_schema.schemata where schema_name = 'public'",
            &["quiver|public"],
        ),
    ]);
}

#[test]
fn names_and_quotes() {
    answers_are(&[
        (r#"select "a b" from (values (1)) v ("a b")"#, &["1"]),
        ("select X from (values (1)) v (x)", &["1"]),
        ("select v.* from (values (1, 2)) v (x, y)", &["1|2"]),
        (r#"select x as "select" from (values (1)) v (x) order by "select""#, &["1"]),
        ("select 'it''s', E'a\tb' = 'a' || chr(9) || 'b', $$a'b$$, $q$a$$b$q$", &["it's|true|a'b|a$$b"]),
        ("select 1 -- a comment", &["1"]),
        ("select /* a /* nested */ comment */ 1", &["1"]),
        ("select 1.5e2, .5, 5.", &["150.0|0.5|5.0"]),
        ("select t.x from (select 1 as x) as t where t.x = 1", &["1"]),
        (r#"select sum(x) from (values (1), (2)) as "V" (x)"#, &["3"]),
    ]);
}

/// Parts of a statement that are put in other words are printed and read again.
#[test]
fn texts_with_quotes_are_the_same_in_other_words() {
    answers_are(&[
        ("select quote_nullable('a''''b')", &["'a''''b'"]),
        (r"select quote_nullable('\'') || (select 5), null) --')", &[r"E'\\'') || (select 5), null) --'"]),
        (
            "select l.x from (values (1)) v (a), lateral (select 'a''''b' as x from (values (1)) w (b) where w.b = v.a \
             limit 1) l",
            &["a''b"],
        ),
        (
            "select a from (values ('x''''y', 1), ('x''y', 2)) v (a, b) order by a = 'x''''y' fetch first 1 rows with ties",
            &["x'y"],
        ),
        ("select cast('x''''y' as varchar(3)), regexp_replace('x''y', 'x', 'q''''r', 1, 1)", &["x''|q''r'y"]),
        ("select a from (values ('x''''y'), ('x''y')) v (a) intersect all select 'x''''y'", &["x''y"]),
        (
            "select string_agg(a, '''''') over (order by a rows between 1 preceding and current row) \
          from (values ('p'), ('q')) v (a) order by 1 desc limit 1",
            &["p''q"],
        ),
        (r#"select '{"a":"it''''s"}'::jsonb ->> 'a', ('{"a''''b":1}'::jsonb - 'a''''b')::text"#, &["it''s|{}"]),
        ("select E'1' + 1, N'it''s', interval E'1 day' = interval '24 hours'", &["2|it's|true"]),
    ]);
}
