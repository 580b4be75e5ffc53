"""Models that are not files of this machine yet. Imported only when one is asked for."""
