"""Checks the answers in files of sqllogictest against DuckDB, over tables made of the same input.

    duckdb_sql.py FOLDER

FOLDER holds `*.slt`, and the input: `logs.ndjson`, `spans.ndjson`, `samples.ndjson`. A record behind `skipif duckdb` is
left out. Prints what differs, and at last how many were checked.
"""

import datetime
import decimal
import pathlib
import re
import sys

import duckdb

TABLES = """
SET TimeZone = 'UTC';
CREATE TABLE logs AS SELECT make_timestamptz(time * 1000000) AS time, service_name, message, level, n, ratio, trace_id,
    host, "user" FROM read_json('{folder}/logs.ndjson', columns = {{time: 'BIGINT', service_name: 'VARCHAR',
    message: 'VARCHAR', level: 'VARCHAR', n: 'BIGINT', ratio: 'DOUBLE', trace_id: 'VARCHAR', host: 'VARCHAR',
    "user": 'VARCHAR'}});
CREATE TABLE spans AS SELECT trace_id, span_id, parent_span_id, service_name, name, kind,
    make_timestamptz(start // 1000) AS start_time, make_timestamptz((start + duration) // 1000) AS end_time, duration,
    status_code, route AS "attributes.http.route", status AS "attributes.http.status_code"
    FROM read_json('{folder}/spans.ndjson', columns = {{trace_id: 'VARCHAR', span_id: 'VARCHAR',
    parent_span_id: 'VARCHAR', service_name: 'VARCHAR', name: 'VARCHAR', kind: 'VARCHAR', start: 'BIGINT',
    duration: 'BIGINT', status_code: 'VARCHAR', route: 'VARCHAR', status: 'BIGINT'}});
CREATE TABLE metric_samples AS SELECT make_timestamptz(time * 1000000) AS time, name, service_name,
    mode AS "labels.mode", value FROM read_json('{folder}/samples.ndjson', columns = {{time: 'BIGINT', name: 'VARCHAR',
    service_name: 'VARCHAR', mode: 'VARCHAR', value: 'DOUBLE'}});
"""


def tables(folder):
    db = duckdb.connect()
    db.execute(TABLES.format(folder=str(folder).replace("'", "''")))
    return db


def shown(value):
    """A value as the port of PostgreSQL writes it, floats by nine digits."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "t" if value else "f"
    if isinstance(value, (float, decimal.Decimal)):
        return number(float(value))
    if isinstance(value, datetime.datetime):
        text = value.strftime("%Y-%m-%d %H:%M:%S")
        if value.microsecond:
            text += f".{value.microsecond:06d}".rstrip("0")
        return text + ("+00" if value.tzinfo else "")
    if isinstance(value, str):
        return value if value else "(empty)"
    return str(value)


def number(value):
    return f"{value:.8e}"


def canonical(text):
    """Texts of floats in one form, as there is more than one."""
    if re.fullmatch(r"-?\d+\.\d+(e[+-]?\d+)?|-?\d+e[+-]?\d+", text):
        return number(float(text))
    return text


def records(path):
    """Line, types and order, statement, expected values of each query."""
    lines = pathlib.Path(path).read_text(encoding="utf-8").split("\n")
    at, skip = 0, False
    while at < len(lines):
        line = lines[at]
        at += 1
        if line.startswith("skipif "):
            skip = skip or line.split()[1] == "duckdb"
        elif line.startswith("query "):
            head, begin, statement, values = line.split()[1:], at, [], []
            while lines[at] != "----":
                statement.append(lines[at])
                at += 1
            at += 1
            while at < len(lines) and lines[at]:
                values.append(lines[at])
                at += 1
            if not skip:
                yield begin, head, "\n".join(statement), values
            skip = False
        elif line.startswith("statement "):
            while at < len(lines) and lines[at]:
                at += 1
            skip = False


def answer(db, statement, head):
    rows = [[shown(value) for value in row] for row in db.execute(statement).fetchall()]
    if "rowsort" in head:
        rows.sort()
    return [" ".join(row) for row in rows]


def main():
    folder = pathlib.Path(sys.argv[1])
    db = tables(folder)
    checked = 0
    for path in sorted(folder.glob("*.slt")):
        for line, head, statement, expected in records(path):
            checked += 1
            try:
                found = answer(db, statement, head)
            except duckdb.Error as error:
                print(f"{path.name}:{line}: {error}")
                continue
            same = [" ".join(map(canonical, row.split(" "))) for row in expected]
            if "rowsort" in head:
                same.sort()
                found.sort()
            if found != same:
                print(f"{path.name}:{line}: {statement}\n  DuckDB: {found}\n  file:   {same}")
    print("checked", checked)


if __name__ == "__main__":
    main()
