//! Tests with real clients and the real binary: DuckDB on the files, S3 as the object store, Prometheus and promtool on
//! the API, OpenTelemetry's SDK as a sender, Alertmanager for comparison. `tests/tools/install.sh` installs them.

#![allow(clippy::format_collect, reason = "bodies of tests are small")]

mod alerting_senders;
mod alerting_twins;
mod alertmanager;
mod amtool;
mod compared_answers;
mod cube;
mod differential;
mod identity;
mod logs_clients;
mod open_data;
mod openapi;
mod otlp_sdk;
mod packaging;
mod postgres;
mod prometheus;
mod prometheus_queries;
mod prometheus_reads;
mod s3;
mod s3_faults;
mod tools;
mod traces;
