"""`python -m benchmarks.adapters`: memory, time and disk of training all weights and of training an adapter."""
