//! Locates programs in the folder of installed tools.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use quiver_tests::server::{run, tools};

/// A running program. Killed when dropped.
#[derive(Debug)]
pub(crate) struct Program(Child);

impl Program {
    /// Starts it; what it says goes to a file.
    pub(crate) fn start(command: &mut Command, log: &Path) -> Self {
        let log = std::fs::File::create(log).expect("a log");
        let errors = log.try_clone().expect("a second handle");
        Self(command.stdin(Stdio::null()).stdout(log).stderr(errors).spawn().expect("it runs"))
    }

    /// Asks it to stop, and waits for its end.
    pub(crate) fn stop(mut self) {
        let asked = Command::new("kill").args(["-TERM", &self.0.id().to_string()]).status().expect("kill");
        assert!(asked.success(), "it ended before it was asked to");
        self.0.wait().expect("it ends");
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Gives an installed program.
pub(crate) fn program(name: &str) -> Command {
    Command::new(tools().join("usr/bin").join(name))
}

/// Gives one of which Debian's present release has a version that is too old; none: the mirror has no release behind it.
pub(crate) fn newer_program(name: &str) -> Option<PathBuf> {
    Some(tools().join("newer/usr/bin").join(name)).filter(|path| path.exists())
}

/// Runs one of our Python scripts to its end, and gives what it printed.
pub(crate) fn python(script: &str, args: &[&str]) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tools").join(script);
    let mut command = Command::new(tools().join("venv/bin/python"));
    let (code, output, errors) = run(command.arg(&script).args(args));
    assert_eq!(code, Some(0), "{}: {errors}", script.display());
    output
}

/// Gives a document of the repository.
pub(crate) fn document(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// Gives a port of loopback that was free a moment ago: below those that the system gives to whoever asks for any, so that
/// no connection and no server of another test has it meanwhile.
pub(crate) fn free_port() -> u16 {
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    let begin = std::process::id().wrapping_mul(61);
    loop {
        let port = 20_000 + begin.wrapping_add(TAKEN.fetch_add(1, Relaxed)) % 10_000;
        let port = u16::try_from(port).expect("below 30000");
        if std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// Says whether this is the long run.
pub(crate) fn soak() -> bool {
    std::env::var_os("QUIVER_SOAK").is_some()
}

/// Asks again and again until the answer is yes.
pub(crate) async fn until(what: &str, patience: Duration, mut done: impl AsyncFnMut() -> bool) {
    let began = Instant::now();
    while !done().await {
        assert!(began.elapsed() < patience, "{what}: not within {patience:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
