"""Streams a search and numbers over time as Grafana does, by Google's gRPC and protobuf, and prints what comes as JSON.

    tempo_stream.py ADDRESS SERVICE START END

START and END are Unix seconds. Lines: ids and root services of the traces that a search finds with whether all its jobs are
done; labels of the series of a rate; what is wrong with a broken query, as gRPC tells it.
"""

import json
import sys

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

KINDS = {"string": 9, "uint32": 13, "uint64": 4, "double": 1}
# Messages of Tempo's `tempopb`, as far as they are read here: name, number, type; `*` before the type of a list.
MESSAGES = {
    "SearchRequest": [("limit", 4, "uint32"), ("start", 5, "uint32"), ("end", 6, "uint32"), ("query", 8, "string")],
    "SearchResponse": [("traces", 1, "*TraceSearchMetadata"), ("metrics", 2, "SearchMetrics")],
    "TraceSearchMetadata": [("traceID", 1, "string"), ("rootServiceName", 2, "string")],
    "SearchMetrics": [("completedJobs", 4, "uint32"), ("totalJobs", 5, "uint32")],
    "QueryRangeRequest": [("query", 1, "string"), ("start", 2, "uint64"), ("end", 3, "uint64"), ("step", 4, "uint64")],
    "QueryRangeResponse": [("series", 1, "*TimeSeries"), ("metrics", 2, "SearchMetrics")],
    "TimeSeries": [("labels", 1, "*KeyValue")],
    "KeyValue": [("key", 1, "string"), ("value", 2, "AnyValue")],
    "AnyValue": [("string_value", 1, "string")],
}


def classes():
    file = descriptor_pb2.FileDescriptorProto(name="tempo_test.proto", package="tempopb", syntax="proto3")
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, number, kind in fields:
            made = message.field.add(name=field, number=number, label=3 if kind.startswith("*") else 1)
            kind = kind.removeprefix("*")
            if kind in KINDS:
                made.type = KINDS[kind]
            else:
                made.type, made.type_name = 11, f".tempopb.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"tempopb.{name}")) for name in MESSAGES}


def main():
    address, service, start, end = sys.argv[1:]
    start, end = int(start), int(end)
    made = classes()
    with grpc.insecure_channel(address) as channel:

        def method(name, request, response):
            path = f"/tempopb.StreamingQuerier/{name}"
            serialize = made[request].SerializeToString
            return channel.unary_stream(path, serialize, made[response].FromString)

        search = method("Search", "SearchRequest", "SearchResponse")
        query = f'{{ resource.service.name = "{service}" }}'
        messages = list(search(made["SearchRequest"](query=query, start=start, end=end, limit=20), timeout=60))
        traces = [[trace.traceID, trace.rootServiceName] for message in messages for trace in message.traces]
        last = messages[-1].metrics
        print(json.dumps([traces, last.completedJobs == last.totalJobs == 1]))
        rates = method("MetricsQueryRange", "QueryRangeRequest", "QueryRangeResponse")
        request = made["QueryRangeRequest"](
            query="{} | rate() by (resource.service.name)", start=start * 10**9, end=end * 10**9, step=60 * 10**9
        )
        series = [one for message in rates(request, timeout=60) for one in message.series]
        print(json.dumps(sorted(label.value.string_value for one in series for label in one.labels)))
        try:
            list(search(made["SearchRequest"](query="{ broken"), timeout=60))
        except grpc.RpcError as error:
            print(json.dumps([error.code().name, error.details()]))


main()
