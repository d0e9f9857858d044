"""What the command line refuses, and in which words; what it takes."""

import dataclasses
import json
import math
import shutil
import signal
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import yaml

from counting import DEFAULTS, TASK, flags
from ppo_mask.errors import RunError
from ppo_mask.ppo import PPO
from ppo_mask.runner import RunConfig, _schema as schema, main, make_plan

LONG = "x" * 300
LIMITS = {
    ("at least 1", "0"): "num-envs num-steps update-epochs gradient-accumulation hidden-dim "
    "num-layers total-timesteps log-interval save-interval eval-interval eval-episodes "
    "eval-max-steps eval-num-envs num-seeds",
    ("more than 0", "0"): "clip-eps target-kl max-grad-norm save-interval-minutes",
    ("at least 0", "-1"): "learning-rate gae-lambda ent-coef vf-coef seed profile",
    ("at most 1", "1.1"): "gamma gae-lambda",
    ("at most 2147483647", "3000000000"): "eval-max-steps eval-episodes num-minibatches "
    "gradient-accumulation update-epochs",
    ("a finite number", "nan"): "learning-rate",
    ("a finite number", "inf"): "learning-rate",
}
# Commands, and what is wrong with them.
REFUSED = {
    f"--{name} {value}": f"--{name} must be {limit}, got {value}"
    for (limit, value), names in LIMITS.items()
    for name in names.split()
} | {
    "--run-name a/b": "--run-name must be a plain folder name, got 'a/b'",
    "--run-suffix a/b": "--run-suffix must be a plain folder name, got 'a/b'",
    "--resume {dir}/taken --run-suffix b": "--resume does not go with --run-suffix, which is",
    "--run-name ..": "--run-name must be a plain folder name, got '..'",
    **{
        f"--run-name={name}": f"--run-name cannot be '{name}', which means something else"
        for name in ("latest", "~", "-b")
    },
    f"--update-epochs {10**400}": "--update-epochs must be at most 2147483647, got 1000",
    "--lr fast": "--learning-rate must be a number, got 'fast'",
    "--num-envs 2.5": "--num-envs must be a whole number, got '2.5'",
    "--profile soon": "--profile must be a whole number, got 'soon'",
    "--precision half": "--precision must be float32 or bfloat16, got 'half'",
    "--num-env 8": "unknown flag --num-env; did you mean --num-envs?",
    "--frobnicate=3": "unknown flag --frobnicate",
    "--length 6 trian": "unknown argument trian",
    "--tensorboard true": "unknown argument true; write --NAME or --no-NAME alone",
    **{f"--lr {x}": f"--learning-rate must be at least 0, got {x}" for x in ("-1e-3", "-.5")},
    "--lr -inf": "--learning-rate must be a finite number, got -inf",
    "--seed -1_000": "--seed must be at least 0, got -1_000",
    "--num-envs": "argument --num-envs: expected one argument",
    "--anneal-lr=yes": "--anneal-lr/--no-anneal-lr: ignored explicit argument 'yes'",
    "--num-envs 5 --num-steps 5": "--num-minibatches = 4 does not divide the batch of "
    "5 environments x 5 steps = 25; 1 would do",
    "--num-minibatches 64": "the batch of 8 environments x 4 steps = 32; 32 would do",
    "--num-minibatches 2147483647": "does not divide the batch",
    "--gradient-accumulation 3": "--gradient-accumulation = 3 does not divide the minibatch of "
    "32 / 4 = 8; 2 would do",
    "--gradient-accumulation 2147483647": "the minibatch of 32 / 4 = 8; 8 would do",
    "--length 1": "--length must be at least 2, got 1",
    "--length 101": "a corridor of 101 is too long, at most 100",
    "--checkpoint-dir {dir} --run-name taken": "there is a run {dir}/taken already; resume it by "
    "--resume {dir}/taken",
    "--rewind": "--rewind goes with --resume PATH of an older checkpoint",
    "--checkpoint-dir {dir}/file.txt": "cannot use {dir}/file.txt/",
    "--config {dir}/none.yaml": "cannot read {dir}/none.yaml: No such file or directory",
    "--config {dir}/bad.yaml": "{dir}/bad.yaml is not valid YAML",
    "--config {dir}/list.yaml": "{dir}/list.yaml must hold 'name: value' lines",
    "--config {dir}/typo.yaml": "typo.yaml: unknown setting num_env; did you mean num_envs?",
    "--config {dir}/type.yaml": "type.yaml: num_envs must be a whole number, got [8]",
    "--config {dir}/twice.yaml": "gives learning_rate twice",
    "--config {dir}/doubled.yaml": "not valid YAML: lr is given twice",
    "--config {dir}/date.yaml": "date.yaml is not valid YAML: month must be in 1..12",
    "--config {dir}/mixed.yaml": "mixed.yaml: unknown setting 1",
    "--config {dir}/nameless.yaml": "nameless.yaml: unknown setting",
    "--config {dir}/config.yaml": "a file cannot name another config",
    "--resume latest --checkpoint-dir {dir}/empty": "no run with a checkpoint in {dir}/empty",
    "--resume {dir}/nothing": "there is no run or checkpoint {dir}/nothing",
    "--resume {dir}/empty": "{dir}/empty is neither a run folder (with a config.yaml) nor",
    "--resume {dir}/taken --run-name new": "--run-name asked for a run new, --resume for taken; "
    "leave --run-name out, or give",
    "--resume {dir}/taken --total-timesteps 999 --checkpoint-dir {dir}/elsewhere": "there is a run "
    "{dir}/elsewhere/taken already; resume it by --resume {dir}/elsewhere/taken",
    "--resume {dir}/taken --total-timesteps 999 --checkpoint-dir {dir}/file.txt": "cannot use "
    "{dir}/file.txt: File exists",
    "--resume {dir}/taken --hidden-dim 16": "taken/checkpoints/2 has hidden_dim 8, this run asks "
    "for 16",
    "--resume {dir}/taken --num-envs 16": "has num_envs 8, this run asks for 16",
    "--resume {dir}/taken --length 7": "has length 6, this run asks for 7",
    "--resume {dir}/taken --seed 1": "has seed 0, this run asks for 1",
    "--resume {dir}/taken --config {dir}/wide.yaml": "has hidden_dim 8, this run asks for 16",
    "--resume {dir}/edited": "/edited/checkpoints/2 has num_layers 1, this run asks for 2",
    "--resume {dir}/damaged": "/damaged/checkpoints/2 is damaged",
    "--resume {dir}/torn --total-timesteps 999": "/torn/checkpoints/2 is damaged",
    "--resume {dir}/taken/checkpoints/7": "no run or checkpoint {dir}/taken/checkpoints/7",
    "--resume {dir}/taken/checkpoints/1": "has checkpoints up to update 2; add --rewind",
    "--profile 7": "--profile must be one of the updates to come, 1 to 6, got 7",
    "--resume {dir}/taken --total-timesteps 999 --profile 2": "to come, 3 to 32, got 2",
    "--auto-tune --num-envs 8": "--auto-tune chooses --num-envs: give one of the two",
    "--auto-tune --num-steps 8": "--auto-tune chooses --num-steps: give one of the two",
    "--auto-tune --update-epochs 2": "--auto-tune chooses --update-epochs: give one of the two",
    # What is about one run.
    "--num-seeds 2 --resume latest": "--num-seeds does not go with --resume, which is about one",
    "--num-seeds 2 --auto-tune": "--num-seeds does not go with --auto-tune",
    "--num-seeds 2 --profile": "--num-seeds does not go with --profile",
    "--num-seeds 2 --debug-nans": "--num-seeds does not go with --debug-nans",
    "--num-seeds 2 --num-devices 1": "--num-seeds does not go with --num-devices",
    "--num-seeds 2 --wandb": "--num-seeds does not go with --wandb",
    "--initial-policy nowhere": "there is no checkpoint",
    "--network other": "--network must be default, got 'other'",
    # Paths that cannot be.
    "--config=~nobodys/x.yaml": "there is no home folder ~nobodys for ~nobodys/x.yaml",
    "--initial-policy=~nobodys/x": "there is no home folder ~nobodys",
    "--checkpoint-dir=~nobodys/x": "there is no home folder ~nobodys",
    "evaluate ~nobodys/x": "there is no home folder ~nobodys",
    "evaluate x --checkpoint-dir=~nobodys/x": "there is no home folder ~nobodys",
    f"--checkpoint-dir {LONG}": "File name too long",
    f"inspect run --checkpoint-dir {LONG}": "File name too long",
    **{
        f"{command} {LONG}": "File name too long"
        for command in ("--resume", "--initial-policy", "evaluate", "inspect", "plot")
    },
    # Other commands.
    "evaluat": "argument COMMAND: invalid choice: 'evaluat' (choose from ",
    **{
        f"{command} nowhere": "there is no run or checkpoint nowhere"
        for command in ("evaluate", "plot")
    },
    "plot": "no run with a checkpoint in {dir}/empty/checkpoints",
    "inspect": "no run with a checkpoint in {dir}/empty/checkpoints",
    "evaluate --episodes=0": "must be a whole number from 1",
    "evaluate --episodes=3000000000": "must be a whole number from 1 to 2147483647, got",
    "evaluate --max-steps=3000000000": "must be a whole number from 1 to 2147483647",
    "evaluate --seed=4294967296": "must be a whole number from 0 to 4294967295, got",
    f"watch --seed={10**20}": "must be a whole number from 0 to 4294967295, got 1000",
    "watch --seed=--1": "must be a whole number from 0 to 4294967295, got --1",
    "watch --nonsense": "unrecognized arguments: --nonsense",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs")
    taken = flags(path, 2, "--run-name", "taken", "--save-interval", "1")
    assert main(TASK, DEFAULTS, taken) == 0
    for name in ("edited", "damaged", "torn", "elsewhere/taken"):
        shutil.copytree(path / "taken", path / name)
    config = path / "edited" / "config.yaml"
    config.write_text(config.read_text().replace("num_layers: 1", "num_layers: 2"))
    (path / "damaged" / "checkpoints" / "2" / "description.json").write_text("{")
    shutil.rmtree(path / "torn" / "checkpoints" / "2" / "arrays")
    (path / "empty").mkdir()
    files = {
        "file.txt": "",
        "bad.yaml": "lr: [",
        "list.yaml": "- lr",
        "typo.yaml": "algorithm: {num-env: 8}",
        "type.yaml": "num_envs: [8]",
        "twice.yaml": "lr: 1\nalgorithm: {learning_rate: 2}",
        "doubled.yaml": "algorithm: {lr: 0.001, num_envs: 4, lr: 0.5}",
        "date.yaml": "run_name: 2026-13-45",
        "mixed.yaml": "{lr: 0.001, 1: 2}",
        "nameless.yaml": "'': true",
        "config.yaml": "config: other.yaml",
        "wide.yaml": "hidden-dim: 16",
    }
    for name, text in files.items():
        (path / name).write_text(text)
    return path


def everything_in(folder: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in folder.rglob("*")}


@pytest.mark.parametrize(("command", "message"), REFUSED.items())
def test_bad_input_is_refused_in_one_line_and_changes_nothing(
    folder: Path,
    command: str,
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(folder / "empty")
    before = everything_in(folder)
    assert main(TASK, DEFAULTS, command.format(dir=folder).split()) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith("error: ")
    assert printed.err.count("\n") == 1
    assert message.format(dir=folder) in printed.err
    assert printed.out == ""
    assert everything_in(folder) == before


def test_a_printed_config_has_every_setting_and_its_help(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(TASK, DEFAULTS, ["--print-config", "--lr=2e-4", "--run-suffix=b", "--scored=3"])
    assert caught.value.code == 0
    file, text = tmp_path / "mine.yaml", capsys.readouterr().out
    file.write_text(text)
    written = yaml.safe_load(text)
    given = {name for group in written.values() for name in group}
    assert given == schema.settings(DEFAULTS).keys() - {"config", "print_config"}
    for lines in (
        "environment:\n  # cells (a whole number, at least 2)\n  length: 6\n",
        "  # learning rate (a number, at least 0)\n  learning_rate: 0.0002\n",
        "  network: default\n",
    ):
        assert lines in text
    asked = make_plan(DEFAULTS, ["--lr=2e-4", "--run-suffix=b", "--scored=3"], "").config
    of_file = make_plan(DEFAULTS, ["--config", str(file)], "").config
    assert dataclasses.replace(of_file.run, config=None) == asked.run
    assert dataclasses.replace(of_file, run=asked.run) == asked


def test_help_shows_groups_and_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(TASK, DEFAULTS, ["--help"], "Learns to walk.")
    assert caught.value.code == 0
    # From Python 3.13 on, a value's name stands once.
    text = " ".join(capsys.readouterr().out.split()).replace("-rate X, --lr", "-rate, --lr")
    for words in (
        "Learns to walk.",
        "stands for its evaluations. --length N cells (default: 6)",
        "algorithm: PPO's settings, and an update that compiles little. --num-envs N",
        "--learning-rate, --lr X learning rate (default: 0.003)",
        "--gamma X discount per step (default: 0.99)",
        "--tensorboard, --no-tensorboard write TensorBoard event files (default: true)",
        "run: Which run this is, and how long it is.",
    ):
        assert words in text


@pytest.mark.parametrize(
    ("words", "name", "value"),
    [
        ("--lr 1e-3", "learning_rate", 1e-3),
        ("--learning-rate 0", "learning_rate", 0.0),
        ("--max-grad-norm inf", "max_grad_norm", math.inf),
        ("--num-envs=16", "num_envs", 16),
        ("--total-timesteps 1_000_000", "total_timesteps", 1_000_000),
        ("--anneal-lr", "anneal_lr", True),
        ("--no-tensorboard", "tensorboard", False),
        ("--precision bfloat16", "precision", "bfloat16"),
        ("--target-kl 0.02", "target_kl", 0.02),
        ("--target-kl none", "target_kl", None),
        ("--save-interval none", "save_interval", None),
        ("--eval-interval 5", "eval_interval", 5),
        ("--profile", "profile", 0),
        ("--profile 7", "profile", 7),
    ],
)
def test_flags_in_all_spellings(words: str, name: str, value: Any) -> None:
    config = make_plan(DEFAULTS, words.split(), "").config
    got = schema.settings(config)[name].value
    assert (got, type(got)) == (value, type(value))


@pytest.mark.parametrize(
    "text",
    ["lr: 1e-3\nnum-envs: 4\n", "algorithm:\n  learning-rate: 0.001\n  num_envs: 4\n"],
    ids=["flat", "grouped"],
)
def test_flags_win_over_a_file_and_a_file_over_defaults(tmp_path: Path, text: str) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(text)
    config = make_plan(DEFAULTS, ["--config", str(file), "--num-envs", "16"], "").config
    assert (config.algorithm.learning_rate, config.algorithm.num_envs) == (1e-3, 16)
    assert config.algorithm.num_steps == DEFAULTS.algorithm.num_steps


@pytest.mark.parametrize(
    ("words", "num_steps"),
    [
        ("", 128),
        ("--num-envs 256", 128),
        ("--num-envs 257", 64),
        ("--num-envs 1000", 32),
        ("--num-envs 2048", 16),
        ("--num-envs 8192", 4),
        ("--num-envs 65536", 4),
        ("--num-envs 2048 --num-steps 128", 128),
        ("--config {file}", 32),
        ("--config {file} --num-envs 2048", 16),
        ("--config {file} --num-steps 8", 8),
    ],
)
def test_many_environments_shorten_the_rollout_unless_its_length_is_given(
    tmp_path: Path, words: str, num_steps: int
) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("num_envs: 1024\n")
    given = words.format(file=file).split()
    program = dataclasses.replace(DEFAULTS, algorithm=PPO())
    assert make_plan(program, given, "").config.algorithm.num_steps == num_steps


def test_a_programs_own_batch_stays_as_large_as_it_is() -> None:
    large = dataclasses.replace(DEFAULTS, algorithm=PPO(num_envs=2048, num_steps=64))
    assert make_plan(large, [], "").config.algorithm.num_steps == 64


def test_the_stored_config_is_whole_and_makes_the_same_run_again(folder: Path) -> None:
    file = folder / "taken" / "config.yaml"
    stored = yaml.safe_load(file.read_text())
    assert stored["algorithm"]["num_minibatches"] == 4
    assert set(stored) == {"environment", "algorithm", "network", "logging", "checkpoints", "run"}
    assert stored["run"] == {"total_timesteps": 64, "phases": None, "seed": 0}
    again = make_plan(DEFAULTS, ["--config", str(file)], "").config
    assert schema.as_dict(again) == stored


def test_a_default_of_numpy_is_stored_as_pythons() -> None:
    config = make_plan(program_with(int, np.int64(3)), [], "").config
    assert yaml.safe_dump(schema.as_dict(config)["environment"]) == "mine: 3\n"


def test_limits_hold_for_each_value_of_a_list() -> None:
    config = program_with(tuple[int, ...], (1,), at_least=1)
    with pytest.raises(RunError, match=r"--mine must be at least 1, got 1,0"):
        make_plan(config, ["--mine", "1", "0"], "")


def test_a_name_that_is_taken_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(TASK, program_with(float, 1.0, "gamma"), []) == 2
    assert capsys.readouterr().err == "error: two groups have a setting 'gamma'\n"


def test_settings_tell_all_that_a_page_of_them_needs() -> None:
    known = schema.settings(RunConfig(DEFAULTS.environment))
    parts = {"optimizer", "loss", "advantages"}
    assert {field.name for field in dataclasses.fields(PPO)} - parts < {*known} - parts
    rate = known["learning_rate"]
    assert (rate.group, rate.flags) == ("algorithm", ("--learning-rate", "--lr"))
    assert (rate.type, rate.default, rate.rules.limits) == ("a number", "0.00025", "at least 0")
    assert known["target_kl"].type == "a number or none"
    assert known["tensorboard"].type == "true or false"
    assert known["precision"].type == "float32 or bfloat16"


# The type of a setting, its default, and each of its values by how a flag writes it.
TYPES: list[tuple[Any, Any, dict[str, Any]]] = [
    (int | None, None, {"3": 3, "none": None}),
    (float | None, 0.5, {"1e-3": 1e-3, "none": None, "-1e-3": -1e-3}),
    (tuple[float, ...], (0.5,), {"-1e-3 -2": (-1e-3, -2.0), "-1,-2_0.5": (-1.0, -20.5)}),
    (Literal["a", "b"], "a", {"b": "b"}),
    (Literal["auto", 8, True], "auto", {"8": 8, "true": True, "auto": "auto"}),
    (Literal["a", "b"] | None, None, {"b": "b", "none": None}),
    (tuple[int, ...], (64, 64), {"1": (1,), "1,2": (1, 2), "1 2": (1, 2), "": ()}),
    (tuple[str, ...], (), {"a b,c": ("a", "b", "c")}),
    (tuple[Literal["a", "b"], ...], ("a",), {"b,a": ("b", "a")}),
    (tuple[int, ...] | None, None, {"1,2": (1, 2), "none": None}),
    (Path, Path("/a"), {"B/c": Path("B/c"), "~/x": Path.home() / "x"}),
    (Path | None, None, {"b": Path("b"), "none": None}),
    (bool | None, None, {}),
]


def program_with(hint: Any, default: Any, name: str = "mine", **rules: Any) -> RunConfig[Any]:
    """Settings with one more."""
    made = schema.setting(default, "of the user", **rules)
    return RunConfig(environment=dataclasses.make_dataclass("Mine", [(name, hint, made)])())


@pytest.mark.parametrize(("hint", "default", "values"), TYPES, ids=lambda x: str(x)[:40])
def test_settings_of_many_types(
    hint: Any, default: Any, values: dict[str, Any], tmp_path: Path
) -> None:
    config = program_with(hint, default)
    assert make_plan(config, [], "").config.environment.mine == default
    for text, value in values.items():
        words = ["--mine", *text.split(" ")] if text else ["--mine"]
        made = make_plan(config, words, "").config
        assert (made.environment.mine, type(made.environment.mine)) == (value, type(value))
        # As a run's own files hold it.
        file = tmp_path / "config.yaml"
        file.write_text(yaml.safe_dump(json.loads(json.dumps(schema.as_dict(made)["environment"]))))
        again = make_plan(config, ["--config", str(file)], "").config
        assert again.environment == made.environment


@pytest.mark.parametrize(
    ("hint", "default", "words", "message"),
    [
        (Literal["a", "b"], "a", "c", "a or b, got 'c'"),
        (
            tuple[int, ...],
            (),
            "1,x",
            "values with commas between them, each a whole number, got '1,x'",
        ),
    ],
)
def test_values_of_another_type_are_refused_by_name(
    hint: Any, default: Any, words: str, message: str
) -> None:
    with pytest.raises(RunError) as caught:
        make_plan(program_with(hint, default), ["--mine", *words.split()], "")
    assert str(caught.value).startswith("--mine must be ")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "hint",
    [
        complex, object, Any, type(None), list, tuple, tuple[()], list[int], signal.Signals,
        dict[str, int], set[int], int | str, int | str | None, bytes, np.int32, tuple[int, int],
        RunConfig,
    ],
    ids=str,
)  # fmt: skip
def test_types_without_a_flag_are_refused_by_name(hint: Any) -> None:
    with pytest.raises(RunError, match=r"^mine has type [^\n]*$"):
        make_plan(program_with(hint, None), [], "")


@pytest.mark.parametrize(
    ("hint", "default", "shown"),
    [
        (tuple[int, ...], (1, 2), "--mine [N ...] of the user (default: 1,2)"),
        (Literal["a", "b"] | None, None, "--mine a|b of the user (default: none)"),
        (Path, Path("Runs"), "--mine PATH of the user (default: Runs)"),
    ],
)
def test_help_shows_choices(
    hint: Any, default: Any, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(TASK, program_with(hint, default), ["--help"])
    assert shown in " ".join(capsys.readouterr().out.split())
