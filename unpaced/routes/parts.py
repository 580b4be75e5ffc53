"""The parts of the server as routes find them: each asks for those that it needs."""

from starlette.requests import Request

from unpaced.chat.templates import ChatTemplates
from unpaced.completion.completions import Completions
from unpaced.http.gate import Gate
from unpaced.metrics.page import MetricsPage
from unpaced.request.model_host import ModelHost


def host_of(request: Request) -> ModelHost:
    """The model."""
    host: ModelHost = request.app.state.host
    return host


def completions_of(request: Request) -> Completions:
    """Who makes completions."""
    completions: Completions = request.app.state.completions
    return completions


def templates_of(request: Request) -> ChatTemplates:
    """The chat templates."""
    templates: ChatTemplates = request.app.state.templates
    return templates


def gate_of(request: Request) -> Gate:
    """Where the server is in its life."""
    gate: Gate = request.app.state.gate
    return gate


def metrics_page_of(request: Request) -> MetricsPage:
    """What GET /metrics shows."""
    page: MetricsPage = request.app.state.metrics_page
    return page
