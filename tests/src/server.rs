//! A real server process in a folder of its own, on ports that it picks.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use quiver_types::failpoint::VARIABLE;
use serde_json::Value;

/// Longest wait for a server to be ready, and for it to stop.
const PATIENCE: Duration = Duration::from_mins(5);
/// Longest wait for memory that ended queries still hold, and for pages that the allocator keeps in reserve.
const SETTLES_WITHIN: Duration = Duration::from_secs(30);
/// The signal of a process that a fail point ended.
const ABORTED: i32 = 6;

/// How a server is started.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// More arguments after the usual ones.
    pub args: Vec<String>,
    /// More environment.
    pub env: Vec<(String, String)>,
    /// Limits of the process, as options of the shell's `ulimit` (`-n 64`).
    pub limits: Option<String>,
    /// File that its log goes to, instead of the standard error of the test.
    pub log: Option<PathBuf>,
    /// Authority (PEM) of its certificate, where it speaks TLS.
    pub authority: Option<PathBuf>,
}

impl Options {
    /// Adds an environment variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl ToString) -> Self {
        self.env.push((name.to_owned(), value.to_string()));
        self
    }

    /// Limits the process: options of the shell's `ulimit`.
    #[must_use]
    pub fn limits(mut self, limits: &str) -> Self {
        self.limits = Some(limits.to_owned());
        self
    }

    /// Lets it speak TLS, with a certificate and key (PEM) of an authority.
    #[must_use]
    pub fn tls(mut self, certificate: &Path, key: &Path, authority: &Path) -> Self {
        self.authority = Some(authority.to_owned());
        let shown = |path: &Path| path.display().to_string();
        self.args(&["--tls-cert", &shown(certificate), "--tls-key", &shown(key)])
    }

    /// Sends its log to a file.
    #[must_use]
    pub fn log_to(mut self, file: &Path) -> Self {
        self.log = Some(file.to_owned());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args(mut self, args: &[&str]) -> Self {
        self.args.extend(args.iter().map(|a| (*a).to_owned()));
        self
    }
}

/// A running server. Killed when dropped.
#[derive(Debug)]
pub struct Server {
    child: Child,
    /// `127.0.0.1:port` of the main port.
    pub http: String,
    /// Of OTLP over HTTP.
    pub otlp_http: String,
    /// Of OTLP over gRPC.
    pub otlp_grpc: String,
    /// Of Zipkin's API; empty where it is off.
    pub zipkin: String,
    /// Of PostgreSQL's protocol; empty where it is off.
    pub postgres: String,
    scheme: &'static str,
    client: reqwest::Client,
}

/// An answer: status, headers, body.
#[derive(Debug)]
pub struct Answer {
    /// Status.
    pub status: u16,
    /// Headers.
    pub headers: reqwest::header::HeaderMap,
    /// Body.
    pub body: Vec<u8>,
}

impl Answer {
    /// Gives the body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Says whether it is a refusal because others hold the memory for now.
    pub fn has_no_room(&self) -> bool {
        self.status == 503 && self.text().contains("ask again later")
    }

    /// Gives the body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("no JSON ({e}): {}", self.text()))
    }
}

/// Finds the server's binary: that of `QUIVER_BINARY` (a release build, for figures), else the one beside the test's,
/// which `cargo test --workspace` builds too.
pub fn binary() -> PathBuf {
    if let Some(given) = std::env::var_os("QUIVER_BINARY") {
        return given.into();
    }
    let exe = std::env::current_exe().expect("a test has a path");
    let folder = exe.ancestors().find(|p| p.join("quiver").is_file());
    folder.unwrap_or_else(|| panic!("no binary `quiver` above {}; run `make test`", exe.display())).join("quiver")
}

/// Gives the folder of the installed real clients.
pub fn tools() -> PathBuf {
    let given = std::env::var_os("QUIVER_TOOLS").map(PathBuf::from);
    let beside = binary().parent().and_then(Path::parent).map(|p| p.join("tools"));
    given.or(beside).filter(|p| p.is_dir()).expect("real clients are missing; `make tools` installs them")
}

