// The page's beginning: views by the address's hash, the server's state, what is reached from everywhere.
import { keepKey } from "./base/api.js";
import { byId } from "./base/dom.js";
import { icon } from "./base/icons.js";
import { applyTheme } from "./base/preferences.js";
import { ServerState } from "./base/server_state.js";
import { openSettings } from "./base/settings_dialog.js";
import { ChatView } from "./chat/chat_view.js";
import { LiveView } from "./live/live_view.js";
import { CompletionView } from "./text/completion_view.js";

const VIEWS = ["chat", "text", "live"];

applyTheme();
for (const place of document.querySelectorAll("[data-icon]")) place.prepend(icon(place.dataset.icon));

const chat = new ChatView();
const live = new LiveView();
new CompletionView();
const server = new ServerState(showState);

function showState({ kind, text, model }) {
  byId("state").dataset.kind = kind;
  byId("state").title = text || "Ready";
  byId("model").textContent = kind === "ready" || (kind === "gone" && model) ? model : text;
  byId("banner").hidden = kind === "ready";
  byId("banner-text").textContent = text;
  const unlock = byId("unlock");
  if (unlock.hidden !== (kind !== "locked")) unlock.hidden = kind !== "locked";
  live.setServer(server);
}

function useKey(key) {
  keepKey(key);
  server.look();
}

function showView() {
  const wanted = location.hash.slice(1);
  const view = VIEWS.includes(wanted) ? wanted : "chat";
  for (const name of VIEWS) {
    byId(`${name}-view`).hidden = name !== view;
    const tab = byId(`${name}-tab`);
    if (name === view) tab.setAttribute("aria-current", "page");
    else tab.removeAttribute("aria-current");
  }
  document.body.dataset.view = view;
  live.setShown(view === "live");
}

byId("settings").addEventListener("click", () => openSettings(chat, server.props?.default_generation_settings?.params, useKey));
byId("settings-close").addEventListener("click", () => byId("settings-dialog").close());
byId("unlock").addEventListener("submit", (event) => {
  event.preventDefault();
  useKey(byId("unlock-key").value);
  byId("unlock-key").value = "";
});
addEventListener("hashchange", showView);
addEventListener("keydown", (event) => {
  if (event.key.toLowerCase() === "o" && event.shiftKey && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    location.hash = "chat";
    chat.begin();
  }
});

showView();
server.look();
chat.load();
