"""Settings of the server: flags, environment, config file."""

from server.settings.settings import Settings as Settings
from server.settings.sources import SettingsError as SettingsError
