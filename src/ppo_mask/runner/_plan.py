"""Plans a run from a command line: the settings, and whether to resume an earlier run.

Settings come from the program's defaults, the resumed run, a preset, a ``--config`` file, and
flags; later sources override earlier ones. All settings are checked before anything is compiled or
written.
"""

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from textwrap import fill, indent
from typing import Any, Generic, TypeVar

import jax
import yaml

from ppo_mask.checkpoints import Checkpoint, RunDir
from ppo_mask.checkpoints._runs import Runs, check_run_name, find_run, open_runs
from ppo_mask.devices import cpu as cores
from ppo_mask.devices.platforms import require_platform
from ppo_mask.devices.processes import (
    connect,
    is_multiprocess,
    is_process_0,
    on_all_processes,
    on_process_0,
)
from ppo_mask.errors import RunError, warn
from ppo_mask.ppo._ppo import REFERENCE_BATCH
from ppo_mask.runner._phases import phase_values
from ppo_mask.runner._reader import merge, parse_flags, read_values, read_yaml
from ppo_mask.runner._schema import as_dict, did_you_mean, flag_for, load_yaml, plain, settings
from ppo_mask.runner._settings import RunConfig, RunSettings, resolve

Environment = TypeVar("Environment")

_ACCELERATOR = "accelerator"
"""The block of a preset that holds its settings for GPUs and TPUs."""

_SHORTEST_ROLLOUT = 4

_OF_ONE_RUN = ["resume", "auto_tune", "profile", "debug_nans", "num_devices", "wandb"]

SHARED = "several processes need a folder, or a bucket, that all of them can read"


@dataclasses.dataclass(frozen=True)
class Plan(Generic[Environment]):
    """A new run or a run to resume, with the settings.

    Attributes:
        config: the settings, with every number filled in.
        runs: the runs beside which a new run begins.
        run_dir: the run to resume; None for a new run, or for a run without a checkpoint.
        checkpoint: the checkpoint to resume from; None for a new run.
        copy: where to copy the run to, and to resume it; None to resume in place.
    """

    config: RunConfig[Environment]
    runs: Runs
    run_dir: RunDir | None = None
    checkpoint: Checkpoint | None = None
    copy: RunDir | None = None

    @property
    def update(self) -> int:
        """The number of updates done; 0 for a new run."""
        return 0 if self.checkpoint is None else self.checkpoint.step

    @property
    def total_updates(self) -> int:
        """The number of updates at the end of the run."""
        return self.config.algorithm.total_updates(self.config.run.total_timesteps)

    def of_seeds(self) -> list[RunConfig[Environment]]:
        """Returns the settings of the run of each seed."""
        run = self.config.run
        return [merge(self.config, {"seed": run.seed + n}) for n in range(run.num_seeds)]


def make_plan(
    defaults: RunConfig[Environment],
    arguments: Sequence[str] | None,
    description: str,
    prog: str | None = None,
    presets: Path | None = None,
) -> Plan[Environment]:
    """Reads the command line, the files that it names, and the run to resume.

    Planning writes nothing, with one exception: if an earlier process left a run's copy in a bucket
    incomplete, planning completes the copy. If the run has several processes, planning connects
    them. With ``--print-config``, planning prints the settings and exits.

    Args:
        defaults: the program's defaults.
        arguments: the words after the program's name; None for ``sys.argv``.
        description: what the program does, for ``--help``.
        prog: the program's name, for ``--help``; None for the name of the program's file.
        presets: a folder of YAML files that ``--preset`` chooses from.

    Raises:
        RunError: a setting, on the command line or in a file, asks for something impossible.
    """
    flags = parse_flags(defaults, arguments, description, prog, _describe_presets(presets))
    file, in_file = flags.get("config"), dict[str, Any]()
    if file is not None:
        in_file = read_yaml(Path(file), defaults)
        if "config" in in_file:
            raise RunError(f"{file}: a file cannot name another config")
    preset = _preset_file(presets, flags.get("preset", in_file.get("preset")))
    in_preset, accelerated = _read_preset(preset, defaults)
    own = {**in_file, **flags}
    given = {**in_preset, **own}
    known = settings(defaults)
    of_run = {name: value for name, value in given.items() if known[name].group == "run"}
    run = merge(defaults, of_run).run
    _check_run_settings(run, given, defaults)
    if run.print_config:
        print(template(merge(defaults, given)))
        raise SystemExit(0)
    # First, since reading checkpoints starts JAX.
    if not connect(run.distributed):
        cores.make_devices()
    require_platform()
    given = {**_fit_devices(in_preset, accelerated, own, run), **own}
    if is_multiprocess():
        plan = _on_all(lambda: _choose(defaults, given, run))
    else:
        plan = _choose(defaults, given, run)
    for name in flags.keys() & set(itertools.chain(*phase_values(plan.config))):
        raise RunError(
            f"{flag_for(name)} changes from phase to phase in this run: give other --phases, or "
            "--phases none"
        )
    return plan


