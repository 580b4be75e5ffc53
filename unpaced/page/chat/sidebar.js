// The list of conversations: choose, rename, delete.
import { byId, make } from "../base/dom.js";
import { iconButton } from "../base/icons.js";

const UNTITLED = "New conversation";

export class Sidebar {
  // `acts`: choose, rename, remove, save.
  constructor(acts) {
    this._acts = acts;
    this._list = byId("conversations");
    byId("search").addEventListener("input", () => this._show());
    byId("menu").addEventListener("click", () => this.toggle());
    byId("shade").addEventListener("click", () => this.toggle(false));
    this._shown = [[], null];
  }

  // On a narrow screen the list lies over the text.
  toggle(isOpen = !document.body.classList.contains("with-sidebar")) {
    document.body.classList.toggle("with-sidebar", isOpen);
    byId("menu").setAttribute("aria-expanded", String(isOpen));
  }

  show(conversations, current) {
    this._shown = [conversations, current];
    this._show();
  }

  _show() {
    const [conversations, current] = this._shown;
    const word = byId("search").value.trim().toLowerCase();
    const found = conversations.filter((one) => !word || holds(one, word));
    this._list.replaceChildren(...found.map((one) => this._item(one, one === current)));
  }

  _item(conversation, isCurrent) {
    const acts = this._acts;
    const choose = () => { this.toggle(false); acts.choose(conversation); };
    const name = make("button", { type: "button", className: "name", title: conversation.title, on: { click: choose } },
      conversation.title || UNTITLED);
    if (isCurrent) name.setAttribute("aria-current", "true");
    const item = make("li", { className: isCurrent ? "current" : "" }, name,
      make("span", { className: "item-buttons" },
        iconButton("edit", "Rename", () => rename(conversation, name, acts)),
        iconButton("save", "Save as a file", () => acts.save(conversation)),
        iconButton("trash", "Delete", () => acts.remove(conversation))));
    return item;
  }
}

const holds = (conversation, word) => conversation.title.toLowerCase().includes(word)
  || conversation.turns.some((turn) => turn.content.toLowerCase().includes(word));

function rename(conversation, name, acts) {
  const field = make("input", { value: conversation.title, "aria-label": "Name of the conversation" });
  let isOver = false;
  const end = (title) => {
    if (isOver) return;
    isOver = true;
    acts.rename(conversation, title.trim() || conversation.title);
  };
  field.addEventListener("blur", () => end(field.value));
  field.addEventListener("keydown", (event) => {
    event.stopPropagation();
    if (event.key === "Enter") end(field.value);
    if (event.key === "Escape") end("");
  });
  name.replaceWith(field);
  field.select();
}
