"""The rules of the game, as pure functions of one position.

In: a :class:`~hackmatrix.rules.state.State`, an action and a key. Out: the next position and what
happened. Between two steps, a position is packed into words of bits
(:mod:`~hackmatrix.rules.state`). A step unpacks it into a :class:`~hackmatrix.rules.game.Game`. The
rules do not import networks, training or pictures.
"""
