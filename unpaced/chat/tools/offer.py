"""The tools that a request offers to the model, and whether it must use them."""

from dataclasses import dataclass
from typing import Any, Literal

from unpaced.http.errors import invalid, invalid_field
from unpaced.values.json_values import json_type


@dataclass(frozen=True, slots=True)
class Tool:
    """A function. `parameters` is its JSON schema as the client sent it; {} where it sent none.

    `is_strict`: its arguments must be held to the schema, or the request refused.
    """

    name: str
    description: str
    parameters: dict[str, Any]
    is_strict: bool = False

    def to_json(self) -> dict[str, Any]:
        """The tool as templates read it."""
        return {
            "type": "function",
            "function": {
                "name": self.name,
                "description": self.description,
                "parameters": self.parameters,
            },
        }

    @property
    def schema(self) -> dict[str, Any]:
        """The schema of its arguments: an object, without properties where none are named."""
        return self.parameters or {"type": "object", "properties": {}}


@dataclass(frozen=True, slots=True)
class ToolOffer:
    """`choice` "required": at least one call. `only`: calls that count; one where it was named."""

    tools: tuple[Tool, ...] = ()
    choice: Literal["auto", "none", "required"] = "auto"
    only: tuple[Tool, ...] = ()
    parallel: bool | None = None

    @property
    def is_open(self) -> bool:
        """Whether the answer may hold calls."""
        return bool(self.tools) and self.choice != "none"


def read_tools(body: dict[str, Any], n_max: int) -> ToolOffer:
    """`tools`, at most `n_max`, `tool_choice` and `parallel_tool_calls`. Raises: ApiError (400)."""
    tools = _read_list(body.get("tools"), n_max)
    parallel = body.get("parallel_tool_calls")
    if parallel is not None and not isinstance(parallel, bool):
        raise invalid_field(
            "parallel_tool_calls", f"type must be boolean, but is {json_type(parallel)}"
        )
    choice = body.get("tool_choice")
    if choice is None or choice in ("auto", "none", "required"):
        if choice == "required" and not tools:
            raise invalid_field("tool_choice", '"required" needs tools')
        return ToolOffer(tools, choice or "auto", tools, parallel)
    return ToolOffer(tools, "required", _named(tools, choice), parallel)


def _read_list(tools: Any, n_max: int) -> tuple[Tool, ...]:
    if tools is None:
        return ()
    if not isinstance(tools, list):
        raise invalid_field("tools", f"type must be array, but is {json_type(tools)}")
    if len(tools) > n_max:
        raise invalid_field("tools", f"at most {n_max}, but got {len(tools)} (--max-tools)")
    return tuple(_read_tool(tool, f"tools[{i}]") for i, tool in enumerate(tools))


def _read_tool(tool: Any, where: str) -> Tool:
    if not isinstance(tool, dict):
        raise invalid(f"{where}: must be an object, but is {json_type(tool)}", param=where)
    if tool.get("type") != "function":
        raise invalid(f"{where}: 'type' must be \"function\"", param=f"{where}.type")
    function = tool.get("function")
    if not isinstance(function, dict):
        raise invalid(f"{where}: 'function' must be an object", param=f"{where}.function")
    name, description = function.get("name"), function.get("description")
    if not isinstance(name, str) or not name:
        raise invalid(f"{where}: 'name' must be a string", param=f"{where}.function.name")
    if description is not None and not isinstance(description, str):
        raise invalid(
            f"{where}: 'description' must be a string", param=f"{where}.function.description"
        )
    parameters = function.get("parameters")
    if parameters is not None and not isinstance(parameters, dict):
        raise invalid(
            f"{where}: 'parameters' must be a JSON schema, an object",
            param=f"{where}.function.parameters",
        )
    strict = function.get("strict")
    if strict is not None and not isinstance(strict, bool):
        raise invalid(f"{where}: 'strict' must be a boolean", param=f"{where}.function.strict")
    return Tool(name, description or "", parameters or {}, bool(strict))


def _named(tools: tuple[Tool, ...], choice: Any) -> tuple[Tool, ...]:
    function = choice.get("function") if isinstance(choice, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(choice, dict) or choice.get("type") != "function" or name is None:
        raise invalid_field(
            "tool_choice", 'must be "auto", "none", "required" or a function of `tools`'
        )
    named = tuple(tool for tool in tools if tool.name == name)
    if not named:
        raise invalid_field("tool_choice", f"no tool is named {name!r}")
    return named
