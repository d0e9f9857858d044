"""What a program is made from, in a few letters that change when any of it does.

Told in full are the values and functions that are handed over, and the code that they call, if it
is in packages named beforehand: as it stands in memory, where a constant may have been patched, and
in its files, which may be imported later. All other libraries are told by their versions. Whatever
is none of these raises :class:`UnknownPartError`: a program is found again where all is known.
"""

import dataclasses
import dis
import enum
import functools
import hashlib
import importlib.metadata
import importlib.util
import logging
import sys
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast, no_type_check

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

# What jax.jit and functools.cache make: written in C, they say nothing but what they wrap.
_WRAPPERS = (type(jax.jit(len)), type(functools.cache(len)))
_IMPORT = dis.opmap["IMPORT_NAME"]
_NONE = (types.NoneType, types.EllipsisType)
_PLAIN = frozenset({str, bool, int, float, complex, bytes, range, slice, *_NONE})
# What annotations are made of.
_FORMS = (typing.TypeVar, typing.ParamSpec, types.GenericAlias, types.UnionType)


class UnknownPartError(Exception):
    """A part that nobody can tell the content of."""


def of_files(packages: Iterable[str]) -> str:
    """Of all Python files of these packages, which modules may yet be imported from.

    Raises:
        UnknownPartError: one of them is not imported.
    """
    content = _Content(packages)
    for package in sorted(content.packages):
        if package not in sys.modules:
            raise UnknownPartError(f"the package {package}, which is not imported")
        for path in _files(sys.modules[package]):
            content.add(str(path), path.read_bytes())
    return content.digest()


def of_modules(packages: Iterable[str]) -> dict[str, str]:
    """Of each module of these packages that has been imported, as it stands in memory.

    Raises:
        UnknownPartError: something from elsewhere has been put into them.
    """
    packages = frozenset(packages)
    digests: dict[str, str] = {}
    for name in sorted(sys.modules):
        if _top(name) in packages:
            content = _Content(packages, name)
            content.add_module(sys.modules[name])
            digests[name] = content.digest()
    return digests


def of_values(packages: Iterable[str], *values: object) -> str:
    """Of what a function is called with and closes over; arrays' content counts.

    Classes and functions that have a name go by it: :func:`of_modules` tells what is behind it.

    Raises:
        UnknownPartError: a part comes neither from these packages nor from an installed library.
    """
    content = _Content(packages)
    content.add(*values)
    return content.digest()


