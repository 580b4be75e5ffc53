// Calls of tools that an answer asks for: name, arguments, and a field for what the tool gave.
import { make } from "../base/dom.js";
import { codeBlock } from "../markdown/code_block.js";

// `onResult(call, text)`; null: the answer has been followed already.
export function toolCall(call, isWhole, onResult) {
  const name = make("span", { className: "tool-name" }, call.function.name);
  const box = make("details", { className: "tool-call", open: true }, make("summary", {}, "Tool call ", name),
    codeBlock(pretty(call.function.arguments), "json", isWhole));
  if (onResult) box.append(resultForm(call, onResult));
  return box;
}

function resultForm(call, onResult) {
  const field = make("textarea", { rows: 2, "aria-label": `Result of ${call.function.name}`, placeholder: "What the tool gave, which goes back to the model" });
  const send = make("button", { type: "submit", className: "button" }, "Send the result");
  const submit = (event) => { event.preventDefault(); onResult(call, field.value); };
  return make("form", { className: "tool-form", on: { submit } }, field, send);
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text; // still being written, or no JSON
  }
}
