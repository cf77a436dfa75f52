"""How often settled text is right, and how often it is found: typing sessions of which the truth is known.

    python -m benchmarks.settled [--seed 1 --sessions 20]

Files are made of modules of the house codebase (`base_model.house`): regular, so that many places look alike, which
is the hard case. One figure per line of JSON on standard output. The sessions are simulated, not recorded from people.
"""
