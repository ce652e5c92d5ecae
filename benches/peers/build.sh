#!/bin/sh
# Compiles the TensorFlow peer against the wheel installed in a virtual environment:
#   build.sh VENV OUT
set -eu
venv=$1
out=$2
here=$(dirname "$0")

# Found without importing the package, which would take seconds.
wheel=$("$venv/bin/python" -c '
import importlib.util
print(importlib.util.find_spec("tensorflow").submodule_search_locations[0])')

# The wheel has the libraries under their versioned names only, hence -l:NAME.
"${CC:-cc}" -std=gnu11 -O2 -Wall -Wextra "$here/tf_session.c" -o "$out" \
    -isystem "$wheel/include" -L"$wheel" -Wl,-rpath,"$wheel" \
    -l:libtensorflow_cc.so.2 -l:libtensorflow_framework.so.2
