//! SQL statements that are run in each state of the data, with features beyond plain selections.

use super::questions::{Case, case};

/// They have answers, whatever may be seen.
const STATEMENTS: [&str; 52] = [
    "select table_name from information_schema.tables where table_schema <> 'olap' order by 1",
    "select count(*) from information_schema.columns where table_name in ('logs', 'spans')",
    "select relname, reltuples, relpages from pg_catalog.pg_class where relname in ('logs', 'spans', 'metric_samples')",
    "select count(*), max(n) from logs",
    "select service_name, count(*) from spans group by 1",
    "select name, service_name, count(*) from metric_series group by 1, 2",
    "select name, service_name, sum(value) from metric_samples group by 1, 2",
    "select * from metric_metadata",
    "select name, value from exemplars",
    "select stream, count(*) from logs group by 1",
    "select service_name, span_name, name, attributes from span_events",
    "select service_name, span_id, linked_trace_id, linked_span_id from span_links",
    "select count(*) from metric_series",
    "select only_c from logs",
    "select \"attributes.only_c\" from spans",
    "select count(*) from traces",
    "select trace_id, root_service, root_name, spans, errors, services, duration from traces",
    "select service_name, name, kind, sum(spans), sum(errors) from operations group by 1, 2, 3",
    // Types of columns that are found by name.
    "select arrow_typeof(n), arrow_typeof(a), arrow_typeof(dur), arrow_typeof(only_c) from logs limit 1",
    "select arrow_typeof(\"attributes.code\"), arrow_typeof(\"attributes.only_c\") from spans limit 1",
    "select distinct k from (select unnest(map_keys(fields)) k from logs) x",
    "select unnest(map_keys(attributes)) k, count(*) from spans group by 1",
    // Windows.
    "select n, row_number() over (partition by service_name order by n), lag(n) over (order by n) from logs",
    "select max(count(*)) over () from logs group by service_name",
    "select n, ntile(7) over (order by n), percent_rank() over (order by n) from logs",
    "select n, count(*) over w from logs window w as (order by n rows between 3 preceding and current row)",
    "select distinct first_value(service_name) over (order by n), last_value(n) over (order by n \
     rows between unbounded preceding and unbounded following) from logs",
    // Groups.
    "select service_name, kind, count(*), grouping(service_name) from spans group by cube (service_name, kind)",
    "select service_name, name, count(*) from spans group by grouping sets ((service_name), (name), ())",
    "select count(*) filter (where only_c is not null), count(distinct service_name) from logs",
    "select string_agg(distinct service_name, ',' order by service_name) from spans",
    "select mode() within group (order by service_name), percentile_cont(0.9) within group (order by duration) from spans",
    "select rank('c') within group (order by service_name) from logs",
    "select n from logs order by service_name fetch first 3 rows with ties",
    // Statements within statements.
    "select count(*) from spans s where exists (select 1 from spans p where p.trace_id = s.trace_id \
     and p.span_id = s.parent_span_id)",
    "select trace_id, span_id, (select count(*) from spans c where c.trace_id = s.trace_id \
     and c.parent_span_id = s.span_id) from spans s",
    "select 'c' in (select service_name from spans), 'c' not in (select service_name from logs), \
     'c' = any (select service_name from metric_series)",
    "select service_name from logs union select service_name from spans except select 'a'",
    "select service_name from spans intersect all select service_name from logs",
    "select (select max(n) from logs), (select min(start_time) from spans), (select count(*) from exemplars)",
    "with recursive below(t, id, depth) as (select trace_id, span_id, 0 from spans where parent_span_id is null \
     union all select s.trace_id, s.span_id, depth + 1 from spans s join below on s.trace_id = t and s.parent_span_id = id) \
     select depth, count(*) from below group by 1",
    "select s.span_id, x.name from spans s, lateral (select name from spans c where c.trace_id = s.trace_id \
     order by start_time, span_id limit 1) x",
    "select count(*) from logs a join logs b on a.app = b.app and a.n < b.n",
    // Other languages, and models.
    "select * from promql_range('count by (job) (gauge)', '2026-03-01 22:10', '2026-03-01 23:00', '10m')",
    "select count(*) from logsql('* | stats by (app) count() c')",
    "select service, MEASURE(count) from olap.\"Spans\" group by 1",
    // What fails for rows of `c`, which nobody sees, fails nowhere: neither where rows are chosen, nor where they are shown.
    "select count(*) from logs where app in ('a', 'b') and 1 / (case when app = 'c' then 0 else 1 end) = 1",
    "select count(*) from spans where service_name = 'a' and cast(case when service_name = 'c' then 'x' else '1' end as int) = 1",
    "select count(*) from logs where 1 / (case when app = 'c' then 0 else 1 end) = 1",
    "select count(*) from spans where 1 / (case when service_name = 'c' then 0 else 1 end) = 1",
    "select count(*) from metric_samples where cast(case when \"labels.job\" = 'c' then 'x' else '1' end as int) = 1",
    "select sum(1 / (case when service_name = 'c' then 0 else 1 end)) from metric_series",
];

/// All of them.
pub(super) fn all() -> Vec<Case> {
    STATEMENTS.map(|text| case("/sql-api/v1/query", [("query", text.into())])).into()
}

/// All of them twice in a row, so that each of two callers asks each.
pub(super) fn twice() -> Vec<Case> {
    all().into_iter().flat_map(|one| [one.clone(), one]).collect()
}
