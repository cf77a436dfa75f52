"""Looks at a compose stack that comes up, from the host: everything healthy, one completion and one feedback event,
a version trained and published, and nothing reachable that should not be. Prints what it saw; exit 1 on a fault."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable

COMPOSE = sys.argv[1].split() + sys.argv[2:]
KEY = os.environ.get("TABWISE_API_KEYS", "tabwise-dev-key").split(",")[0].split(":")[0]
GATEWAY, INGEST, PROMETHEUS = "http://127.0.0.1:8081", "http://127.0.0.1:8082", "http://127.0.0.1:9090"


def get(url: str, timeout_s: float = 5) -> tuple[int, str]:
    """Status and body; status 0 where nobody answers."""
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {KEY}"})
    try:
        with urllib.request.urlopen(request, timeout=timeout_s) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError:
        return 0, ""


def await_true(what: str, check: Callable[[], bool], timeout_s: float) -> None:
    """Waits for `check`, saying how long it took; ends the program if it does not come."""
    started = time.monotonic()
    while not check():
        if time.monotonic() - started > timeout_s:
            subprocess.run([*COMPOSE, "ps"], check=False)
            sys.exit(f"FAILED: {what}: not within {timeout_s:.0f} s")
        time.sleep(1)
    print(f"ok: {what} ({time.monotonic() - started:.0f} s)")


def run(what: str, command: list[str]) -> None:
    """Runs a client against the stack and shows what it prints."""
    print(f"-- {what}", flush=True)
    if subprocess.run(command, check=False).returncode != 0:
        sys.exit(f"FAILED: {what}")


def live_targets() -> set[str]:
    """Prometheus jobs whose last scrape succeeded."""
    status, body = get(f"{PROMETHEUS}/api/v1/targets")
    if status != 200:
        return set()
    return {t["labels"]["job"] for t in json.loads(body)["data"]["activeTargets"] if t["health"] == "up"}


def live_version() -> int:
    """The newest version that shown completions came from, as ingest's statistics tell."""
    status, body = get(f"{INGEST}/v1/stats")
    return max((row["policy_version"] for row in json.loads(body)["versions"]), default=0) if status == 200 else 0


def container_users() -> dict[str, str]:
    """User id that each of our own containers runs as."""
    services = ("gateway", "ingest", "engine", "trainer", "publisher")
    return {
        name: subprocess.run(
            [*COMPOSE, "exec", "-T", name, "id", "-u"], check=True, capture_output=True, text=True
        ).stdout.strip()
        for name in services
    }


def main() -> None:
    """All checks in the order in which a user meets them."""
    await_true("gateway ready", lambda: get(f"{GATEWAY}/ready")[0] == 200, 240)
    await_true("ingest ready", lambda: get(f"{INGEST}/ready")[0] == 200, 120)
    python = sys.executable
    urls = ["--gateway", GATEWAY, "--ingest", INGEST, "--key", KEY]
    run("test client", [python, "-m", "clients.check", *urls])
    run("simulated developers", [python, "-m", "clients.developer", *urls, "--events", "160", "--developers", "4"])
    await_true("a trained version shown to developers", _version_served, 240)
    jobs = {"gateway", "ingest", "trainer", "publisher", "engine"}
    await_true("Prometheus scrapes all five services", lambda: live_targets() >= jobs, 60)
    users = container_users()
    print(f"users: {users}")
    if "0" in users.values():
        sys.exit("FAILED: a container of ours runs as root")
    for path in ("/pause", "/collective_rpc", "/weight_info"):
        if get(f"{GATEWAY}{path}")[0] != 404:
            sys.exit(f"FAILED: {path} answers through the gateway")
    if get("http://127.0.0.1:8000/health")[0] != 0:
        sys.exit("FAILED: the engine's port is published")
    print("ok: the engine is reachable on the internal network alone")


def _version_served() -> bool:
    """Some more typing makes the new version visible."""
    if live_version() > 0:
        return True
    urls = ["--gateway", GATEWAY, "--ingest", INGEST, "--key", KEY]
    command = [sys.executable, "-m", "clients.developer", *urls, "--events", "20", "--developers", "2"]
    subprocess.run(command, check=False, stdout=subprocess.DEVNULL)
    return live_version() > 0


if __name__ == "__main__":
    main()
