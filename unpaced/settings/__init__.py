"""Settings of the server: flags, environment, config file."""

from unpaced.settings.options.sources import SettingsError as SettingsError
from unpaced.settings.settings import Settings as Settings
