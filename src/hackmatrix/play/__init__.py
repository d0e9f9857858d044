"""Playing the game with policies: replays, evaluations, and export to other frameworks."""
