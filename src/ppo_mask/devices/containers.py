"""What a container lets this process use: the limits of its control groups (cgroups, v1 and v2)."""

import math
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")


def core_limit() -> float:
    """Returns how many cores' time this process may use; infinite without a limit."""
    names = "cpu.max", "cpu.cfs_quota_us", "cpu.cfs_period_us"
    pairs = (_read(group, *names).split() for group in _groups("cpu"))
    quotas = [int(x[0]) / int(x[1]) for x in pairs if x and x[0] not in ("max", "-1")]
    return min(quotas, default=math.inf)


def free_memory() -> float:
    """Returns how many bytes more this process may use; infinite without a limit."""
    free = [math.inf]
    for group in _groups("memory"):
        most = _read(group, "memory.max", "memory.limit_in_bytes").strip()
        used = _read(group, "memory.current", "memory.usage_in_bytes")
        if used and most not in ("", "max"):
            # The kernel's copies of files count as used, though it drops them when it must.
            _, _, rest = _read(group, "memory.stat").partition("inactive_file ")
            free.append(int(most) - int(used) + int(rest.partition("\n")[0] or 0))
    return min(free)


def _groups(controller: str) -> Iterator[Path]:
    """Yields the folders of this process's groups, each with the groups that it is in."""
    # In v1, each controller has a tree of its own.
    for name, root in (("", _ROOT), (controller, _ROOT / controller)):
        yield root
        for line in _read(Path("/proc/self"), "cgroup").splitlines():
            _, controllers, path = line.split(":", 2)
            group = root / path.lstrip("/")
            while name in controllers.split(",") and group != root:
                yield group
                group = group.parent


def _read(folder: Path, *names: str) -> str:
    text = ""
    for name in names:
        with suppress(OSError):  # A folder has the files of its version.
            text += (folder / name).read_text(errors="surrogateescape")
    return text
