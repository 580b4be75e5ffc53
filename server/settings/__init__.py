"""Settings of the server: flags, environment, config file."""

from server.settings.options.sources import SettingsError as SettingsError
from server.settings.settings import Settings as Settings
