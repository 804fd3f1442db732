//! A real PostgreSQL server for tests: Debian's package, in a temporary folder, on loopback, stopped when it is
//! dropped.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Says to a test binary, by the URL of a server, that its suite is to run over PostgreSQL.
pub const VARIABLE: &str = "QUIVER_TEST_POSTGRES";
/// Who PostgreSQL runs as where the tests run as root, which it refuses: `nobody`.
const NOBODY: u32 = 65_534;
const PASSWORD: &str = "a secret of tests";
/// How long a start may take on a busy machine.
const PATIENCE: Duration = Duration::from_mins(5);

/// What a server does without that only a power cut, a standby or months of use ask for: suites make hundreds of databases.
const SETTINGS: [&str; 9] = [
    "fsync=off",
    "full_page_writes=off",
    "wal_level=minimal",
    "max_wal_senders=0",
    "max_wal_size=4GB",
    "autovacuum=off",
    "max_connections=200",
    "shared_buffers=32MB",
    "jit=off",
];

/// A server.
#[derive(Debug)]
pub struct Postgres {
    child: Option<Child>,
    programs: PathBuf,
    dir: tempfile::TempDir,
    port: u16,
}

fn newest(folder: &Path) -> Option<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(folder).ok()?.filter_map(|e| Some(e.ok()?.path().join("bin"))).collect();
    found.retain(|bin| bin.join("initdb").exists());
    found.sort();
    found.pop()
}

/// Where the programs are: where the machine has them, or where the tests' tools are unpacked.
fn programs() -> PathBuf {
    let tools = std::env::var("QUIVER_TOOLS").map(PathBuf::from).unwrap_or_default().join("postgresql");
    // Root's are outside of its home, which PostgreSQL's user cannot pass.
    let tools = fs::canonicalize(&tools).unwrap_or(tools);
    let folders = [PathBuf::from("/usr/lib/postgresql"), tools.join("usr/lib/postgresql")];
    folders.iter().find_map(|folder| newest(folder)).unwrap_or_else(|| {
        panic!("no PostgreSQL in {folders:?}: `make tools` fetches it into the folder that QUIVER_TOOLS names")
    })
}

/// One of the programs, with the libraries that were unpacked beside it.
fn program(programs: &Path, name: &str) -> Command {
    let mut command = Command::new(programs.join(name));
    if let Some(root) = programs.ancestors().nth(5).filter(|root| root.parent().is_some()) {
        let libraries = root.join(format!("usr/lib/{}-linux-gnu", std::env::consts::ARCH));
        command.env("LD_LIBRARY_PATH", libraries);
    }
    command
}

