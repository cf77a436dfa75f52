"""What is taken for a secret, and what is not. The examples are put together here, so that no scanner finds them."""

from __future__ import annotations

import base64
import random
import string

import pytest
from detect_secrets.plugins import keyword
from hypothesis import given
from hypothesis import strategies as st

from services.ingest.secret_hints import WORDS
from services.ingest.secrets import Redacted, has_mark, redact


def drawn(length: int, characters: str = string.ascii_letters + string.digits, seed: int = 1) -> str:
    return "".join(random.Random(seed).choices(characters, k=length))


LOWER = string.ascii_lowercase + string.digits
SECRETS = {
    "aws-access-key": ("KEY_ID = AKIA%s", drawn(16, string.ascii_uppercase + string.digits)),
    "github-token": ("run(ghp_%s)", drawn(36)),
    "stripe-access-key": ("stripe.init(sk_live_%s)", drawn(24)),
    "slack-token": ("post(xoxb-%s)", "123456789012-123456789012-" + drawn(24, LOWER)),
    "sendgrid-api-key": ("mail(SG.%s)", f"{drawn(22)}.{drawn(43)}"),
    "npm-tokens": ("//registry/:x=npm_%s", drawn(36)),
    "basic-auth-credentials": ("psql postgresql://alice:%s@db/x", drawn(10)),
    "secret-keyword": ('password = "%s"', "hunter2hunter"),
    "base64-high-entropy-string": ("blob = '%s'", base64.b64encode(random.Random(2).randbytes(48)).decode()),
    "hex-high-entropy-string": ('blob = "%s"', random.Random(3).randbytes(20).hex()),
}


@pytest.mark.parametrize("kind", SECRETS)
def test_a_secret_is_found_in_the_midst_of_code_and_nothing_else_changes(kind: str) -> None:
    line, secret = SECRETS[kind]
    code = f"import os\n\n{line % secret}\nprint('done')\n"
    found = redact(code)
    assert found.kinds == (kind,)
    assert secret not in found.text
    assert has_mark(found.text)
    assert found.text.split("\n")[:2] + found.text.split("\n")[3:] == ["import os", "", "print('done')", ""]


def test_a_private_key_goes_whole_and_so_does_a_window_that_shows_its_middle() -> None:
    body = base64.b64encode(random.Random(4).randbytes(400)).decode()
    lines = [body[at : at + 64] for at in range(0, len(body), 64)]
    begin = "-----BEGIN RSA " + "PRIVATE KEY-----"
    assert not any(line in redact("\n".join([begin, *lines])).text for line in lines)
    assert not any(line in redact("\n".join(lines)).text for line in lines[:-1])


def test_a_json_web_token() -> None:
    parts = [base64.urlsafe_b64encode(part).decode().rstrip("=") for part in (b'{"alg":"HS256"}', b'{"sub":"1234567"}')]
    token = ".".join([*parts, drawn(43)])
    assert token not in redact(f"auth({token})").text


@pytest.mark.parametrize(
    "line",
    [
        "DB_PASSWORD=hunter2hunter",
        "export API_KEY=a1b2c3d4e5",
        "  password: hunter2hunter",
        'login(user, password="hunter2hunter", token="f00ba4ba5")',
        'headers["api_key"] = "a1b2c3d4e5"',
        'if token == "a1b2c3d4e5":',
    ],
)
def test_values_of_names_that_sound_secret(line: str) -> None:
    found = redact(line)
    assert found.kinds == ("secret-keyword",)
    assert not any(value in found.text for value in ("hunter2", "a1b2c3", "f00ba4"))


@pytest.mark.parametrize(
    "line",
    [
        'password = getpass("Password 123: ")',
        'token = os.environ["TOKEN_2"]',
        'api_key = "${API_KEY_2}"',
        'secret = "<your-secret-1>"',
        'token_type = "bearer"',
        'password = "must not be empty"',
        "prompt_token_ids: list[int] | None",
        "self.token_ids = token_ids[:128]",
        'request_id = "3f2b8a4c-9d1e-4c7a-8b5f-0a1b2c3d4e5f"',
        'path = "services/ingest/protocols/continue_.py"',
        "https://example.org/a/b?c=d",
        'colour = "#ff00aa"',
        "from services.trainer.learner_process import RoundAbandoned",
    ],
)
def test_ordinary_code_is_left_alone(line: str) -> None:
    assert redact(line).text == line


def test_what_stands_around_the_text_tells_what_it_is_and_is_not_changed() -> None:
    assert redact("hunter2hunter", before='x = 1\npassword = "', after='"\n').text == "<redacted:secret-keyword>"
    assert redact('hunter2hunter"\nnext', before='password = "').text == '<redacted:secret-keyword>"\nnext'
    assert redact("hunter2hunter", before='colour = "', after='"').text == "hunter2hunter"


def test_the_same_secret_leaves_the_same_mark_and_a_mark_is_no_secret() -> None:
    once = redact('password = "hunter2hunter"').text
    assert redact(once) == Redacted(once)


def test_a_special_token_of_the_model_is_never_part_of_a_secret() -> None:
    prompt = '<|fim_prefix|>password = "hunter2hunter"<|fim_suffix|>\ntoken: list[in<|fim_middle|>'
    assert redact(prompt).text == prompt.replace("hunter2hunter", "<redacted:secret-keyword>")


def test_every_keyword_of_the_detector_contains_a_word_that_is_looked_for() -> None:
    for known in keyword.DENYLIST:
        assert any(word in known for word in WORDS), known


@given(st.text(), st.text(), st.text())
def test_any_text_is_taken_and_what_is_clean_stays_as_it_is(text: str, before: str, after: str) -> None:
    found = redact(text, before=before, after=after)
    assert bool(found.kinds) == (found.text != text)


@given(st.text(alphabet=string.ascii_letters + ' "=:/\n', max_size=300), st.text(max_size=50).filter(str.isprintable))
def test_a_key_is_found_wherever_it_stands(code: str, around: str) -> None:
    key = "ghp_" + drawn(36)
    assert key not in redact(f"{code}\n{around} {key} {around}\n{code}").text
