//! The infrastructure of the shop: hosts, pods, runtimes, a database, a cache; with the metric names of OpenTelemetry
//! receivers.

use std::f64::consts::TAU;

use quiver_types::{LabelSet, MetricsBatch, Millis};

use super::growth;

type Labels = &'static [(&'static str, &'static str)];

/// How a metric changes.
#[derive(Debug, Clone, Copy)]
enum MetricTrend {
    /// Fluctuates around a value.
    Around(f64),
    /// Grows by this much per second.
    Up(f64),
    /// Is constant.
    Is(f64),
}
use MetricTrend::{Around, Is, Up};

type Metric = (&'static str, Labels, MetricTrend);

const HOST: [Metric; 23] = [
    ("system_cpu_time_seconds_total", &[("cpu", "0"), ("cpu_mode", "user")], Up(0.3)),
    ("system_cpu_time_seconds_total", &[("cpu", "0"), ("cpu_mode", "iowait")], Up(0.02)),
    ("system_cpu_time_seconds_total", &[("cpu", "0"), ("cpu_mode", "idle")], Up(0.68)),
    ("system_cpu_logical_count", &[], Around(4.0)),
    ("system_cpu_load_average_1m", &[], Around(1.4)),
    ("system_memory_usage_bytes", &[("system_memory_state", "used")], Around(6e9)),
    ("system_memory_usage_bytes", &[("system_memory_state", "free")], Around(1e10)),
    ("system_disk_io_bytes_total", &[("device", "sda"), ("disk_io_direction", "read")], Up(2e5)),
    ("system_disk_io_bytes_total", &[("device", "sda"), ("disk_io_direction", "write")], Up(8e5)),
    ("system_disk_io_time_seconds_total", &[("device", "sda")], Up(0.05)),
    ("system_network_io_bytes_total", &[("interface", "eth0"), ("network_io_direction", "receive")], Up(4e5)),
    ("system_network_io_bytes_total", &[("interface", "eth0"), ("network_io_direction", "transmit")], Up(3e5)),
    ("system_network_packet_count_total", &[("interface", "eth0")], Up(900.0)),
    ("system_network_errors_total", &[("interface", "eth0")], Up(0.001)),
    ("system_process_count", &[], Around(180.0)),
    ("system_uptime_seconds", &[], Up(1.0)),
    ("system_filesystem_utilization_ratio", &[("device", "sda1"), ("mountpoint", "/")], Around(0.4)),
    ("system_filesystem_limit_bytes", &[("device", "sda1"), ("mountpoint", "/")], Around(1e11)),
    (
        "system_filesystem_usage_bytes",
        &[("device", "sda1"), ("mountpoint", "/"), ("system_filesystem_state", "used")],
        Around(4e10),
    ),
    (
        "system_filesystem_usage_bytes",
        &[("device", "sda1"), ("mountpoint", "/"), ("system_filesystem_state", "free")],
        Around(6e10),
    ),
    (
        "k8s_node_condition_status",
        &[
            ("k8s_cluster_name", "demo"),
            ("k8s_node_condition_type", "Ready"),
            ("k8s_node_condition_status", "condition_true"),
        ],
        Is(1.0),
    ),
    ("k8s_node_cpu_usage", &[("k8s_cluster_name", "demo")], Around(1.3)),
    ("k8s_node_cpu_allocatable", &[("k8s_cluster_name", "demo")], Around(4.0)),
];

const POD: [Metric; 13] = [
    ("k8s_pod_status_phase", &[("k8s_pod_status_phase", "Running")], Is(1.0)),
    ("k8s_pod_status_phase", &[("k8s_pod_status_phase", "Pending")], Is(0.0)),
    ("k8s_container_ready", &[], Is(1.0)),
    ("k8s_pod_cpu_usage", &[], Around(0.2)),
    ("k8s_pod_memory_working_set_bytes", &[], Around(2e8)),
    ("k8s_container_restart_count", &[], Around(0.0)),
    ("k8s_pod_uptime_seconds", &[], Up(1.0)),
    ("container_cpu_time_seconds_total", &[], Up(0.2)),
    ("container_memory_working_set_bytes", &[], Around(2e8)),
    ("process_cpu_time_seconds_total", &[("process_pid", "1")], Up(0.2)),
    ("process_memory_usage_bytes", &[("process_pid", "1")], Around(2e8)),
    ("jvm_memory_used_bytes", &[("jvm_memory_type", "heap")], Around(1.2e8)),
    ("jvm_thread_count", &[], Around(40.0)),
];

const WORKLOAD: [Metric; 2] =
    [("k8s_deployment_pod_desired", &[], Around(3.0)), ("k8s_deployment_pod_available", &[], Around(3.0))];

const POOL: [Metric; 3] = [
    ("db_client_connection_count", &[("db_client_connection_state", "used")], Around(6.0)),
    ("db_client_connection_count", &[("db_client_connection_state", "idle")], Around(4.0)),
    ("db_client_connection_max", &[], Around(20.0)),
];

const DATABASE: [Metric; 9] = [
    ("postgresql_backends", &[("postgresql_database_name", "shop")], Around(12.0)),
    ("postgresql_connection_max", &[], Around(100.0)),
    ("postgresql_commits_total", &[("postgresql_database_name", "shop")], Up(30.0)),
    ("postgresql_rollbacks_total", &[("postgresql_database_name", "shop")], Up(0.1)),
    ("postgresql_blks_hit_total", &[("postgresql_database_name", "shop")], Up(900.0)),
    ("postgresql_blks_read_total", &[("postgresql_database_name", "shop")], Up(20.0)),
    ("postgresql_db_size_bytes", &[("postgresql_database_name", "shop")], Around(3e9)),
    ("postgresql_wal_delay_seconds", &[("operation", "replay"), ("replication_client", "replica-0")], Around(0.2)),
    (
        "postgresql_table_size_bytes",
        &[("postgresql_database_name", "shop"), ("postgresql_table_name", "public.orders")],
        Around(8e8),
    ),
];

const CACHE: [Metric; 5] = [
    ("redis_memory_used_bytes", &[], Around(4e8)),
    ("redis_keyspace_hits_total", &[], Up(400.0)),
    ("redis_keyspace_misses_total", &[], Up(20.0)),
    ("redis_commands_processed_total", &[], Up(500.0)),
    ("redis_clients_connected", &[], Around(24.0)),
];

const PROBE: [Metric; 4] = [
    ("probe_success", &[], Is(1.0)),
    ("probe_duration_seconds", &[], Around(0.2)),
    ("probe_http_status_code", &[], Is(200.0)),
    ("probe_ssl_earliest_cert_expiry", &[], Is(2e9)),
];

/// Adds the samples of all systems.
pub(super) fn add(batch: &mut MetricsBatch, times: &[Millis]) {
    for n in 0..3_u8 {
        let (host_name, pod_name) = (format!("node-{n}"), format!("checkout-{n}"));
        let (node, replica) = (host_name.as_str(), pod_name.as_str());
        let phase = f64::from(n);
        let host = [("job", "hosts"), ("instance", node), ("host_name", node), ("k8s_node_name", node)];
        push_series_of(batch, times, &host, &HOST, phase);
        let pod = [
            ("job", "checkout"),
            ("instance", replica),
            ("host_name", node),
            ("k8s_cluster_name", "demo"),
            ("k8s_namespace_name", "shop"),
            ("k8s_node_name", node),
            ("k8s_deployment_name", "checkout"),
            ("k8s_pod_name", replica),
            ("container_id", replica),
        ];
        push_series_of(batch, times, &pod, &POD, phase);
        let pool = [("job", "checkout"), ("instance", replica), ("db_client_connection_pool_name", "orders")];
        push_series_of(batch, times, &pool, &POOL, phase);
    }
    let workload = [
        ("job", "kubernetes"),
        ("k8s_cluster_name", "demo"),
        ("k8s_namespace_name", "shop"),
        ("k8s_deployment_name", "checkout"),
    ];
    push_series_of(batch, times, &workload, &WORKLOAD, 0.0);
    push_series_of(batch, times, &[("job", "postgres"), ("instance", "orders-db:5432")], &DATABASE, 0.0);
    push_series_of(batch, times, &[("job", "redis"), ("instance", "carts:6379")], &CACHE, 0.0);
    let probe = [("job", "blackbox"), ("instance", "https://shop.example.com"), ("location", "eu-west")];
    push_series_of(batch, times, &probe, &PROBE, 0.0);
}

fn push_series_of(batch: &mut MetricsBatch, times: &[Millis], of: &[(&str, &str)], metrics: &[Metric], phase: f64) {
    for (name, labels, way) in metrics {
        let pairs = of.iter().copied().chain(labels.iter().copied()).chain([("__name__", *name)]);
        let series = batch.push_series(LabelSet::from_pairs(pairs).canonical());
        for &time in times {
            batch.push_sample(series, time, way.at(time as f64 / 1000.0, phase), 0);
        }
    }
}

impl MetricTrend {
    /// The value at a second. It depends only on the time, so that a restart continues where it stopped.
    fn at(self, second: f64, phase: f64) -> f64 {
        match self {
            Self::Around(value) => value * (1.0 + 0.1 * (second / 900.0 * TAU + phase).sin()),
            Self::Up(rate) => growth(second, phase) * rate,
            Self::Is(value) => value,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_metric_has_a_sample_at_each_time() {
        let mut batch = MetricsBatch::default();
        add(&mut batch, &[1_700_000_000_000, 1_700_000_005_000]);
        assert_eq!(batch.series.len(), 3 * (HOST.len() + POD.len() + POOL.len()) + 16 + PROBE.len());
        assert_eq!(batch.ts.len(), batch.series.len() * 2);
    }

    /// All series differ in name or labels, and a restart continues where it stopped.
    #[test]
    fn series_are_told_apart() {
        let made = |times: &[Millis]| {
            let mut batch = MetricsBatch::default();
            add(&mut batch, times);
            batch
        };
        let (one, two) = (made(&[1_700_000_005_000]), made(&[1_700_000_000_000, 1_700_000_005_000]));
        let labels = |batch: &MetricsBatch| -> Vec<Vec<u8>> {
            let of = |n: usize| &batch.label_bytes[batch.series[n].start as usize..batch.series[n].end as usize];
            (0..batch.series.len()).map(|n| of(n).to_vec()).collect()
        };
        let all = labels(&one);
        assert_eq!(all.iter().collect::<std::collections::BTreeSet<_>>().len(), all.len());
        assert_eq!(labels(&two), all);
        let last: Vec<f64> = two.values.iter().skip(1).step_by(2).copied().collect();
        assert_eq!(one.values, last);
        assert!(two.values.iter().all(|value| value.is_finite() && *value >= 0.0));
    }

    #[test]
    fn ways_of_metrics() {
        for second in (0..86_400).step_by(7).map(f64::from) {
            let around = Around(100.0).at(second, 1.0);
            assert!((90.0..=110.0).contains(&around), "{second}: {around}");
            assert!(Up(2.0).at(second + 1.0, 1.0) >= Up(2.0).at(second, 1.0) || second > 86_398.0, "{second}");
        }
        assert_eq!([Is(1.0).at(0.0, 0.0), Is(1.0).at(1e9, 2.0)], [1.0, 1.0]);
        assert_ne!(Around(1.0).at(5.0, 0.0), Around(1.0).at(5.0, 1.0), "each has a phase of its own");
    }
}
