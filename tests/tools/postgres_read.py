"""Drivers of PostgreSQL read what was sent: psycopg with parameters and cursors, SQLAlchemy's reflection.

Arguments: address of the port, password ("" for none). Prints one JSON list per check.
"""

import datetime
import json
import sys

import psycopg
import sqlalchemy

address, password = sys.argv[1], sys.argv[2]
host, port = address.rsplit(":", 1)


def show(name, value):
    print(json.dumps([name, value], default=str))


with psycopg.connect(
    host=host, port=port, dbname="quiver", user="ann", password=password, sslmode="disable"
) as connection:
    show("version", connection.info.server_version)
    rows = connection.execute(
        "select service_name, count(*) from logs where n between %s and %s and service_name = any(%s)"
        " group by service_name order by 1",
        (10, 99, ["app0", "app2"]),
    ).fetchall()
    show("params", rows)
    at = datetime.datetime(2025, 3, 10, 0, 1, tzinfo=datetime.timezone.utc)
    row = connection.execute("select min(time), max(ratio), true, null from logs where time >= %s", (at,)).fetchone()
    show("types", [type(value).__name__ for value in row])
    show("time", row[0].astimezone(datetime.timezone.utc).isoformat())
    binary = connection.cursor(binary=True)
    row = binary.execute("select time, n, ratio, message, fields from logs order by n limit 1").fetchone()
    show("binary", [row[0].timestamp(), row[1], row[2], row[3], sorted(row[4])])
    # A cursor on the server, a few rows at a time.
    with connection.cursor(name="some") as cursor:
        cursor.itersize = 50
        cursor.execute("select n from logs order by n")
        show("cursor", sum(n for (n,) in cursor))
    try:
        connection.execute("delete from logs")
    except psycopg.errors.ReadOnlySqlTransaction as error:
        show("read only", error.sqlstate)
    connection.rollback()
    try:
        connection.execute("select nothing_there from spans")
    except psycopg.errors.UndefinedColumn as error:
        show("column", [error.sqlstate, error.diag.statement_position])
    connection.rollback()
    with connection.pipeline():
        cursors = [connection.execute("select %s::bigint + 1", (n,)) for n in range(3)]
        show("pipeline", [cursor.fetchone()[0] for cursor in cursors])

url = sqlalchemy.URL.create("postgresql+psycopg", "ann", password or None, host, int(port), "quiver")
engine = sqlalchemy.create_engine(url, connect_args={"sslmode": "disable"})
inspector = sqlalchemy.inspect(engine)
show("schemas", sorted(inspector.get_schema_names()))
show("tables", sorted(inspector.get_table_names(schema="quiver")))
show("default", sorted(inspector.get_table_names()))
columns = {column["name"]: str(column["type"]) for column in inspector.get_columns("spans", schema="quiver")}
show("columns", [columns[name] for name in ("trace_id", "start_time", "duration", "attributes")])
show("keys", [inspector.get_pk_constraint("spans", schema="quiver")["constrained_columns"], inspector.get_foreign_keys("spans", schema="quiver"), inspector.get_indexes("spans", schema="quiver")])
show("views", inspector.get_view_names(schema="quiver"))
table = sqlalchemy.Table("spans", sqlalchemy.MetaData(), schema="quiver", autoload_with=engine)
with engine.connect() as connection:
    count = sqlalchemy.select(table.c.service_name, sqlalchemy.func.count()).where(table.c.duration >= 0)
    rows = connection.execute(count.group_by(table.c.service_name).order_by(table.c.service_name)).all()
    show("select", [list(row) for row in rows])
