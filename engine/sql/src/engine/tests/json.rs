//! Documents, as PostgreSQL has them.

use super::gives;

#[test]
fn parts_of_documents() {
    gives(&[
        (r#"'{"a":{"b":1}}'::json -> 'a'"#, r#"{"b":1}"#),
        (r#"'{"a":{"b":1}}'::jsonb -> 'a'"#, r#"{"b": 1}"#),
        (r#"'{"a":"x"}'::json ->> 'a'"#, "x"),
        (r#"'{"a":null}'::json ->> 'a'"#, "NULL"),
        (r#"'{"a":null}'::json -> 'a'"#, "null"),
        (r#"'{"a":1}'::json -> 'b'"#, "NULL"),
        ("'[1,2,3]'::json -> 1", "2"),
        ("'[1,2,3]'::json -> -1", "3"),
        ("'[1,2,3]'::json ->> 3", "NULL"),
        (r#"'{"a":[{"b":"c"}]}'::json #> '{a,0}'"#, r#"{"b":"c"}"#),
        (r#"'{"a":[{"b":"c"}]}'::json #>> '{a,0,b}'"#, "c"),
        (r#"'{"a":[{"b":"c"}]}'::json #>> array['a', '0', 'b']"#, "c"),
        (r#"'{"a,b":{"c d":1}}'::jsonb #> array['a,b', 'c d']"#, "1"),
        (r#"'{"a":{"b":1}}'::jsonb #>> '{a,b}'::text[]"#, "1"),
        (r#"'{"a":{"b":1}}'::jsonb #>> array['a', null]"#, "NULL"),
        (r#"'{"a":1}'::jsonb ?| null"#, "NULL"),
        (r#"'{"a":1}'::jsonb ? 'a'"#, "true"),
        (r#"'["a","b"]'::jsonb ? 'b'"#, "true"),
        (r#"'{"a":1}'::jsonb ?| array['x', 'a']"#, "true"),
        (r#"'{"a":1}'::jsonb ?& array['x', 'a']"#, "false"),
        (r#"'{"a":1,"b":2}'::jsonb @> '{"b":2}'::jsonb"#, "true"),
        ("'[1,2,[3]]'::jsonb @> '[[3]]'::jsonb", "true"),
        ("'[1,2]'::jsonb @> '1'::jsonb", "true"),
        (r#"'{"b":2}'::jsonb <@ '{"a":1,"b":2}'::jsonb"#, "true"),
        (r#"'{"a":1}'::jsonb || '{"b":2}'::jsonb"#, r#"{"a": 1, "b": 2}"#),
        (r#"'{"a":1,"b":2}'::jsonb - 'a'"#, r#"{"b": 2}"#),
        (r#"'{"a":{"b":1,"c":2}}'::jsonb #- '{a,b}'"#, r#"{"a": {"c": 2}}"#),
        (r#"'{"a":1, "a":2}'::jsonb"#, r#"{"a": 2}"#),
        (r#"'{"bb":1,"a":2}'::jsonb"#, r#"{"a": 2, "bb": 1}"#),
        (r#"'{"a":1}'::jsonb = '{"a" : 1}'::jsonb"#, "true"),
        ("'1.50'::jsonb", "1.50"),
    ]);
}

#[test]
fn documents_are_made() {
    gives(&[
        ("json_build_object('a', 1, 'b', null)", r#"{"a" : 1, "b" : null}"#),
        ("jsonb_build_object('a', 1, 'b', true)", r#"{"a": 1, "b": true}"#),
        ("json_build_array(1, 'a', null)", r#"[1, "a", null]"#),
        ("jsonb_build_array()", "[]"),
        (r#"to_json('a"b'::text)"#, r#""a\"b""#),
        ("to_jsonb(1.5)", "1.5"),
        (r#"jsonb_set('{"a":1}', '{b}', '2')"#, r#"{"a": 1, "b": 2}"#),
        (r#"jsonb_set('{"a":1}', '{b}', '2', false)"#, r#"{"a": 1}"#),
        (r#"jsonb_set_lax('{"a":1}', '{a}', null)"#, r#"{"a": null}"#),
        (r#"jsonb_set_lax('{"a":1}', '{b}', '2')"#, r#"{"a": 1, "b": 2}"#),
        (r#"jsonb_set_lax('{"a":1}', '{b}', null, false)"#, r#"{"a": 1}"#),
        (r#"jsonb_set_lax('{"a":1,"b":2}', '{a}', null, true, 'delete_key')"#, r#"{"b": 2}"#),
        (r#"jsonb_set_lax('{"a":1}', '{a}', null, true, 'return_target')"#, r#"{"a": 1}"#),
        (
            r#"(select string_agg(jsonb_set_lax('{"a":1}', '{a}', x, true, 'delete_key')::text, ';' order by x) from (values (null), ('2')) t (x))"#,
            r#"{"a": 2};{}"#,
        ),
        (r#"jsonb_insert('{"a":[0,1]}', '{a,1}', '"x"')"#, r#"{"a": [0, "x", 1]}"#),
        (r#"jsonb_strip_nulls('{"a":1,"b":null}')"#, r#"{"a": 1}"#),
        ("jsonb_pretty('[]')", "[\n]"),
        ("jsonb_typeof('[1]')", "array"),
        ("json_typeof('null')", "null"),
        (r#"jsonb_typeof('"a"')"#, "string"),
        (r#"'{"a":1}'::jsonb ?| array['x', null]"#, "false"),
        (r#"'{"a":1}'::jsonb ?& array['a', null]"#, "true"),
        ("json_array_length('[1,[2],3]')", "3"),
        ("jsonb_array_length('[]')", "0"),
        (r#"jsonb_extract_path_text('{"a":{"b":"c"}}', 'a', 'b')"#, "c"),
        (r#"jsonb_extract_path_text('{"a":{"c":1,"b":2}}', 'a')"#, r#"{"b": 2, "c": 1}"#),
        (r#"(select string_agg(k, ',') from jsonb_object_keys('{"cc":1,"b":2,"a":3}') k)"#, "a,b,cc"),
        (r#"jsonb_path_exists('{"a":[1,2,3]}', '$.a[*] ? (@ > 2)')"#, "true"),
        (r#"jsonb_path_query_first('{"a":[1,2,3]}', '$.a[*] ? (@ > 1)')"#, "2"),
        (r#"jsonb_path_query_array('{"a":[1,2,3]}', '$.a[*] ? (@ > 1)')"#, "[2, 3]"),
        (r#"jsonb_path_match('{"a":1}', '$.a == 1')"#, "true"),
        (r#"'{"a":1}'::jsonb @? '$.b'"#, "false"),
        (r#"'{"a":1}'::jsonb @@ '$.a > 0'"#, "true"),
    ]);
}
