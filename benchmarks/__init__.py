"""Side by side with peers, in one run, on one machine: each benchmark prints one JSON line per figure."""
