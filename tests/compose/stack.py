"""The compose stack as Docker sees it. In: the compose command with its files. Out: states, users, a crashed part."""

from __future__ import annotations

import subprocess


class Stack:
    """One compose project, by the command that manages it."""

    def __init__(self, compose: list[str]) -> None:
        self._compose = compose

    def states(self) -> dict[str, str]:
        """Of each container by name: its health where it has a check, else like `running_0`, `exited_0`."""
        state = "{{if .State.Health}}{{.State.Health.Status}}{{else}}{{.State.Status}}_{{.State.ExitCode}}{{end}}"
        ids = _output([*self._compose, "ps", "-a", "-q"]).split()
        lines = _output(["docker", "inspect", "--format", "{{.Name}} " + state, *ids]).splitlines() if ids else []
        return {name.lstrip("/"): state for name, state in (line.split() for line in lines)}

    def all_well(self) -> bool:
        """Every container is healthy, runs without a check, or has done its work."""
        states = set(self.states().values())
        return bool(states) and states <= {"healthy", "running_0", "exited_0"}

    def user(self, service: str) -> str:
        """User id that a service's container runs as."""
        return _output([*self._compose, "exec", "-T", service, "id", "-u"]).strip()

    def crash(self, service: str) -> None:
        """Every process of the container dies. (`docker kill` would count as somebody's wish and leave it down.)"""
        command = [*self._compose, "exec", "-T", service, "sh", "-c", "kill -9 -1"]
        subprocess.run(command, check=False, capture_output=True)

    def restarts(self, service: str) -> int:
        """How often Docker started the container again."""
        container = _output([*self._compose, "ps", "-q", service]).strip()
        return int(_output(["docker", "inspect", "--format", "{{.RestartCount}}", container]))

    def metrics(self, service: str, port: int) -> str:
        """What a service that is not published shows to Prometheus."""
        program = f"import urllib.request as u; print(u.urlopen('http://127.0.0.1:{port}/metrics').read().decode())"
        return _output([*self._compose, "exec", "-T", service, "python", "-c", program])

    def show(self) -> None:
        """Prints what runs, and the last lines of everything."""
        subprocess.run([*self._compose, "ps"], check=False)
        subprocess.run([*self._compose, "logs", "--tail", "20"], check=False)


def _output(command: list[str]) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
