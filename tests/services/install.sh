#!/bin/sh
# Installs what the service tests use, as far as this machine lets it: Debian's packages as root, extras by pip.
# What cannot be had is named, and the tests that need it are skipped, by name.
#   tests/services/install.sh PYTHON
set -u
python=$1

missing() { echo "services: $1 could not be installed; its tests are skipped"; }

# program : package
for wanted in chromium:chromium postgres:postgresql munged:munge slurmctld:slurm-wlm; do
    program=${wanted%%:*}
    package=${wanted#*:}
    PATH="$PATH:/usr/sbin:$(echo /usr/lib/postgresql/*/bin | tr ' ' ':')" command -v "$program" >/dev/null 2>&1 && continue
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        if [ -z "${updated:-}" ]; then
            apt-get update -qq >/dev/null 2>&1
            updated=yes
        fi
        DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends "$package" >/dev/null 2>&1 || missing "$package"
    else
        missing "$package"
    fi
done
"$python" --version >/dev/null || exit 1

# Extras of grpoctl, at the versions of constraints.txt. module : extra
for wanted in ray:ray; do
    module=${wanted%%:*}
    extra=${wanted#*:}
    "$python" -c "import importlib.util, sys; sys.exit(importlib.util.find_spec('$module') is None)" && continue
    "$python" -m pip install -qq --disable-pip-version-check -c constraints.txt -e ".[$extra]" || missing "grpoctl[$extra]"
done
