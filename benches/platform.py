#!/usr/bin/env python3
"""Figures of the platform: configuration, access, analytics, alerting, each beside its goal.

    QUIVER_BIN=target/release/quiver python3 benches/platform.py
    QUIVER_BIN=target/release/quiver python3 benches/platform.py --only graph --only meta --json figures.json

Each figure starts servers of its own on loopback, with data directories that are removed afterwards. Times are the client's, over one
kept-alive connection; CPU is what all threads of the server used, by Linux' clock of that process. Python's own library is enough.
"""

import argparse
import contextlib
import http.client
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import typing
from urllib.parse import quote, urlencode

from platform_data import alert_groups, chunks, detection_rules, extraction_rules, log_bodies, span_bodies

PASSWORD = "measured-by-the-bench"
# What runs at times of its own would fall into one of two compared runs and not into the other.
QUIET = {"QUIVER_COMPACTION__ENABLED": "false", "QUIVER_RESOURCES__DISCOVERY_INTERVAL": "0s"}


class Row(typing.NamedTuple):
    """A figure: `limit` is the goal, None where there is none."""

    figure: str
    value: float
    unit: str
    limit: float | None
    note: str = ""

    def measured(self):
        return f"{self.value:.4g} {self.unit}".strip() + (f" ({self.note})" if self.note else "")

    def goal(self):
        return "" if self.limit is None else f"≤ {self.limit:g} {self.unit}".strip()


class Server:
    """A server of its own, and one kept-alive connection to it."""

    def __init__(self, rbac="off", args=(), env=()):
        self.data = tempfile.mkdtemp(prefix="quiver-figures-")
        self.log = open(os.path.join(self.data, "log"), "w+")
        ports = [word for name in ("http", "otlp-http", "otlp-grpc") for word in (f"--{name}", "127.0.0.1:0")]
        command = [os.environ["QUIVER_BIN"], "serve", "--data", os.path.join(self.data, "data"), *ports, "--rbac", rbac, *args]
        env = os.environ | {"QUIVER_ADMIN_PASSWORD": PASSWORD, "QUIVER_QUERY__RESULT_CACHE": "0"} | dict(env)
        self.process = subprocess.Popen(command, stdout=self.log, stderr=subprocess.STDOUT, env=env)
        try:
            until(lambda: self.address() or self.process.poll() is not None, 60)
            if not self.address():
                raise RuntimeError("the server ended before it listened")
            self.host, self.port = self.address()
            self.connection = http.client.HTTPConnection(self.host, self.port, timeout=600)
            until(lambda: self.ask("GET", "/health/ready")[0] == 200, 60)
        except BaseException:
            sys.stderr.write(self.written())
            self.stop()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()
        shutil.rmtree(self.data, ignore_errors=True)

    def written(self):
        return pathlib.Path(self.log.name).read_text()

    def address(self):
        found = re.search(r"quiver listens: http ([0-9.]+):(\d+)", self.written())
        return found and (found[1], int(found[2]))

    def ask(self, method, path, body=None, headers=()):
        """Status, headers and body of an answer."""
        self.connection.request(method, path, body, dict(headers))
        answer = self.connection.getresponse()
        return answer.status, answer.headers, answer.read()

    def done(self, method, path, body=None, headers=()):
        """The body of an answer that must be a success; one that is no text is sent as JSON, and JSON is read."""
        if not isinstance(body, (str, bytes, type(None))):
            body, headers = json.dumps(body), {"Content-Type": "application/json"} | dict(headers)
        status, told, answer = self.ask(method, path, body, headers)
        if status >= 300:
            raise RuntimeError(f"{method} {path}: {status} {answer[:500].decode(errors='replace')}")
        return json.loads(answer) if answer and told.get_content_type() == "application/json" else answer

    def got(self, path):
        """Asks, and leaves the body unread: what a client does with it is no time of the server's."""
        status, _, body = self.ask("GET", path)
        if status != 200:
            raise RuntimeError(f"GET {path}: {status} {body[:500].decode(errors='replace')}")

    def cpu(self):
        """CPU seconds of the process so far: /proc/PID/stat has the same in hundredths."""
        return time.clock_gettime((~self.process.pid << 3) | 2)

    def metrics(self):
        lines = self.done("GET", "/metrics", headers=getattr(self, "admin", {})).decode().splitlines()
        return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if line and line[0] != "#")}

    def login(self, **form):
        """The headers of who logs in."""
        kind = {"Content-Type": "application/x-www-form-urlencoded"}
        return bearer(self.done("POST", "/realms/platform/protocol/openid-connect/token", urlencode(form), kind)["access_token"])


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