@no_type_check  # At run time, as its helpers: they are called tens of thousands of times.
class _Content:
    """A hash, and how things are written into it.

    If a module is named, what it defines is told in full. All else that has a name goes by it.
    """

    def __init__(self, packages: Iterable[str], module: str | None = None) -> None:
        self.packages = frozenset(packages)
        self._module = module
        self._hash = hashlib.sha256()
        # What has been written, kept alive so that no other thing gets its identity.
        self._written: dict[int, tuple[int, object]] = {}

    def digest(self) -> str:
        return self._hash.hexdigest()

    def is_ours(self, module: str) -> bool:
        return _top(module) in self.packages

    def add(self, *things: object) -> None:
        for thing in things:
            if type(thing) in _PLAIN or isinstance(thing, (np.generic, np.dtype)):
                self._text(type(thing).__name__, repr(thing))
            elif type(thing) in (tuple, frozenset, types.CodeType):
                # Which of them are one object is the compiler's affair.
                self._add_compound(thing)
            elif id(thing) in self._written:
                self._text("again", str(self._written[id(thing)][0]))
            else:
                self._written[id(thing)] = (len(self._written), thing)
                self._add_compound(thing)

    def add_module(self, module: types.ModuleType) -> None:
        name = module.__name__
        self._text("module", name)
        # Importing a part of a package puts it into the package; it has a digest of its own.
        self._add_items(
            {
                key: value
                for key, value in vars(module).items()
                if not _is_pythons(key) and value is not sys.modules.get(f"{name}.{key}", self)
            }
        )

    def _text(self, *words: str) -> None:
        self._hash.update(repr(words).encode())

    def _add_items(self, items: Mapping[Any, object]) -> None:
        self._text("items", str(len(items)))
        for key, value in items.items():
            self.add(key, value)

    def _add_compound(self, x: Any) -> None:
        if isinstance(x, types.ModuleType):
            self._add_home(x.__name__)
            self._text("module", x.__name__)
        elif isinstance(x, type):
            self._add_class(cast(type[Any], x))
        elif isinstance(x, types.FunctionType):
            self._add_function(x)
        elif isinstance(x, types.CodeType):
            self._add_code(x)
        elif isinstance(x, types.MethodType):
            self.add("method", x.__self__, x.__func__)
        elif isinstance(x, property):
            self.add("property", x.fget, x.fset)
        elif isinstance(x, (staticmethod, classmethod)):
            self.add(type(x).__name__, x.__func__)
        elif isinstance(x, (functools.partial, functools.partialmethod)):
            self.add(type(x), x.func, x.args, x.keywords)
        elif self._goes_by_name(x):
            self._add_name(x)
        else:
            self._add_instance(x)

    def _add_instance(self, x: Any) -> None:
        self.add(type(x))
        if isinstance(x, enum.Enum):
            self.add(x.name, x.value)
            self._add_items(_attributes(x))
        elif type(x) is np.ndarray or isinstance(x, jax.Array):
            self._add_array(x)
        elif type(x) in (dict, types.MappingProxyType):
            self._add_items(x)
        elif type(x) in (tuple, list):
            self.add(len(x), *x)
        elif type(x) in (set, frozenset):
            self.add(*sorted(map(self._digest_of, x)))
        elif isinstance(x, Mesh):
            devices = map(repr, x.devices.flat)
            self.add(x.axis_names, x.devices.shape, repr(x.axis_types), *devices)
        elif isinstance(x, types.BuiltinMethodType):
            self.add(x.__name__, x.__self__)
        elif isinstance(x, logging.Logger):
            self._text(x.name)
        elif isinstance(x, _FORMS):
            self._text(repr(x))
        elif isinstance(x, _WRAPPERS):
            self.add(cast(Any, x).__wrapped__)
        elif isinstance(x, functools.cached_property):  # It has a lock beside.
            self.add(x.func)
        elif dataclasses.is_dataclass(x) or self.is_ours(type(x).__module__):
            self._add_items(_attributes(x))
            self._add_state(x, beside_attributes=True)
        elif self._module is None and not isinstance(x, (tuple, list, dict, set, frozenset)):
            raise UnknownPartError(f"a {type(x).__module__}.{type(x).__qualname__}")
        else:
            self._add_state(x)

    def _add_state(self, x: Any, *, beside_attributes: bool = False) -> None:
        """What an object says that it would have to be made again from."""
        try:
            made = x.__reduce_ex__(2)
        except Exception as error:
            raise UnknownPartError(f"a {type(x).__module__}.{type(x).__qualname__}") from error
        if isinstance(made, str):
            self._text(made)
            return
        function, arguments, state, *items = *made, *(None,) * (5 - len(made))
        self.add(function, arguments, None if beside_attributes else state)
        self.add(*(None if some is None else list(some) for some in items[:2]))

    def _digest_of(self, x: Any) -> str:
        content = _Content(self.packages, self._module)
        content.add(x)
        return content.digest()

    def _add_array(self, x: Any) -> None:
        if isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            self._text(str(jax.random.key_impl(x)))
            x = jax.random.key_data(x)
        array = np.asarray(x)
        content = array.tolist() if array.dtype.hasobject else array.tobytes()
        self.add(str(array.dtype), array.shape, getattr(x, "weak_type", False), content)

    def _add_class(self, cls: type[Any]) -> None:
        self._add_name(cls)
        if self._goes_by_name(cls):
            return
        if self._module is None:
            raise UnknownPartError(f"a class that a function of {cls.__module__} has made")
        if self.is_ours(cls.__module__):
            self.add(*cls.__bases__)
            self._add_items(
                {
                    name: value
                    for name, value in vars(cls).items()
                    if name != "_abc_impl" and (not _is_pythons(name) or _does(value))
                }
            )

    def _add_function(self, function: types.FunctionType) -> None:
        if self._goes_by_name(function):
            self._add_name(function)
            return
        home = function.__globals__["__name__"]
        self._add_home(home)
        wrapped = getattr(function, "__wrapped__", None)
        registry = getattr(function, "registry", None)
        if wrapped is not None and (_top(home) == "jaxtyping" or registry is not None):
            # What jaxtyping and functools.singledispatch hold beside these changes by itself.
            self.add(wrapped, registry)
            return
        cells = [_content_of(cell) for cell in function.__closure__ or ()]
        self.add(function.__code__, function.__defaults__, function.__kwdefaults__, cells)
        self._add_items(vars(function))

    def _add_code(self, code: types.CodeType) -> None:
        self._text(code.co_code.hex(), *code.co_names, *code.co_varnames, *code.co_freevars)
        self.add(*code.co_consts)
        for module in _imported(code):
            self._add_home(module)

    def _goes_by_name(self, x: Any) -> bool:
        """Whether this very thing is what its name stands for, which is told elsewhere."""
        module, names = getattr(x, "__module__", None), getattr(x, "__qualname__", None)
        if not isinstance(module, str) or not isinstance(names, str):
            return False
        found: Any = sys.modules.get(module)
        for name in names.split("."):
            found = getattr(found, name, None)
        return found is x and module != self._module

    def _add_name(self, x: Any) -> None:
        self._add_home(x.__module__)
        self._text(x.__module__, x.__qualname__)

    def _add_home(self, module: str) -> None:
        """Where code is from: one of the packages, Python itself, or a library with a version."""
        top = _top(module)
        if top in self.packages or top in sys.stdlib_module_names:
            self._text(top)
            return
        self._text(top, _version_of_installed(top))


