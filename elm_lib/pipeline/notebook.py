"""Run a notebook as a pipeline stage.

    python -m elm_lib.pipeline.notebook notebooks/train.ipynb OUT.ipynb -p group NAME

papermill executes it with the kernel of this very environment. On top of papermill: a parameter that the notebook does
not have is an error; an error of ours ends in one line; the executed notebook is normalised, so that two runs of one
commit are byte-identical; and when the pipeline is killed, the kernel and all it started end with it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

# jsonschema, below nbformat, would build a grammar of internationalised web addresses at import, 2 s of every stage; it
# does without when the module is not there, and notebooks hold none of those addresses
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]  # None: an import of it fails
import nbformat  # noqa: E402

from elm_lib.support.files import write_atomically, write_text  # noqa: E402
from elm_lib.support.processes import ancestor, die_with, for_owner_alone  # noqa: E402

LOCK, TMP = Path("dvc.lock"), Path(".dvc/tmp")
KEPT = TMP / "dvc.lock.whole"
KEEP_METADATA = ("tags",)
OUTSIDE = "from outside or for lack of memory: free some, then call the stage again, which goes on where it stopped"
KERNEL_STARTS = 3  # tries to start a kernel


def run(notebook: Path, output: Path, parameters: dict) -> None:
    """Execute `notebook` with `parameters` and write the normalised result to `output`, atomically.

    Raises SystemExit with one line on an unknown parameter, a missing notebook, or an error in a cell.
    """
    import papermill

    if not notebook.is_file():
        raise SystemExit(f"{notebook}: no such notebook")
    known = papermill.inspect_notebook(str(notebook))
    unknown = sorted(set(parameters) - set(known))
    if unknown:
        raise SystemExit(f"{notebook} has no parameter {unknown}: its parameters cell has {sorted(known)}")
    output.parent.mkdir(parents=True, exist_ok=True)
    for stale in output.parent.glob(".run-*"):  # of runs that were killed
        if not psutil.pid_exists(int(stale.name.split("-")[1])):
            shutil.rmtree(stale, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=f".run-{os.getpid()}-", dir=output.parent) as folder:
        executed = Path(folder) / notebook.name
        with _quiet(Path(folder) / "stderr") as said:
            try:
                _execute(notebook, executed, parameters)
            except papermill.PapermillExecutionError as error:
                trace = os.environ.get("ELM_TRACEBACK")
                said("\n".join(error.traceback) if trace else "(the whole traceback: set ELM_TRACEBACK=1)")
                raise SystemExit(f"{notebook}, cell {error.cell_index}: {error.ename}: {error.evalue}") from None
            except RuntimeError as error:
                if "Kernel died" not in str(error):
                    raise
                raise SystemExit(f"{notebook}: its kernel was killed, {OUTSIDE}") from None
            except Exception:
                said((Path(folder) / "stderr").read_text())
                raise
        content = nbformat.read(executed, as_version=4)
        normalise(content)
        write_text(output, nbformat.writes(content).rstrip("\n") + "\n")


def _execute(notebook: Path, executed: Path, parameters: dict) -> None:
    import papermill

    quiet = {"progress_bar": False, "log_output": False}
    for left in reversed(range(KERNEL_STARTS)):
        try:
            papermill.execute_notebook(str(notebook), str(executed), parameters, kernel_name="python3", **quiet)
            return
        except RuntimeError as error:  # two kernels that start at once may choose the same port
            if left == 0 or "Kernel died before replying" not in str(error):
                raise


@contextmanager
def _quiet(log: Path) -> Iterator[Callable[[str], int]]:
    """Send what the kernel and its libraries write to stderr into a file. Yields a way to write to the real stderr.

    Progress bars go to the real one too: the environment variable ELM_TERMINAL names it.
    """
    sys.stderr.flush()
    real = os.dup(2)
    before = os.environ.get("ELM_TERMINAL")
    os.environ["ELM_TERMINAL"] = before or f"/proc/{os.getpid()}/fd/{real}"
    with log.open("wb") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield lambda text: os.write(real, f"{text}\n".encode())
    finally:
        sys.stderr.flush()
        os.dup2(real, 2)
        os.close(real)
        if before is None:
            del os.environ["ELM_TERMINAL"]


def normalise(notebook: nbformat.NotebookNode) -> None:
    """Drop all that differs between two runs of the same code, in place: times, ids, versions, what went to stderr, how
    what was printed came in pieces."""
    notebook.metadata = nbformat.from_dict(
        {
            "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"},
            "language_info": {"name": "python"},
        }
    )
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"
        cell.metadata = nbformat.from_dict({k: v for k, v in cell.metadata.items() if k in KEEP_METADATA})
        if cell.cell_type == "code":
            kept = []
            for output in cell.outputs:
                if output.output_type != "stream":
                    kept.append(output)
                elif output.name != "stderr":
                    if (
                        kept and kept[-1].output_type == "stream"
                    ):  # how printed lines are cut into messages depends on time
                        kept[-1].text += output.text
                    else:
                        kept.append(output)
            cell.outputs = kept
            for output in cell.outputs:
                output.pop("metadata", None) if output.output_type == "stream" else output.update(
                    metadata=nbformat.from_dict({})
                )


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m elm_lib.pipeline.notebook", description=__doc__.splitlines()[0])
    parser.add_argument("notebook", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("-p", dest="parameters", nargs=2, action="append", default=[], metavar=("NAME", "VALUE"))
    options = parser.parse_args(arguments)
    for_owner_alone()
    die_with(ancestor("dvc"))
    if os.environ.get("DVC_STAGE"):
        keep_lock()
        for folder in (
            TMP / "site",
            TMP / "site" / "repo",
        ):  # DVC lets everybody write there, and unpickles it
            if folder.is_dir():
                folder.chmod(0o755)
    warnings.filterwarnings("ignore", module="(papermill|traitlets|jupyter_client|ansicolors)")
    started, parameters = time.monotonic(), {name: _value(value) for name, value in options.parameters}
    run(options.notebook, options.output, parameters)
    print(f"{options.output.stem}: {time.monotonic() - started:.0f} s", flush=True)


def keep_lock() -> None:
    """Copy dvc.lock aside for `elm_lib.pipeline.repro`. It is whole at the start of a stage: DVC has just read it."""
    if TMP.is_dir() and LOCK.is_file():
        write_atomically(KEPT, LOCK.read_bytes())


def _value(text: str):
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


if __name__ == "__main__":
    main()
