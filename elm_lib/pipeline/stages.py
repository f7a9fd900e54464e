"""The stages of dvc.yaml for one profile: read, and run one after another.

    python -m elm_lib.pipeline.stages desk                   every stage, forced, whatever `profile` params.yaml names
    python -m elm_lib.pipeline.stages desk figures report    those whose name begins so

`dvc repro` runs the profile that params.yaml names, and only what changed. This runs any profile whole, without a
change to params.yaml or dvc.lock.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from elm_lib.support.processes import die_with, for_owner_alone

TEMPLATE = re.compile(r"\$\{([\w.]+)\}")


def stages(root: str | Path = ".", profile: str | None = None, **changes: Any) -> dict[str, dict[str, Any]]:
    """Every stage by name, its templates filled in from params.yaml.

    profile  in place of the one that params.yaml names;  changes  other keys of the top level, likewise
    """
    root = Path(root)
    params = yaml.safe_load((root / "params.yaml").read_text()) | changes | ({"profile": profile} if profile else {})
    found = {}
    for name, stage in yaml.safe_load((root / "dvc.yaml").read_text())["stages"].items():
        if "foreach" in stage:
            items = stage["foreach"]
            if isinstance(items, str):
                template = TEMPLATE.fullmatch(items)
                if template is None:
                    raise ValueError(f"dvc.yaml: foreach of {name} is {items!r}: give a list, or one ${{...}}")
                items = _value(params, template[1])
            for key, item in items.items() if isinstance(items, dict) else zip(items, items):
                found[f"{name}@{key}"] = _filled(stage["do"], params | {"key": key, "item": item})
        else:
            found[name] = _filled(stage, params)
    return found


def _filled(content: Any, values: dict[str, Any]) -> Any:
    if isinstance(content, dict):
        return {_filled(key, values): _filled(value, values) for key, value in content.items()}
    if isinstance(content, list):
        return [_filled(value, values) for value in content]
    if isinstance(content, str):
        return TEMPLATE.sub(lambda match: str(_value(values, match[1])), content)
    return content


def _value(values: dict[str, Any], path: str) -> Any:
    for part in path.split("."):
        if part not in values:
            raise KeyError(f"dvc.yaml names ${{{path}}}, and params.yaml has no {part!r} there")
        values = values[part]
    return values


def run(root: Path, profile: str, only: list[str], **changes: Any) -> None:
    """Run the stages in the order of dvc.yaml. Raises SystemExit where one fails; its own line says why."""
    found = stages(root, profile, **changes)
    chosen = [name for name in found if not only or any(name.startswith(prefix) for prefix in only)]
    if not chosen:
        sys.exit(f"no stage begins with {only}: dvc.yaml has {list(found)}")
    for name in chosen:
        words = shlex.split(found[name]["cmd"])
        done = subprocess.run([sys.executable, *words[1:]] if words[0] == "python" else words, cwd=root, check=False)
        if done.returncode:
            sys.exit(
                f"stage {name} failed: nothing that it had made is lost; mend what its line says and call this again"
            )


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m elm_lib.pipeline.stages",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("profile")
    parser.add_argument("stages", nargs="*", metavar="STAGE", help="first letters of stages; all by default")
    parser.add_argument("--set", nargs=2, action="append", default=[], metavar=("KEY", "VALUE"), help="of params.yaml")
    options = parser.parse_args(arguments)
    for_owner_alone()
    die_with(os.getppid())
    run(Path(), options.profile, options.stages, **dict(options.set))


if __name__ == "__main__":
    main()
