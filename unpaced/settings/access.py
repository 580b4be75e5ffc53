"""Who may talk to the server: API keys, CORS, TLS."""

from pathlib import Path
from typing import Annotated, ClassVar, Self

from pydantic import model_validator

from unpaced.settings.options.option import Option
from unpaced.settings.options.option_group import OptionGroup


class AccessSettings(OptionGroup):
    """Who may talk to the server: API keys, CORS, TLS."""

    group: ClassVar[str] = "Access"

    api_key: Annotated[
        tuple[str, ...],
        Option(
            ("--api-key",),
            "keys that clients may send, comma-separated; without one anybody is served",
            env_name="LLAMA_API_KEY",
            metavar="KEY",
            many=True,
            secret=True,
        ),
    ] = ()
    api_key_file: Annotated[
        Path | None,
        Option(
            ("--api-key-file",),
            "file of further keys, one a line; lines that begin with # are comments",
            env="API_KEY_FILE",
            metavar="FILE",
        ),
    ] = None
    allowed_hosts: Annotated[
        str,
        Option(
            ("--allowed-hosts",),
            "names by which browsers may know the server, comma-separated; *: any; without it any, "
            "but on a loopback address without API keys only this machine's",
            metavar="NAMES",
        ),
    ] = ""
    cors_origins: Annotated[
        str,
        Option(
            ("--cors-origins",),
            "Access-Control-Allow-Origin; *: the origin that asks; localhost: only local ones",
            env="CORS_ORIGINS",
            metavar="ORIGINS",
        ),
    ] = "*"
    tools: Annotated[
        str,
        Option(
            ("--tools",),
            "there are no built-in tools; as in llama-server --cors-origins is localhost then",
            env="TOOLS",
            metavar="NAMES",
        ),
    ] = ""
    cors_methods: Annotated[
        str,
        Option(
            ("--cors-methods",),
            "methods that pages of other origins may use",
            env="CORS_METHODS",
            metavar="METHODS",
        ),
    ] = "GET, POST, DELETE, OPTIONS"
    cors_headers: Annotated[
        str,
        Option(
            ("--cors-headers",),
            "headers that pages of other origins may send",
            env="CORS_HEADERS",
            metavar="HEADERS",
        ),
    ] = "*"
    cors_credentials: Annotated[
        bool,
        Option(
            ("--cors-credentials",),
            "let pages of other origins send credentials (on by default)",
            env="CORS_CREDENTIALS",
            off_flags=("--no-cors-credentials",),
        ),
    ] = True
    ssl_key_file: Annotated[
        Path | None,
        Option(
            ("--ssl-key-file",),
            "private key for TLS, PEM; needs --ssl-cert-file",
            env="SSL_KEY_FILE",
            metavar="FILE",
        ),
    ] = None
    ssl_cert_file: Annotated[
        Path | None,
        Option(
            ("--ssl-cert-file",),
            "certificate for TLS, PEM; needs --ssl-key-file",
            env="SSL_CERT_FILE",
            metavar="FILE",
        ),
    ] = None

    @model_validator(mode="after")
    def _check_tls(self) -> Self:
        if (self.ssl_key_file is None) != (self.ssl_cert_file is None):
            given, missing = "ssl_key_file", "--ssl-cert-file"
            if self.ssl_key_file is None:
                given, missing = "ssl_cert_file", "--ssl-key-file"
            raise ValueError(f"{given}: TLS needs {missing} too")
        return self

    @property
    def allowed_origins(self) -> str:
        """`cors_origins`, or what takes its place."""
        limited = self.tools and "cors_origins" not in self.model_fields_set
        return "localhost" if limited else self.cors_origins

    def read_api_keys(self) -> tuple[str, ...]:
        """All keys, in the order given.

        Raises: ValueError beginning with a field's name, also where an option is given and holds
        no key: a server that was meant to be closed must not be open.
        """
        keys = [key.strip() for entry in self.api_key for key in entry.split(",") if key.strip()]
        if self.api_key and not keys:
            raise ValueError("api_key: holds no key")
        if self.api_key_file is not None:
            try:
                text = self.api_key_file.read_text(encoding="utf-8-sig")
            except (OSError, UnicodeDecodeError) as error:
                raise ValueError(
                    f"api_key_file: cannot read {self.api_key_file}: {error}"
                ) from None
            # No header carries white space around a key.
            stripped = (line.strip() for line in text.splitlines())
            lines = [line for line in stripped if line and not line.startswith("#")]
            if not lines:
                raise ValueError(f"api_key_file: {self.api_key_file} holds no key")
            keys += lines
        return tuple(dict.fromkeys(keys))