def with_num_envs(config: RunConfig[Environment], num_envs: int) -> RunConfig[Environment]:
    """Sets the number of environments, and shortens the rollout of many environments.

    The rollout is halved until a batch has at most :data:`~ppo_mask.ppo._ppo.REFERENCE_BATCH`
    steps, but not below 4 steps: with the same number of environment steps, larger batches mean
    fewer updates, and learn less.
    """
    num_steps = config.algorithm.num_steps
    while num_envs * num_steps > REFERENCE_BATCH and num_steps >= 2 * _SHORTEST_ROLLOUT:
        num_steps //= 2
    return merge(config, {"num_envs": num_envs, "num_steps": num_steps})


def read_stored(
    run_dir: RunDir, checkpoint: Checkpoint | None, config: RunConfig[Any]
) -> dict[str, Any]:
    """Reads the settings that a run was trained with; ``config`` defines the settings.

    The run's algorithm must be that of ``config``.
    """
    if checkpoint is not None:
        trained_by, own = checkpoint.about["algorithm"], type(config.algorithm).__name__
        if trained_by != own:
            source = f"checkpoint {checkpoint.path}"
            raise RunError(f"{source} was trained by {trained_by}, this program has {own}")
    return read_values(config, load_yaml(run_dir.config), str(run_dir.config))


def template(config: RunConfig[Any]) -> str:
    """Formats all settings as a YAML file for ``--config``, with their help as comments."""
    lines: list[str] = []
    for group, of_group in itertools.groupby(settings(config).values(), lambda x: x.group):
        lines.append(f"{group}:")
        for each in of_group:
            if each.name not in ("config", "print_config"):
                takes = ", ".join(filter(None, (each.type, each.rules.limits)))
                help = fill(f"{each.rules.help} ({takes})", 96)
                value = yaml.safe_dump({each.name: plain(each.value)}, sort_keys=False)
                lines += [indent(help, "  # "), indent(value.rstrip(), "  ")]
    return "\n".join(lines)


def _on_all(choose: Callable[[], Plan[Environment]]) -> Plan[Environment]:
    """Calls ``choose`` on process 0, then on the others, which must be able to read the run."""
    chosen: list[Plan[Environment]] = []
    on_process_0(lambda: chosen.append(choose()), "plan the run")

    def choose_too() -> Plan[Environment]:
        try:
            return chosen[0] if is_process_0() else choose()
        except RunError as error:
            raise RunError(f"{error}; {SHARED}") from error

    return on_all_processes(choose_too, "find the run")


def _choose(
    defaults: RunConfig[Environment], given: Mapping[str, Any], run: RunSettings
) -> Plan[Environment]:
    place, resume = run.checkpoint_dir, run.resume
    if resume is None:
        merged = merge(defaults, given)
        if "num_envs" in given and "num_steps" not in given:
            merged = with_num_envs(merged, given["num_envs"])
        # To tune is to choose a size first; what depends on the size is then resolved.
        config = merged if run.auto_tune else resolve(merged)
        runs = open_runs(place)
        runs.names()  # Raises an error now if the bucket cannot be reached.
        if run.run_name is not None:
            runs.check_new("-".join(filter(None, (run.run_name, run.run_suffix))))
        return Plan(config, runs)
    run_dir, step = find_run(resume, place)
    checkpoint = None if run_dir.is_empty else run_dir.checkpoint(step)
    asked = resolve(merge(defaults, {**read_stored(run_dir, checkpoint, defaults), **given}))
    if run.auto_tune:
        asked = merge(asked, {"auto_tune": False})
        if is_process_0():
            warn("--auto-tune has no effect with --resume: a resumed run keeps its batch")
    folder, mirror = run_dir.path.resolve(), run_dir.mirror
    home, name = Runs(folder.parent, mirror and mirror.bucket), run.run_name or folder.name
    runs = open_runs(place) if "checkpoint_dir" in given else home
    copy = None if runs.place == home.place else runs.run(name)
    if copy is not None:
        runs.check_new(name)
    else:
        _check_stays(run, run_dir, checkpoint)
        if mirror is not None:
            mirror.catch_up(run_dir.path)
    if checkpoint is None:  # The run begins anew; in place, in its own folder.
        return Plan(merge(asked, {"run_name": name}), runs)
    _check_resumable(asked, checkpoint)
    return Plan(asked, runs, run_dir, checkpoint, copy)


