#!/usr/bin/env bash
# On a node whose ranks stand still: where is each? bash debug_hang.sh train.py
set -euo pipefail
for pid in $(pgrep -f -- "-u .*$1"); do # torchrun starts each rank as: python -u train.py
  echo "== process $pid, rank $(tr '\0' '\n' < "/proc/$pid/environ" | sed -n 's/^RANK=//p')"
  py-spy dump --pid "$pid" # pip install py-spy; run this as root; a container also needs the capability SYS_PTRACE
done
