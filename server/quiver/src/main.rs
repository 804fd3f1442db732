//! The binary. Its commands are in the library beside it: async code is compiled in the crate that starts it, so a
//! `main` with commands would compile the whole server a second time.

use std::process::ExitCode;

/// The allocator of C libraries, too (`Cargo.toml`).
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    quiver::command::main()
}
