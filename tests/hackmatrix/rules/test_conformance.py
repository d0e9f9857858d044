"""HackMatrix against recordings of the original game.

For every closed case, over 64 keys: each outcome is a recorded one, and each outcome recorded in at
least 15% of the trials comes up.
"""

from collections import defaultdict

import jax
import numpy as np
import pytest

import recordings
from hackmatrix import HackMatrix, positions
from hackmatrix.rules.programs import CARDS
from ppo_mask.jax_tools import for_platform

KEYS = 64
CASES_AT_ONCE = 64
SHARE = 0.15
ACTIONS = ("up", "down", "left", "right", "siphon", *(card.name for card in CARDS))


def _played(cases):
    """Rows and rewards [cases, KEYS, …] of every case."""
    play = recordings.player_of(HackMatrix())
    rows, rewards = [], []
    for start in range(0, len(cases), CASES_AT_ONCE):
        some = cases[start : start + CASES_AT_ONCE]
        some += some[:1] * (CASES_AT_ONCE - len(some))
        states = positions.load_all([case["state"] for case in some])
        states = jax.tree.map(lambda x: np.repeat(x, KEYS, axis=0), jax.device_get(states))
        actions = [case["actions"] for case in some for _ in range(KEYS)]
        row, reward = play(jax.random.key(start), states, actions)
        rows.append(row.reshape(CASES_AT_ONCE, KEYS, -1))
        rewards.append(reward.reshape(CASES_AT_ONCE, KEYS, -1))
    return np.concatenate(rows)[: len(cases)], np.concatenate(rewards)[: len(cases)]


def _problem(case, rows, rewards):
    """What is wrong with our outcomes of a case, or None."""
    recorded = np.array([recordings.recorded_row(o) for o in case["outcomes"]], np.int64)
    reward = np.array([o["reward"] for o in case["outcomes"]])
    # An outcome whose mask depends on chance is recorded without it.
    equal = (rows[:, None, :-1] == recorded[None, :, :-1]).all(-1)
    no_mask = recorded[None, :, -1] == -1
    equal &= no_mask | (rows[:, None, -1] == recorded[None, :, -1])
    equal &= (np.abs(rewards[:, None] - reward[None]) < 1e-3).all(-1)
    if case["closed"] and not equal.any(1).all():
        return f"{int((~equal.any(1)).sum())} of {KEYS} outcomes are not among the recorded ones"
    trials = sum(o["count"] for o in case["outcomes"])
    missing = [
        o["count"] / trials
        for o, seen in zip(case["outcomes"], equal.any(0), strict=True)
        if o["count"] >= SHARE * trials and not seen
    ]
    if missing:
        return f"never saw outcomes that were recorded in {missing} of the trials"
    return None


def _scoreboard(cases, problems):
    total, failed = defaultdict(int), defaultdict(list)
    for index, (case, problem) in enumerate(zip(cases, problems, strict=True)):
        name = f"{case['kind']:8}{ACTIONS[case['actions'][-1]]}"
        total[name] += 1
        if problem:
            failed[name].append(f"case {index}, actions {case['actions']}: {problem}")
    lines = [
        f"{name:20}{total[name] - len(failed[name]):5} of {total[name]:5}"
        + "".join(f"\n    {line}" for line in failed[name][:3])
        for name in sorted(total)
    ]
    good = len(cases) - sum(map(len, failed.values()))
    return "\n".join([*lines, f"{good} of {len(cases)} cases"])


def _check_cases():
    cases = recordings.read("cases.jsonl.gz")
    rows, rewards = _played(cases)
    problems = [_problem(*each) for each in zip(cases, rows, rewards, strict=True)]
    if any(problems):
        pytest.fail(_scoreboard(cases, problems), pytrace=False)


@pytest.mark.parametrize("platform", ["cpu", pytest.param("tpu", marks=pytest.mark.optimized)])
def test_every_recorded_case(platform):
    with for_platform(platform):  # What accelerators run gives the same on a CPU.
        _check_cases()


@pytest.mark.optimized
def test_every_recorded_case_compiled_as_users_compile_it():
    _check_cases()  # Fast tests have another compiler (tests/conftest.py).


def test_every_recorded_observation():
    recorded = recordings.read("observations.jsonl.gz")
    env = HackMatrix()
    states = positions.load_all([each["state"] for each in recorded])
    observations = np.asarray(jax.jit(jax.vmap(env.observe))(states))
    masks = np.asarray(jax.jit(jax.vmap(env.action_mask))(states))
    for index, each in enumerate(recorded):
        wanted = recordings.recorded_observation(each)
        np.testing.assert_allclose(observations[index], wanted, atol=1e-4, err_msg=str(index))
        assert np.flatnonzero(masks[index]).tolist() == each["mask"], index
