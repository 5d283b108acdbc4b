"""Documents what packages have by `import name as name`, also names like those of files.

``likelihood.ais`` is a function of a file ``ais.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from griffe import Alias, Extension, Module


class NamedLikeModules(Extension):
    """Puts such an object where its package's face has it; a static reader finds the file there."""

    def on_package(self, *, pkg: Module, **kwargs: Any) -> None:
        modules = list(_walk(pkg))
        for module in modules:
            if module.is_init_module and module.exports is None:
                module.exports = list(module.imports)
        files = {
            file.path: (module, name, pkg[module.imports[name].removeprefix(f"{pkg.name}.")])
            for module in modules
            for name in module.exports or ()
            if isinstance(file := module.members.get(name), Module)
            and module.imports.get(name, file.path) != file.path
        }
        for module in modules:  # names from these files are found by way of them, so first
            for member in module.members.values():
                if member.is_alias and member.target_path.rpartition(".")[0] in files:
                    member.resolve_target()
        for module, name, target in files.values():
            module.members[name] = Alias(name, target, parent=module)


def _walk(module: Module) -> Iterator[Module]:
    yield module
    for member in module.members.values():
        if isinstance(member, Module):
            yield from _walk(member)
