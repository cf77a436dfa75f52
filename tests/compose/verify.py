"""Looks at a compose stack that comes up, from the host: everything healthy, one completion and one feedback event,
a version trained and published, figures for the whole dashboard, nothing reachable that should not be, and a crashed
trainer that comes back and trains on. Prints what it saw; exit 1 on a fault."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable

from tests.compose.dashboard import queries, value_now, without_answer
from tests.compose.stack import Stack

STACK = Stack(sys.argv[1].split() + sys.argv[2:])
KEY = os.environ.get("TABWISE_API_KEYS", "tabwise-dev-key").split(",")[0].split(":")[0]
GATEWAY, INGEST, PROMETHEUS = "http://127.0.0.1:8081", "http://127.0.0.1:8082", "http://127.0.0.1:9090"
SERVICES = ("gateway", "ingest", "engine", "trainer", "publisher")
URLS = ["--gateway", GATEWAY, "--ingest", INGEST, "--key", KEY]


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


def fail(what: str) -> None:
    """Ends the program with the stack's last words."""
    STACK.show()
    sys.exit(f"FAILED: {what}")


def await_true(what: str, check: Callable[[], bool], timeout_s: float) -> None:
    """Waits for `check`, saying how long it took; ends the program if it does not come."""
    started = time.monotonic()
    while not check():
        if time.monotonic() - started > timeout_s:
            fail(f"{what}: not within {timeout_s:.0f} s")
        time.sleep(1)
    print(f"ok: {what} ({time.monotonic() - started:.0f} s)", flush=True)


def run(what: str, *command: str) -> None:
    """Runs a client against the stack and shows what it prints."""
    print(f"-- {what}", flush=True)
    if subprocess.run([sys.executable, "-m", *command, *URLS], check=False).returncode != 0:
        fail(what)


def live_targets() -> set[str]:
    """Prometheus jobs whose last scrape succeeded."""
    status, body = get(f"{PROMETHEUS}/api/v1/targets")
    if status != 200:
        return set()
    return {t["labels"]["job"] for t in json.loads(body)["data"]["activeTargets"] if t["health"] == "up"}


def shown_version() -> int:
    """The newest version that shown completions came from, as ingest's statistics tell."""
    status, body = get(f"{INGEST}/v1/stats")
    return max((row["policy_version"] for row in json.loads(body)["versions"]), default=0) if status == 200 else 0


def newer_than(version: int) -> bool:
    """Whether developers were shown a newer one; some more typing makes it visible."""
    if shown_version() > version:
        return True
    command = [sys.executable, "-m", "clients.developer", *URLS, "--events", "20", "--developers", "2"]
    subprocess.run(command, check=False, stdout=subprocess.DEVNULL)
    return shown_version() > version


def rounds_since_start() -> int:
    """How many checkpoints this life of the trainer has committed."""
    found = re.search(r'(?m)^tabwise_trainer_rounds_total\{outcome="committed"\} (\S+)', STACK.metrics("trainer", 9101))
    return int(float(found[1])) if found else 0


def check_dashboard() -> None:
    """Every question of the Grafana dashboard has an answer; rates need some scrapes first."""
    asked, deadline = queries(), time.monotonic() + 60
    while missing := [query for query in asked if without_answer(PROMETHEUS, query)]:
        if time.monotonic() > deadline:
            print(*(f"no data: {query.panel}: {query.expression}" for query in missing), sep="\n")
            sys.exit(f"FAILED: {len(missing)} of the dashboard's {len(asked)} queries have no answer")
        time.sleep(5)
    print(f"ok: all {len(asked)} queries of the dashboard are answered")


def figures_right() -> bool:
    """The dashboard's main figures are those of ingest's statistics, once the last rejects are final."""
    totals = json.loads(get(f"{INGEST}/v1/stats")[1])["totals"]
    pairs = [
        (value_now(PROMETHEUS, panel), float(totals[field]))
        for panel, field in (
            ("Acceptance rate, last hour", "acceptance_rate"),
            ("Mean reward, last hour", "mean_reward"),
        )
    ]
    right = all(abs(shown - true) < 0.02 for shown, true in pairs)
    if right:
        print("acceptance and reward, (Prometheus, ingest):", *(f"({shown:.3f}, {true:.3f})" for shown, true in pairs))
    return right


def check_walls() -> None:
    """No container of ours runs as root, and the engine cannot be reached from outside."""
    users = {service: STACK.user(service) for service in SERVICES}
    print(f"users: {users}")
    if "0" in users.values():
        sys.exit("FAILED: a container of ours runs as root")
    for path in ("/pause", "/collective_rpc", "/weight_info"):
        if get(f"{GATEWAY}{path}")[0] != 404:
            sys.exit(f"FAILED: {path} answers through the gateway")
    if get("http://127.0.0.1:8000/health")[0] != 0:
        sys.exit("FAILED: the engine's port is published")
    print("ok: the engine is reachable on the internal network alone")


def check_crash() -> None:
    """A trainer that dies is started again and trains what comes then."""
    STACK.crash("trainer")
    await_true("Docker restarts a crashed trainer", lambda: STACK.restarts("trainer") > 0, 60)
    await_true("all containers healthy again", STACK.all_well, 120)
    before = shown_version()
    await_true("a newer version shown to developers", lambda: newer_than(before), 240)
    await_true("it came from the new trainer", lambda: rounds_since_start() > 0, 30)


def main() -> None:
    """All checks in the order in which a user meets them."""
    await_true("all containers healthy", STACK.all_well, 300)
    await_true("gateway and ingest ready", lambda: get(f"{GATEWAY}/ready")[0] == get(f"{INGEST}/ready")[0] == 200, 60)
    run("test client", "clients.check")
    run("simulated developers", "clients.developer", "--events", "160", "--developers", "4")
    await_true("a trained version shown to developers", lambda: newer_than(0), 240)
    await_true("Prometheus scrapes all five services", lambda: live_targets() >= set(SERVICES), 60)
    check_dashboard()
    await_true("the dashboard's acceptance and reward are right", figures_right, 90)
    check_walls()
    check_crash()
    print(*sorted(f"{name}: {state}" for name, state in STACK.states().items()), sep="\n")


if __name__ == "__main__":
    main()
