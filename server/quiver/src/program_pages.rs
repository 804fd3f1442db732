//! Pages of the program's code that are in memory.
//!
//! The system maps them around what runs and leaves them there until it needs room, so that after some hours nearly all of
//! the code counts as memory of the process: 113 MB, of which little runs at a time. They are the page cache's in any case.

#![allow(unsafe_code, reason = "only a call of the system takes pages out; see the SAFETY comment")]

use std::ffi::c_void;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::ptr::with_exposed_provenance_mut;

use rustix::mm::{Advice, madvise};

/// About what the system tells of one mapping. It walks through the pages of each mapping that is read of.
const MAPPING_BYTES: usize = 1024;

/// Takes the pages of the program's code out of the process. What runs next is mapped again from the page cache, sixteen
/// pages at a time. Does nothing if the system does not tell where they are, or while somebody has changed the code:
/// breakpoints and probes would be lost.
pub fn release() {
    let release: fn() = release;
    let Ok(smaps) = File::open("/proc/self/smaps") else { return };
    let smaps = BufReader::with_capacity(MAPPING_BYTES, smaps);
    let Some(code) = unchanged_code(smaps, release as usize) else { return };
    let start = with_exposed_provenance_mut::<c_void>(code.start);
    // SAFETY: the mapping is private and no page of it is the process's own, so each holds what is in the file, and is read
    // from there when it is used again. The system does the same with such pages whenever it needs room.
    let released = unsafe { madvise(start, code.len(), Advice::LinuxDontNeed) };
    if let Err(error) = released {
        tracing::debug!(%error, "cannot take pages of code out of memory");
    }
}

/// The addresses of the mapping of a file that holds code at `address`, by the text of `/proc/self/smaps`; `None` if a page
/// of it is the process's own, as one is that somebody wrote into.
fn unchanged_code(smaps: impl BufRead, address: usize) -> Option<Range<usize>> {
    let mut lines = smaps.lines().map_while(Result::ok);
    let is_searched = |(range, is_code): &(Range<usize>, bool)| *is_code && range.contains(&address);
    let (code, _) = lines.find_map(|line| mapping_of(&line).filter(is_searched))?;
    let told = lines.take_while(|line| mapping_of(line).is_none());
    let is_of_own = |line: &String| ["Anonymous:", "Swap:"].iter().any(|name| line.starts_with(*name));
    let mut of_own = told.filter(is_of_own).peekable();
    let is_told = of_own.peek().is_some();
    let is_none = of_own.all(|line| line.split_ascii_whitespace().nth(1) == Some("0"));
    (is_told && is_none).then_some(code)
}

/// The addresses of a mapping, and whether it is one of code in a file that cannot be written; `None`: another line.
fn mapping_of(line: &str) -> Option<(Range<usize>, bool)> {
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let of_text = |text| usize::from_str_radix(text, 16).ok();
    let range = of_text(start)?..of_text(end)?;
    let is_code = fields.next() == Some("r-xp") && fields.nth(2).is_some_and(|inode| inode != "0");
    Some((range, is_code))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process_info::file_bytes;

    #[test]
    fn code_is_found_by_an_address_in_it() {
        let own = |anonymous: u32, swap: u32| {
            format!("Rss: 8 kB\nAnonymous: {anonymous} kB\nSwap: {swap} kB\nSwapPss: 4 kB\nVmFlags: rd ex\n")
        };
        let smaps = |code: &str| {
            let data = own(4, 4);
            format!(
                "5000-6000 r--p 00000000 08:01 77 /usr/bin/quiver\n{data}\
                 6000-9000 r-xp 00001000 08:01 77 /usr/bin/quiver\n{code}\
                 9000-a000 rw-p 00004000 08:01 77 /usr/bin/quiver\n{data}\
                 b000-c000 r-xp 00000000 00:00 0 [vdso]\n7f00-8000 broken\n"
            )
        };
        let unchanged = smaps(&own(0, 0));
        for (address, found) in [
            (0x5800, None),
            (0x6000, Some(0x6000..0x9000)),
            (0x8fff, Some(0x6000..0x9000)),
            (0x9000, None),
            (0xb800, None),
            (0xd000, None),
        ] {
            assert_eq!(unchanged_code(unchanged.as_bytes(), address), found, "{address:x}");
        }
        // A breakpoint lies in a page of the process's own, which may be swapped out. Nor is it known where nothing is told.
        for changed in [own(4, 0), own(0, 4), "Rss: 8 kB\n".to_owned()] {
            assert_eq!(unchanged_code(smaps(&changed).as_bytes(), 0x6000), None, "{changed}");
        }
    }

    #[test]
    fn what_does_not_run_leaves_the_process() {
        // More is mapped than what runs while this is measured: all that ran before.
        let before = file_bytes().expect("linux");
        release();
        let after = file_bytes().expect("linux");
        assert!(after < before, "{after} of {before} bytes");
        // And the rest still works.
        let smaps = BufReader::new(File::open("/proc/self/smaps").expect("linux"));
        let code: fn() = release;
        assert!(unchanged_code(smaps, code as usize).is_some_and(|range| range.len() > 1 << 16));
    }
}