fn free_port() -> u16 {
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    let begin = std::process::id().wrapping_mul(61);
    loop {
        let port = 30_000 + begin.wrapping_add(TAKEN.fetch_add(1, Relaxed)) % 2_700;
        let port = u16::try_from(port).expect("below 32700");
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

impl Postgres {
    /// Starts a server with an empty database `postgres`.
    ///
    /// # Panics
    /// When it does not start: a test that needs it must not pass without.
    pub fn start() -> Self {
        let dir = tempfile::Builder::new().prefix("quiver-pg").tempdir().expect("a folder");
        let mut server = Self { child: None, programs: programs(), dir, port: 0 };
        if Self::is_root() {
            chown(server.dir.path(), Some(NOBODY), Some(NOBODY)).expect("a folder of another user");
        }
        fs::set_permissions(server.dir.path(), fs::Permissions::from_mode(0o755)).expect("permissions");
        let password = server.dir.path().join("password");
        fs::write(&password, PASSWORD).expect("a password");
        fs::set_permissions(&password, fs::Permissions::from_mode(0o644)).expect("permissions");
        let mut init = server.command("initdb");
        init.args(["--no-locale", "--encoding=UTF8", "--no-sync", "--username=quiver", "--auth=scram-sha-256"]);
        init.arg("--pwfile").arg(&password).arg("--pgdata").arg(server.dir.path().join("data"));
        let done = init.output().expect("initdb runs");
        assert!(done.status.success(), "initdb: {}", String::from_utf8_lossy(&done.stderr));
        server.resume();
        server
    }

    fn is_root() -> bool {
        fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
    }

    fn command(&self, name: &str) -> Command {
        let mut command = program(&self.programs, name);
        if Self::is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        command.current_dir(self.dir.path()).env("LC_ALL", "C").env("PGPASSWORD", PASSWORD).stdin(Stdio::null());
        command
    }

    /// Starts it again, where clients knew it.
    ///
    /// # Panics
    /// When it does not start.
    pub fn resume(&mut self) {
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            if self.port == 0 {
                self.port = free_port();
            }
            let log = fs::File::options().create(true).append(true).open(self.dir.path().join("log")).expect("a log");
            let mut command = self.command("postgres");
            command.arg("-D").arg(self.dir.path().join("data")).arg("-k").arg(self.dir.path());
            command.args(["-h", "127.0.0.1", "-p"]).arg(self.port.to_string());
            for setting in SETTINGS {
                command.args(["-c", setting]);
            }
            command.stdout(log.try_clone().expect("a log")).stderr(log);
            let mut child = command.spawn().expect("postgres starts");
            while begun.elapsed() < PATIENCE && child.try_wait().expect("a child").is_none() {
                if self.is_ready() {
                    self.child = Some(child);
                    return;
                }
                std::thread::sleep(Duration::from_millis(30));
            }
            let _ = child.kill();
            let _ = child.wait();
        }
        let log = fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
        panic!("PostgreSQL does not start:\n{log}");
    }

    fn is_ready(&self) -> bool {
        TcpStream::connect(("127.0.0.1", self.port)).is_ok()
            && self
                .command("pg_isready")
                .args(["-q", "-h", "127.0.0.1", "-p", &self.port.to_string()])
                .status()
                .is_ok_and(|s| s.success())
    }

    /// Ends it at once, without a word to its clients.
    ///
    /// # Panics
    /// When there is none.
    pub fn kill(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        // SIGQUIT is its way to end at once; SIGKILL would leave shared memory behind.
        let sent = Command::new("kill").args(["-QUIT", &child.id().to_string()]).status();
        assert!(sent.is_ok_and(|s| s.success()), "PostgreSQL cannot be ended");
        child.wait().expect("PostgreSQL ends");
    }

    /// The URL of a database.
    pub fn url(&self, database: &str) -> String {
        let password = PASSWORD.replace(' ', "%20");
        format!("postgres://quiver:{password}@127.0.0.1:{}/{database}?sslmode=disable", self.port)
    }

    /// Makes a database; gives its URL.
    ///
    /// # Panics
    /// When it cannot be made.
    pub fn create(&self, database: &str) -> String {
        self.sql("postgres", &format!("CREATE DATABASE {database}"));
        self.url(database)
    }

    /// Runs a statement; gives what `psql` writes.
    ///
    /// # Panics
    /// When it fails.
    pub fn sql(&self, database: &str, sql: &str) -> String {
        let port = self.port.to_string();
        let mut command = self.command("psql");
        command.args(["-qAt", "-h", "127.0.0.1", "-p", &port, "-U", "quiver", "-d", database, "-c", sql]);
        let done = command.output().expect("psql runs");
        assert!(done.status.success(), "{sql}: {}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8_lossy(&done.stdout).trim().to_owned()
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The server over which this run of a suite is, if it is one over PostgreSQL.
pub fn given() -> Option<String> {
    std::env::var(VARIABLE).ok().filter(|url| !url.is_empty())
}

/// Makes a database for a folder, once; gives its URL.
///
/// # Panics
/// When it cannot be made.
pub fn database_of(url: &str, folder: &Path) -> String {
    let letters = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' };
    let name: String = folder.display().to_string().chars().map(letters).collect();
    // PostgreSQL cuts longer names.
    let name = format!("d{}", &name[name.len().saturating_sub(50)..]);
    let mut command = program(&programs(), "psql");
    command.args(["-qAt", "-d", url, "-c", &format!("CREATE DATABASE {name}")]);
    let done = command.output().expect("psql runs");
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success() || said.contains("already exists"), "{name}: {said}");
    url.replacen("/postgres?", &format!("/{name}?"), 1)
}

/// Runs tests of the present binary again, over PostgreSQL: those whose names hold one of `filters`, but `own`.
///
/// # Panics
/// When one of them fails.
pub fn run_again(filters: &[&str], own: &str) {
    if given().is_some() {
        return;
    }
    let server = Postgres::start();
    let mut command = Command::new(std::env::current_exe().expect("a program"));
    command.args(filters).args(["--skip", own]).env(VARIABLE, server.url("postgres"));
    let done = command.output().expect("the tests run");
    let text = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "over PostgreSQL:\n{text}\n{}", String::from_utf8_lossy(&done.stderr));
    assert!(!text.contains(" 0 passed"), "no test ran over PostgreSQL:\n{text}");
}
