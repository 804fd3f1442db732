"""Reads an OTLP/JSON export by Python's protobuf, and prints the names of its spans.

    otlp_traces_read.py FILE

Members that the message does not have are errors. (Ids are hex there and base64 for protobuf: any text of their length
is read as bytes, so they are not compared.)
"""

import sys

from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


def main():
    text = open(sys.argv[1], encoding="utf-8").read()
    request = json_format.Parse(text, ExportTraceServiceRequest(), ignore_unknown_fields=False)
    for block in request.resource_spans:
        for scope in block.scope_spans:
            for span in scope.spans:
                print(span.name)


main()
