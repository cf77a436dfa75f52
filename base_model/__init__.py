"""The small base model: its generated house codebase, its tokenizer, its training and its evaluation."""