def until(true, seconds):
    """Waits until something is so; says how long it took."""
    began = time.perf_counter()
    while not true():
        if time.perf_counter() - began > seconds:
            raise TimeoutError(f"not so after {seconds} s")
        time.sleep(0.02)
    return time.perf_counter() - began


def timed(run, times, warm=3):
    """Milliseconds of each of some runs, `run` being told their numbers."""
    taken = []
    for n in range(times + warm):
        began = time.perf_counter()
        run(n)
        taken.append((time.perf_counter() - began) * 1e3)
    return taken[warm:]


def p95(values):
    return sorted(values)[int(len(values) * 0.95)]


def say(text):
    print(f"# {text}", file=sys.stderr, flush=True)


def filled(server, path, items):
    """Puts entities, as many at once as one request takes; gives their ids."""
    return [item["id"] for some in chunks(items, 10_000) for item in server.done("PUT", path, {"items": some})["items"]]


def hosts(server, count):
    kind = server.done("GET", "/platform-api/resource-types?key=host")["items"][0]["id"]
    items = [{"typeId": kind, "displayName": f"Host {n}", "attributes": {"host.name": f"web-{n:06}"}, "tags": ["bench", f"rack-{n % 50}"]} for n in range(count)]
    return filled(server, "/platform-api/resources", items)


def over(stack, database):
    """The environment of a server over a PostgreSQL, if one is given: those that share it share a key."""
    if not database:
        return {}
    folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
    (folder / "key").write_bytes(os.urandom(32))
    (folder / "key").chmod(0o600)
    return {"QUIVER_CONFIG__DATABASE_URL": database, "QUIVER_MASTER_KEY_FILE": str(folder / "key")}