@no_type_check
def _attributes(x: object) -> dict[str, object]:
    found: dict[str, object] = {}
    for cls in type(x).__mro__:
        slots = vars(cls).get("__slots__", ())
        found |= {
            name: getattr(x, name, None) for name in ([slots] if type(slots) is str else slots)
        }
    # Of Python's own names Equinox notes what jax.tree.map found.
    found |= getattr(x, "__dict__", {})
    return {name: value for name, value in found.items() if not _is_pythons(name)}


@no_type_check
def _is_pythons(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


@no_type_check
def _does(value: object) -> bool:
    return callable(value) or isinstance(value, (classmethod, staticmethod))


@no_type_check
def _top(module: str) -> str:
    return module.partition(".")[0]


def _files(module: types.ModuleType) -> list[Path]:
    folders = getattr(module, "__path__", None)
    if folders is None:
        return [Path(module.__file__ or "")]
    return sorted(path for folder in folders for path in Path(folder).rglob("*.py"))


@no_type_check
def _imported(code: types.CodeType) -> Iterator[str]:
    """What a function imports when it is run; of its own package, that tells itself."""
    if _IMPORT in code.co_code[::2]:
        instructions = list(dis.get_instructions(code))
        for level, _, last in zip(instructions, instructions[1:], instructions[2:], strict=False):
            if last.opcode == _IMPORT and level.argval == 0:
                yield last.argval


@functools.cache
def _version_of_installed(library: str) -> str:
    """Whether it has been imported yet makes no difference.

    Raises:
        UnknownPartError: it is not among the installed ones, so may be somebody's work in progress.
    """
    try:
        spec = importlib.util.find_spec(library)
    except ValueError as error:  # It was not imported from anywhere, as __main__ was not.
        raise UnknownPartError(f"something from {library}") from error
    if spec is None:
        return "not there"
    places = [spec.origin] if spec.origin else list(spec.submodule_search_locations or ())
    if not all({"site-packages", "dist-packages"} & set(Path(place).parts) for place in places):
        raise UnknownPartError(f"something from {library}")
    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:  # Of another name than the library.
        return str([Path(place).stat().st_mtime_ns for place in places])


@no_type_check
def _content_of(cell: types.CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # Nothing is in it yet.
        return None
