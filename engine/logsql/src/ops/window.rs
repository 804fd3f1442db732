//! `running_stats` and `total_stats`: what the rows before, or all rows, of a group add up to, added to each row.

use std::cmp::Ordering;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use arrow::array::{ArrayRef, StringViewBuilder};
use arrow::record_batch::RecordBatch;
use datafusion::error::Result;
use datafusion::execution::memory_pool::MemoryConsumer;
use futures::StreamExt;

use super::cells::assemble;
use crate::ast::FieldPattern;
use crate::ast::pipe::{WindowCall, WindowFunc};
use crate::kernels::values::{compare, parse_float, push_f64};
use crate::nodes::Open;
use crate::pieces::{BatchMap, map_batches};
use crate::rows::{Rest, Shape, Texts, push_text, texts_of};

/// What a function has seen of a group.
#[derive(Debug, Clone, Default)]
struct Seen {
    count: u64,
    sum: Option<f64>,
    text: Option<String>,
    /// Of `last` with an offset: the values of the last rows.
    recent: VecDeque<String>,
}

impl Seen {
    /// Adds a value of a row; what `count` counts is known for whole rows only. Gives how many bytes of texts more are
    /// kept than before.
    fn add(&mut self, call: &WindowCall, value: &str) -> isize {
        match call.func {
            WindowFunc::Count => 0,
            WindowFunc::Sum => {
                if let Some(n) = parse_float(value) {
                    self.sum = Some(self.sum.unwrap_or(0.0) + n);
                }
                0
            }
            WindowFunc::Min | WindowFunc::Max => {
                let wanted = if call.func == WindowFunc::Min { Ordering::Less } else { Ordering::Greater };
                let better = self.text.as_deref().is_none_or(|old| compare(value, old) == wanted);
                // Of one field, a row without it has the least value of all.
                if better && (!value.is_empty() || matches!(*call.fields, [FieldPattern::Name(_)])) {
                    self.keep(value.to_owned())
                } else {
                    0
                }
            }
            WindowFunc::First if self.count == call.offset as u64 => self.keep(value.to_owned()),
            WindowFunc::First => 0,
            WindowFunc::Last => {
                let grown = (value.len() + TEXT_BYTES) as isize;
                self.recent.push_back(value.to_owned());
                if self.recent.len() <= call.offset {
                    return grown;
                }
                let oldest = self.recent.pop_front().unwrap_or_default();
                let left = (oldest.len() + TEXT_BYTES) as isize;
                grown - left + self.keep(oldest)
            }
        }
    }

    /// Keeps a text in place of the one before.
    fn keep(&mut self, text: String) -> isize {
        let before = self.text.as_ref().map_or(0, String::len);
        let after = text.len();
        self.text = Some(text);
        after as isize - before as isize
    }

    fn write(&self, func: WindowFunc, out: &mut String) {
        match func {
            WindowFunc::Count => out.push_str(&self.count.to_string()),
            WindowFunc::Sum => push_f64(out, self.sum.unwrap_or(f64::NAN)),
            _ => out.push_str(self.text.as_deref().unwrap_or("")),
        }
    }
}

/// What a group, and a text, take beside their contents.
const GROUP_BYTES: usize = 96;
const TEXT_BYTES: usize = 32;

/// States by group.
#[derive(Debug, Clone)]
struct Windows {
    by: Vec<String>,
    calls: Vec<WindowCall>,
    groups: HashMap<Vec<String>, Vec<Seen>>,
    /// Memory of the groups and of what they keep, about.
    bytes: usize,
}

