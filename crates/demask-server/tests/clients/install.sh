#!/usr/bin/env bash
# Brings OpenAI's clients and a driver for Chromium, for the tests of the server: into target/clients, or the folder
# DEMASK_CLIENTS. Chromium itself comes from the system's packages.
set -euo pipefail
root="$(cd "$(dirname "$0")/../../../.." && pwd)"
to="${DEMASK_CLIENTS:-$root/target/clients}"
mkdir -p "$to"
[ -x "$to/venv/bin/python" ] || python3 -m venv "$to/venv"
"$to/venv/bin/python" -c 'import openai' 2>/dev/null || "$to/venv/bin/python" -m pip install --quiet 'openai>=2,<4'
if [ ! -d "$to/node_modules/openai" ] || [ ! -d "$to/node_modules/puppeteer-core" ]; then
    npm install --silent --no-audit --no-fund --prefix "$to" openai puppeteer-core
fi