fn with_headers(mut request: reqwest::RequestBuilder, headers: &[(&str, &str)]) -> reqwest::RequestBuilder {
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request
}

/// Sends a request until it is answered: analytics tell clients to wait and ask again, which happens on a busy machine.
async fn answered(request: reqwest::RequestBuilder) -> reqwest::Result<Answer> {
    let began = Instant::now();
    loop {
        let response = request.try_clone().expect("bodies are whole").send().await?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let body = response.bytes().await?.to_vec();
        if !body.starts_with(b"{\"error\":\"Continue wait\"") {
            return Ok(Answer { status, headers, body });
        }
        assert!(began.elapsed() < Duration::from_mins(10), "no answer, only to wait for it");
    }
}

/// Asks until there is room: a query may find that those before it still hold the memory, and is told to ask again.
async fn answered_with_room(request: reqwest::RequestBuilder) -> reqwest::Result<Answer> {
    let began = Instant::now();
    loop {
        let answer = answered(request.try_clone().expect("bodies are whole")).await?;
        if !answer.has_no_room() || began.elapsed() > SETTLES_WITHIN {
            return Ok(answer);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Gives the command line of a server on ports that it picks.
pub fn command(data: &Path, options: &Options) -> Command {
    let mut command = match &options.limits {
        None => Command::new(binary()),
        Some(limits) => {
            let mut shell = Command::new("sh");
            shell.arg("-c").arg(format!("ulimit {limits}; exec \"$0\" \"$@\"")).arg(binary());
            shell
        }
    };
    command.arg("serve").arg("--data").arg(data);
    command.args(["--http", "127.0.0.1:0", "--otlp-http", "127.0.0.1:0", "--otlp-grpc", "127.0.0.1:0"]);
    if !options.args.iter().any(|a| a == "--retention") {
        command.args(["--retention", "none"]);
    }
    if !options.args.iter().any(|a| a == "--rbac") {
        command.args(["--rbac", "off"]);
    }
    if options.env.iter().any(|(name, _)| name == VARIABLE) {
        command.arg("--failpoints");
    }
    command.args(&options.args);
    over_given_database(&mut command, data);
    // Rows of the server's own use would be among those that tests count.
    command.env("QUIVER_USAGE__INTERVAL", "0s");
    command.envs(options.env.iter().map(|(k, v)| (k, v)));
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    if let Some(file) = &options.log {
        let file = std::fs::OpenOptions::new().create(true).append(true).open(file).expect("writable");
        command.stderr(file);
    }
    command
}

impl Server {
    /// Starts a server and waits until it is ready.
    pub async fn start(data: &Path, options: &Options) -> Self {
        let mut server = Self::spawn(data, options).expect("the server says where it listens");
        let began = Instant::now();
        loop {
            match server.try_get("/health/ready").await {
                Ok(answer) if answer.status == 200 => return server,
                _ => {}
            }
            if let Ok(Some(status)) = server.child.try_wait() {
                panic!("the server ended with {status} before it was ready");
            }
            assert!(began.elapsed() < PATIENCE, "the server is not ready after {PATIENCE:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Starts a server; `None`: it ended before it said where it listens.
    pub fn spawn(data: &Path, options: &Options) -> Option<Self> {
        let mut child = command(data, options).spawn().expect("the binary runs");
        let mut out = BufReader::new(child.stdout.take().expect("piped"));
        let mut line = String::new();
        out.read_line(&mut line).expect("readable");
        if line.is_empty() {
            let _ = child.wait();
            return None;
        }
        // Whatever else it prints must not fill the pipe.
        std::thread::spawn(move || std::io::copy(&mut out, &mut std::io::sink()));
        let after = |name: &str| {
            let rest = line.split(&format!("{name} ")).nth(1).unwrap_or_else(|| panic!("no {name} in {line:?}"));
            rest.split([',', '\n']).next().unwrap_or_default().trim().to_owned()
        };
        let (http, otlp_http, otlp_grpc) = (after("http"), after("otlp-http"), after("otlp-grpc"));
        let extra = |name: &str| if line.contains(&format!(", {name} ")) { after(name) } else { String::new() };
        let (zipkin, postgres) = (extra("zipkin"), extra("postgres"));
        let client = reqwest::Client::builder().timeout(Duration::from_mins(5));
        let (scheme, client) = match &options.authority {
            None => ("http", client),
            Some(path) => {
                let pem = std::fs::read(path).expect("readable");
                ("https", client.add_root_certificate(reqwest::Certificate::from_pem(&pem).expect("a certificate")))
            }
        };
        let client = client.build().expect("a client");
        Some(Self { child, http, otlp_http, otlp_grpc, zipkin, postgres, scheme, client })
    }

    /// Starts a server that its fail point ends, and waits for that: it may be gone before it is ready, or before it says
    /// where it listens.
    pub fn start_to_end(data: &Path, options: &Options) {
        if let Some(mut server) = Self::spawn(data, options) {
            let status = server.ended();
            assert_eq!(status.signal(), Some(ABORTED), "{status}");
        }
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Gives a URL on the main port.
    pub fn url(&self, path: &str) -> String {
        format!("{}://{}{path}", self.scheme, self.http)
    }

    async fn try_get(&self, path: &str) -> reqwest::Result<Answer> {
        answered(self.client.get(self.url(path))).await
    }

    /// Asks.
    pub async fn get(&self, path: &str) -> Answer {
        self.try_get(path).await.unwrap_or_else(|e| panic!("GET {path}: {e}"))
    }

    /// Asks with parameters.
    pub async fn get_with(&self, path: &str, params: &[(&str, &str)]) -> Answer {
        let request = self.client.get(self.url(path)).query(params);
        answered(request).await.unwrap_or_else(|e| panic!("GET {path}: {e}"))
    }

    /// Asks with parameters, and again while others hold the memory: where the point of a test is another.
    pub async fn ask(&self, path: &str, params: &[(&str, &str)]) -> Answer {
        let request = self.client.get(self.url(path)).query(params);
        answered_with_room(request).await.unwrap_or_else(|e| panic!("GET {path}: {e}"))
    }

    /// Posts a question, and again while others hold the memory.
    pub async fn ask_with(&self, path: &str, headers: &[(&str, &str)], body: Vec<u8>) -> Answer {
        let request = with_headers(self.client.post(self.url(path)).body(body), headers);
        answered_with_room(request).await.unwrap_or_else(|e| panic!("POST {path}: {e}"))
    }

    /// Asks with headers.
    pub async fn get_as(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        let request = with_headers(self.client.get(self.url(path)), headers);
        answered(request).await.unwrap_or_else(|e| panic!("GET {path}: {e}"))
    }

    /// Posts a body.
    pub async fn post(&self, path: &str, headers: &[(&str, &str)], body: Vec<u8>) -> Answer {
        self.try_post(path, headers, body).await.unwrap_or_else(|e| panic!("POST {path}: {e}"))
    }

    /// Posts a body; an error when the connection broke.
    ///
    /// # Errors
    /// The connection broke.
    pub async fn try_post(&self, path: &str, headers: &[(&str, &str)], body: Vec<u8>) -> reqwest::Result<Answer> {
        answered(with_headers(self.client.post(self.url(path)).body(body), headers)).await
    }

    /// Sends a request of any method.
    pub async fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: Vec<u8>) -> Answer {
        let method = method.parse().expect("a method");
        let request = with_headers(self.client.request(method, self.url(path)).body(body), headers);
        answered(request).await.unwrap_or_else(|e| panic!("{path}: {e}"))
    }

    /// Asks it to read its settings anew.
    pub fn hangup(&self) {
        let _ = Command::new("kill").args(["-HUP", &self.pid().to_string()]).status();
    }

    /// Writes a remote-write 1.0 body; must be taken, if not at once. Equal samples are stored once.
    pub async fn write(&self, body: Vec<u8>) {
        let began = Instant::now();
        loop {
            let answer = self.post("/metrics-api/api/v1/write", &[], body.clone()).await;
            if !matches!(answer.status, 429 | 503) || began.elapsed() > SETTLES_WITHIN {
                assert_eq!(answer.status, 204, "{}", answer.text());
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Evaluates at a time; gives `data`.
    pub async fn query(&self, query: &str, time_s: f64) -> Value {
        let answer = self.ask("/metrics-api/api/v1/query", &[("query", query), ("time", &time_s.to_string())]).await;
        assert_eq!(answer.status, 200, "{query}: {}", answer.text());
        answer.json()["data"].clone()
    }

    /// Evaluates over a range; gives `data`.
    pub async fn query_range(&self, query: &str, start_s: f64, end_s: f64, step_s: f64) -> Value {
        let (start, end, step) = (start_s.to_string(), end_s.to_string(), step_s.to_string());
        let params = [("query", query), ("start", &start), ("end", &end), ("step", &step)];
        let answer = self.ask("/metrics-api/api/v1/query_range", &params).await;
        assert_eq!(answer.status, 200, "{query}: {}", answer.text());
        answer.json()["data"].clone()
    }

    /// Flushes everything.
    pub async fn flush(&self) {
        let answer = self.post("/admin/flush", &[], vec![]).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }

    /// Compacts everything; ten millions of streams take minutes.
    pub async fn compact(&self) {
        let request = self.client.post(self.url("/admin/compact?force=true")).timeout(Duration::from_mins(30));
        let answer = answered(request).await.unwrap_or_else(|e| panic!("compaction: {e}"));
        assert_eq!(answer.status, 200, "{}", answer.text());
    }

    /// Resident memory in bytes.
    pub fn rss_bytes(&self) -> u64 {
        self.status_bytes("VmRSS:")
    }

    /// The most memory that the process ever had in RAM.
    pub fn peak_bytes(&self) -> u64 {
        self.status_bytes("VmHWM:")
    }

    /// Pages of files among what it has in RAM: nearly all of them those of the executable, which are the kernel's to drop, and
    /// of a debug build four times as many as of the one that is shipped.
    pub fn file_bytes(&self) -> u64 {
        self.status_bytes("RssFile:")
    }

    /// What it has in RAM of its own: without pages of files, which come while it does something for the first time.
    pub fn held_bytes(&self) -> u64 {
        self.rss_bytes().saturating_sub(self.file_bytes())
    }

    /// Resident memory as the build that is shipped would have it: a debug build has four times the pages of the
    /// executable, and how many of them are there is the kernel's affair.
    pub fn shipped_rss_bytes(&self) -> u64 {
        self.held_bytes() + self.file_bytes() / if cfg!(debug_assertions) { 4 } else { 1 }
    }

    /// How much more than `before` it has in RAM of its own. What is beyond `bound` may be pages that the allocator keeps
    /// for a moment, so it has time to come down.
    pub async fn grown_since(&self, before: u64, bound: u64) -> u64 {
        let began = Instant::now();
        loop {
            let grown = self.held_bytes().saturating_sub(before);
            if grown <= bound || began.elapsed() > SETTLES_WITHIN {
                return grown;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// The most that it had in RAM of its own.
    pub fn peak_held_bytes(&self) -> u64 {
        self.peak_bytes().saturating_sub(self.file_bytes())
    }

    /// Lets [`Self::peak_bytes`] begin anew.
    pub fn forget_peak(&self) {
        std::fs::write(format!("/proc/{}/clear_refs", self.pid()), "5").expect("a process of ours");
    }

    /// Processor time that it spent so far.
    pub fn cpu(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).expect("it lives");
        let after_name = stat.rsplit(')').next().expect("a name in brackets");
        let times = after_name.split_whitespace().skip(11).take(2);
        let ticks: u64 = times.map(|t| t.parse::<u64>().expect("a number")).sum();
        // 100 a second on every Linux.
        Duration::from_millis(ticks * 10)
    }

    fn status_bytes(&self, line: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap_or_default();
        let line = status.lines().find_map(|l| l.strip_prefix(line)).unwrap_or("0");
        line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap_or(0) * 1024
    }

    /// Ends it without a word, as a crash would.
    pub fn kill(mut self) {
        self.child.kill().expect("ours to kill");
        let _ = self.child.wait();
    }

    /// Waits for its end; gives the exit code (`None`: a signal).
    pub fn wait(&mut self) -> Option<i32> {
        self.ended().code()
    }

    /// Waits for its end.
    pub fn ended(&mut self) -> ExitStatus {
        let began = Instant::now();
        aside(|| {
            loop {
                if let Some(status) = self.child.try_wait().expect("ours to wait for") {
                    return status;
                }
                assert!(began.elapsed() < PATIENCE, "the server does not end");
                std::thread::sleep(Duration::from_millis(10));
            }
        })
    }

    /// Says whether it still runs.
    pub fn runs(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Asks it to stop.
    pub fn terminate(&self) {
        self.signal("TERM");
    }

    /// Sends a signal, by its name.
    pub fn signal(&self, name: &str) {
        let _ = Command::new("kill").args([&format!("-{name}"), &self.pid().to_string()]).status();
    }

    /// Stops all of its threads where they are (SIGSTOP), system calls under way ended; returns when they stand, or when
    /// it has ended. Signal `CONT` lets it go on.
    pub fn hold(&mut self) {
        self.signal("STOP");
        let began = Instant::now();
        while self.runs() && !self.stands() {
            assert!(began.elapsed() < PATIENCE, "the server does not stand still");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn stands(&self) -> bool {
        let Ok(threads) = std::fs::read_dir(format!("/proc/{}/task", self.pid())) else { return true };
        threads.flatten().all(|thread| {
            // A thread that has ended meanwhile changes nothing.
            let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
            stat.rsplit(')')
                .next()
                .is_none_or(|rest| matches!(rest.trim_start().chars().next(), None | Some('T' | 'Z' | 'X')))
        })
    }

    /// Asks it to stop and waits; gives the exit code.
    pub fn stop(mut self) -> Option<i32> {
        self.terminate();
        self.wait()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.runs() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// A suite that runs over PostgreSQL has a database for each data directory; each program over one must be told.
pub fn over_given_database(command: &mut Command, data: &Path) {
    if let Some(url) = quiver_testpg::given() {
        command.env("QUIVER_CONFIG__DATABASE_URL", quiver_testpg::database_of(&url, data));
    }
}

/// Waits for a process without holding up the tasks of this thread: the process may be waiting for one of them, which is
/// the S3 server.
fn aside<T>(wait: impl FnOnce() -> T) -> T {
    let runtime = tokio::runtime::Handle::try_current().map(|handle| handle.runtime_flavor());
    match runtime {
        Ok(tokio::runtime::RuntimeFlavor::MultiThread) => tokio::task::block_in_place(wait),
        _ => wait(),
    }
}

/// Runs a command to its end; gives code, standard output, standard error.
pub fn run(command: &mut Command) -> (Option<i32>, String, String) {
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
    let mut stderr = child.stderr.take().expect("piped");
    let errors = std::thread::spawn(move || {
        let mut text = String::new();
        let _ = stderr.read_to_string(&mut text);
        text
    });
    let output = aside(|| child.wait_with_output()).expect("it ends");
    let errors = errors.join().unwrap_or_default();
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned(), errors)
}
