"""The game's name in Gymnasium, which is an extra: known once a program has imported both."""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any, no_type_check

ID = "HackMatrix-v0"


def register() -> None:
    """Registers ``HackMatrix-v0``: now, or right after Gymnasium is imported.

    Gymnasium 1.x looks for no plugins, and its ``register_envs`` does nothing with a module: what
    registers is the import of the environment's package. That must not depend on the order.
    """
    gymnasium: Any = sys.modules.get("gymnasium")
    if gymnasium is None:
        sys.meta_path.insert(0, _WithGymnasium())
    elif ID not in gymnasium.registry:
        gymnasium.register(
            ID,
            entry_point="hackmatrix.gymnasium:make_env",
            vector_entry_point="hackmatrix.gymnasium:make_vector_env",
        )


class _WithGymnasium(MetaPathFinder):
    """Finds Gymnasium as Python does, and has the game registered at the end of its import.

    It never imports Gymnasium itself: that one may be broken, and takes time.
    """

    @no_type_check  # Python may call it while beartype imports something, and holds its lock.
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path) if fullname == "gymnasium" else None
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def load_and_register(module: ModuleType) -> None:
                load(module)
                register()

            spec.loader.exec_module = load_and_register
        return spec
