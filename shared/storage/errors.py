"""What obstore raises, as errors named by what the caller should do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from obstore.exceptions import BaseError, NotFoundError, PermissionDeniedError, UnauthenticatedError

from shared.kit.errors import InvalidMessage, SettingsError, TemporaryError


@contextmanager
def translated(what: str) -> Iterator[None]:
    """`what` names the object in the sentence, such as `v000018/model.safetensors`."""
    try:
        yield
    except (NotFoundError, FileNotFoundError) as error:
        raise InvalidMessage(f"{what} is not in the storage") from error
    except (PermissionDeniedError, UnauthenticatedError, PermissionError) as error:
        raise SettingsError(f"the storage refuses {what}: check TABWISE_STORAGE_URL and its key") from error
    except (BaseError, OSError) as error:
        raise TemporaryError(f"the storage does not answer for {what} ({type(error).__name__})") from error
