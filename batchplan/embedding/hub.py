"""Finds models of the Hugging Face Hub, with a network and without."""

import os

from batchplan.errors import InputError
from batchplan.files.remote import no_url

_OWNER = "sentence-transformers"  # of models that are named without an owner
_SECONDS = 10  # until the Hub answers


def located(name: str) -> str:
    """Return the folder of a model; its name on the Hub, with its owner, if the Hub answers.

    Without a network, the library of the Hub would try again for half a minute for each file.

    Raises:
        InputError: there is no such folder, and no model of that name can be loaded from the Hub or
            its cache.
    """
    no_url(name)
    if os.path.isdir(name):
        return name
    from huggingface_hub import constants, get_session, snapshot_download
    from huggingface_hub.utils import HFValidationError, validate_repo_id

    owned = name if "/" in name else f"{_OWNER}/{name}"
    try:
        validate_repo_id(owned)
        get_session().head(constants.ENDPOINT, timeout=_SECONDS)
        return owned
    except HFValidationError:
        raise InputError(f"{name}: no such folder, nor a name on the Hub; check the path") from None
    except Exception as error:  # of its HTTP library, which differs between versions
        reason = str(error).partition("\n")[0] or type(error).__name__
    try:
        folder: str = snapshot_download(owned, local_files_only=True)
    except OSError:
        raise InputError(
            f"{name}: no such folder, and the Hub cannot be reached at {constants.ENDPOINT} "
            f"({reason:.200}); give the folder of a model, or run hf download {owned} where there "
            "is a network, which keeps it in the cache"
        ) from None
    return folder