def _check_run_settings(
    run: RunSettings, given: Mapping[str, Any], defaults: RunConfig[Any]
) -> None:
    for name, flag in ((run.run_name, "--run-name"), (run.run_suffix, "--run-suffix")):
        if name is not None:
            check_run_name(name, flag)
    known = settings(defaults)
    if run.resume is not None and run.run_suffix is not None:
        raise RunError("--resume does not go with --run-suffix, which is for a new run")
    if run.num_seeds > 1:
        for name in _OF_ONE_RUN:
            if given.get(name, known[name].value) != known[name].value:
                flag = flag_for(name)
                raise RunError(f"--num-seeds does not go with {flag}, which is about one run")
    if run.auto_tune:
        chosen = settings(resolve(defaults))
        for name, each in known.items():
            is_size = name in ("num_envs", "num_steps")
            if name in given and (is_size or each.value != chosen[name].value):
                raise RunError(f"--auto-tune chooses {flag_for(name)}: give one of the two")
    if run.resume is None and run.rewind:
        raise RunError("--rewind goes with --resume PATH of an older checkpoint")


def _check_stays(run: RunSettings, run_dir: RunDir, checkpoint: Checkpoint | None) -> None:
    """Checks that a run can be resumed in its own folder."""
    name, update = run_dir.path.resolve().name, checkpoint.step if checkpoint else 0
    if run.run_name not in (None, name):
        raise RunError(
            f"--run-name asked for a run {run.run_name}, --resume for {name}; leave --run-name "
            "out, or give another --checkpoint-dir to copy the run to"
        )
    later = [step for step in run_dir.steps() if step > update]
    if later and not run.rewind:
        raise RunError(
            f"run {run_dir.path} has checkpoints up to update {later[-1]}; add --rewind to drop "
            f"all that came after update {update}, give another --checkpoint-dir to keep it, or "
            "resume from the newest"
        )


def _check_resumable(config: RunConfig[Any], checkpoint: Checkpoint) -> None:
    saved: Mapping[str, Mapping[str, Any]] = checkpoint.about["config"]
    known = settings(config)
    for group, values in as_dict(config).items():
        for name, value in values.items():
            was = saved.get(group, {}).get(name, value)
            if was != value and not known[name].rules.changeable:
                raise RunError(
                    f"checkpoint {checkpoint.path} has {name} {was}, this run asks for {value}"
                )


def _preset_file(folder: Path | None, name: str | None) -> Path | None:
    if name is None:
        return None
    presets = _presets(folder)
    names = list(presets)  # A name from a file may be of any type.
    if name not in names:
        there = f"; there are {', '.join(names)}" if names else ": this program has none"
        raise RunError(f"there is no preset {name}{did_you_mean(str(name), names)}{there}")
    return presets[name]


def _read_preset(path: Path | None, config: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Reads a preset's settings, and those of its block ``accelerator``."""
    content = {} if path is None else load_yaml(path)
    block: Any = content.pop(_ACCELERATOR, {}) if isinstance(content, dict) else {}
    source = str(path)
    accelerated = read_values(config, block, f"{source}, {_ACCELERATOR}")
    return read_values(config, content or {}, source), accelerated


def _fit_devices(
    in_preset: dict[str, Any], accelerated: dict[str, Any], own: Mapping[str, Any], run: RunSettings
) -> dict[str, Any]:
    """Replaces a preset's settings by those of its block ``accelerator``, on a GPU or TPU.

    A resumed run keeps its own value of each setting in the block; ``own`` has the settings that
    the user gave, which win over a preset's.
    """
    if run.resume is not None:
        return {name: x for name, x in in_preset.items() if name not in accelerated}
    if not accelerated or run.auto_tune or jax.default_backend() == "cpu":
        return in_preset
    count = 1 if run.num_seeds > 1 else run.num_devices or jax.device_count()
    chosen = {name: x for name, x in accelerated.items() if name not in own}
    if "num_envs" in chosen:
        chosen["num_envs"] *= count
    if chosen and is_process_0():
        words = " ".join(f"{flag_for(name)} {value}" for name, value in chosen.items())
        print(f"note: for {count} x {jax.devices()[0].device_kind} the preset sets {words}")
    return {**in_preset, **chosen}


def _describe_presets(folder: Path | None) -> str:
    """Formats the presets for ``--help``, with their comments; empty if there are no presets."""
    return "\n\n".join(
        f"preset {name}:\n" + indent(file.read_text(encoding="utf-8").strip(), "  ")
        for name, file in _presets(folder).items()
    )


def _presets(folder: Path | None) -> dict[str, Path]:
    return {} if folder is None else {file.stem: file for file in sorted(folder.glob("*.yaml"))}
