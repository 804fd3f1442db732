"""Reads a store as docs/formats/catalog.md says, by the SQL in that document alone, and prints every row.

    duckdb_read.py DOCUMENT ROOT

A line per float: f, labels as JSON, time in ms, bits in hex. A line per histogram: h, labels, time, bits of count and
sum, bits of the positive counts joined by commas. A line per metric of the metadata: m, metric, type, help, unit.
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
    floats, histograms, metadata = blocks
    given = "SET VARIABLE root = 'quiver-data/store';"
    assert given in floats, "the document names the root"
    db = duckdb.connect()
    db.execute(floats.replace(given, "SET VARIABLE root = '" + root.replace("'", "''") + "';"))

    def has(condition):
        return db.execute("SELECT count(*) FROM files WHERE " + condition).fetchone()[0] > 0

    # The second block also takes floats away, so it runs first.
    if has("tbl = 'metrics' AND kind = 'histograms'"):
        db.execute(histograms)
        rows = db.execute(
            "SELECT labels, ts, bits(\"count\"), bits(\"sum\"), [bits(n) for n in positive_counts] FROM histograms"
        )
        for labels, ts, count, total, counts in rows.fetchall():
            print("h", text(labels), ts, f"{count:016x}", f"{total:016x}", ",".join(f"{n:016x}" for n in counts), sep="\t")
    for labels, ts, bits in db.execute("SELECT labels, ts, value::BIT::UBIGINT FROM floats").fetchall():
        print("f", text(labels), ts, f"{bits:016x}", sep="\t")
    if has("tbl = 'metric_metadata'"):
        for metric, newest in db.execute(metadata).fetchall():
            print("m", metric, newest["type"], newest["help"], newest["unit"], sep="\t")


main()
