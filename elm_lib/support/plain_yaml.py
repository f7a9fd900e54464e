"""Read YAML that means the same to every reader.

PyYAML follows YAML 1.1, DVC follows YAML 1.2: `030` is 24 here and 30 there, `5e-4` a text and a number, `yes` true and
a text. Such a value is refused, as is a key that stands twice, of which PyYAML takes the last.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from elm_lib.support.errors import ConfigError

_MOST_BYTES = 10_000_000
_NUMBER = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")  # YAML 1.2, core schema
_SPECIAL = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)|0x[0-9a-fA-F]+")
_WORD = re.compile(r"true|True|TRUE|false|False|FALSE")


if TYPE_CHECKING or not yaml.__with_libyaml__:
    _Fast = yaml.SafeLoader
else:
    _Fast = yaml.CSafeLoader


class _Loader(_Fast):
    pass


def _scalar(loader: _Loader, node: yaml.ScalarNode) -> Any:
    text, kind = node.value, node.tag.rsplit(":", 1)[-1]
    plain = not node.style
    number = bool(_NUMBER.fullmatch(text))
    if kind == "str":
        differs, right = plain and number, _as_number(text)
    elif kind == "bool":
        differs, right = not _WORD.fullmatch(text), f"true, false, or '{text}' for a text"
    elif kind in ("int", "float"):
        octal = re.fullmatch(r"[-+]?0[0-9_]+", text)
        differs, right = not (number or _SPECIAL.fullmatch(text)) or bool(octal), _as_number(text)
    else:  # a date, which both readers would take for another thing
        differs, right = plain, f"'{text}' for a text"
    if differs:
        raise yaml.constructor.ConstructorError(
            None, None, f"{text} means one thing to this reader and another to DVC: write {right}", node.start_mark
        )
    return getattr(loader, f"construct_yaml_{kind}")(node)


def _as_number(text: str) -> str:
    if re.fullmatch(r"[-+]?0[0-9_]+", text):
        return f"{text.lstrip('+-0_').replace('_', '') or '0'} without the zero in front"
    if re.fullmatch(r"[-+]?[0-9.]+[eE][-+]?[0-9]+", text):
        mantissa, exponent = re.split("[eE]", text)
        sign = "" if exponent[0] in "+-" else "+"
        return f"{mantissa if '.' in mantissa else f'{mantissa}.0'}e{sign}{exponent}"
    return "it as a plain number, without signs between its digits"


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict:
    loader.flatten_mapping(node)
    seen: dict[Any, int] = {}
    for key_node, _ in node.value:
        key = loader.construct_object(key_node, deep=True)
        if not isinstance(key, str | int | float | bool | None):
            raise yaml.constructor.ConstructorError(None, None, f"the key {key!r} is no name", key_node.start_mark)
        if key in seen:
            raise yaml.constructor.ConstructorError(
                None, None, f"the key {key!r} stands twice, first in line {seen[key]}: keep one", key_node.start_mark
            )
        seen[key] = key_node.start_mark.line + 1
    return loader.construct_mapping(node, deep=True)


for _tag in ("str", "int", "float", "bool", "timestamp"):
    _Loader.add_constructor(f"tag:yaml.org,2002:{_tag}", _scalar)
_Loader.add_constructor("tag:yaml.org,2002:map", _mapping)


def read(path: Path) -> Any:
    """The content of a YAML file. Raises ConfigError: one line with the file, the line in it, and what would be
    right."""
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise ConfigError(f"{path}: {path.stat().st_size} bytes: a file of settings is smaller")
        text = path.read_bytes().decode("utf-8")
        return yaml.load(text, Loader=_Loader)
    except FileNotFoundError:
        raise ConfigError(f"{path} not found: run from the project's folder") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: byte {error.start} is not UTF-8: save the file as UTF-8") from None
    except yaml.constructor.ConstructorError as error:
        where = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ConfigError(f"{path}{where}: {error.problem}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not YAML: {' '.join(str(error).split())}") from None
