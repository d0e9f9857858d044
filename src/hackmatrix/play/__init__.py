"""Playing the game: who plays, whole games on record, and how well a policy does.

In: a policy of a run, or a scripted one. Out: replays, evaluations over many games, and policies
exported for other frameworks.
"""
