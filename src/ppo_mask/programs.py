"""Programs that the processes after this one need not trace again.

A compilation cache keeps what XLA makes of a program. Tracing, by which JAX gets the program from
Python, is done anew by each process, and takes longer than all else at a second start. Here traced
programs are kept too, as ``jax.export`` writes them: StableHLO, which nothing unpickles.
"""

import contextlib
import functools
import hashlib
import importlib
import json
import logging
import os
import platform
import tempfile
from collections.abc import Callable, Generator, Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import equinox as eqx
import jax
from jax import export

from ppo_mask import _fingerprint
from ppo_mask._structure import StructureError, from_json, to_json

_LOG = logging.getLogger(__name__)
_FORMAT = 2
# Files that a folder keeps, some hundred kilobytes each.
_NEWEST = 64


class KeptPrograms:
    """A folder of traced programs.

    A program is found again if nothing has changed that could have shaped it: the code and the
    constants of the packages, in memory and in their files; the values that a function is called
    with, but for arrays' content; the versions of Python and of the libraries that the packages
    import; JAX's settings; the devices. Where something comes from elsewhere, from ``__main__`` or
    a package not named, the program is traced as ever and not kept; this module's log says what
    that was. So it is for whoever looks for errors with JAX's ``jax_disable_jit`` or
    ``jax_debug_nans``. Tracing a program to keep it makes this process forget its other compiled
    functions (``jax.clear_caches``).

    What nobody can notice: a patched function of an installed library; what a function has kept
    from an earlier call (``functools.cache``); and what code reads from a file, the clock or the
    environment while it is traced.
    """

    def __init__(self, folder: Path, packages: Iterable[str]) -> None:
        """Nothing is done yet.

        Args:
            folder: where the files are; made when needed. Whoever can write there can make this
                process compute something else.
            packages: all whose code shapes the programs, but installed libraries.
        """
        self._folder = folder
        self._packages = frozenset(packages)

    def kept(
        self,
        compiled: Callable[..., Any],
        *,
        donate: int | None = None,
        like: Callable[..., Any] | None = None,
    ) -> Callable[..., Any]:
        """The same function, whose program is looked for before it is traced, and kept after it.

        Args:
            compiled: from ``equinox.filter_jit``, of a function that is in a package.
            donate: the argument whose arrays' memory may be used up.
            like: makes, from the arguments, a tree like the result but for its arrays' content.
                Without it, the result must be of arrays, tuples, lists, dictionaries and modules.

        Returns:
            The function, for calls that differ in nothing but arrays' content.
        """
        program: Callable[..., Any] | None = None

        def call(*args: Any) -> Any:
            nonlocal program
            if program is None:
                try:
                    program = self._program(compiled, donate, like, args)
                except Exception as error:
                    # It cannot be found again, or not be kept: it calls back into Python, say. What
                    # is wrong with the function itself, its own tracing tells.
                    name = getattr(compiled, "__name__", repr(compiled))
                    _LOG.info("%s is traced, and not kept: %s", name, error)
                    program = compiled
            return program(*args)

        return call

    def _program(
        self,
        compiled: Callable[..., Any],
        donate: int | None,
        like: Callable[..., Any] | None,
        args: tuple[Any, ...],
    ) -> Callable[..., Any]:
        if _settings()["jax_disable_jit"] or _settings()["jax_debug_nans"]:
            return compiled
        path = self._folder / f"{self._key(compiled, args)}.program"
        modules = _fingerprint.of_modules(self._packages)
        structure, body = self._find(path, modules) or (None, None)
        if body is None:
            structure, body = _traced(compiled, args, with_structure=like is None)
            # What has been imported meanwhile was of use perhaps.
            modules = _fingerprint.of_modules(self._packages) | modules
            _write(path, modules, structure, body)
        counts = [len(_arrays(arg)) for arg in args]
        before = sum(counts[:donate])
        donated = () if donate is None else tuple(range(before, before + counts[donate]))
        run, results = _runnable(body, donated)
        if like is None:
            from_json(structure, range(results), self._packages)  # It can be read.

        def program(*args: Any) -> Any:
            if like is None:
                return from_json(structure, run(*_arrays(args)), self._packages)
            arrays, rest = eqx.partition(like(*args), eqx.is_array)
            leaves = run(*_arrays(args))
            return eqx.combine(jax.tree.unflatten(jax.tree.structure(arrays), leaves), rest)

        return program

    def _find(self, path: Path, modules: Mapping[str, str]) -> tuple[Any, bytes] | None:
        """What a file holds, if the modules that it was traced from are what they were.

        Other modules have had no part in it.
        """
        found = _read(path)
        if found is None:
            return None
        needed, structure, body = found
        for name in sorted(needed.keys() - modules.keys()):
            if name.partition(".")[0] in self._packages:
                importlib.import_module(name)  # As tracing would.
        if needed.keys() - modules.keys():
            modules = _fingerprint.of_modules(self._packages)
        return (structure, body) if needed.items() <= modules.items() else None

    def _key(self, compiled: Callable[..., Any], args: tuple[Any, ...]) -> str:
        def without_content(leaf: Any) -> Any:
            if not eqx.is_array(leaf):
                return leaf
            weak = getattr(leaf, "weak_type", False)  # Keys have none.
            sharding = repr(getattr(leaf, "sharding", None))  # NumPy's have none.
            return type(leaf).__name__, str(leaf.dtype), leaf.shape, weak, sharding

        described = cast(Any, compiled).__wrapped__, jax.tree.map(without_content, args)
        parts = (
            _fingerprint.of_values(self._packages, *described),
            _fingerprint.of_files(self._packages),
            _surroundings(),
        )
        return _sha256("\n".join(parts).encode())[:32]


