"""What the server answers about itself, its slots, its tokeniser and its adapters."""

from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from engine_ext import SamplingParams
from unpaced.description.shapes import Schema, later, of_value
from unpaced.request.effective_params import EffectiveParams


class Health(BaseModel):
    """It is well."""

    status: Literal["ok"]


class ModelMeta(BaseModel):
    """llama-server's `meta`. Sizes are bytes."""

    vocab_type: int
    n_vocab: int
    n_ctx: int
    n_ctx_train: int
    n_embd: int
    n_params: int
    size: int
    ftype: str


class ModelObject(BaseModel):
    """OpenAI's model."""

    id: str
    aliases: list[str]
    tags: list[str]
    object: Literal["model"]
    created: int
    owned_by: str
    meta: ModelMeta


class ModelList(BaseModel):
    """OpenAI's list; `models` is Ollama's."""

    object: Literal["list"]
    data: list[ModelObject]
    models: list[dict[str, Any]]


class DefaultSettings(BaseModel):
    """What a request gets that asks for nothing."""

    params: Any = Field(json_schema_extra=later("DefaultGenerationSettings"))
    n_ctx: int


class Props(BaseModel):
    """llama-server's description of the server; `unpaced` is ours."""

    default_generation_settings: DefaultSettings
    total_slots: int
    model_alias: str
    model_ftype: str
    model_path: str
    modalities: dict[str, bool]
    media_marker: str
    endpoint_slots: bool
    endpoint_props: bool
    endpoint_metrics: bool
    ui: bool
    ui_settings: dict[str, Any]
    chat_template: str
    chat_template_caps: dict[str, bool]
    chat_template_tool_use: str | None = None
    bos_token: str
    eos_token: str
    build_info: str
    is_sleeping: bool
    cors_proxy_enabled: bool
    unpaced: dict[str, Any]


class NextToken(BaseModel):
    """What comes next."""

    has_next_token: bool
    has_new_line: bool
    n_remain: int
    n_decoded: int


class SlotState(BaseModel):
    """A slot, and what it does or did last."""

    id: int
    n_ctx: int
    speculative: bool
    is_processing: bool
    id_task: int | None = None
    n_prompt_tokens: int | None = None
    n_prompt_tokens_processed: int | None = None
    n_prompt_tokens_cache: int | None = None
    n_cells_shared: int | None = None
    params: Any = Field(None, json_schema_extra=later("DefaultGenerationSettings"))
    next_token: list[NextToken] | None = None


class QueuedRequest(BaseModel):
    """Who waits for a slot."""

    position: int
    n_prompt_tokens: int
    id_slot: int
    priority: int
    api_key_index: int


class SlotsAndQueue(BaseModel):
    """With `?queue=1`."""

    slots: list[SlotState]
    queue: list[QueuedRequest]


class SlotFile(BaseModel):
    """Of save and restore."""

    filename: str


class SlotAction(BaseModel):
    """What was done: tokens, bytes and milliseconds."""

    id_slot: int
    filename: str | None = None
    n_erased: int | None = None
    n_saved: int | None = None
    n_written: int | None = None
    n_restored: int | None = None
    n_read: int | None = None
    timings: dict[str, float] | None = None


class Adapter(BaseModel):
    """A LoRA adapter, and its factor for requests that name none."""

    id: int
    path: str
    scale: float
    task_name: str
    prompt_prefix: str


class AdapterScale(BaseModel):
    """A factor; without one 0."""

    id: int
    scale: float = 0.0


class Success(BaseModel):
    """`message`: why not."""

    success: bool
    message: str | None = None


class Control(BaseModel):
    """`id`: of the completion that is running."""

    model_config = ConfigDict(extra="allow")

    id: str = Field(min_length=1)
    action: Literal["reasoning_end"]


class TokenizeRequest(BaseModel):
    """Text, or a list of text and ids. `prompt` and `add_special_tokens` are vLLM's names."""

    model_config = ConfigDict(extra="allow")

    content: str | list[str | int] | None = None
    prompt: str | list[str | int] | None = None
    add_special: bool | None = None
    add_special_tokens: bool | None = None
    parse_special: bool | None = None
    with_pieces: bool | None = None


class TokenPiece(BaseModel):
    """`piece`: text, or its bytes where they are no valid text."""

    id: int
    piece: str | list[int]


class Tokens(BaseModel):
    """Ids, or with `with_pieces` their texts too."""

    tokens: list[int] | list[TokenPiece]


class DetokenizeRequest(BaseModel):
    """Ids."""

    model_config = ConfigDict(extra="allow")

    tokens: list[int] | None = None


class Text(BaseModel):
    """Control tokens are spelled out."""

    content: str


class RenderedPrompt(BaseModel):
    """What a chat request would be given to the model as."""

    prompt: str


class TokenizerInfo(BaseModel):
    """vLLM's description of the tokeniser."""

    tokenizer_class: str
    vocab_size: int
    model_max_length: int
    bos_token: str | None
    eos_token: str | None
    bos_token_id: int | None
    eos_token_id: int | None
    add_bos_token: bool
    add_eos_token: bool
    chat_template: str | None


class Instances(BaseModel):
    """Each names its route in `@requestFormat`; the rest is that route's body."""

    instances: list[dict[str, Any]] = Field(max_length=128)


class Predictions(BaseModel):
    """In order; one that failed has its error in its place."""

    predictions: list[Any]


class InfillExtra(BaseModel):
    """Other code of the project."""

    model_config = ConfigDict(extra="allow")

    filename: str = ""
    text: str


MODELS: Final = (
    *(Health, ModelObject, ModelList, Props, SlotState, SlotsAndQueue, SlotFile, SlotAction),
    *(Adapter, AdapterScale, Success, Control, TokenizeRequest, Tokens, DetokenizeRequest, Text),
    *(RenderedPrompt, TokenizerInfo, Instances, Predictions, InfillExtra),
)


def schemas() -> dict[str, Schema]:
    """Of objects that code puts together: an example of each tells."""
    lora: Schema = {"type": "array", "items": of_value({"id": 0, "scale": 1.0})}
    settings = of_value(EffectiveParams(SamplingParams()).to_defaults_json(), lora=lora)
    return {"DefaultGenerationSettings": settings}
