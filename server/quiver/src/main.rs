//! The binary. Its commands are in the library beside it: what is asynchronous is compiled where it is begun, so here all of the server
//! would be compiled a second time.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    quiver::command::main()
}
