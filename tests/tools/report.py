#!/usr/bin/env python3
"""Runs a `cargo test` command, passes on all that it prints, and ends with a summary: how many tests passed, and what failed, why.

    tests/tools/report.py cargo test --workspace --no-fail-fast --tests

Servers under test write many lines between those of the tests, so a failure that is not said again at the end is hard to find. Ends
with cargo's own exit code.
"""

import re
import subprocess
import sys
import threading
import time

TARGET = re.compile(r"^\s+Running (?:unittests )?(\S+) \((\S+?)\)")
RESULT = re.compile(r"^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored")
COUNTS = re.compile(r"^\w+: (\d+) passed, (\d+) failed(?:, (\d+) (?:skipped|known failures))?")
# What says that something is wrong: a test of cargo's runner, a case of a runner of ours, a panic, an error of the compiler.
FAULT = re.compile(r"^test .* \.\.\. FAILED|^FAILED|^PASSES|^SKIPS (?:GREW|SHRANK)|^CONFORMANCE DATA IS MISSING|^error[:\[]|^thread '.*' .*panicked at|^---- .* ----$")
# Cargo's own list of what failed, its last words. Where it goes on behind a failure, `error: test failed` stands before further targets.
FAILED_TARGETS = re.compile(r"^error: \d+ targets? failed")
# A test that failed, whatever a server wrote into the line that says so first.
FAILED_TEST = re.compile(r"^---- (.*) std(?:out|err) ----$")
# Lines that are told of one target, and of those that follow a panic (its message stands there).
MOST, BEHIND = 30, 2


class Target:
    """One test binary: its name, counts, and the lines that may explain a failure."""

    def __init__(self, source, binary):
        self.name = f"{re.sub(r'-[0-9a-f]{16}$', '', binary.rsplit('/', 1)[-1])} ({source})"
        self.started, self.seconds = time.monotonic(), 0.0
        self.passed = self.failed = self.ignored = 0
        self.complete = False
        self.faults, self.behind, self.tests = [], 0, []

    def take(self, line):
        """Counts a line of this target's output."""
        counts = RESULT.match(line)
        if counts or COUNTS.match(line):
            passed, failed, ignored = ((counts or COUNTS.match(line)).groups("0"))
            self.passed, self.failed, self.ignored = self.passed + int(passed), self.failed + int(failed), self.ignored + int(ignored)
            self.complete = True
        test = FAILED_TEST.match(line.rstrip())
        if test:
            self.tests.append(test.group(1))
        if FAULT.match(line):
            self.behind = BEHIND + 1
        if self.behind > 0:
            self.behind -= 1
            if line.strip():
                self.faults.append(line.rstrip()[:400])


def follow(lines, targets, ends):
    """Passes lines on and gives each to the target that prints; what precedes all targets is the build's."""
    for raw in lines:
        sys.stdout.buffer.write(raw)
        sys.stdout.buffer.flush()
        line = raw.decode("utf-8", "replace")
        found = TARGET.match(line)
        if found:
            targets[-1].seconds = time.monotonic() - targets[-1].started
            targets.append(Target(*found.groups()))
        elif FAILED_TARGETS.match(line) or ends:
            # The rest is cargo's own list of what failed.
            ends.append(line.rstrip())
        else:
            targets[-1].take(line)
    targets[-1].seconds = time.monotonic() - targets[-1].started


def summary(targets, ends, code):
    """The last lines: each target that took part, then what failed."""
    print("\nsummary")
    for target in targets[1:]:
        print(f"  {target.passed:6} passed {target.failed:4} failed {target.ignored:3} ignored {target.seconds:6.0f} s  {target.name}")
    failed = " ".join(ends)
    for target in targets:
        word = f"--test {target.name.split(' ')[0]}`"
        # The source tells integration tests from the tests beside the code of a library, whose flag is `--lib` or `--bin`.
        told = word in failed or target.failed > 0 or not (target.complete or target is targets[0])
        if code != 0 and target.faults and (told or target is targets[0]):
            print(f"\nwhat failed in {target.name}, its last {min(MOST, len(target.faults))} lines that say so")
            print("\n".join(f"  {line}" for line in target.faults[-MOST:]))
    for target in targets:
        for test in target.tests:
            print(f"\nfailed: {test} of {target.name}", end="")
    total = [sum(getattr(t, name) for t in targets) for name in ("passed", "failed", "ignored")]
    if ends:
        print("\n\n" + "\n".join(ends))
    print(f"\n{'all is well' if code == 0 else 'FAILED'}: {total[0]} passed, {total[1]} failed, {total[2]} ignored (cargo's exit code: {code})")


def main():
    process = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    targets, ends = [Target("before the tests", "build")], []
    reader = threading.Thread(target=follow, args=(process.stdout, targets, ends), daemon=True)
    reader.start()
    try:
        code = process.wait()
    except KeyboardInterrupt:
        return 130
    # A server that outlives its test would hold the pipe open.
    reader.join(10)
    summary(targets, ends, code)
    return code


if __name__ == "__main__":
    sys.exit(main())
