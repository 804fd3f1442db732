//! Pages of the program's file that are in memory: its code, and the data that goes with it and never changes.
//!
//! The system maps them around what runs and leaves them there until it needs room, so that after some hours nearly all of
//! them count as memory of the process: 113 MB, of which little is used at a time. They are the page cache's in any case.

#![allow(unsafe_code, reason = "only a call of the system takes pages out; see the SAFETY comment")]

use std::ffi::c_void;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::ptr::with_exposed_provenance_mut;

use rustix::mm::{Advice, madvise};

/// About what the system tells of one mapping. It walks through the pages of each mapping that is read of.
const MAPPING_BYTES: usize = 1024;

/// Unmaps the pages of the program's file. Pages that are used later are mapped again from the page cache, sixteen at a
/// time. Pages that were changed in memory (breakpoints, probes) stay, since the changes would be lost. Does nothing if
/// the system does not say where the pages are.
pub fn release() {
    let release: fn() = release;
    let Ok(smaps) = File::open("/proc/self/smaps") else { return };
    let smaps = BufReader::with_capacity(MAPPING_BYTES, smaps);
    for pages in unchanged_pages(smaps, release as usize) {
        let start = with_exposed_provenance_mut::<c_void>(pages.start);
        // SAFETY: the mapping is private and no page of it is the process's own, so each holds what is in the file, and is
        // read from there when it is used again. The system does the same with such pages whenever it needs room.
        let released = unsafe { madvise(start, pages.len(), Advice::LinuxDontNeed) };
        if let Err(error) = released {
            tracing::debug!(%error, "cannot take pages of the program out of memory");
        }
    }
}

/// A range of addresses as `/proc/self/smaps` describes it.
struct Mapping {
    range: Range<usize>,
    /// Device and inode of its file; inode 0 means no file.
    file: String,
    /// Whether the process may not write to it.
    is_read_only: bool,
    /// Whether no page is a private copy, which a write to it would have made; `None` if the system does not say.
    is_unchanged: Option<bool>,
}

impl Mapping {
    /// Reads the first line of a mapping in `/proc/self/smaps`; `None` for any other line.
    fn of_line(line: &str) -> Option<Self> {
        let mut fields = line.split_ascii_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        let of_text = |text| usize::from_str_radix(text, 16).ok();
        let range = of_text(start)?..of_text(end)?;
        let is_read_only = ["r-xp", "r--p"].contains(&fields.next()?);
        let file = format!("{} {}", fields.nth(1)?, fields.next()?);
        Some(Self { range, file, is_read_only, is_unchanged: None })
    }

    fn has_file(&self) -> bool {
        !self.file.ends_with(" 0")
    }

    /// Reads a further line about the mapping.
    fn learn(&mut self, line: &str) {
        if ["Anonymous:", "Swap:"].iter().any(|name| line.starts_with(*name)) {
            let is_none = line.split_ascii_whitespace().nth(1) == Some("0");
            self.is_unchanged = Some(is_none && self.is_unchanged != Some(false));
        }
    }
}

/// The read-only, unchanged mappings of the file that holds the code at `address`, according to the text of
/// `/proc/self/smaps`.
fn unchanged_pages(smaps: impl BufRead, address: usize) -> Vec<Range<usize>> {
    let is_searched = |of_file: &[Mapping]| of_file.iter().any(|mapping| mapping.range.contains(&address));
    // The mappings of one file follow each other.
    let mut of_file: Vec<Mapping> = Vec::new();
    for line in smaps.lines().map_while(Result::ok) {
        if let Some(mapping) = Mapping::of_line(&line) {
            if of_file.last().is_some_and(|last| last.file != mapping.file) {
                if is_searched(&of_file) {
                    break;
                }
                of_file.clear();
            }
            of_file.push(mapping);
        } else if let Some(mapping) = of_file.last_mut() {
            mapping.learn(&line);
        }
    }
    if !is_searched(&of_file) {
        return Vec::new();
    }
    let kept = |mapping: &Mapping| mapping.has_file() && mapping.is_read_only && mapping.is_unchanged == Some(true);
    of_file.into_iter().filter(kept).map(|mapping| mapping.range).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process_info::file_bytes;

    fn starts(smaps: &str, address: usize) -> Vec<usize> {
        unchanged_pages(smaps.as_bytes(), address).into_iter().map(|range| range.start).collect()
    }

    #[test]
    fn pages_are_found_by_an_address_in_the_code() {
        let own = |anonymous: u32, swap: u32| {
            format!("Rss: 8 kB\nAnonymous: {anonymous} kB\nSwap: {swap} kB\nSwapPss: 4 kB\nVmFlags: rd ex\n")
        };
        let smaps = |code: &str| {
            let (data, constants) = (own(4, 4), own(0, 0));
            format!(
                "3000-4000 r--p 00000000 08:01 76 /usr/bin/other\n{constants}\
                 5000-6000 r--p 00000000 08:01 77 /usr/bin/quiver\n{constants}\
                 6000-9000 r-xp 00001000 08:01 77 /usr/bin/quiver\n{code}\
                 9000-a000 r--p 00004000 08:01 77 /usr/bin/quiver\n{data}\
                 a000-b000 rw-p 00005000 08:01 77 /usr/bin/quiver\n{constants}\
                 b000-c000 r-xp 00000000 00:00 0 [vdso]\n{constants}7f00-8000 broken\n\
                 d000-e000 r--p 00006000 08:01 77 /usr/bin/quiver\n{constants}"
            )
        };
        let unchanged = smaps(&own(0, 0));
        let program = [0x5000, 0x6000].as_slice();
        for (address, found) in [
            (0x2800, [].as_slice()),
            (0x3800, &[0x3000]),
            (0x6000, program),
            (0x8fff, program),
            (0xb800, &[]),
            (0xf000, &[]),
        ] {
            assert_eq!(starts(&unchanged, address), found, "{address:x}");
        }
        assert_eq!(unchanged_pages(unchanged.as_bytes(), 0x6000).last(), Some(&(0x6000..0x9000)));
        // A breakpoint lies in a page of the process's own, which may be swapped out. Nor is it known where nothing is told.
        for changed in [own(4, 0), own(0, 4), "Rss: 8 kB\n".to_owned()] {
            assert_eq!(starts(&smaps(&changed), 0x6000), [0x5000], "{changed}");
        }
    }

    #[test]
    fn what_is_not_used_leaves_the_process() {
        // More is mapped than what runs while this is measured: all that ran before.
        let before = file_bytes().expect("linux");
        release();
        let after = file_bytes().expect("linux");
        assert!(after < before, "{after} of {before} bytes");
        // The rest of the program still runs, and its constant data was released, too.
        let smaps = BufReader::new(File::open("/proc/self/smaps").expect("linux"));
        let code: fn() = release;
        let pages = unchanged_pages(smaps, code as usize);
        assert!(pages.len() > 1, "{pages:?}");
    }
}
