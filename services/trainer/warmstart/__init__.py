"""The warm start: trains the policy on the team's own repositories before anybody has used it. Torch-free."""
