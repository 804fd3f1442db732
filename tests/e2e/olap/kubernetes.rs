//! Models over Kubernetes and file systems: the state of a pod or node at the end of a bucket, workloads and nodes
//! derived from their pods, and when a file system is full; older names of metrics.

use quiver_tests::server::{Options, Server};
use serde_json::{Value, json};
use std::fmt::Write as _;

use crate::olap::derived_models::is_near;
use crate::olap::spans::load;

/// 2025-03-10T00:00:00Z.
const START_S: i64 = 1_741_564_800;

/// Samples of six minutes, the first at the start of the first.
struct Samples(String);

impl Samples {
    fn series(&mut self, series: &str, values: [f64; 6]) {
        for (minute, value) in (0_i64..).zip(values) {
            let _ = writeln!(self.0, "{series} {value} {}", (START_S + 60 * minute) * 1000);
        }
    }

    /// A pod with its phases, whether its container was ready, and how often it had been started anew.
    fn pod(&mut self, labels: &str, phases: [&str; 6], ready: [f64; 6], restarts: [f64; 6]) {
        for phase in ["Running", "Pending", "Failed"] {
            let is = phases.map(|p| f64::from(u8::from(p == phase)));
            self.series(&format!("k8s_pod_status_phase{{{labels},k8s_pod_status_phase=\"{phase}\"}}"), is);
        }
        self.series(&format!("k8s_container_ready{{{labels},k8s_container_name=\"main\"}}"), ready);
        self.series(&format!("k8s_container_restart_count{{{labels},k8s_container_name=\"main\"}}"), restarts);
        self.series(&format!("k8s_pod_cpu_usage{{{labels}}}"), [0.5; 6]);
    }

    /// A pool of connections by older names, its waits in milliseconds.
    fn older_pool(&mut self) {
        let of = "service_name=\"shop\",instance=\"i1\",pool_name=\"older\"";
        self.series(&format!("db_client_connections_usage{{{of},state=\"used\"}}"), [3.0; 6]);
        self.series(&format!("db_client_connections_max{{{of}}}"), [10.0; 6]);
        self.series(&format!("db_client_connections_pending_requests{{{of}}}"), [0.0, 1.0, 4.0, 0.0, 0.0, 0.0]);
        self.series(&format!("db_client_connections_timeouts_total{{{of}}}"), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
        for (le, each) in [("10", 10.0), ("100", 20.0), ("+Inf", 20.0)] {
            let bucket = format!("db_client_connections_wait_time_milliseconds_bucket{{{of},le=\"{le}\"}}");
            self.series(&bucket, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0].map(|minute| minute * each));
        }
    }

    /// A collector, which counts what it sent apart from what it did not, and an SDK, which counts both as one.
    fn senders(&mut self) {
        let minutes = |each: f64| [0.0, 1.0, 2.0, 3.0, 4.0, 5.0].map(|minute| minute * each);
        let of = "service_name=\"otelcol\",instance=\"c1\",exporter=\"otlp\"";
        self.series(&format!("otelcol_exporter_sent_spans_total{{{of}}}"), minutes(10.0));
        self.series(&format!("otelcol_exporter_send_failed_spans_total{{{of}}}"), minutes(2.0));
        self.series(&format!("otelcol_exporter_sent_log_records_total{{{of}}}"), minutes(8.0));
        self.series(&format!("otelcol_exporter_queue_size{{{of}}}"), [0.0, 1.0, 5.0, 1.0, 0.0, 0.0]);
        self.series(&format!("otelcol_exporter_queue_capacity{{{of}}}"), [20.0; 6]);
        let of = "service_name=\"shop\",instance=\"i1\",otel_component_name=\"batch\"";
        self.series(&format!("otel_sdk_exporter_span_exported_total{{{of}}}"), minutes(4.0));
        self.series(&format!("otel_sdk_exporter_span_exported_total{{{of},error_type=\"timeout\"}}"), minutes(1.0));
        self.series(&format!("otel_sdk_processor_span_queue_size{{{of}}}"), [2.0; 6]);
        self.series(&format!("otel_sdk_processor_span_queue_capacity{{{of}}}"), [10.0; 6]);
    }

