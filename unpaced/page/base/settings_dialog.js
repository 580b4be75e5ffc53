// The dialog with the settings: system prompt, sampling, theme, API key, stored conversations.
import { moreField, samplingFields } from "../chat/sampling.js";
import { readKey } from "./api.js";
import { byId, make } from "./dom.js";
import { applyTheme, keepPreferences, preferences } from "./preferences.js";

const THEMES = [["", "As the system"], ["light", "Light"], ["dark", "Dark"]];

// `chat`: whose system prompt it is; `defaults`: the server's sampling; `onKey(key)`.
export function openSettings(chat, defaults, onKey) {
  const dialog = byId("settings-dialog");
  const system = make("textarea", { id: "system", rows: 4, value: chat.current.system, placeholder: "None", on: { change: () => chat.setSystem(system.value) } });
  const reset = make("button", { type: "button", className: "button", on: { click: () => {
    keepPreferences({ sampling: {}, more: "" });
    openSettings(chat, defaults, onKey);
  } } }, "The server's defaults");
  const forget = make("button", { type: "button", className: "button danger", on: { click: async () => {
    if (!confirm("Delete all conversations that this browser keeps?")) return;
    await chat.forgetAll();
    dialog.close();
  } } }, "Delete all conversations");
  byId("settings-body").replaceChildren(
    section("System prompt", system, make("p", { className: "hint" }, "Of this conversation, and of those that you begin later.")),
    section("Sampling", samplingFields(defaults), moreField(), make("div", { className: "row" }, reset)),
    section("Server", make("label", {}, "API key, kept until this tab is closed", keyField(onKey))),
    section("This browser", make("label", {}, "Theme", themeField()), make("div", { className: "row" }, forget)));
  if (dialog.open) return;
  dialog.showModal();
  dialog.scrollTop = 0; // it was left further down
}

function section(title, ...parts) {
  return make("section", {}, make("h3", {}, title), ...parts);
}

function keyField(onKey) {
  const field = make("input", { id: "key", type: "password", autocomplete: "off", value: readKey() });
  field.addEventListener("change", () => onKey(field.value));
  return field;
}

function themeField() {
  const options = THEMES.map(([value, text]) => make("option", { value, selected: value === preferences.theme }, text));
  const field = make("select", { id: "theme", on: { change: () => { keepPreferences({ theme: field.value }); applyTheme(); } } }, ...options);
  return field;
}
