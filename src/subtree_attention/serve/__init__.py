"""A run over HTTP: predictions of its nodes, and of new ones that join them; see `sta serve`.

Nothing that a client sends is kept, and nothing of it is a path: new nodes join for one answer.
"""
