"""What of a generation with a secret is kept."""

from __future__ import annotations

from services.ingest.redaction import without_secrets
from tests.factories import fim_prompt, make_generation

SECRET = "hunter2hunter"


def test_one_without_a_secret_stays_as_it_is() -> None:
    generation = make_generation()
    kept = without_secrets(generation)
    assert (kept.generation, kept.kinds) == (generation, ())


def test_a_secret_in_the_prompt() -> None:
    generation = make_generation(prompt=fim_prompt(f'password = "{SECRET}"\nlogin('))
    kept = without_secrets(generation)
    assert SECRET not in kept.generation.model_dump_json()
    assert kept.generation.text == generation.text  # so that events still join it
    assert (kept.generation.untrainable, kept.kinds) == ("contains_secret", ("secret-keyword",))
    tokens = kept.generation.prompt_token_ids, kept.generation.token_ids, kept.generation.logprobs
    assert tokens == ([], [], [])


def test_a_secret_that_the_model_wrote_into_a_place_that_says_what_it_is() -> None:
    kept = without_secrets(make_generation(SECRET, prompt=fim_prompt('password = "', '"\n')))
    assert kept.generation.text == "<redacted:secret-keyword>"
    assert kept.generation.prompt == fim_prompt('password = "', '"\n')


def test_a_secret_that_is_being_typed() -> None:
    kept = without_secrets(make_generation("nter", prompt=fim_prompt('x = 1\npassword = "hunter2hu', '"\n')))
    assert SECRET[:9] not in kept.generation.model_dump_json()


def test_a_project_may_keep_its_secrets() -> None:
    generation = make_generation(prompt=fim_prompt(f'password = "{SECRET}"\n'))
    assert without_secrets(generation, keep=True).generation is generation
