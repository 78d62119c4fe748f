"""The CEL library without its command-line tool, for which `import cel` loads prompt_toolkit and rich.

Those take longer to load than the rest of gpugate, and 25 MB of memory in every process.
Source: https://pypi.org/project/common-expression-language/.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from types import ModuleType

# The extension module, under the name that the package uses too: it can be loaded only once per process.
_NAME: Final = "cel.cel"


def _load() -> ModuleType:
    """Return the extension module; if the package has another layout, the package."""
    if _NAME in sys.modules:
        return sys.modules[_NAME]
    package = find_spec("cel")
    places = package.submodule_search_locations if package else None
    spec = PathFinder.find_spec(_NAME, places)
    if spec is None or spec.loader is None:
        return import_module("cel")
    module = module_from_spec(spec)
    sys.modules[_NAME] = module
    spec.loader.exec_module(module)
    return module


cel: Final = _load()