impl Windows {
    /// Walks over rows; `add` says whether they are added, and the results are written when asked for.
    fn walk(
        &mut self,
        rows: &RecordBatch,
        shape: &Shape,
        add: bool,
        out: Option<&mut [StringViewBuilder]>,
    ) -> Result<()> {
        let keys = self.by.iter().map(|name| texts_of(rows, shape, name)).collect::<Result<Vec<_>>>()?;
        let columns: Vec<(&str, Texts)> =
            shape.names().map(|name| Ok((name, texts_of(rows, shape, name)?))).collect::<Result<_>>()?;
        let rest = Rest::of(rows, shape);
        let (mut scratch, mut text) = (String::new(), String::new());
        let mut out = out;
        for row in 0..rows.num_rows() {
            let key: Vec<String> = keys.iter().map(|texts| texts.get(row, &mut scratch).to_owned()).collect();
            let (bytes, calls) = (&mut self.bytes, self.calls.len());
            let seen = self.groups.entry(key).or_insert_with_key(|key| {
                *bytes +=
                    GROUP_BYTES + calls * size_of::<Seen>() + key.iter().map(|k| k.len() + TEXT_BYTES).sum::<usize>();
                vec![Seen::default(); calls]
            });
            for (call, seen) in self.calls.iter().zip(seen.iter_mut()).filter(|_| add) {
                let rows = matches!(call.func, WindowFunc::First | WindowFunc::Last);
                let mut any = rows || call.fields.iter().any(FieldPattern::is_all);
                let mut each = |name: &str, value: &str| {
                    if call.fields.iter().any(|field| field.matches(name)) {
                        any |= !value.is_empty();
                        *bytes = bytes.saturating_add_signed(seen.add(call, value));
                    }
                };
                for (name, texts) in &columns {
                    each(name, texts.get(row, &mut scratch));
                }
                rest.iter().flat_map(|rest| rest.row(row)).for_each(|(name, value)| each(name, value));
                seen.count += u64::from(any);
            }
            if let Some(builders) = &mut out {
                for ((call, seen), builder) in self.calls.iter().zip(seen.iter()).zip(builders.iter_mut()) {
                    text.clear();
                    seen.write(call.func, &mut text);
                    push_text(builder, &text);
                }
            }
        }
        Ok(())
    }

    fn with_results(&mut self, rows: &RecordBatch, input: &Shape, output: &Shape, add: bool) -> Result<RecordBatch> {
        let mut builders: Vec<_> =
            self.calls.iter().map(|_| StringViewBuilder::with_capacity(rows.num_rows())).collect();
        self.walk(rows, input, add, Some(&mut builders))?;
        let arrays = builders.iter_mut().map(|b| Arc::new(b.finish()) as ArrayRef);
        let made: Vec<(&str, ArrayRef)> = self.calls.iter().map(|call| call.name.as_str()).zip(arrays).collect();
        assemble(rows, input, output, &made)
    }
}

/// Adds the results to each row, in the order in which rows come.
pub(crate) fn window(running: bool, by: Vec<String>, calls: Vec<WindowCall>, input: Shape, output: Shape) -> Open {
    let windows = Windows { by, calls, groups: HashMap::new(), bytes: 0 };
    Arc::new(move |mut rows, ctx| {
        let (mut windows, input, output) = (windows.clone(), input.clone(), output.clone());
        if running {
            let pool = Arc::clone(ctx.memory_pool());
            let results = move || -> BatchMap {
                let (mut windows, input, output) = (windows.clone(), input.clone(), output.clone());
                let groups = MemoryConsumer::new("running_stats").register(&pool);
                Box::new(move |batch| {
                    let made = windows.with_results(&batch, &input, &output, true)?;
                    groups.try_resize(windows.bytes)?;
                    Ok(made)
                })
            };
            return map_batches(results)(rows, ctx);
        }
        let held = async move {
            let reservation = MemoryConsumer::new("total_stats").register(ctx.memory_pool());
            let (mut batches, mut held) = (Vec::new(), 0);
            while let Some(batch) = rows.next().await {
                let batch = batch?;
                held += batch.get_array_memory_size();
                reservation.try_resize(held + windows.bytes)?;
                windows.walk(&batch, &input, true, None)?;
                reservation.try_resize(held + windows.bytes)?;
                batches.push(batch);
            }
            let all = batches.into_iter().map(move |batch| {
                let _held = &reservation;
                windows.with_results(&batch, &input, &output, false)
            });
            Ok::<_, datafusion::error::DataFusionError>(futures::stream::iter(all.collect::<Vec<_>>()))
        };
        futures::stream::once(held)
            .map(|all| match all {
                Ok(batches) => batches.boxed(),
                Err(e) => futures::stream::iter([Err(e)]).boxed(),
            })
            .flatten()
            .boxed()
    })
}
