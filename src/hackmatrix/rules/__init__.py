"""The rules of the game, as pure functions of one position.

In: a :class:`~hackmatrix.rules.state.State`, an action and a key. Out: the next position and what
happened. A position is packed into words of bits between two steps (:mod:`~hackmatrix.rules.state`)
and unpacked into a :class:`~hackmatrix.rules.game.Game` for the rules. Nothing here knows of
networks, training or pictures.
"""
