"""Fill-in-the-middle prompts: one registry of the model families' templates, to write prompts and to read them.

Text of users is never escaped: where it holds a family's own special tokens, `render` passes them on as they are (the
model takes them for its own, exactly as with an editor that makes the prompt itself), and `parse` may draw the line
between prefix and suffix at the wrong one of them. Nothing else follows: a prompt never decides who may do what.
"""

from shared.fim.families import FAMILIES as FAMILIES
from shared.fim.families import NO_SUFFIX as NO_SUFFIX
from shared.fim.families import SPECIAL_TOKENS as SPECIAL_TOKENS
from shared.fim.families import insert_before_suffix as insert_before_suffix
from shared.fim.families import parse as parse
from shared.fim.families import render as render
from shared.fim.families import stop_strings as stop_strings
from shared.fim.template import FimPrompt as FimPrompt
from shared.fim.template import FimTemplate as FimTemplate
from shared.fim.template import Snippet as Snippet
