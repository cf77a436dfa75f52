"""Rewards of the warm start: what a sampled completion is worth, by plug-ins that a YAML file puts together.

In: `Candidate`s (a place in a file, what stood there, what was sampled). Out: 0 to 1 each, or None: unknown.

protocol    `Candidate`, `Reward`: all that a plug-in has to know
registry    name → plug-in: the built-in ones, and those of installed packages (entry-point group `tabwise.rewards`)
mix         several rewards, weighted: `RewardMix`
options     the base of a plug-in's options
"""
