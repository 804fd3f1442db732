//! Finds the texts of a column that contain a substring. It searches the buffers in which the texts are concatenated
//! instead of each text separately, as usually only few texts contain it.

use arrow::array::{ByteView, StringViewArray};
use arrow::buffer::Buffer;
use memchr::memmem::Finder;

use super::matching::VIEW_INLINE;

/// How far beyond a text one search may go.
const AHEAD_BYTES: usize = 64 * 1024;
/// One in this many texts is sampled to estimate their length.
const SAMPLE: usize = 64;

/// Searches for a substring in the texts of a column, preferably in order.
#[derive(Debug)]
pub struct SubstringSearch<'a> {
    array: &'a StringViewArray,
    finder: Finder<'a>,
    /// For each buffer: from the first position on, there is no match before the second.
    known: Vec<Option<(usize, usize)>>,
}

impl<'a> SubstringSearch<'a> {
    /// Prepares the search; `None` if most of the buffers is other data, so that testing single texts is faster.
    pub fn new(array: &'a StringViewArray, text: &'a str) -> Option<Self> {
        let buffers = array.data_buffers();
        let held: usize = buffers.iter().map(Buffer::len).sum();
        let length = |view: &u128| *view as u32 as usize;
        let used = array.views().iter().step_by(SAMPLE).map(length).sum::<usize>() * SAMPLE;
        let finder = Finder::new(text.as_bytes());
        (!text.is_empty() && held <= 2 * used).then(|| Self { array, finder, known: vec![None; buffers.len()] })
    }

    /// Tells whether a text may contain the substring; mostly `false` if it does not.
    #[inline]
    pub fn may_hold(&mut self, at: usize) -> bool {
        let view = self.array.views()[at];
        if view as u32 as usize <= VIEW_INLINE {
            return self.finder.find(self.array.value(at).as_bytes()).is_some();
        }
        let view = ByteView::from(view);
        let (buffer, start) = (view.buffer_index as usize, view.offset as usize);
        let end = start + view.length as usize;
        let hit = match self.known[buffer] {
            Some((from, hit)) if from <= start && start <= hit => hit,
            Some((from, _)) if start < from => return self.finder.find(self.array.value(at).as_bytes()).is_some(),
            _ => self.look(buffer, start, end),
        };
        hit + self.finder.needle().len() <= end
    }

    /// Position of the next match, or a position before which there is none.
    fn look(&mut self, buffer: usize, start: usize, end: usize) -> usize {
        let bytes = &self.array.data_buffers()[buffer];
        let ahead = &bytes[start..bytes.len().min(end.max(start + AHEAD_BYTES))];
        let found = self.finder.find(ahead);
        let hit = start + found.unwrap_or_else(|| (ahead.len() + 1).saturating_sub(self.finder.needle().len()));
        self.known[buffer] = Some((start, hit));
        hit
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{AsArray, UInt32Array};
    use arrow::compute::take;

    use super::*;

    /// Checks what is said of some texts, in the order of `order`; gives how often it was yes without need.
    fn check(texts: &[String], order: impl Iterator<Item = usize>, text: &str) -> usize {
        let array: StringViewArray = texts.iter().map(|text| Some(text.as_str())).collect();
        let mut holding = SubstringSearch::new(&array, text).expect("nothing else is held");
        let mut needless = 0;
        for at in order {
            let (said, is) = (holding.may_hold(at), texts[at].contains(text));
            assert!(said || !is, "{text:?} in {:?}", texts[at]);
            needless += usize::from(said && !is);
        }
        needless
    }

    #[test]
    fn texts_that_hold_it_are_found_in_any_order() {
        // Short and long ones, with pieces of what is looked for at their ends.
        let texts: Vec<String> = (0..900usize)
            .map(|i| match i % 9 {
                0 => "short".to_owned(),
                1 => format!("a timeout of request {i}"),
                2 => format!("request {i} ends with time"),
                3 => format!("out of {i} requests none came"),
                4 => format!("request {i} ran into a timeout"),
                5 => "timeout".to_owned(),
                6 => String::new(),
                _ => format!("request {i} was answered, {}", "and so on ".repeat(i % 40)),
            })
            .collect();
        for text in ["timeout", "t", "requests none", "nowhere", "answered, and so on and so on"] {
            let all = 0..texts.len();
            assert_eq!(check(&texts, all.clone(), text), 0, "{text}");
            assert_eq!(check(&texts, all.clone().rev(), text), 0, "{text} backwards");
            assert_eq!(check(&texts, all.clone().map(|i| i * 7 % 900), text), 0, "{text} mixed");
            assert_eq!(check(&texts, all.step_by(3), text), 0, "{text} in part");
        }
    }

    #[test]
    fn long_buffers_are_searched_piece_by_piece() {
        let texts: Vec<String> = (0..4000usize)
            .map(|i| format!("{} {i} {}", "x".repeat(100), if i == 3777 { "timeout" } else { "" }))
            .collect();
        let needless = check(&texts, 0..texts.len(), "timeout");
        assert!(needless < 40, "{needless} of {}", texts.len());
        assert_eq!(check(&["x".repeat(3 * AHEAD_BYTES) + "timeout", "y".repeat(20)], 0..2, "timeout"), 0);
    }

    #[test]
    fn buffers_that_hold_much_else_are_left_alone() {
        let texts: Vec<String> = (0..1000).map(|i| format!("a text of some length: {i}")).collect();
        let array: StringViewArray = texts.iter().map(|text| Some(text.as_str())).collect();
        assert!(SubstringSearch::new(&array, "7").is_some() && SubstringSearch::new(&array, "").is_none());
        let few = take(&array, &UInt32Array::from_iter_values((0..1000).step_by(10)), None).expect("taken");
        assert!(SubstringSearch::new(few.as_string_view(), "7").is_none());
        assert!(SubstringSearch::new(&few.as_string_view().gc(), "7").is_some());
    }
}