    /// A container of docker, and one that counts its time by both names.
    fn docker(&mut self) {
        let minutes = |each: f64| [0.0, 1.0, 2.0, 3.0, 4.0, 5.0].map(|minute| minute * each);
        let of = "container_id=\"d1\"";
        self.series(&format!("container_cpu_usage_nanoseconds_total{{{of}}}"), minutes(36e9));
        self.series(&format!("container_memory_usage_total_bytes{{{of}}}"), [500.0; 6]);
        self.series(&format!("container_network_io_usage_rx_bytes_total{{{of}}}"), minutes(72.0));
        self.series(&format!("container_network_io_usage_tx_bytes_total{{{of}}}"), minutes(144.0));
        for (operation, each) in [("read", 12.0), ("write", 24.0), ("total", 36.0)] {
            let blocks =
                format!("container_blockio_io_service_bytes_recursive_total{{{of},operation=\"{operation}\"}}");
            self.series(&blocks, minutes(each));
        }
        self.series(&format!("container_cpu_limit{{{of}}}"), [2.0; 6]);
        self.series(&format!("container_memory_usage_limit_bytes{{{of}}}"), [1000.0; 6]);
        self.series(&format!("container_restarts_total{{{of}}}"), [0.0, 0.0, 1.0, 1.0, 1.0, 2.0]);
        let of = "container_id=\"d2\"";
        self.series(&format!("container_cpu_time_seconds_total{{{of}}}"), minutes(7.2));
        self.series(&format!("container_cpu_usage_nanoseconds_total{{{of}}}"), minutes(36e9));
    }

    /// Two volumes of a pod; of the first the most that was used.
    fn volumes(&mut self, pod: &str) {
        for (name, size, left) in [("a", 100.0, [50.0, 40.0, 60.0, 50.0, 50.0, 50.0]), ("b", 200.0, [190.0; 6])] {
            self.series(&format!("k8s_volume_capacity_bytes{{{pod},k8s_volume_name=\"{name}\"}}"), [size; 6]);
            self.series(&format!("k8s_volume_available_bytes{{{pod},k8s_volume_name=\"{name}\"}}"), left);
        }
    }

    /// Another by newer names, its waits in seconds.
    fn newer_pool(&mut self) {
        let of = "service_name=\"shop\",instance=\"i1\",db_client_connection_pool_name=\"newer\"";
        let used = format!("db_client_connection_count{{{of},db_client_connection_state=\"used\"}}");
        self.series(&used, [6.0; 6]);
        self.series(&format!("db_client_connection_max{{{of}}}"), [10.0; 6]);
        self.series(&format!("db_client_connection_pending_requests{{{of}}}"), [0.0, 2.0, 8.0, 0.0, 0.0, 0.0]);
        self.series(&format!("db_client_connection_timeouts_total{{{of}}}"), [0.0; 6]);
        for (le, each) in [("0.01", 10.0), ("0.1", 20.0), ("+Inf", 20.0)] {
            let bucket = format!("db_client_connection_wait_time_seconds_bucket{{{of},le=\"{le}\"}}");
            self.series(&bucket, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0].map(|minute| minute * each));
        }
    }
}

