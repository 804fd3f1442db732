//! Lists, rows, and what NULL does to conditions.

use super::{asked, gives, shown};

#[test]
fn items_of_lists() {
    gives(&[
        ("(array[10, 20, 30])[2]", "20"),
        ("array[1.5, 2.5, 3]::int[]", "{2,3,3}"),
        ("(array[10, 20, 30])[0]", "NULL"),
        ("(array[10, 20, 30])[-1]", "NULL"),
        ("(array[10, 20, 30])[4]", "NULL"),
        ("(array[10, 20, 30])[2:]", "{20,30}"),
        ("(array[10, 20, 30])[:2]", "{10,20}"),
        ("(array[10, 20, 30])[2:9]", "{20,30}"),
        ("(array[10, 20, 30])[3:2]", "{}"),
        ("(array[10, 20, 30])[-1:2]", "{10,20}"),
        ("(array[10, 20, 30])[-2:-1]", "{}"),
        ("(select a[n - 3:n] from (values (array[10, 20, 30], 2)) t(a, n))", "{10,20}"),
        ("array_length(array[1, 2, 3], 1)", "3"),
        ("array_length(array[]::int[], 1)", "NULL"),
        ("cardinality(array[1, 2, 3])", "3"),
        ("cardinality(array[]::int[])", "0"),
        ("array_upper(array[1, 2], 1)", "2"),
        ("array_lower(array[1, 2], 1)", "1"),
        ("array_position(array['a', 'b', 'a'], 'a')", "1"),
        ("array_position(array['a', 'b'], 'x')", "NULL"),
        ("array_positions(array['a', 'b', 'a'], 'a')", "{1,3}"),
        ("array_append(array[1], 2)", "{1,2}"),
        ("array_prepend(1, array[2])", "{1,2}"),
        ("array_cat(array[1], array[2, 3])", "{1,2,3}"),
        ("array[1] || array[2]", "{1,2}"),
        ("array['a'] || '{b,\"c d\",null}'", "{a,b,\"c d\",NULL}"),
        ("'{2}' || array[1]", "{2,1}"),
        ("array[1] || '{}'", "{1}"),
        ("array[1, 2] || null", "{1,2}"),
        ("array[1, 2] || null::int", "{1,2,NULL}"),
        ("array['a'] || 'c'::text", "{a,c}"),
        ("array[1] || 2", "{1,2}"),
        ("0 || array[1]", "{0,1}"),
        ("array_remove(array[1, 2, 1], 1)", "{2}"),
        ("array_replace(array[1, 2, 1], 1, 9)", "{9,2,9}"),
        ("array_fill(7, array[3])", "{7,7,7}"),
        ("trim_array(array[1, 2, 3], 2)", "{1}"),
        ("array_ndims(array[[1, 2], [3, 4]])", "2"),
        ("array_ndims('{}'::int[])", "NULL"),
        ("array_dims(array[1, 2, 3])", "[1:3]"),
        ("(array[[1, 2], [3, 4]])[1:2][1:1]", "{{1},{3}}"),
        ("(array[[1, 2], [3, 4]])[1:2][2]", "{{1,2},{3,4}}"),
        ("(array[[1, 2], [3, 4]])[:][2:]", "{{2},{4}}"),
        ("(array[1, 2, 3])[1:2][1:1]", "{}"),
        ("('{{1,2},{3,4}}'::int[])[2:2][2:2]", "{{4}}"),
        ("array[[1, 2], [3, 4]]", "{{1,2},{3,4}}"),
        (r#"array['a b', 'c"d', 'e,f', null, '']"#, r#"{"a b","c\"d","e,f",NULL,""}"#),
        ("'{1,2,3}'::int[]", "{1,2,3}"),
        (r#"'{"a b",NULL,"null"}'::text[]"#, r#"{"a b",NULL,"null"}"#),
        ("array(select x from (values (3), (1), (2)) v (x) order by x)", "{1,2,3}"),
        ("array(select x from (values (1)) v (x) where x > 1)", "{}"),
        ("array(select generate_series(1, null))", "{}"),
        ("array(select unnest(null::int[]))", "{}"),
    ]);
}

#[test]
fn lengths_of_list_types_mean_nothing() {
    gives(&[
        ("array[1, 2]::int[3]", "{1,2}"),
        ("'{1,2,3}'::int[1]", "{1,2,3}"),
        ("null::int[2000000000]", "NULL"),
        ("(select x::bigint[2000000000] from (values (null)) v (x))", "NULL"),
        ("'{{1,2}}'::int[1][9]", "{{1,2}}"),
        ("null::text[1000000][1000000]", "NULL"),
        ("cast(array['a', 'b'] as uuid[1])", "{a,b}"),
    ]);
}

#[test]
fn lists_are_compared() {
    gives(&[
        ("array[1, 2] = array[1, 2]", "true"),
        ("array[1, 2] < array[1, 3]", "true"),
        ("array[1, 2] @> array[2]", "true"),
        ("array[1, 2] @> array[3]", "false"),
        ("array[2] <@ array[1, 2]", "true"),
        ("array[[1, 2], [3, 4]] @> array[[1, 2]]", "true"),
        ("array[[1, 2], [3, 4]] @> array[3]", "true"),
        ("array[[1, 2]] @> array[5]", "false"),
        ("array[1, 2] <@ array[[1, 2]]", "true"),
        ("array[[1, 2]] && array[2, 9]", "true"),
        ("array[1, 2] && array[2, 3]", "true"),
        ("array[1, 2] && array[3]", "false"),
        ("2 = any (array[1, 2])", "true"),
        ("3 = any (array[]::int[])", "false"),
        ("3 = any (array[1, null])", "NULL"),
        ("3 = any (array_remove(array[1, null, 4], 4))", "NULL"),
        ("not (3 = any (array_remove(array[1, null, 4], 4)))", "NULL"),
        ("1 = any (array_remove(array[1, null, 4], 4))", "true"),
        ("3 = any (array_remove(array[1, 4], 4))", "false"),
        ("3 = any (null::int[])", "NULL"),
        ("1 = all (array[1, 1])", "true"),
        ("1 <> all (array[2, 3])", "true"),
        ("5 > all (array[1, 2])", "true"),
        ("5 < any (array[1, 2])", "false"),
        ("5 < any (array[1, null])", "NULL"),
        ("not (1 >= any (array_remove(array[2, null, 4], 4)))", "NULL"),
        ("array[1, null] @> array[null]::int[]", "false"),
        ("array[1, null] && array[2, null]", "false"),
        ("1 in (1, null)", "true"),
        ("2 in (1, null)", "NULL"),
        ("2 not in (1, 3)", "true"),
        ("2 not in (1, null)", "NULL"),
        ("(1, 2) = (1, 2)", "true"),
        ("(1, 2) < (1, 3)", "true"),
        ("(1, null) = (2, 1)", "false"),
        ("(1, null) = (1, 1)", "NULL"),
        ("(1, 2) in ((1, 2), (3, 4))", "true"),
        ("(1, null) in ((1, 2))", "NULL"),
        ("(1, null) not in ((2, 2))", "true"),
        ("row(1, null) is null", "false"),
        ("row(null, null) is null", "true"),
        ("row(1, null) is not null", "false"),
        ("1 is distinct from null", "true"),
        ("null is not distinct from null", "true"),
        ("2 between 1 and 3", "true"),
        ("2 between 3 and 1", "false"),
        ("2 between symmetric 3 and 1", "true"),
        ("2 not between symmetric 3 and 1", "false"),
        ("null and false", "false"),
        ("null and true", "NULL"),
        ("null or true", "true"),
        ("not null::boolean", "NULL"),
        ("(null::boolean) is true", "false"),
        ("(null::boolean) is not true", "true"),
        ("(null::boolean) is unknown", "true"),
        ("case when 1 > 2 then 'a' when 2 > 1 then 'b' else 'c' end", "b"),
        ("case 3 when 1 then 'a' else 'c' end", "c"),
        ("case 3 when 1 then 'a' end", "NULL"),
    ]);
}

#[test]
fn rows_in_long_lists_are_known_or_not() {
    // More rows than are compared one by one in a `WHERE`: (1, 1000), (2, 1001) and so on.
    let list = (1..=250).map(|n| format!("({n}, {})", n + 999)).collect::<Vec<_>>().join(", ");
    let rows = "(values (1, 1000), (1, 1), (null, 1000), (null, 1), (250, null), (251, null)) v (a, b)";
    for (condition, expected) in [
        ("{}", "1|1000"),
        ("not {}", "-|1 1|1 251|-"),
        ("({}) is null", "-|1000 250|-"),
        ("not ({} or a = 251)", "1|1"),
    ] {
        let asks = condition.replace("{}", &format!("(a, b) in ({list})"));
        let found = shown(asked(format!("select * from {rows} where {asks} order by a nulls first, b"))).1;
        assert_eq!(found, expected.split(' ').collect::<Vec<_>>(), "{condition}");
    }
}
