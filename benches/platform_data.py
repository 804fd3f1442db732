"""What `platform.py` sends: log lines, spans, and rules over them. Same arguments, same records but for their times."""

import datetime
import json
import random
import struct
import time


def chunks(rows, size):
    return [rows[at : at + size] for at in range(0, len(rows), size)]


def log_bodies(count, telling=1.0):
    """JSON lines of nine services: requests, some with a page, some slow, some failed, some of the audit logger. `telling` is the
    share of those in which rules find something or may; the others say that work goes on.
    """
    chance, start, lines = random.Random(1), time.time() - 600, []
    for n in range(count):
        moment = datetime.datetime.fromtimestamp(start + n * 500 / count, datetime.UTC).isoformat()
        status = chance.choices((200, 404, 500, 503), (85, 10, 3, 2))[0]
        level, path = "error" if status >= 500 else "info", f"/cart/{chance.randrange(5000)}"
        message = f"GET {path} {status}"
        message += f" took {chance.randrange(900)}ms" if n % 2 else f" code=E{chance.randrange(40)} upstream refused" if status >= 500 else ""
        record = {"_time": moment, "_msg": message, "service": f"shop-{n % 9}", "level": level, "host": f"web-{n % 20}", "status": status}
        if n % 10 == 3:
            record["url"] = f"https://shop.example{path}?page={chance.randrange(9)}&sort=price"
        if n % 10 == 5:
            record |= {"logger": "audit", "_msg": f"user=u{chance.randrange(999)} action=login outcome=ok"}
        if n % 10 == 7:
            record["payload"] = json.dumps({"order": {"id": n, "total": n % 1000 / 10}, "items": 3})
        if telling < 1 and chance.random() >= telling:
            known = {"_time": moment, "service": record["service"], "level": "info", "status": 200}
            record = known | {"_msg": f"GET {path} is served from the cache", "host": f"web-{3 + n % 17}"}
        lines.append(json.dumps(record))
    return ["\n".join(part).encode() for part in chunks(lines, 5000)]


def extraction_rules(count):
    """A tenth of the rules looks at all services, each other one at one of eighteen, half of which send nothing."""
    leaf = lambda field, op, value: {"field": field, "op": op, "value": value}
    kinds = [
        ("regex", leaf("_msg", "contains", " took "), {"expression": r"took (?P<ms>\d+)ms"}, "took", "ms", "int"),
        ("pattern", leaf("level", "eq", "error"), {"expression": " code=<code> "}, "code", "code", "string"),
        ("logfmt", leaf("logger", "eq", "audit"), {}, "user", "user", "string"),
        ("jsonPath", leaf("payload", "exists", True), {"source": "payload"}, "total", "$.order.total", "double"),
        ("urlPart", leaf("url", "contains", "page="), {"source": "url"}, "page", "query.page", "int"),
        ("delimited", leaf("format", "eq", "csv"), {"options": {"delimiter": ",", "columns": ["a", "b"]}}, "column", "a", "string"),
        ("constant", leaf("host", "in", ["web-1", "web-2"]), {"expression": "canary"}, "ring", None, "string"),
        ("template", leaf("status", "ge", 500), {"expression": "{service}/{status}"}, "failure", None, "string"),
        ("json", leaf("event", "eq", "order"), {"source": "payload"}, "items", "items", "int"),
        ("regex", leaf("_msg", "regex", "timeout|refused"), {"expression": "(?P<what>timeout|refused)"}, "fault", "what", "string"),
    ]
    for n in range(count):
        method, condition, more, field, source, kind = kinds[n % 10]
        target = {"field": f"x_{field}{n // 10 // 18}", "type": kind} | ({"from": source} if source else {})
        service = "*" if n >= count * 9 // 10 else f"shop-{n // 10 % 18}"
        yield {"name": f"rule {n}", "signal": "logs", "service": service, "condition": condition, "method": method, "targets": [target]} | more


def varint(n):
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    return bytes([*out, n])


def part(number, body):
    """A field of protobuf that has a length."""
    body = body.encode() if isinstance(body, str) else body
    return varint(number << 3 | 2) + varint(len(body)) + body


def attribute(number, key, value):
    return part(number, part(1, key) + part(2, b"\x18" + varint(value) if isinstance(value, int) else part(1, value)))


def span_bodies(count):
    """OTLP requests of traces of five spans: two servers of two services, a client before the second one, work inside."""
    chance, start, kinds, bodies = random.Random(2), time.time_ns() - 600 * 10**9, (2, 1, 3, 2, 1), []
    for traces in chunks(range(count // 5), 200):
        by_service = {}
        for n in traces:
            trace, ids = chance.randbytes(16), [chance.randbytes(8) for _ in kinds]
            began = start + n * 500 * 10**9 // max(1, count // 5)
            for at, kind in enumerate(kinds):
                route = ("/cart/{id}", "/orders", "/pay/card", "/items/{id}/price")[(n + at) % 4]
                name = ("GET " + route, "render", "GET", "GET " + route, "SELECT")[at]
                span = part(1, trace) + part(2, ids[at]) + (part(4, ids[at - 1]) if at else b"") + part(5, name) + b"\x30" + varint(kind)
                span += struct.pack("<BqBq", 0x39, began + at * 10**6, 0x41, began + 10**7 + chance.randrange(10**9))
                if kind != 1:
                    span += attribute(9, "http.request.method", "GET") + attribute(9, "http.route", route)
                    span += attribute(9, "url.path", route.replace("{id}", str(n))) + attribute(9, "http.response.status_code", 200)
                by_service.setdefault(f"shop-{(n + (at > 2)) % 5}", []).append(part(2, span))
        resource = lambda service: part(1, attribute(1, "service.name", service) + attribute(1, "host.name", "web-1"))
        bodies.append(b"".join(part(1, resource(name) + part(2, b"".join(spans))) for name, spans in by_service.items()))
    return bodies


def detection_rules(count):
    """A fifth of the rules looks at all services, each other one at one of ten, half of which send nothing."""
    for n in range(count):
        condition = (
            {"field": "http.route", "op": "glob", "value": "/orders/**"},
            {"field": "url.path", "op": "regex", "value": r"^/cart/(?P<cart>\d+)$"},
            {"all": [{"field": "http.request.method", "op": "eq", "value": "POST"}, {"field": "http.route", "op": "startsWith", "value": "/pay"}]},
            {"field": "http.route", "op": "in", "value": ["/refunds", "/pay/card"]},
        )[n % 4]
        service = "*" if n % 5 == 4 else f"shop-{n // 5 % 10}"
        yield {"name": f"rule {n}", "service": service, "condition": condition, "nameTemplate": "{http.request.method} {http.route}"}


def alert_groups(count):
    """Groups of ten rules, two of which record a series; nothing fires."""
    texts = ["up == 0", "sum by (service) (rate(hits[5m])) > 1000", "avg(up) < 0.5", "hits > 1e9"]
    for g in range(count):
        alerts = [{"alert": f"Alert{n}", "expr": texts[n % 4], "for": "1m", "labels": {"g": str(g)}} for n in range(8)]
        record = lambda name, function: {"record": f"service:{name}", "expr": f'sum by (service) ({function}(hits{{service="s{g % 50}"}}[5m]))'}
        records = [record("hits:rate5m", "rate"), record("hits:max5m", "max_over_time")]
        yield {"name": f"g{g}", "interval": "15s", "labels": {"g": str(g)}, "rules": alerts + records}