async fn fill(server: &Server) {
    let mut all = Samples(String::new());
    let labels = |pod: &str, node: &str, deployment: &str| {
        format!(
            "k8s_cluster_name=\"c1\",k8s_namespace_name=\"shop\",k8s_pod_name=\"{pod}\",k8s_pod_uid=\"{pod}\",\
            k8s_node_name=\"{node}\",k8s_deployment_name=\"{deployment}\""
        )
    };
    let (p, r, f) = ("Pending", "Running", "Failed");
    all.pod(
        &labels("p1", "n1", "web"),
        [p, r, r, r, r, r],
        [0.0, 1.0, 1.0, 1.0, 1.0, 1.0],
        [0.0, 0.0, 1.0, 1.0, 2.0, 2.0],
    );
    all.pod(&labels("p2", "n1", "web"), [r, r, r, f, f, f], [1.0, 1.0, 1.0, 0.0, 0.0, 0.0], [0.0; 6]);
    all.pod(&labels("p3", "n2", "api"), [p; 6], [0.0; 6], [0.0; 6]);
    // Whoever sends this one names no cluster, and no owner.
    all.pod("k8s_namespace_name=\"lost\",k8s_pod_name=\"p4\",k8s_node_name=\"n3\"", [r; 6], [1.0; 6], [0.0; 6]);
    for (node, ready) in [("n1", [1.0; 6]), ("n2", [1.0, 1.0, 1.0, 1.0, 0.0, 0.0])] {
        let of = format!("k8s_cluster_name=\"c1\",k8s_node_name=\"{node}\"");
        let name = format!("k8s_node_condition_status{{{of},k8s_node_condition_type=\"Ready\"");
        all.series(&format!("{name},k8s_node_condition_status=\"condition_true\"}}"), ready);
        all.series(&format!("{name},k8s_node_condition_status=\"condition_false\"}}"), ready.map(|is| 1.0 - is));
    }
    for deployment in ["web", "api"] {
        let of = format!("k8s_cluster_name=\"c1\",k8s_namespace_name=\"shop\",k8s_deployment_name=\"{deployment}\"");
        all.series(&format!("k8s_deployment_pod_desired{{{of}}}"), [2.0; 6]);
    }
    let disk =
        |state: &str| format!("system_filesystem_usage_bytes{{host_name=\"h1\",device=\"sda\",state=\"{state}\"}}");
    all.series(&disk("used"), [100.0, 110.0, 120.0, 130.0, 140.0, 150.0]);
    all.series(&disk("free"), [900.0, 890.0, 880.0, 870.0, 860.0, 850.0]);
    let answer = server.post("/metrics-api/api/v1/import/prometheus", &[], all.0.into_bytes()).await;
    assert!(answer.status < 300, "{}", answer.text());
}

/// Rows of some members of a model, in order of the dimensions; with buckets of a minute, or over all six.
async fn rows(server: &Server, model: &str, by: &[&str], measures: &[&str], more: &Value, buckets: bool) -> Value {
    let full = |name: &&str| format!("{model}.{name}");
    let (dimensions, measures) =
        (by.iter().map(full).collect::<Vec<_>>(), measures.iter().map(full).collect::<Vec<_>>());
    let time = format!("{model}.time");
    let mut range = json!({"dimension": time, "dateRange": ["2025-03-10T00:00:00.000", "2025-03-10T00:05:59.999"]});
    let mut order: Vec<Value> = dimensions.iter().map(|d| json!([d, "asc"])).collect();
    if buckets {
        range["granularity"] = json!("minute");
        order.insert(0, json!([time, "asc"]));
    }
    let mut query = json!({"measures": measures, "dimensions": dimensions, "order": order, "timeDimensions": [range]});
    more.as_object().into_iter().flatten().for_each(|(key, value)| query[key] = value.clone());
    let answer = load(server, &[], &query).await;
    assert_eq!(answer.status, 200, "{query}: {}", answer.text());
    let names: Vec<String> = dimensions.into_iter().chain(measures).collect();
    let rows = answer.json()["data"].take();
    rows.as_array().expect("rows").iter().map(|row| names.iter().map(|n| row[n].clone()).collect::<Value>()).collect()
}

/// Breaks if a join meets the samples of a pod or node, and not the pod or node.
async fn joined(server: &Server) {
    let asked = async |mut query: Value, time: Value, columns: [&str; 2]| -> Value {
        let range = json!(["2025-03-10T00:00:00.000", "2025-03-10T00:05:59.999"]);
        query["timeDimensions"] = json!([{"dimension": time[0], "granularity": time[1], "dateRange": range}]);
        let answer = load(server, &[], &query).await;
        assert_eq!(answer.status, 200, "{query}: {}", answer.text());
        let rows = answer.json()["data"].take();
        let cells = |row: &Value| columns.iter().map(|name| row[*name].clone()).collect::<Value>();
        rows.as_array().expect("rows").iter().map(cells).collect()
    };
    let (node, pods) = ("KubernetesNodes.node", "KubernetesPods.podCount");
    let query = json!({"measures": [pods], "dimensions": [node], "order": {node: "asc"}});
    let got = asked(query, json!(["KubernetesPods.time", null]), [node, pods]).await;
    assert_eq!(got, json!([["n1", "2"], ["n2", "1"], ["n3", "1"]]));
    // Both by minutes of the node: pods have minutes of their own samples.
    let (ready, running) = ("KubernetesNodes.readyCount", "KubernetesPods.runningCount");
    let filter = json!([{"member": node, "operator": "equals", "values": ["n1"]}]);
    let query = json!({"measures": [ready, running], "filters": filter});
    let got = asked(query, json!(["KubernetesNodes.time", "minute"]), [ready, running]).await;
    assert_eq!(got, json!([["1", "1"], ["1", "2"], ["1", "2"], ["1", "1"], ["1", "1"], ["1", "1"]]));
}

