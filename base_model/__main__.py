"""``python -m base_model``: train the small base model, measure it, or look at the code it is made for."""

import argparse
import json
from dataclasses import asdict, replace
from pathlib import Path

from base_model.house import TEAM_SEEDS, generate_module, style_named

DEFAULT_FOLDER = Path("models/tabwise-small")


def main() -> None:
    """Parses the command line and runs one command."""
    args = _parser().parse_args()
    {"train": _train, "evaluate": _evaluate, "show": _show, "write": _write}[args.command](args)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m base_model", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    train = commands.add_parser("train", help="train from scratch on generated code; about 20 minutes on 2 idle cores")
    train.add_argument("--out", type=Path, default=DEFAULT_FOLDER, help="folder to write (default: %(default)s)")
    train.add_argument("--seed", type=int, help="seed of the data and of the weights")
    train.add_argument("--threads", type=int, help="threads to compute with (default: 2)")
    measure = commands.add_parser("evaluate", help="measure a model on held-out modules")
    measure.add_argument("--model", type=Path, default=DEFAULT_FOLDER, help="model folder (default: %(default)s)")
    measure.add_argument("--moments", type=int, default=900, help="moments per style (default: %(default)s)")
    measure.add_argument("--seed", type=int, default=0)
    measure.add_argument(
        "--styles", nargs="+", default=["mixed", "harbor", "meridian"], help="mixed, a team's name, or random-N"
    )
    show = commands.add_parser("show", help="print a generated module")
    show.add_argument("module_seed", type=int)
    show.add_argument("--style", default="mixed", help="mixed, a team's name, or random-N")
    write = commands.add_parser("write", help="write a team's modules to a folder: a repository for the warm start")
    write.add_argument("--out", type=Path, required=True, help="folder, made where it is not there")
    write.add_argument("--style", default="harbor", help="mixed, a team's name, or random-N (default: %(default)s)")
    write.add_argument("--modules", type=int, default=200, help="how many (default: %(default)s)")
    return parser


def _train(args: argparse.Namespace) -> None:
    from base_model.train import TrainSettings, train  # torch takes seconds to import

    given = {name: getattr(args, name) for name in ("seed", "threads") if getattr(args, name) is not None}
    train(args.out, replace(TrainSettings(), **given))


def _evaluate(args: argparse.Namespace) -> None:
    from base_model.evaluate import evaluate  # torch takes seconds to import

    reports = [evaluate(args.model, style_named(name), args.moments, args.seed) for name in args.styles]
    print(f"{'style':12} {'moments':>8} {'exact':>7} {'accepted':>9} {'oracle':>7} {'chance':>7}")
    for r in reports:
        print(f"{r.style:12} {r.moments:8} {r.exact:7.3f} {r.accepted:9.3f} {r.oracle:7.3f} {r.chance:7.3f}")
    for r in reports:
        print(json.dumps(asdict(r)))


def _show(args: argparse.Namespace) -> None:
    print(generate_module(args.module_seed, style_named(args.style)).source, end="")


def _write(args: argparse.Namespace) -> None:
    style = style_named(args.style)
    for number in range(args.modules):
        module = generate_module(TEAM_SEEDS[number], style)
        file = args.out / f"{number:04}_{Path(module.path).name}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(module.source)
    print(f"{args.modules} modules as team {args.style} writes them: {args.out}")


if __name__ == "__main__":
    main()
