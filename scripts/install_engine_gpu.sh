#!/usr/bin/env bash
# Fill .venv-engine on a machine with an NVIDIA GPU: SGLang with the dependencies it asks for itself.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

.venv-engine/bin/python -m pip install ${TORCH_INDEX:+--extra-index-url "$TORCH_INDEX"} -r requirements/engine-gpu.txt