#[tokio::test(flavor = "multi_thread")]
async fn entities_at_the_end_of_a_bucket() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default().args(&["--retention", "none"])).await;
    fill(&server).await;
    let none = json!({});
    for flushed in [false, true] {
        if flushed {
            server.flush().await;
        }
        let check = async |model: &str, by: &[&str], measures: &[&str], more: &Value, buckets: bool, wanted: Value| {
            let got = rows(&server, model, by, measures, more, buckets).await;
            assert!(is_near(&got, &wanted), "{model} {by:?} {measures:?}, flushed: {flushed}: {got}, not {wanted}");
        };
        let states = ["podCount", "runningCount", "pendingCount", "failedCount", "notReadyCount"];
        check("KubernetesPods", &[], &states, &none, false, json!([["4", "2", "1", "1", "3"]])).await;
        let minutes = json!([
            ["4", "2", "2", "0", "2"],
            ["4", "3", "1", "0", "1"],
            ["4", "3", "1", "0", "1"],
            ["4", "2", "1", "1", "2"],
            ["4", "2", "1", "1", "2"],
            ["4", "2", "1", "1", "2"]
        ]);
        check("KubernetesPods", &[], &states, &none, true, minutes).await;
        let phases =
            json!([["p1", "Running", "1"], ["p2", "Failed", "0"], ["p3", "Pending", "0"], ["p4", "Running", "1"]]);
        check("KubernetesPods", &["pod", "phase"], &["runningCount"], &none, false, phases).await;
        let of_one = json!({"filters": [{"member": "KubernetesPods.pod", "operator": "equals", "values": ["p2"]}]});
        let (runs, failed) = (json!(["p2", "Running", "1"]), json!(["p2", "Failed", "0"]));
        let minutes = json!([runs, runs, runs, failed, failed, failed]);
        check("KubernetesPods", &["pod", "phase"], &["runningCount"], &of_one, true, minutes).await;
        let not_running = json!({"segments": ["KubernetesPods.notRunning"]});
        check("KubernetesPods", &["pod"], &[], &not_running, false, json!([["p2"], ["p3"]])).await;
        let nodes = json!([["n1", true, "1", "1", 2], ["n2", false, "1", "0", 1], ["n3", null, "0", "0", 1]]);
        let of_nodes = ["nodeCount", "readyCount", "podCount"];
        check("KubernetesNodes", &["node", "isReady"], &of_nodes, &none, false, nodes).await;
        let minutes = json!([["2", "2"], ["2", "2"], ["2", "2"], ["2", "2"], ["2", "1"], ["2", "1"]]);
        check("KubernetesNodes", &[], &["nodeCount", "readyCount"], &none, true, minutes).await;
        let of_one = json!({"filters": [{"member": "KubernetesNodes.node", "operator": "equals", "values": ["n2"]}]});
        let (is, is_not) = (json!(["n2", true, "1"]), json!(["n2", false, "0"]));
        let minutes = json!([is, is, is, is, is_not, is_not]);
        check("KubernetesNodes", &["node", "isReady"], &["readyCount"], &of_one, true, minutes).await;
        let not_ready = json!({"segments": ["KubernetesNodes.notReady"]});
        check("KubernetesNodes", &["node"], &[], &not_ready, false, json!([["n2"]])).await;
        let workloads = json!([["api", "1", 2, 0, 0.5], ["web", "1", 2, 2, 1]]);
        let of_workloads = ["workloadCount", "desired", "restarts", "cpuUsage"];
        check("KubernetesWorkloads", &["workload"], &of_workloads, &none, false, workloads).await;
        joined(&server).await;
        // 850 bytes are left, ten more are used each minute.
        check("HostFilesystems", &["host"], &["daysUntilFull"], &none, false, json!([["h1", 85.0 / 1440.0]])).await;
        // No growth can be told from one sample.
        let minutes = json!([["h1", null], ["h1", null], ["h1", null], ["h1", null], ["h1", null], ["h1", null]]);
        check("HostFilesystems", &["host"], &["daysUntilFull"], &none, true, minutes).await;
    }
}

