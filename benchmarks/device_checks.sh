#!/usr/bin/env bash
# What waits for a GPU, as one script: is the CUDA engine right, how fast is it, how fast are runs that share the card.
#     bash benchmarks/device_checks.sh [OUT]        about 4 minutes on an H100; OUT gets recurrence.csv, .md, .png and the log
# Stops at the first thing that is wrong. Training itself: `dvc repro` with `device: cuda` and `runner: {cluster: threads, ...}`.
set -euo pipefail
out=${1:-results/benchmarks}
export PYTHONPATH=.${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1
mkdir -p "$out"
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
python3 -c 'import platform, torch, triton; print("Python", platform.python_version(), "torch", torch.__version__, "triton", triton.__version__)'
timeout 150 python3 -m pytest -q -x -W default -p no:cacheprovider tests/kernels tests/training 2>&1 | tail -40
timeout 90 python3 benchmarks/kernel_warps.py || echo "kernel_warps stopped: $?"
timeout 120 python3 benchmarks/shared_gpu.py || echo "shared_gpu stopped: $?"
timeout 180 python3 benchmarks/recurrence.py --device cuda --rounds 5 --growth no --out "$out"