def entities(size, database):
    """Lists 1,000 of 100,000 entities: pages of several orders and filters, over SQLite or the PostgreSQL that is given."""
    count, where = size(100_000), "PostgreSQL" if database else "SQLite"
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(Server(env=QUIET | over(stack, database)))
        began = time.perf_counter()
        hosts(server, count)
        filling, path = time.perf_counter() - began, "/platform-api/resources?limit=1000"
        cursor = ""
        for _ in range(min(50, count // 2000)):
            cursor = "&cursor=" + server.done("GET", path + cursor)["nextCursor"]
        for name, more in (
            ("first page", ""),
            ("a page in the middle", cursor),
            ("with their number", "&count=true"),
            ("newest first", "&sort=-updatedAt"),
            ("filtered", "&filter=" + quote('key co "9"')),
            ("sorted by two fields", "&sort=state,-displayName"),
            ("by a part of a tag", "&filter=" + quote('tags co "ack-7"')),
            ("by an attribute", "&filter=" + quote('attributes.host.name sw "web-00"')),
        ):
            taken = timed(lambda _: server.got(path + more), 30)
            note = f"{where}, median of 30, p95 {p95(taken):.1f}; filled in {filling:.1f} s"
            yield Row(f"list of 1,000 of {count:,} entities, {name}", statistics.median(taken), "ms", 20, note)
        few = {"by an attribute": 'attributes.host.name sw "web-00077"', "by version": "version gt 1"}
        for name, text in few.items():
            asked = "/platform-api/resources?count=true&filter=" + quote(text)
            total = server.done("GET", asked)["total"]
            taken = timed(lambda _: server.done("GET", asked), 30)
            yield Row(f"few of {count:,} entities, {name}", statistics.median(taken), "ms", None, f"{where}, {total} found, p95 {p95(taken):.1f}")


def graph(size):
    """Random graph with cycles, five edges a node, three steps from thirty nodes."""
    count, chance = size(10_000), random.Random(3)
    with Server(env=QUIET) as server:
        ids = hosts(server, count)
        kind = server.done("GET", "/platform-api/relationship-types?key=depends_on")["items"][0]["id"]
        pairs = sorted({(a, b) for a, b in (chance.sample(range(count), 2) for _ in range(count * 5))})
        edges = [{"typeId": kind, "sourceId": ids[a], "targetId": ids[b]} for a, b in pairs]
        filled(server, "/platform-api/resource-relationships", edges)
        for what, query in (
            ("dependency-graph", "direction=downstream&limit=500"),
            ("dependency-graph", "direction=both&limit=500"),
            ("dependency-graph", "direction=both&limit=5000"),
            ("neighbours", "direction=both&limit=2000"),
        ):
            shown = []
            look = lambda n: shown.append(len(server.done("GET", f"/platform-api/resources/{ids[n * 7]}/{what}?depth=3&{query}")["nodes"]))
            taken = timed(look, 30)
            note = f"p95 of 30, median {statistics.median(taken):.1f}; {max(shown)} nodes shown"
            yield Row(f"graph of {count:,} nodes and {len(edges):,} edges, depth 3, {what} {query}", p95(taken), "ms", 100, note)


def ingest_cost(bodies, path, kind, rules_path, rules, rounds, others=None):
    """CPU of the same requests and their flush without and with rules, by fresh servers in turn; of `others` with them, if given."""
    spent, flushing, health = {0: [], 1: []}, {}, []
    for turn in range(rounds * 2):
        with Server(env=QUIET) as server:
            ids = filled(server, rules_path, rules) if rules and turn % 2 else []
            time.sleep(1.5)  # What was changed acts within a second.
            before = server.cpu()
            for body in (others or bodies) if turn % 2 else bodies:
                server.done("POST", path, body, {"Content-Type": kind})
            sent = server.cpu()
            server.done("POST", "/admin/flush")
            spent[turn % 2].append(server.cpu() - before)
            flushing[turn % 2] = server.cpu() - sent
            if turn % 2 and "extraction" in rules_path:
                states = [server.done("GET", f"{rules_path}/{id}/stats") for id in ids]
                health = [sum(s["matched"] for s in states), sum(s["health"] != "ok" for s in states)]
            elif turn % 2:
                query = 'SELECT count("attributes.bt.name") AS n FROM quiver.spans'
                health = server.done("GET", "/sql-api/v1/query?query=" + quote(query))["rows"][0]
        say(f"{'with' if turn % 2 else 'without'}: {spent[turn % 2][-1]:.2f} s CPU")
    without, with_them = (statistics.median(spent[n]) for n in (0, 1))
    note = f"{without:.2f} s CPU without, {with_them:.2f} s with, median of {rounds}; flush {flushing[0]:.2f} and {flushing[1]:.2f} s of them"
    note += "; the pairs: " + ", ".join(f"{(b / a - 1) * 100:.0f}" for a, b in zip(*spent.values())) + " %"
    return (with_them / without - 1) * 100, note, health


def as_stored(bodies, path, kind, rules_path, rules):
    """The same lines with what rules take out of them, as if their sender had known it."""
    with Server(env=QUIET) as server:
        filled(server, rules_path, rules)
        time.sleep(1.5)
        for body in bodies:
            server.done("POST", path, body, {"Content-Type": kind})
        stored = server.done("GET", "/logs-api/select/logsql/query?query=" + quote("*"))
    lines = sorted((json.loads(line) for line in stored.splitlines()), key=lambda line: line["_time"])
    kept = ({name: value for name, value in line.items() if name not in ("_stream", "_stream_id")} for line in lines)
    return ["\n".join(part).encode() for part in chunks([json.dumps(line) for line in kept], 5000)]


def extraction(size):
    """200 rules over JSON lines, flush included, by how much they find; and the same fields where the sender knows them."""
    count, rules, where = size(300_000), list(extraction_rules(200)), "/platform-api/data-extraction-rules"
    path, kind = "/insert/jsonline?_stream_fields=service", "application/stream+json"
    for telling in (0.04, 0.2, 1):
        bodies = log_bodies(count, telling)
        more, note, (matched, suspended) = ingest_cost(bodies, path, kind, where, rules, size.rounds)
        found = f"{matched / count:.2f} matches a line"
        yield Row(f"200 extraction rules, ingest of {count:,} log lines, {found}: more CPU", more, "%", 20, f"{note}; {suspended} rules suspended")
        # What is taken out must be stored: the same fields, sent, are the least that rules can cost.
        known = as_stored(bodies, path, kind, where, rules)
        more, note, _ = ingest_cost(bodies, path, kind, where, [], size.rounds, known)
        yield Row("no rules, the same lines with what those take out in them: more CPU", more, "%", None, note)


def detection(size):
    """50 rules over OTLP spans, flush included."""
    count, rules = size(300_000), list(detection_rules(50))
    more, note, (named,) = ingest_cost(span_bodies(count), "/v1/traces", "application/x-protobuf", "/bt-detection-rules", rules, size.rounds)
    yield Row(f"50 detection rules, ingest of {count:,} spans: more CPU", more, "%", 10, f"{note}; {named:,} spans named")


def account(server, name, role):
    """A service account with a role: its binding, and headers with a token and with a key."""
    rbac = "/platform-api/rbac"
    made = server.done("POST", f"{rbac}/service-accounts", {"clientId": name}, server.admin)
    key = server.done("POST", f"{rbac}/service-accounts/{made['id']}/keys", {"name": name}, server.admin)["key"]
    binding = bound(server, made["id"], role)
    return made["id"], binding, server.login(grant_type="client_credentials", client_id=name, client_secret=made["secret"]), bearer(key)


def bound(server, account, role):
    roles = server.done("GET", f"/platform-api/rbac/roles?name={role}", headers=server.admin)["items"]
    binding = {"subject": {"type": "serviceAccount", "id": account}, "roleId": roles[0]["id"]}
    return server.done("POST", "/platform-api/rbac/bindings", binding, server.admin)["id"]


def with_access(**env):
    server = Server("on", env=QUIET | {"QUIVER_RBAC__KEY_REQUESTS_PER_SECOND": "0"} | env)
    server.admin = server.login(grant_type="password", client_id="ui", username="admin", password=PASSWORD)
    return server


def pairs(size):
    """Servers without and with access control, three times: one process may be a tenth quicker than its twin for all its life."""
    for _ in range(size.rounds):
        with Server(env=QUIET) as off, with_access() as on:
            yield off, on


def in_turn(ways, request, each, turns):
    """CPU of each of some ways to send a request, µs: (server, headers) by name, `turns` times each one after the other."""
    spent = {way: [] for way in ways}
    for turn in range(turns + 2):
        for way, (server, headers) in ways.items():
            some = headers() if callable(headers) else [headers] * each
            # The server was idle while others had their turn: it wakes up before it is measured.
            for header in some[: each // 4]:
                server.ask(*request, {} if way == "new" else header)
            before = server.cpu()
            for header in some:
                server.done(*request, header)
            if turn > 1:
                spent[way].append((server.cpu() - before) / each * 1e6)
    return spent


def access(size):
    """CPU that access control adds to a request: a cheap one, a small query, an ingest request of 1,000 lines."""
    lines, spent = b"\n".join(log_bodies(1000)), {}
    query = "/metrics-api/api/v1/query?query=sum(up)&time=" + str(int(time.time()) + 1)
    requests = (
        ("a cheap request", ("GET", "/metrics-api/api/v1/status/buildinfo", None), 200, "µs CPU", 5),
        ("a small query", ("GET", query, None), 100, "µs CPU", 100),
        ("an ingest request of 1,000 lines", ("POST", "/insert/jsonline?_stream_fields=service", lines), 8, "%", 1),
    )
    for off, on in pairs(size):
        _, _, token, key = account(on, "agent", "admin")
        for server, headers in (off, {}), (on, token):
            server.done("POST", "/metrics-api/api/v1/import/prometheus", "".join(f'up{{service="s{n}"}} 1\n' for n in range(20)), headers)
        ways = {"none": (off, {}), "token": (on, token), "key": (on, key)}
        for name, request, each, _, _ in requests:
            for way, taken in in_turn(ways, request, each, max(4, size(20))).items():
                spent.setdefault((name, way), []).append(statistics.median(taken))
    for name, _, _, unit, limit in requests:
        base = statistics.mean(spent[name, "none"])
        for way in "token", "key":
            more = statistics.mean(spent[name, way]) - base
            note = f"{base:.1f} µs CPU without access control, {min(spent[name, 'none']):.1f} to {max(spent[name, 'none']):.1f} by process"
            yield Row(f"{name} with a {way}: more", more / base * 100 if unit == "%" else more, unit, limit, note)


def tokens(size):
    """CPU that the check of a token adds to a cheap request: of one that was seen before, and of one that was not."""
    each, request, spent = 100, ("GET", "/metrics-api/api/v1/status/buildinfo", None), {"none": [], "new": [], "seen": []}
    for off, on in pairs(size):
        made = on.done("POST", "/platform-api/rbac/service-accounts", {"clientId": "agent"}, on.admin)
        bound(on, made["id"], "admin")
        login = lambda: on.login(grant_type="client_credentials", client_id="agent", client_secret=made["secret"])
        ways = {"none": (off, {}), "new": (on, lambda: [login() for _ in range(each)]), "seen": (on, login())}
        for way, taken in in_turn(ways, request, each, max(4, size(20))).items():
            spent[way].append(statistics.median(taken))
    base = statistics.mean(spent["none"])
    note = f"{base:.1f} µs CPU without access control, {min(spent['none']):.1f} to {max(spent['none']):.1f} by process"
    for name, way, limit in ("seen before", "seen", 5), ("not seen before", "new", 80):
        yield Row(f"a token {name}: its check", statistics.mean(spent[way]) - base, "µs CPU", limit, note)


def binding(size, database):
    """How long after its binding was removed an account still sees rows, in each language, by token and by key."""
    with contextlib.ExitStack() as stack:
        env = {"QUIVER_AUTH__PUBLIC_URL": "http://127.0.0.1:1"} | over(stack, database)
        servers = [stack.enter_context(with_access(**env)) for _ in range(2 if database else 1)]
        name = f"reader-{time.time_ns()}"
        who, bind, *ways = account(servers[0], name, "viewer")
        for server in servers:
            server.done("POST", "/metrics-api/api/v1/import/prometheus", 'seen{service="cart"} 1\n', server.admin)
            server.done("POST", "/insert/jsonline", json.dumps({"_msg": "seen", "service": "cart"}), server.admin)
            server.done("POST", "/v1/traces", span_bodies(5)[0], server.admin | {"Content-Type": "application/x-protobuf"})
        asked = {
            "metrics": ("/metrics-api/api/v1/query?query=seen", b'"value"'),
            "logs": ("/logs-api/select/logsql/query?query=seen", b'"_msg"'),
            "traces": ("/jaeger/api/services", b"shop-"),
            "sql": ("/sql-api/v1/query?query=" + quote("SELECT service_name AS s FROM quiver.spans"), b"shop-"),
            "analytics": ("/olap-api/v1/load?query=" + quote('{"dimensions": ["Spans.service"], "measures": ["Spans.count"]}'), b"shop-"),
        }

        def seen():
            return {
                (at, what)
                for at, server in enumerate(servers)
                for what, (path, mark) in asked.items()
                for headers in (ways[:1] if what == "analytics" else ways)  # It takes no keys.
                if mark in server.ask("GET", path, headers=headers)[2]
            }

        longest, everything = 0.0, {(at, what) for at in range(len(servers)) for what in asked}
        for _ in range(3):
            try:
                until(lambda: seen() == everything, 20)
            except TimeoutError:
                raise RuntimeError(f"not seen while there is a binding: {everything - seen()}") from None
            servers[0].done("DELETE", f"/platform-api/rbac/bindings/{bind}", headers=servers[0].admin)
            longest = max(longest, until(lambda: not seen(), 30))
            bind = bound(servers[0], who, "viewer")
        where = f"{len(servers)} servers with one database" if database else "one server"
        yield Row(f"a binding that is removed acts, {where}", longest, "s", 5, f"longest of 3; {', '.join(asked)} by token and key")


def olap(server, query):
    return server.done("POST", "/olap-api/v1/load", {"query": query})


def analytics_data(server, size):
    for body in log_bodies(size(100_000)):
        server.done("POST", "/insert/jsonline?_stream_fields=service", body)
    for body in span_bodies(size(300_000)):
        server.done("POST", "/v1/traces", body, {"Content-Type": "application/x-protobuf"})
    server.done("POST", "/admin/flush")


def meta(size):
    """`meta` of all built-in models, and again with its ETag."""
    with Server(env=QUIET) as server:
        taken = timed(lambda _: server.done("GET", "/olap-api/v1/meta"), 30)
        _, headers, body = server.ask("GET", "/olap-api/v1/meta")
        known = {"If-None-Match": headers["ETag"]}
        answers = []
        again = timed(lambda _: answers.append(server.ask("GET", "/olap-api/v1/meta", headers=known)), 30)
        statuses = {(status, len(body)) for status, _, body in answers}
        note = f"median of 30, p95 {p95(taken):.2f}; {len(body):,} bytes"
        yield Row("`meta` of analytics", statistics.median(taken), "ms", 20, note)
        note = "304 without a body each time" if statuses == {(304, 0)} else f"WRONG: status and bytes {statuses}"
        yield Row("`meta` with its ETag", statistics.median(again), "ms", 20, note)


def planning(size):
    """Time in the phase `plan`, of queries that differ each time."""
    day = lambda cube, column: {"dimension": f"{cube}.{column}", "granularity": "minute", "dateRange": "last 2 hours"}
    queries = {
        "count of logs by service": {"measures": ["Logs.count"], "dimensions": ["Logs.service"], "timeDimensions": [day("Logs", "time")]},
        "one number of spans": {"measures": ["Spans.count"]},
        "p95 by service": {"measures": ["Spans.durationP95"], "dimensions": ["Spans.service"], "timeDimensions": [day("Spans", "startTime")]},
        "five dimensions, ordered": {
            "measures": ["Spans.count"], "order": {"Spans.count": "desc"}, "limit": 50,
            "dimensions": ["Spans.service", "Spans.name", "Spans.kind", "Spans.attr_http__route", "Spans.attr_http__request__method"],
        },
    }
    count, total = "quiver_query_phase_duration_seconds_count", "quiver_query_phase_duration_seconds_sum"
    labels, taken = '{language="olap",phase="plan"}', {}
    with Server(env=QUIET) as server:
        analytics_data(server, lambda n: size(n) // 10)
        for name, query in queries.items():
            cube = query["measures"][0].split(".")[0]
            for turn in range(33):
                if turn == 3:
                    before = server.metrics()
                differs = {"member": f"{cube}.service", "operator": "notEquals", "values": [f"none-{turn}"]}
                olap(server, query | {"filters": [differs]})
            after = server.metrics()
            taken[name] = (after[total + labels] - before[total + labels]) / (after[count + labels] - before[count + labels]) * 1e3
    worst = max(taken, key=taken.get)
    note = "; ".join(f"{name} {value:.2f}" for name, value in taken.items())
    yield Row("planning of an analytics query, mean of 30 of the dearest", taken[worst], "ms", 5, note)


def shared(size):
    """200 equal requests at once, each over a connection that was open before; results are kept as by default."""
    query = {"measures": ["Spans.count", "Spans.durationP95"], "dimensions": ["Spans.service", "Spans.name", "Spans.attr_url__path"], "limit": 100,
             "timeDimensions": [{"dimension": "Spans.startTime", "granularity": "minute", "dateRange": "last 2 hours"}]}
    with Server(env=QUIET | {"QUIVER_QUERY__RESULT_CACHE": "256MiB"}) as server, contextlib.ExitStack() as stack:
        analytics_data(server, size)
        # Each request counts as a query; only executions begin plans, each as many as one that is alone.
        begun = lambda: server.metrics()["quiver_query_started_total"]
        fresh = query | {"cache": "no-cache"}
        olap(server, fresh)
        before = begun()
        alone = timed(lambda _: olap(server, fresh), 4, 0)
        each = (begun() - before) / 4
        body = json.dumps({"query": query}).encode()
        head = f"POST /olap-api/v1/load HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        clients = [stack.enter_context(socket.create_connection((server.host, server.port), 600)) for _ in range(200)]
        before, began, answers = begun(), time.perf_counter(), []
        for client in clients:
            client.sendall(head.encode() + body)
        sent = time.perf_counter() - began
        for client in clients:
            answer = http.client.HTTPResponse(client)
            answer.begin()
            answers.append((answer.status, json.loads(answer.read())))
        took = time.perf_counter() - began
        good = [json.dumps(body["data"]) for status, body in answers if status == 200 and "data" in body]
        note = f"{len(good)} of 200 answered in {took * 1e3:.0f} ms, {len(set(good))} different answers; "
        note += f"one alone {statistics.median(alone):.0f} ms; sent within {sent * 1e3:.1f} ms"
        yield Row("200 clients with one query at once: executions", (begun() - before) / each, "", 1, note)


def rules(size):
    """1,000 groups of 10 rules, alerting and recording, each 15 s, for a minute after each had its first turn."""
    groups, seconds = size(1000), 60 if size(20) == 20 else 20
    delay = "quiver_rule_group_start_delay_seconds"
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, "rules.yml")
        file.write_text(json.dumps({"groups": list(alert_groups(groups))}))
        with Server(args=["--rules", str(file)]) as server:
            for turn in range(2):
                text = "".join(f'up{{service="s{n}"}} 1\nhits{{service="s{n}"}} {n + turn}\n' for n in range(50))
                server.done("POST", "/metrics-api/api/v1/import/prometheus", text)
                time.sleep(2)
            until(lambda: server.metrics()["quiver_rule_group_evaluations_total"] >= groups, 120)
            before, cpu = server.metrics(), server.cpu()
            time.sleep(seconds)
            cpu, after = server.cpu() - cpu, server.metrics()
    more = {name: value - before.get(name, 0) for name, value in after.items()}
    ran, missed, failed = (more[f"quiver_rule_{what}_total"] for what in ("group_evaluations", "missed_iterations", "failures"))
    expected, buckets = groups * seconds / 15, {float(name.split('"')[1]): n for name, n in more.items() if name.startswith(delay + "_bucket")}
    within = min(bound for bound, n in buckets.items() if n >= 0.99 * buckets[float("inf")])
    name = f"{groups * 10:,} alert rules each 15 s for {seconds} s"
    note = f"{ran:.0f} evaluations of groups, {expected:.0f} expected, {missed:.0f} missed, {failed:.0f} rules failed"
    yield Row(f"{name}: missed cycles", missed / (ran + missed) * 100, "%", 0.1, note)
    mean = more[delay + "_sum"] / max(1, more[delay + "_count"]) * 1e3
    # A bucket says only what a value is below.
    yield Row(f"{name}: p99 of start jitter, at most", within * 1e3, "ms", 500, f"bound of a bucket; mean {mean:.1f} ms")
    yield Row(f"{name}: CPU", cpu / seconds * 100, "% of a core", None)


FIGURES = [entities, graph, extraction, detection, access, tokens, binding, meta, planning, shared, rules]


def main():
    kinds = argparse.RawDescriptionHelpFormatter
    listed = "\n".join(f"  {f.__name__:11} {f.__doc__}" for f in FIGURES)
    options = argparse.ArgumentParser(description=__doc__, epilog=f"figures:\n{listed}", formatter_class=kinds)
    options.add_argument("--only", action="append", choices=[f.__name__ for f in FIGURES], metavar="NAME", help="this figure; may repeat")
    options.add_argument("--small", action="store_true", help="a twentieth of the sizes: whether it works, no figures")
    options.add_argument("--database", metavar="URL", help="an empty PostgreSQL for `--only entities` or `--only binding`, which asks two servers that share it")
    options.add_argument("--json", metavar="FILE", help="write the figures here, too")
    given = options.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # Servers are ended as by an interrupt.
    if "QUIVER_BIN" not in os.environ:
        options.error("QUIVER_BIN must name the binary")
    if given.database and given.only not in (["entities"], ["binding"]):
        options.error("--database goes with --only entities or --only binding: each has a master key of its own")
    size = lambda n: max(1, n // 20) if given.small else n
    size.rounds = 1 if given.small else 3
    failed, rows = [], []
    print("| figure | measured | goal |\n|---|---|---|")
    for figure in FIGURES:
        if given.only and figure.__name__ not in given.only:
            continue
        say(figure.__name__)
        try:
            for row in figure(size, given.database) if figure in (entities, binding) else figure(size):
                rows.append(row)
                print(f"| {row.figure} | {row.measured()} | {row.goal()} |", flush=True)
        except (OSError, RuntimeError, KeyError, http.client.HTTPException) as error:
            failed.append(say(f"{figure.__name__} failed: {error!r}"))
    if given.json:
        made = [row._asdict() | {"met": None if row.limit is None else row.value <= row.limit} for row in rows]
        pathlib.Path(given.json).write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
