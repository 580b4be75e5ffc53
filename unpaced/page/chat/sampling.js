// The sampling settings a request is sent with, and the form that changes them. An empty field is the server's default.
import { make } from "../base/dom.js";
import { keepPreferences, preferences } from "../base/preferences.js";

// [field of the request, what it is called, attributes of its input]
const FIELDS = [
  ["temperature", "Temperature", { min: 0, step: 0.05 }],
  ["top_p", "top_p", { min: 0, max: 1, step: 0.01 }],
  ["top_k", "top_k", { min: 0, step: 1 }],
  ["min_p", "min_p", { min: 0, max: 1, step: 0.01 }],
  ["repeat_penalty", "Repeat penalty", { min: 0, step: 0.05 }],
  ["presence_penalty", "Presence penalty", { min: -2, max: 2, step: 0.1 }],
  ["frequency_penalty", "Frequency penalty", { min: -2, max: 2, step: 0.1 }],
  ["max_tokens", "Most tokens", { min: 1, step: 1 }],
  ["seed", "Seed", { min: 0, step: 1 }],
];
const WORDS = { max_tokens: "to the end", seed: "random" };

// Fields of a request.
export function samplingOptions() {
  return { ...preferences.sampling, ...extraFields(preferences.more) };
}

// The object that a text of JSON holds. Throws SyntaxError.
function extraFields(text) {
  if (!text.trim()) return {};
  const fields = JSON.parse(text);
  if (fields === null || typeof fields !== "object" || Array.isArray(fields)) throw new SyntaxError("must be a JSON object");
  return fields;
}

// The fields of the form; `defaults`: the server's, from /props.
export function samplingFields(defaults) {
  const fields = FIELDS.map(([name, label, limits]) => field(name, label, limits, defaults?.[name]));
  return make("div", { className: "sampling" }, ...fields);
}

function field(name, label, limits, standard) {
  const value = preferences.sampling[name] ?? "";
  const placeholder = WORDS[name] ?? (standard === undefined ? "default" : String(Number(standard.toPrecision(4))));
  const input = make("input", { type: "number", id: name, value: String(value), placeholder, ...limits });
  input.addEventListener("change", () => {
    const { [name]: _, ...others } = preferences.sampling;
    const isSet = input.value !== "" && input.reportValidity();
    keepPreferences({ sampling: isSet ? { ...others, [name]: Number(input.value) } : others });
  });
  return make("label", {}, label, input);
}

// Any other fields of a request, as JSON: grammars, tools, template variables.
export function moreField() {
  const placeholder = '{"response_format": {"type": "json_object"}}';
  const text = make("textarea", { id: "more", rows: 3, value: preferences.more, placeholder, spellcheck: false });
  const fault = make("span", { className: "error", role: "alert" });
  text.addEventListener("input", () => {
    fault.textContent = "";
    try {
      extraFields(text.value);
      keepPreferences({ more: text.value });
    } catch (error) {
      fault.textContent = `Not used: ${error.message}`;
    }
  });
  return make("label", {}, "Further fields of the request, as JSON (tools, grammar, chat_template_kwargs, …)", text, fault);
}
