"""Badges of the README that start notebooks on Binder and on Colab, for the address of this project on GitHub.

python -m elm_lib.pipeline.badges                  the address of the remote `origin`
python -m elm_lib.pipeline.badges https://github.com/OWNER/NAME
"""

from __future__ import annotations

import argparse
import re
import subprocess
from pathlib import Path

from elm_lib.support.errors import ConfigError
from elm_lib.support.files import write_text

START, END = "<!-- badges -->", "<!-- /badges -->"
LIVE = "notebooks/explore.ipynb", "notebooks/fit_your_neuron.ipynb"  # on Binder, on Colab
GITHUB = re.compile(r"(?:https://github\.com/|git@github\.com:)([\w.-]+)/([\w-][\w.-]*?)(?:\.git)?/?$")


def badges(address: str, branch: str = "main") -> str:
    """Two badges, as Markdown. Raises ConfigError for an address that is not on GitHub, where both services look."""
    found = GITHUB.match(address)
    if not found:
        raise ConfigError(f"{address!r}: give the address of a GitHub repository, https://github.com/OWNER/NAME")
    owner, name = found.groups()
    binder = f"https://mybinder.org/v2/gh/{owner}/{name}/{branch}?urlpath=lab/tree/{LIVE[0]}"
    colab = f"https://colab.research.google.com/github/{owner}/{name}/blob/{branch}/{LIVE[1]}"
    return (
        f"[![Explore the neuron on Binder](https://mybinder.org/badge_logo.svg)]({binder})\n"
        f"[![Fit your neuron on Colab](https://colab.research.google.com/assets/colab-badge.svg)]({colab})"
    )


def write(readme: Path, address: str, branch: str = "main") -> None:
    """Put the badges between their marks in the README, in place of what is there."""
    text = readme.read_text()
    if START not in text or END not in text:
        raise ConfigError(f"{readme}: lacks the marks {START} and {END} between which badges stand")
    before, rest = text.split(START, 1)
    write_text(readme, f"{before}{START}\n{badges(address, branch)}\n{END}{rest.split(END, 1)[1]}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m elm_lib.pipeline.badges", description=__doc__.splitlines()[0])
    parser.add_argument("address", nargs="?")
    parser.add_argument("--branch", default="main")
    options = parser.parse_args()
    origin = ["git", "remote", "get-url", "origin"]
    try:
        address = options.address or subprocess.run(origin, capture_output=True, text=True, check=True).stdout.strip()
        write(Path("README.md"), address, options.branch)
    except subprocess.CalledProcessError:
        parser.error("no remote `origin`: give the address, https://github.com/OWNER/NAME")
    except ConfigError as error:
        parser.error(str(error))
