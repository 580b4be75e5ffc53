"""What can go wrong between the front end and the engine, one type each."""


class EngineError(RuntimeError):
    """The engine cannot do what was asked: it is not ready, was stopped or has failed."""


class EngineBusy(EngineError):
    """Every slot and every waiting place is taken; try again when a request has ended."""


class EngineBuildError(EngineError):
    """The native libraries are missing, or are not the ones this version was built with."""


class ModelLoadError(EngineError):
    """The model file could not be loaded; the text names it and says why."""


class SlotFileError(EngineError):
    """A file cannot be a slot's state, or cannot be written; the text is for the client."""


class SlotNameError(SlotFileError):
    """The name is that of something else than a file; the text is for the client."""


class TextError(ValueError):
    """A text cannot be tokenised; the text of the error is for the client."""


class GrammarError(ValueError):
    """A grammar or schema cannot be compiled; the text is the compiler's."""
