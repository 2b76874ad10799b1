"""triton for a machine without a GPU: SGLang's own stub, which it installs by itself on macOS only.

SGLang imports triton unconditionally (sglang/srt/utils/common.py:91 `import triton`), and torch's compiler asks
for some of its classes. The function that puts the stub together returns at once unless the platform is macOS
(sglang/_platform_stubs.py:399 `darwin`), so its list is followed here. The file is loaded
by its path because importing the package `sglang` would already need triton.

Where the real triton is installed, it is left alone: it imports without a GPU.
"""

import importlib.util
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

STUB_FILE = "sglang/_platform_stubs.py"


class Constexpr:
    """Holds a value, as triton.language.constexpr does in annotations."""

    def __init__(self, value: Any = None) -> None:
        self.value = value


def contents(stubs: Any) -> dict[str, dict[str, Any]]:
    """Stub modules by name, parents first, with the attributes that must not be mocks.

    Classes are named because code subclasses them, catches them or asks isinstance with them.
    """

    def base(name: str) -> type:
        return type(name, (stubs._StubBase,), {})

    def failure(name: str) -> type:
        return type(name, (Exception,), {})

    return {
        "triton": {
            "__version__": "3.0.0",
            "cdiv": stubs._cdiv,
            "next_power_of_2": stubs._next_power_of_2,
            "Config": stubs._Config,
        },
        "triton.language": {"constexpr": Constexpr},
        "triton.language.extra": {},
        "triton.language.extra.libdevice": {},
        "triton.runtime": {},
        "triton.runtime.jit": {
            "JITFunction": type("JITFunction", (), {}),
            "KernelInterface": base("KernelInterface"),
        },
        "triton.runtime.cache": {"triton_key": stubs._triton_key},
        "triton.runtime.autotuner": {
            "OutOfResources": failure("OutOfResources"),
            "PTXASError": failure("PTXASError"),
        },
        "triton.runtime.driver": {},
        "triton.compiler": {"CompiledKernel": base("CompiledKernel")},
        "triton.compiler.compiler": {"ASTSource": base("ASTSource"), "triton_key": stubs._triton_key},
        "triton.testing": {},
        "triton.tools": {},
        "triton.tools.tensor_descriptor": {},
        "triton.backends": {},
        "triton.backends.compiler": {"GPUTarget": base("GPUTarget")},
    }


def load(path: Path) -> ModuleType:
    """The module in that file, under a name that is not SGLang's."""
    spec = importlib.util.spec_from_file_location("_triton_stub_of_sglang", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses in the file look themselves up here
    spec.loader.exec_module(module)
    return module


def install(search_path: Iterable[str]) -> None:
    """Register the stub, unless a triton is there already (the real one, or this one)."""
    if importlib.util.find_spec("triton") is not None:
        return
    found = next((file for entry in search_path if (file := Path(entry or ".") / STUB_FILE).is_file()), None)
    if found is None:
        return  # no SGLang here: the import of sglang says so in its own words
    stubs: Any = load(found)
    sys.meta_path.insert(0, stubs._TritonFinder())
    for name, attributes in contents(stubs).items():
        module = stubs._make_mock(name)
        for attribute, value in attributes.items():
            setattr(module, attribute, value)
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, module)
