"""The limit: pgbench, of the same PostgreSQL, inserts the same row in one transaction each, prepared, no HTTP."""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.ingest.event import row
from benchmarks.ingest.load import figures
from benchmarks.processes import OTHERS_CORE, on_core
from deploy.local import postgres_files
from deploy.local.embedded import EmbeddedPostgres


def script() -> str:
    """One INSERT; random numbers make each row a new event."""
    fixed = {name: _literal(value) for name, value in row().items()}
    unique = "to_hex(:a::bigint) || to_hex(:b::bigint) || to_hex(:c::bigint)"
    columns = fixed | {
        "client_completion_id": f"lpad({unique}, 36, '0')",
        "dedupe_key": f"lpad({unique}, 64, '0') || chr(58) || 'accepted'",
        "client_time": "now()",
        "received_at": "now()",
        "next_attempt_at": "now()",
    }
    numbers = "".join(f"\\set {name} random(1, 2000000000000000)\n" for name in "abc")
    return f"{numbers}INSERT INTO feedback_events ({', '.join(columns)}) VALUES ({', '.join(columns.values())});\n"


def _literal(value: Any) -> str:
    if isinstance(value, bytes):
        return f"'\\x{value.hex()}'"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        value = json.dumps(value)  # with blanks: pgbench takes `:name` for a variable, in quotes too
    quoted = str(value).replace("'", "''")
    return str(value) if isinstance(value, int | float) else f"'{quoted}'"


def measure(server: EmbeddedPostgres, database: str, connections: int, seconds: float) -> dict[str, Any]:
    """The same figures as the load generator's."""
    with tempfile.TemporaryDirectory(prefix="tabwise-pgbench-") as folder:
        file = Path(folder) / "insert.sql"
        file.write_text(script())
        options = ["-n", "-M", "prepared", "-c", str(connections), "-j", "1", "-T", str(max(1, round(seconds)))]
        options += ["-f", str(file), "-l", "--log-prefix", f"{folder}/log"]
        where = ["-h", "127.0.0.1", "-p", str(server.port), "-U", "postgres", database]
        program = str(postgres_files.programs() / "pgbench")
        done = subprocess.run(
            on_core(OTHERS_CORE, [program, *options, *where]), capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(f"pgbench: {done.stderr.strip()[:500]}")
        return _figures(done.stdout, Path(folder))


def _figures(output: str, folder: Path) -> dict[str, Any]:
    rate = re.search(r"tps = ([\d.]+)", output)
    failed = re.search(r"number of failed transactions: (\d+)", output)
    lines = [line for file in folder.glob("log.*") for line in file.read_text().splitlines()]
    latencies = [int(line.split()[2]) / 1e6 for line in lines]
    if rate is None or len(latencies) < 2:
        raise SystemExit("pgbench gave no figures")
    found = figures(latencies, int(failed[1]) if failed else 0, 1.0)
    return found | {"events_per_s": float(rate[1])}
