//! Pages of the program's code that are in memory.
//!
//! The system maps them around what runs and leaves them there until it needs room, so that after some hours nearly all of
//! the code counts as memory of the process: 113 MB, of which little runs at a time. They are the page cache's in any case.

#![allow(unsafe_code, reason = "only a call of the system takes pages out; see the SAFETY comment")]

use std::ffi::c_void;
use std::fs;
use std::ops::Range;
use std::ptr::with_exposed_provenance_mut;

use rustix::mm::{Advice, madvise};

/// Takes the pages of the program's code out of the process. What runs next is mapped again from the page cache, sixteen
/// pages at a time. Does nothing if the system does not tell where they are.
pub fn release() {
    let release: fn() = release;
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let Some(code) = code_around(&maps, release as usize) else { return };
    let start = with_exposed_provenance_mut::<c_void>(code.start);
    // SAFETY: the mapping holds what is in the file and nothing else: it is private, and code that cannot be written never was,
    // since the loader writes addresses into data only. The system lets nobody write to the file of a running program. So
    // each page that is used again has the same bytes.
    let released = unsafe { madvise(start, code.len(), Advice::LinuxDontNeed) };
    if let Err(error) = released {
        tracing::debug!(%error, "cannot take pages of code out of memory");
    }
}

/// The addresses of the mapping of a file that holds code at `address` and cannot be written, by the text of
/// `/proc/self/maps`.
fn code_around(maps: &str, address: usize) -> Option<Range<usize>> {
    maps.lines().find_map(|line| {
        let mut fields = line.split_ascii_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        let of_text = |text| usize::from_str_radix(text, 16).ok();
        let range = of_text(start)?..of_text(end)?;
        let is_code = fields.next() == Some("r-xp") && fields.nth(2).is_some_and(|inode| inode != "0");
        (is_code && range.contains(&address)).then_some(range)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process_info::file_bytes;

    #[test]
    fn code_is_found_by_an_address_in_it() {
        let maps = "\
            5000-6000 r--p 00000000 08:01 77 /usr/bin/quiver\n\
            6000-9000 r-xp 00001000 08:01 77 /usr/bin/quiver\n\
            9000-a000 rw-p 00004000 08:01 77 /usr/bin/quiver\n\
            b000-c000 r-xp 00000000 00:00 0 [vdso]\n\
            7f00-8000 broken\n";
        for (address, found) in [
            (0x5800, None),
            (0x6000, Some(0x6000..0x9000)),
            (0x8fff, Some(0x6000..0x9000)),
            (0x9000, None),
            (0xb800, None),
            (0xd000, None),
        ] {
            assert_eq!(code_around(maps, address), found, "{address:x}");
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
        let maps = fs::read_to_string("/proc/self/maps").expect("linux");
        let code: fn() = release;
        assert!(code_around(&maps, code as usize).is_some_and(|range| range.len() > 1 << 16));
    }
}
