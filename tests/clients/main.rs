//! Real clients against the real binary: DuckDB on the files, S3 under the store, Prometheus and promtool on the API,
//! OpenTelemetry's SDK as a sender, Alertmanager beside it. `tests/tools/install.sh` installs them.

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
