"""Domain-free building blocks: settings, logging, errors, clock. Imports nothing else of the project."""
