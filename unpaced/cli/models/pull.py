"""`unpaced pull`: a model into the cache, so that serving it needs no network."""

import argparse
import os
import sys
from collections.abc import Sequence

from unpaced.cli.models.model_word import fetch_model, is_repo


def pull_parser() -> argparse.ArgumentParser:
    """The command's flags."""
    parser = argparse.ArgumentParser(
        prog="unpaced pull",
        description="Download a model into the cache: resumed where it stopped, SHA-256 checked. "
        "Prints the file's path.",
    )
    parser.add_argument(
        "model",
        metavar="REPO[:QUANT]",
        help="USER/REPO on Hugging Face; without QUANT Q4_K_M, Q8_0 or the first file; or a URL",
    )
    parser.add_argument("--hf-file", default="", metavar="FILE", help="this file of the repository")
    parser.add_argument("--hf-token", metavar="TOKEN", help="access token; default: HF_TOKEN")
    return parser


def pull(arguments: Sequence[str]) -> int:
    """0 once the model is here; 1 with the reason on standard error."""
    from unpaced.download.transfer import DownloadError

    given = pull_parser().parse_args(arguments)
    is_url = given.model.startswith(("http://", "https://"))
    if not is_url and not is_repo(given.model):
        print(f"unpaced pull: error: {given.model} is not USER/REPO[:QUANT]", file=sys.stderr)
        return 1
    if is_url and given.hf_file:
        print("unpaced pull: error: --hf-file is for a repository, not a URL", file=sys.stderr)
        return 1
    token = os.environ.get("HF_TOKEN", "") if given.hf_token is None else given.hf_token
    try:
        path = fetch_model(given.model, given.hf_file, token)
    except DownloadError as error:
        print(f"unpaced pull: error: {error}", file=sys.stderr)
        return 1
    print(path)
    return 0
