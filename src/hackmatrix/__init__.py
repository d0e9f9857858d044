"""HackMatrix, a turn-based roguelike on a 6×6 grid, as a ``ppo_mask`` environment."""
