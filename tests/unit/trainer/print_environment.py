"""A learner that only says what it was told."""

import json
import os

if __name__ == "__main__":
    print(json.dumps(dict(os.environ)))
