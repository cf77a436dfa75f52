"""`python -m services.engine`: vLLM's OpenAI server in this process, stamped with policy versions.

Serves `/v1/completions`, `/v1/models`, `/health`, `/metrics` and vLLM's admin routes (`/pause`, `/collective_rpc` …)
on `TABWISE_ENGINE_HOST:TABWISE_ENGINE_PORT`. Exit status 2: a setting must be changed; 1: vLLM failed.
"""

from __future__ import annotations

import os
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

from services.engine import checks, command, logs, warmup
from services.engine.settings import EngineSettings
from shared.kit.errors import SettingsError


def main() -> int:
    """Check, start, serve until SIGTERM. Returns the exit status."""
    try:
        settings = EngineSettings.load()
        checks.check(settings)
        with tempfile.TemporaryDirectory(prefix="tabwise-engine-") as folder:
            return _serve(settings, Path(folder))
    except SettingsError as error:
        print(f"engine: {error}", file=sys.stderr)
        return 2


def _serve(settings: EngineSettings, folder: Path) -> int:
    config, errors = logs.write_logging_config(folder, settings.log_level)
    cpu = command.cpu_build()
    os.environ.update(command.environment(settings, cpu=cpu))
    os.environ["VLLM_LOGGING_CONFIG_PATH"] = str(config)
    import_module("services.engine.stamp").install()
    try:
        _run_vllm(command.arguments(settings, cpu=cpu))
    except KeyboardInterrupt:
        return 0
    except SettingsError:
        raise
    except Exception as error:
        reason = logs.last_error(errors) or logs.one_line(error)
        culprit = logs.setting_for(reason)
        value = getattr(settings, culprit)
        print(f"engine: vLLM did not start, check TABWISE_{culprit.upper()} (now {value}): {reason}", file=sys.stderr)
        return 1
    return 0


def _run_vllm(arguments: list[str]) -> None:
    """vLLM's own `main()`, with our arguments instead of the command line's."""
    entry: Any = import_module("vllm.entrypoints.launchers.api_server.entry")
    cli = import_module("vllm.entrypoints.launchers.cli_args")
    parser = import_module("vllm.utils.argparse_utils").FlexibleArgumentParser()
    import_module("vllm.entrypoints.serve.utils.api_utils").cli_env_setup()
    entry.init_app_state = warmup.before_serving(entry.init_app_state)
    namespace = cli.make_arg_parser(parser).parse_args(arguments)
    cli.validate_parsed_serve_args(namespace)
    import_module("uvloop").run(entry.run_server(namespace))


if __name__ == "__main__":
    sys.exit(main())