/// What collectors send under older names, beside entities that send the newer ones, and one of each that sends both.
async fn fill_older(server: &Server) {
    let mut all = Samples(String::new());
    for host in ["h1", "h2"] {
        all.series(&format!("system_processes_count{{host_name=\"{host}\",status=\"running\"}}"), [7.0; 6]);
        let packets = format!("system_network_packets_total{{host_name=\"{host}\",device=\"eth0\"}}");
        all.series(&packets, [0.0, 60.0, 120.0, 180.0, 240.0, 300.0]);
    }
    all.series("system_process_count{host_name=\"h2\",process_state=\"running\"}", [5.0; 6]);
    let swap = |state: &str| format!("system_paging_usage_bytes{{host_name=\"h1\",device=\"p\",state=\"{state}\"}}");
    all.series(&swap("used"), [3.0; 6]);
    all.series(&swap("free"), [9.0; 6]);
    let disk =
        |state: &str| format!("system_filesystem_usage_bytes{{host_name=\"h1\",device=\"sda\",state=\"{state}\"}}");
    all.series(&disk("used"), [100.0, 110.0, 120.0, 130.0, 140.0, 150.0]);
    all.series(&disk("free"), [900.0, 890.0, 880.0, 870.0, 860.0, 850.0]);
    let of = |deployment: &str| format!("k8s_namespace_name=\"shop\",k8s_deployment_name=\"{deployment}\"");
    all.series(&format!("k8s_deployment_pod_desired{{{}}}", of("web")), [2.0; 6]);
    all.series(&format!("k8s_deployment_desired{{{}}}", of("web")), [9.0; 6]);
    all.series(&format!("k8s_deployment_desired{{{}}}", of("old")), [4.0; 6]);
    all.series(&format!("k8s_deployment_available{{{}}}", of("old")), [4.0, 4.0, 4.0, 4.0, 3.0, 3.0]);
    let pod = format!("{},k8s_pod_name=\"p5\",k8s_node_name=\"n4\",k8s_container_name=\"main\"", of("old"));
    all.series(&format!("k8s_container_restarts{{{pod}}}"), [0.0, 0.0, 1.0, 1.0, 1.0, 3.0]);
    all.series(&format!("k8s_container_cpu_request{{{pod}}}"), [0.25; 6]);
    all.volumes(&pod);
    all.docker();
    all.series("k8s_node_allocatable_cpu{k8s_node_name=\"n4\"}", [8.0; 6]);
    let pod = "k8s_namespace_name=\"shop\",k8s_node_name=\"n9\",k8s_pod_name";
    all.series(&format!("k8s_pod_phase{{{pod}=\"q1\"}}"), [1.0, 2.0, 2.0, 2.0, 2.0, 2.0]);
    all.series(&format!("k8s_pod_phase{{{pod}=\"q2\"}}"), [2.0, 2.0, 2.0, 2.0, 4.0, 4.0]);
    all.series("k8s_node_condition_ready{k8s_node_name=\"n9\"}", [1.0, 1.0, 1.0, 1.0, 0.0, 0.0]);
    all.series("k8s_node_condition_ready{k8s_node_name=\"n8\"}", [1.0; 6]);
    all.older_pool();
    all.newer_pool();
    all.senders();
    let answer = server.post("/metrics-api/api/v1/import/prometheus", &[], all.0.into_bytes()).await;
    assert!(answer.status < 300, "{}", answer.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn older_names_count_where_no_newer_one_is_sent() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default().args(&["--retention", "none"])).await;
    fill_older(&server).await;
    let none = json!({});
    for flushed in [false, true] {
        if flushed {
            server.flush().await;
        }
        let check = async |model: &str, by: &[&str], measures: &[&str], more: &Value, buckets: bool, wanted: Value| {
            let got = rows(&server, model, by, measures, more, buckets).await;
            assert!(is_near(&got, &wanted), "{model} {by:?} {measures:?}, flushed: {flushed}: {got}, not {wanted}");
        };
        let of_hosts = ["processCount", "swapUtilisation", "filesystemUtilisationMax"];
        check("Hosts", &["host"], &of_hosts, &none, false, json!([["h1", 7, 0.25, 0.15], ["h2", 5, null, null]])).await;
        check("Hosts", &[], &of_hosts, &none, false, json!([[12, 0.25, 0.15]])).await;
        let packets = json!([["h1", 300.0 / 360.0], ["h2", 300.0 / 360.0]]);
        check("HostNetworks", &["host"], &["packetRate"], &none, false, packets).await;
        let of_disks = ["capacity", "utilisation"];
        check("HostFilesystems", &["host"], &of_disks, &none, false, json!([["h1", 1000, 0.15]])).await;
        let minutes = json!([[1000, 0.1], [1000, 0.11], [1000, 0.12], [1000, 0.13], [1000, 0.14], [1000, 0.15]]);
        check("HostFilesystems", &[], &of_disks, &none, true, minutes).await;
        let fullest =
            json!({"filters": [{"member": "HostFilesystems.utilisation", "operator": "gt", "values": [0.2]}]});
        check("HostFilesystems", &["host"], &of_disks, &fullest, false, json!([])).await;
        let workloads = json!([["old", "1", 4, 3, 0.75, 3], ["web", "1", 2, null, null, null]]);
        let of_workloads = ["workloadCount", "desired", "available", "availability", "restarts"];
        check("KubernetesWorkloads", &["workload"], &of_workloads, &none, false, workloads).await;
        check("KubernetesWorkloads", &[], &["desired", "restarts"], &none, false, json!([[6, 3]])).await;
        let degraded = json!({"segments": ["KubernetesWorkloads.degraded"]});
        check("KubernetesWorkloads", &["workload"], &[], &degraded, false, json!([["old"]])).await;
        let pods =
            json!([["p5", null, "0", 3, 0.25], ["q1", "Running", "1", null, null], ["q2", "Failed", "0", null, null]]);
        let of_pods = ["runningCount", "restarts", "cpuRequest"];
        check("KubernetesPods", &["pod", "phase"], &of_pods, &none, false, pods).await;
        let not_running = json!({"segments": ["KubernetesPods.notRunning"]});
        check("KubernetesPods", &["pod"], &[], &not_running, false, json!([["q2"]])).await;
        let volumes = json!([["p5", 0.3], ["q1", null], ["q2", null]]);
        check("KubernetesPods", &["pod"], &["volumeUtilisation"], &none, false, volumes).await;
        let of_docker =
            ["cpuUsage", "cpuOfLimit", "memoryUsage", "memoryLimit", "networkIn", "networkOut", "diskIo", "restarts"];
        let of_others = json!(["d2", 0.1, null, null, null, null, null, null, null]);
        let containers = json!([["d1", 0.5, 0.25, 500, 1000, 1, 2, 0.5, 2], of_others]);
        let known = json!({"filters": [{"member": "Containers.containerId", "operator": "set"}]});
        check("Containers", &["containerId"], &of_docker, &known, false, containers).await;
        let nodes = json!([
            ["n4", null, "1", "0", "0", 8],
            ["n8", true, "1", "1", "0", null],
            ["n9", false, "1", "0", "2", null]
        ]);
        let of_nodes = ["nodeCount", "readyCount", "podCount", "cpuAllocatable"];
        check("KubernetesNodes", &["node", "isReady"], &of_nodes, &none, false, nodes).await;
        let of_pools = ["used", "limit", "utilisation", "pendingMax", "timeouts", "waitTimeP95"];
        let pools = json!([["newer", 6, 10, 0.6, 8, 0, 91], ["older", 3, 10, 0.3, 4, 5, 91]]);
        check("DatabaseConnectionPools", &["pool"], &of_pools, &none, false, pools).await;
        let of_senders = ["exported", "exportFailures", "lossRate", "queueUtilisation"];
        let senders = json!([["batch", 25, 5, 0.2, 0.2], ["otlp", 100, 10, 0.1, 0.25]]);
        check("TelemetryPipelines", &["component"], &of_senders, &none, false, senders).await;
        check("TelemetryPipelines", &[], &of_senders, &none, false, json!([[125, 15, 0.12, 0.25]])).await;
        check("DatabaseConnectionPools", &[], &of_pools, &none, false, json!([[9, 20, 0.45, 8, 5, 91]])).await;
    }
}
