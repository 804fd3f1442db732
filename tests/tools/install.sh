#!/usr/bin/env bash
# Installs the real clients that the tests use into a folder of their own: nothing outside of it changes, no service
# starts. Prometheus, promtool, the node exporter and rsyslog from Debian's packages, DuckDB, OpenTelemetry's SDK, clients
# that send logs, and the linter of container files from PyPI.
set -euo pipefail
tools=$1
requirements=$(dirname "$0")/requirements.txt
mkdir -p "$tools"
sudo=; [ "$(id -u)" = 0 ] || sudo=sudo

if [ ! -x "$tools/usr/bin/promtool" ] || [ ! -x "$tools/usr/bin/prometheus-node-exporter" ]; then
  echo "fetching prometheus and prometheus-node-exporter"
  (cd "$tools" && { apt-get download -q prometheus prometheus-node-exporter ||
    { $sudo apt-get update -q && apt-get download -q prometheus prometheus-node-exporter; }; })
  for package in "$tools"/*.deb; do dpkg -x "$package" "$tools"; done
  rm -f "$tools"/*.deb
fi

if [ ! -x "$tools/usr/sbin/rsyslogd" ]; then
  echo "fetching rsyslog"
  packages="rsyslog rsyslog-elasticsearch libestr0 libfastjson4 liblognorm5"
  (cd "$tools" && { apt-get download -q $packages || { $sudo apt-get update -q && apt-get download -q $packages; }; })
  for package in "$tools"/*.deb; do dpkg -x "$package" "$tools"; done
  rm -f "$tools"/*.deb
fi

if ! cmp -s "$requirements" "$tools/requirements.installed"; then
  echo "installing Python clients"
  python3 -m venv "$tools/venv" || { $sudo apt-get update -q; $sudo apt-get install -qy python3-venv; python3 -m venv "$tools/venv"; }
  "$tools/venv/bin/pip" install -q --disable-pip-version-check -r "$requirements"
  cp "$requirements" "$tools/requirements.installed"
fi
