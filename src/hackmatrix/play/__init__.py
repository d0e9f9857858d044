"""Playing the game with policies: replays and evaluations."""
