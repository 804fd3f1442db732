#!/usr/bin/env bash
# Installs the real clients that the tests use into a folder of their own: nothing outside of it changes but for two
# templates that Debian's Alertmanager reads from where its package has them, and PostgreSQL below /var/lib/quiver-tests
# where root installs it on a machine without; no service starts. Prometheus, promtool, the node exporter, Alertmanager with amtool, rsyslog and psql from Debian's packages, DuckDB,
# OpenTelemetry's SDK, clients that send logs, fetch tokens or ask in SQL, a mail server, schemathesis, and the linter of
# container files from PyPI, clients of token services and of Cube from npm. PostgreSQL keeps configuration in tests.
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

# That of Debian 12 takes no file of credentials: this one is of the release behind it, with lists of its own.
if [ ! -x "$tools/newer/usr/bin/promtool" ]; then
  echo "fetching a newer promtool"
  mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep '/debian/*$' | sort -u | head -1)
  apt=$tools/apt
  mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial" "$tools/newer"
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror trixie main" > "$apt/sources.list"
  newer() {
    apt-get -q -o Dir::Etc::sourcelist="$apt/sources.list" -o Dir::Etc::sourceparts=/dev/null \
      -o Dir::State::lists="$apt/lists" -o Dir::Cache="$apt/cache" -o APT::Sandbox::User=root "$@"
  }
  { newer update && (cd "$tools/newer" && newer download promtool && dpkg -x promtool_*.deb . && rm promtool_*.deb); } ||
    echo "THERE IS NO NEWER PROMTOOL: its test will be skipped"
  rm -rf "$apt"
fi

if [ ! -x "$tools/usr/bin/amtool" ]; then
  echo "fetching prometheus-alertmanager"
  (cd "$tools" && { apt-get download -q prometheus-alertmanager ||
    { $sudo apt-get update -q && apt-get download -q prometheus-alertmanager; }; })
  for package in "$tools"/*.deb; do dpkg -x "$package" "$tools"; done
  rm -f "$tools"/*.deb
fi

templates=/usr/share/prometheus/alertmanager
if [ ! -e "$templates/default.tmpl" ]; then
  $sudo install -D -m 644 -t "$templates" "$tools$templates"/*.tmpl
fi

if [ ! -x "$tools/usr/sbin/rsyslogd" ]; then
  echo "fetching rsyslog"
  packages="rsyslog rsyslog-elasticsearch libestr0 libfastjson4 liblognorm5"
  (cd "$tools" && { apt-get download -q $packages || { $sudo apt-get update -q && apt-get download -q $packages; }; })
  for package in "$tools"/*.deb; do dpkg -x "$package" "$tools"; done
  rm -f "$tools"/*.deb
fi

# PostgreSQL refuses to run as root: tests that do start it as `nobody`, who cannot read what is below root's home.
postgresql=$tools/postgresql
if ! compgen -G "/usr/lib/postgresql/*/bin/initdb" >/dev/null && ! compgen -G "$postgresql/usr/lib/postgresql/*/bin/initdb" >/dev/null; then
  echo "fetching postgresql"
  rm -rf "$postgresql"
  if [ "$(id -u)" = 0 ]; then
    mkdir -p /var/lib/quiver-tests/postgresql
    ln -s /var/lib/quiver-tests/postgresql "$postgresql"
  else
    mkdir "$postgresql"
  fi
  server() { apt-cache depends postgresql | sed -n 's/.*Depends: \(postgresql-[0-9]*\)$/\1/p' | head -1; }
  [ -n "$(server)" ] || $sudo apt-get update -q
  # With the libraries that this machine lacks, all unpacked and none installed.
  packages="$(server) postgresql-client-$(server | sed 's/.*-//') libpq5 $(apt-get install -qs --no-install-recommends "$(server)" | sed -n 's/^Inst \([^ ]*\) .*/\1/p')"
  packages=$(printf '%s\n' $packages | sort -u)
  (cd "$tools" && { apt-get download -q $packages || { $sudo apt-get update -q && apt-get download -q $packages; }; })
  for package in "$tools"/*.deb; do dpkg -x "$package" "$postgresql/"; done
  rm -f "$tools"/*.deb
fi

if ! ls "$tools"/usr/lib/postgresql/*/bin/psql >/dev/null 2>&1; then
  echo "fetching psql"
  apt-cache show postgresql-client >/dev/null 2>&1 || $sudo apt-get update -q
  depends() { apt-cache depends "$1" | sed -n 's/^ *Depends: \(lib[a-z0-9.+-]*\|postgresql-client-[0-9]*\)$/\1/p' | grep -v '^libc6$'; }
  client=$(depends postgresql-client | grep -m1 postgresql-client)
  packages="$client $(depends "$client") libpq5 $(depends libpq5) $(depends "$(depends libpq5 | grep -m1 libldap)")"
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

# Modules are read from there by path; nothing is run at installation.
package=$(dirname "$0")/package.json
if ! cmp -s "$package" "$tools/node/package.installed"; then
  echo "installing npm clients"
  command -v npm > /dev/null || { $sudo apt-get update -q; $sudo apt-get install -qy nodejs npm; }
  mkdir -p "$tools/node"
  cp "$package" "$tools/node/package.json"
  (cd "$tools/node" && npm install --no-audit --no-fund --ignore-scripts --loglevel=error)
  cp "$tools/node/package.json" "$tools/node/package.installed"
fi
