//! Measures of a model, of all types: as YAML, and as definitions to evaluate.

use serde_json::{Value, json};

use super::time::Span;
use super::value::Ex;

/// An aggregate over rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Agg {
    Count,
    Distinct,
    Sum,
    Avg,
    Min,
    Max,
}

impl Agg {
    fn word(self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::Distinct => "count_distinct",
            Self::Sum => "sum",
            Self::Avg => "avg",
            Self::Min => "min",
            Self::Max => "max",
        }
    }
}

/// Rows that the value of a bucket is made of; no reach: without end.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Window {
    Around { trailing: Option<i64>, leading: Option<i64>, from_start: bool },
    ToDate(&'static str),
}

/// What a measure is.
#[derive(Debug, Clone)]
pub(crate) enum Body {
    /// An aggregate over rows; `own`: its text calls the aggregate itself.
    Rows { agg: Agg, arg: Option<Ex>, filters: Vec<Ex>, window: Option<Window>, own: bool },
    /// `1.0 * a / NULLIF(b, 0)`.
    Ratio(String, String),
    /// `a + b`.
    Sum(String, String),
    /// The result of an inner query, aggregated once more or not.
    Inner {
        over: String,
        agg: Option<Agg>,
        keep: Option<Vec<&'static str>>,
        less: Vec<&'static str>,
        more: Vec<&'static str>,
    },
    /// The same at another time.
    Shifted { over: String, by: Span },
    /// The place among the groups.
    Rank { over: String, descends: bool, less: Vec<&'static str> },
}

#[derive(Debug, Clone)]
pub(crate) struct Measure {
    pub(crate) name: String,
    pub(crate) body: Body,
}

impl Measure {
    /// As a model has it.
    pub(crate) fn yaml(&self, own: usize, names: &[String]) -> Value {
        let sql = |ex: &Ex| ex.sql(own, names);
        let over = |name: &str| format!("{{{name}}}");
        let mut out = match &self.body {
            Body::Rows { agg, arg, filters, own: true, .. } => {
                let filter = filters.iter().map(sql).collect::<Vec<_>>().join(" AND ");
                let call = format!("{}({}) FILTER (WHERE {filter})", agg.word(), arg.as_ref().map(sql).unwrap());
                json!({"type": if *agg == Agg::Max { "time" } else { "number" }, "sql": call})
            }
            Body::Rows { agg, arg, filters, window, .. } => {
                let mut out = json!({"type": agg.word()});
                if let Some(arg) = arg {
                    out["sql"] = sql(arg).into();
                }
                if !filters.is_empty() {
                    out["filters"] = filters.iter().map(|f| json!({"sql": sql(f)})).collect();
                }
                if let Some(window) = window {
                    out["rolling_window"] = window_yaml(window);
                }
                out
            }
            Body::Ratio(a, b) => {
                json!({"type": "number", "sql": format!("1.0 * {} / NULLIF({}, 0)", over(a), over(b))})
            }
            Body::Sum(a, b) => json!({"type": "number", "sql": format!("{} + {}", over(a), over(b))}),
            Body::Inner { over: inner, agg, keep, less, more } => {
                let mut out = json!({"type": agg.map_or("number", Agg::word), "sql": over(inner), "multi_stage": true});
                for (key, list) in [("group_by", keep.clone()), ("reduce_by", some(less)), ("add_group_by", some(more))]
                {
                    if let Some(list) = list {
                        out[key] = list.into();
                    }
                }
                out
            }
            Body::Shifted { over: inner, by } => {
                let (count, unit) = match by {
                    Span::Months(n) => (i64::from(*n), "month"),
                    Span::Minutes(n) => (*n, "minute"),
                };
                let kind = if count < 0 { "next" } else { "prior" };
                let shift = json!([{"interval": format!("{} {unit}", count.abs()), "type": kind}]);
                json!({"type": "number", "sql": over(inner), "multi_stage": true, "time_shift": shift})
            }
            Body::Rank { over: inner, descends, less } => {
                let order = json!([{"sql": over(inner), "dir": if *descends { "desc" } else { "asc" }}]);
                json!({"type": "rank", "multi_stage": true, "order_by": order, "reduce_by": less})
            }
        };
        out["name"] = self.name.as_str().into();
        out
    }
}

fn some(list: &[&'static str]) -> Option<Vec<&'static str>> {
    (!list.is_empty()).then(|| list.to_vec())
}

fn window_yaml(window: &Window) -> Value {
    let reach = |reach: &Option<i64>| reach.map_or("unbounded".to_owned(), |hours| format!("{hours} hours"));
    match window {
        Window::ToDate(granularity) => json!({"type": "to_date", "granularity": granularity}),
        Window::Around { trailing, leading, from_start } => json!({
            "trailing": reach(trailing), "leading": reach(leading), "offset": if *from_start { "start" } else { "end" },
        }),
    }
}

fn rows(name: &str, agg: Agg, arg: Option<Ex>, filters: Vec<Ex>, window: Option<Window>) -> Measure {
    Measure { name: name.to_owned(), body: Body::Rows { agg, arg, filters, window, own: false } }
}

fn made(name: &str, body: Body) -> Measure {
    Measure { name: name.to_owned(), body }
}

/// Measures of the model `own`; `far`: a model of which each of its rows has at most one.
pub(crate) fn measures(own: usize, far: Option<usize>, has_sub: bool) -> Vec<Measure> {
    let column = |name: &str| Ex::column(own, name);
    let flag = || column("flag");
    let small = || Ex::Less(Box::new(column("num")), Box::new(Ex::Int(6)));
    let mut all = vec![
        rows("count", Agg::Count, None, vec![], None),
        rows("nums", Agg::Count, Some(column("num")), vec![], None),
        rows("txts", Agg::Distinct, Some(column("txt")), vec![], None),
        rows("total", Agg::Sum, Some(column("num")), vec![], None),
        rows("mean", Agg::Avg, Some(column("dbl")), vec![], None),
        rows("meanNum", Agg::Avg, Some(column("num")), vec![], None),
        rows("decMean", Agg::Avg, Some(column("dec")), vec![], None),
        rows("decSum", Agg::Sum, Some(column("dec")), vec![], None),
        rows("low", Agg::Min, Some(column("num")), vec![], None),
        rows("high", Agg::Max, Some(column("dbl")), vec![], None),
        rows("firstTxt", Agg::Min, Some(column("txt")), vec![], None),
        rows("flagged", Agg::Count, None, vec![flag()], None),
        rows("flaggedTotal", Agg::Sum, Some(column("num")), vec![flag(), small()], None),
        made("ratio", Body::Ratio("flagged".into(), "count".into())),
        made("both", Body::Sum("total".into(), "flagged".into())),
    ];
    let call = |agg, arg, filter| Body::Rows { agg, arg: Some(arg), filters: vec![filter], window: None, own: true };
    all.push(made("ownSum", call(Agg::Sum, column("num"), flag())));
    all.push(made("latest", call(Agg::Max, column("at"), flag())));
    if let Some(far) = far {
        let text = Ex::Equal(Box::new(Ex::column(far, "txt")), Box::new(Ex::Text("a".to_owned())));
        all.push(rows("farTotal", Agg::Sum, Some(Ex::column(far, "num")), vec![], None));
        all.push(rows("nearCount", Agg::Count, None, vec![text], None));
    }
    if has_sub {
        all.push(rows("subSum", Agg::Sum, Some(Ex::Member(own, "sub".to_owned())), vec![], None));
    }
    all.extend(windows(own));
    all.extend(stages());
    all
}

fn windows(own: usize) -> Vec<Measure> {
    let num = || Some(Ex::column(own, "num"));
    let around = |trailing, leading, from_start| Some(Window::Around { trailing, leading, from_start });
    let flag = vec![Ex::column(own, "flag")];
    vec![
        rows("twoDays", Agg::Sum, num(), vec![], around(Some(48), Some(0), false)),
        rows("everCount", Agg::Count, None, vec![], around(None, Some(0), false)),
        rows("everFlagged", Agg::Sum, num(), flag, around(None, Some(0), false)),
        rows("about", Agg::Avg, num(), vec![], around(Some(24), Some(24), false)),
        rows("before", Agg::Sum, num(), vec![], around(Some(72), Some(0), true)),
        rows("rest", Agg::Distinct, Some(Ex::column(own, "txt")), vec![], around(Some(0), None, true)),
        rows("monthToDate", Agg::Sum, num(), vec![], Some(Window::ToDate("month"))),
        rows("weekToDate", Agg::Count, None, vec![], Some(Window::ToDate("week"))),
        made("rollRatio", Body::Ratio("twoDays".into(), "everCount".into())),
    ]
}

fn stages() -> Vec<Measure> {
    let inner = |over: &str, agg, keep: Option<Vec<&'static str>>, less: &[&'static str], more: &[&'static str]| {
        Body::Inner { over: over.into(), agg, keep, less: less.to_vec(), more: more.to_vec() }
    };
    vec![
        made("allTotal", inner("total", Some(Agg::Sum), None, &["txt"], &[])),
        made("allCount", inner("count", None, None, &["txt", "class"], &[])),
        made("share", Body::Ratio("total".into(), "allTotal".into())),
        made("byTxt", inner("total", Some(Agg::Sum), Some(vec!["txt"]), &[], &[])),
        made("ofAll", inner("count", None, Some(vec![]), &[], &[])),
        made("meanByTxt", inner("total", Some(Agg::Avg), None, &[], &["txt"])),
        made("peak", inner("count", Some(Agg::Max), None, &[], &["class", "flag"])),
        made("dayBefore", Body::Shifted { over: "total".into(), by: Span::Minutes(1_440) }),
        made("monthBefore", Body::Shifted { over: "count".into(), by: Span::Months(1) }),
        made("hourAfter", Body::Shifted { over: "total".into(), by: Span::Minutes(-60) }),
        made("growth", Body::Ratio("total".into(), "dayBefore".into())),
        made("rank", Body::Rank { over: "total".into(), descends: true, less: vec!["txt"] }),
        made("place", Body::Rank { over: "count".into(), descends: false, less: vec!["txt", "class", "flag"] }),
    ]
}
