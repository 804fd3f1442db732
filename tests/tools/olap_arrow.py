"""Reads an answer of analytics as an Arrow stream, hands it to DuckDB, and prints what DuckDB makes of it."""
import json
import sys
import urllib.request

import duckdb
import pyarrow as pa

url, query = sys.argv[1:]
request = urllib.request.Request(
    f"{url}/olap-api/v1/load",
    json.dumps({"query": json.loads(query)}).encode(),
    {"content-type": "application/json", "accept": "application/vnd.apache.arrow.stream"},
)
with urllib.request.urlopen(request) as answer:
    table = pa.ipc.open_stream(answer).read_all()
metadata = {k.decode(): v.decode() for k, v in table.schema.metadata.items()}
print(sorted(metadata))
print([str(field.type) for field in table.schema])
answer = duckdb.sql('SELECT "Orders.kind" AS kind, sum("Orders.count")::BIGINT AS n, sum("Orders.amount")::DOUBLE AS a FROM "table" GROUP BY ALL ORDER BY ALL')
print(answer.fetchall())
