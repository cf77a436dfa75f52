"""API keys: who may do what. Keys come from the environment and from a file of digests; see docs/decisions/0008."""

from shared.keys.key import ALL_SCOPES as ALL_SCOPES
from shared.keys.key import DEFAULT_PROJECT as DEFAULT_PROJECT
from shared.keys.key import Key as Key
from shared.keys.key import Scope as Scope
from shared.keys.ring import KeyRing as KeyRing