def beside_compiled(packages: Iterable[str]) -> KeptPrograms | None:
    """Programs in the folder of JAX's compilation cache; None where that is not used, or not here.

    Args:
        packages: see :class:`KeptPrograms`.
    """
    folder: str | None = _settings()["jax_compilation_cache_dir"]
    if not folder or "://" in folder or not _settings()["jax_enable_compilation_cache"]:
        return None
    return KeptPrograms(Path(folder) / "programs", packages)


def _arrays(tree: Any) -> list[Any]:
    return jax.tree.leaves(eqx.filter(tree, eqx.is_array))


def _traced(
    compiled: Callable[..., Any], args: tuple[Any, ...], *, with_structure: bool
) -> tuple[Any, bytes]:
    """The structure of the result, and the program from arrays to arrays."""
    function = cast(Any, compiled).__wrapped__
    arrays, static = eqx.partition(args, eqx.is_array)
    leaves, tree = jax.tree.flatten(arrays)
    structure: Any = None

    def program(*leaves: Any) -> list[Any]:
        nonlocal structure
        result = function(*eqx.combine(jax.tree.unflatten(tree, leaves), static))
        if with_structure:
            structure = to_json(result)
        results = _arrays(result)
        if any(getattr(x, "weak_type", False) for x in results):
            raise StructureError(
                "a result of a weak type"
            )  # jax.export would make it a strong one.
        return results

    program.__name__ = program.__qualname__ = function.__name__
    jax.clear_caches()  # A part traced before something was patched would be used again.
    with _no_lines_of_code():
        exported = export.export(jax.jit(program))(*leaves)
    devices: set[Any] = set().union(*(x.sharding.device_set for x in leaves if _is_placed(x)))
    if exported.nr_devices != max(1, len(devices)):
        raise StructureError("a program for other devices than those of its arguments")
    return structure, bytes(exported.serialize())


def _is_placed(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array)


@contextlib.contextmanager
def _no_lines_of_code() -> Generator[None]:
    """Spares a program the lines that it was traced from: a sixth of the time of loading it."""
    name = "jax_traceback_in_locations_limit"
    before = _settings()[name]
    jax.config.update(name, 0)
    try:
        yield
    finally:
        jax.config.update(name, before)


@functools.lru_cache(maxsize=8)  # A process that begins one run after another compiles once.
def _runnable(body: bytes, donated: tuple[int, ...]) -> tuple[Callable[..., Any], int]:
    """The program, compiled when it is called first, and how many arrays it returns."""
    exported = export.deserialize(bytearray(body))

    def program(*leaves: Any) -> Any:
        return exported.call(*leaves)

    program.__name__ = program.__qualname__ = exported.fun_name
    return jax.jit(program, donate_argnums=donated), len(exported.out_avals)


def _settings() -> dict[str, Any]:
    return cast(dict[str, Any], jax.config.values)  # pyright: ignore[reportAttributeAccessIssue]


def _surroundings() -> str:
    device = jax.devices()[0]
    return json.dumps(
        {
            "versions": [platform.python_version(), jax.__version__, version("jaxlib")],
            "settings": {name: str(value) for name, value in _settings().items()},
            "flags": os.environ.get("XLA_FLAGS", ""),
            "devices": [device.platform, device.device_kind, device.client.platform_version],
            "counts": [jax.device_count(), jax.process_count()],
            "mesh": repr(jax.sharding.get_abstract_mesh()),
        }
    )


def _read(path: Path) -> tuple[dict[str, str], Any, bytes] | None:
    """The modules, structure and program of a file; None if it is not there or not whole."""
    try:
        header, _, body = path.read_bytes().partition(b"\n")
        said = json.loads(header)
        modules, structure = said["modules"], said["structure"]
        if said["format"] != _FORMAT or said["sha256"] != _checksum(modules, structure, body):
            return None
    except (OSError, ValueError, LookupError, TypeError):
        return None
    with contextlib.suppress(OSError):  # It is in use, but the folder may be somebody else's.
        os.utime(path)
    return modules, structure, body


def _write(path: Path, modules: Mapping[str, str], structure: Any, body: bytes) -> None:
    checksum = _checksum(modules, structure, body)
    said = {"format": _FORMAT, "structure": structure, "sha256": checksum, "modules": modules}
    written: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".new", delete=False) as file:
            written = Path(file.name)
            file.write(json.dumps(said).encode() + b"\n" + body)
        written.replace(path)
        files = sorted(path.parent.glob("*.program"), key=lambda path: path.stat().st_mtime)
        for old in files[:-_NEWEST]:
            old.unlink(missing_ok=True)
    except OSError:  # A full disk, say, or another process that tidied up. The next one traces.
        if written is not None:
            written.unlink(missing_ok=True)


def _checksum(modules: Mapping[str, str], structure: Any, body: bytes) -> str:
    return _sha256(json.dumps([dict(modules), structure], sort_keys=True).encode() + body)


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
