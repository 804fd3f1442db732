#!/usr/bin/env python3
"""Builds the tests of a `cargo test` command, runs the test binaries two at once, and ends with a summary: how many tests passed,
and what failed, why.

    tests/tools/run.py cargo test --workspace --no-fail-fast --tests

Cargo runs one binary after the other, and many tests wait (for a server, for time to pass), so that half of a machine would be idle.
What a binary prints is passed on as a whole when it ends. Servers under test write many lines between those of the tests, so a failure
that is not said again at the end is hard to find. Ends with 0 when all tests passed, else with 101 as cargo does.
"""

import json
import os
import queue
import re
import subprocess
import sys
import threading
import time

RESULT = re.compile(r"^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored")
COUNTS = re.compile(r"^\w+: (\d+) passed, (\d+) failed(?:, (\d+) (?:skipped|known failures))?")
# What says that something is wrong: a test of cargo's runner, a case of a runner of ours, a panic.
FAULT = re.compile(r"^test .* \.\.\. FAILED|^FAILED|^PASSES|^SKIPS (?:GREW|SHRANK)|^CONFORMANCE DATA IS MISSING|^thread '.*' .*panicked at|^---- .* ----$")
# A test that failed, whatever a server wrote into the line that says so first.
FAILED_TEST = re.compile(r"^---- (.*) std(?:out|err) ----$")
PASSED_TEST = re.compile(r"^test .* \.\.\. ok$")
# What a test leaves out, be it in the line that names the test.
LEFT_OUT = re.compile(r"(?:^|\.\.\. )(?:SKIPPED|CONFORMANCE DATA IS MISSING): (.*)")
# Lines that are told of one binary, and of those that follow a panic (its message stands there).
MOST, BEHIND = 30, 2
# Those that take longest begin first, so that none of them runs alone at the end.
LONGEST = ["e2e", "conformance", "crash", "quiver_config", "clients", "fuzz", "quiver_store", "quiver_database"]
AT_ONCE = 2
# How often a word is said of what runs.
WORD_S = 60


class Target:
    """One test binary: its name, counts, and the lines that may explain a failure."""

    def __init__(self, artifact):
        self.binary, self.folder = artifact["executable"], os.path.dirname(artifact["manifest_path"])
        self.crate = artifact["target"]["name"].replace("-", "_")
        source = os.path.relpath(artifact["target"]["src_path"], os.getcwd())
        self.name = f"{self.crate} ({source})"
        self.seconds, self.seen, self.code = 0.0, 0, None
        self.passed = self.failed = self.ignored = 0
        self.faults, self.behind, self.tests, self.lines, self.left_out = [], 0, [], [], []

    def rank(self):
        """Where it stands in the order of runs."""
        return LONGEST.index(self.crate) if self.crate in LONGEST else len(LONGEST), self.name

    def take(self, line):
        """Counts a line of this binary's output."""
        self.seen += bool(PASSED_TEST.match(line))
        counts = RESULT.match(line) or COUNTS.match(line)
        if counts:
            passed, failed, ignored = counts.groups("0")
            self.passed, self.failed, self.ignored = self.passed + int(passed), self.failed + int(failed), self.ignored + int(ignored)
        test = FAILED_TEST.match(line.rstrip())
        if test:
            self.tests.append(test.group(1))
        left_out = LEFT_OUT.search(line.rstrip())
        if left_out and left_out.group(1) not in self.left_out:
            self.left_out.append(left_out.group(1))
        if FAULT.match(line):
            self.behind = BEHIND + 1
        if self.behind > 0:
            self.behind -= 1
            if line.strip():
                self.faults.append(line.rstrip()[:400])

    def run(self):
        """Runs it where cargo would, and keeps what it prints."""
        started = time.monotonic()
        environment = dict(os.environ, CARGO_MANIFEST_DIR=self.folder)
        process = subprocess.Popen([self.binary], cwd=self.folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT)
        reader = threading.Thread(target=self.follow, args=(process.stdout,), daemon=True)
        reader.start()
        self.code = process.wait()
        # A server that outlives its test would hold the pipe open.
        reader.join(10)
        self.seconds = time.monotonic() - started

    def follow(self, output):
        """Keeps and counts lines until the output ends."""
        for raw in output:
            self.lines.append(raw)
            self.take(raw.decode("utf-8", "replace"))


def build(command):
    """Builds, with cargo's own words on the way; gives the test binaries, or nothing and cargo's exit code."""
    asked = [*command, "--no-run", "--message-format=json-render-diagnostics"]
    process = subprocess.Popen(asked, stdout=subprocess.PIPE)
    targets = []
    for line in process.stdout:
        said = json.loads(line) if line.startswith(b"{") else {}
        if said.get("reason") == "compiler-artifact" and said["profile"]["test"] and said.get("executable"):
            targets.append(Target(said))
    return sorted(targets, key=Target.rank), process.wait()


def run(targets):
    """Runs binaries, some at once, and prints what each of them printed when it ends."""
    waiting, running, printing = queue.SimpleQueue(), [], threading.Lock()
    for target in targets:
        waiting.put(target)

    def work():
        while True:
            try:
                target = waiting.get_nowait()
            except queue.Empty:
                return
            running.append(target)
            target.run()
            with printing:
                running.remove(target)
                print(f"\n     Running {target.name} took {target.seconds:.0f} s", flush=True)
                sys.stdout.buffer.write(b"".join(target.lines))
                sys.stdout.buffer.flush()

    workers = [threading.Thread(target=work, daemon=True) for _ in range(AT_ONCE)]
    for worker in workers:
        worker.start()
    for worker in workers:
        while worker.is_alive():
            worker.join(WORD_S)
            with printing:
                now = ", ".join(f"{target.crate}, {target.seen} tests passed" for target in running)
                if now:
                    print(f"     running: {now}; {waiting.qsize()} more wait", flush=True)


def summary(targets):
    """The last lines: each binary, then what failed. Says whether nothing did."""
    print("\nsummary")
    for target in targets:
        print(f"  {target.passed:6} passed {target.failed:4} failed {target.ignored:3} ignored {target.seconds:6.0f} s  {target.name}")
    for target in targets:
        for what in target.left_out:
            print(f"  not tested in {target.name}: {what}")
    bad = [target for target in targets if target.code != 0]
    for target in bad:
        print(f"\nwhat failed in {target.name} (exit code {target.code}), its last {min(MOST, len(target.faults))} lines that say so")
        print("\n".join(f"  {line}" for line in target.faults[-MOST:]))
    for target in bad:
        for test in target.tests:
            print(f"\nfailed: {test} of {target.name}", end="")
    total = [sum(getattr(t, name) for t in targets) for name in ("passed", "failed", "ignored")]
    well = not bad and total[0] > 0
    print(f"\n{'all is well' if well else 'FAILED'}: {total[0]} passed, {total[1]} failed, {total[2]} ignored, in {len(targets)} binaries")
    return well


def main():
    targets, code = build(sys.argv[1:])
    if code != 0:
        print(f"\nFAILED: the tests do not build (cargo's exit code: {code}); cargo's words above say why")
        return code
    try:
        run(targets)
    except KeyboardInterrupt:
        return 130
    return 0 if summary(targets) else 101


if __name__ == "__main__":
    sys.exit(main())
