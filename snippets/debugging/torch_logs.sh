#!/usr/bin/env bash
# Which compiled function is compiled again, and because of what? bash torch_logs.sh recompiles.py
set -euo pipefail
TORCH_LOGS=recompiles,graph_breaks python "$@" 2>&1 | grep -E "Recompiling|mismatch|Graph Break Reason" || echo "compiled once"
