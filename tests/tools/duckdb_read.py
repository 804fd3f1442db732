"""Reads a store as docs/formats/catalog.md says, by the SQL in that document alone, and prints every row.

    duckdb_read.py DOCUMENT ROOT

A line per float: f, labels as JSON, time in ms, bits in hex. A line per histogram: h, labels, time, bits of count and
sum, bits of the positive counts joined by commas. A line per metric of the metadata: m, metric, type, help, unit. A line
per log row: l, time in ns, labels of the stream, message as JSON.
"""

import json
import re
import sys

import duckdb


def text(labels):
    return json.dumps(dict(sorted(labels.items())), separators=(",", ":"), ensure_ascii=False)


def main():
    document, root = sys.argv[1:]
    blocks = re.findall(r"^```sql\n(.*?)^```$", open(document, encoding="utf-8").read(), re.S | re.M)
    files, floats, histograms, metadata, logs = blocks
    given = "SET VARIABLE root = 'quiver-data/store';"
    assert given in files, "the document names the root"
    db = duckdb.connect()
    db.execute(files.replace(given, "SET VARIABLE root = '" + root.replace("'", "''") + "';"))

    def has(condition):
        return db.execute("SELECT count(*) FROM files WHERE " + condition).fetchone()[0] > 0

    if has("tbl = 'metrics' AND kind = 'samples'"):
        db.execute(floats)
    # This block also takes floats away, so they are asked for afterwards.
    if has("tbl = 'metrics' AND kind = 'histograms'"):
        db.execute(histograms)
        rows = db.execute(
            "SELECT labels, ts, bits(\"count\"), bits(\"sum\"), [bits(n) for n in positive_counts] FROM histograms"
        )
        for labels, ts, count, total, counts in rows.fetchall():
            print("h", text(labels), ts, f"{count:016x}", f"{total:016x}", ",".join(f"{n:016x}" for n in counts), sep="\t")
    if has("tbl = 'metrics' AND kind = 'samples'"):
        for labels, ts, bits in db.execute("SELECT labels, ts, value::BIT::UBIGINT FROM floats").fetchall():
            print("f", text(labels), ts, f"{bits:016x}", sep="\t")
    if has("tbl = 'metric_metadata'"):
        for metric, newest in db.execute(metadata).fetchall():
            print("m", metric, newest["type"], newest["help"], newest["unit"], sep="\t")
    if has("tbl = 'logs'"):
        db.execute(logs)
        rows = db.execute(
            "SELECT epoch_ns(_time), s.labels, _msg FROM logs l JOIN streams s ON s.part = l.part AND s.stream = l.__q_stream"
        )
        for nanos, labels, message in rows.fetchall():
            print("l", nanos, text(labels), json.dumps(message, ensure_ascii=False), sep="\t")


main()
