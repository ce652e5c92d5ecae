#!/usr/bin/env bash
# Training steps on a GPU beside PyTorch's, on a machine with Python and no Rust: benches/gpu/README.md.
#   run.sh BINARY [arguments of compare.py]
# The plugin and cuDNN are those of the Python environment of $PYTHON (python3); THALWEG_ACCELERATOR names another plugin.
set -euo pipefail
if [ $# -lt 1 ]; then
    echo "usage: run.sh BINARY [arguments of compare.py]" >&2
    exit 2
fi
binary="$(realpath "$1")"
shift
here="$(cd "$(dirname "$0")" && pwd)"
python="${PYTHON:-python3}"
packages="$("$python" -c 'import site, sysconfig
print(*dict.fromkeys([sysconfig.get_path("purelib"), *site.getsitepackages(), site.getusersitepackages()]), sep="\n")')"
# Paths below a folder of packages: below FOLDER, by further arguments of find.
below() {
    local folder="$1"
    shift
    while read -r site; do
        if [ -d "$site/$folder" ]; then find "$site/$folder" "$@"; fi
    done <<<"$packages"
}
if [ -z "${THALWEG_ACCELERATOR:-}" ]; then
    THALWEG_ACCELERATOR="$(below jax_plugins -name xla_cuda_plugin.so | sed -n 1p)"
    if [ -z "$THALWEG_ACCELERATOR" ]; then
        echo "no CUDA plugin in the Python environment of $python: pip install 'jax[cuda13]'" >&2
        exit 1
    fi
    export THALWEG_ACCELERATOR
fi
# cuDNN and its kin, for the plugin; PyTorch finds its own.
THALWEG_LIBRARIES="$(below nvidia -type d -name lib | paste -sd:)"
export THALWEG_LIBRARIES
# XLA looks for ptxas and libdevice in the toolkit of the wheels.
toolkit="$(below nvidia -type d \( -name cu13 -o -name cuda_nvcc \) | sed -n 1p)"
if [ -n "$toolkit" ]; then
    export XLA_FLAGS="--xla_gpu_cuda_data_dir=$toolkit ${XLA_FLAGS:-}"
fi
echo "plugin $THALWEG_ACCELERATOR" >&2
exec "$python" "$here/compare.py" "$binary" "$@"
