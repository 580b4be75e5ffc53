// A turn of the conversation, as it is shown: the user's, a tool's, or the model's.
import { copyButton } from "../base/clipboard.js";
import { make } from "../base/dom.js";
import { iconButton } from "../base/icons.js";
import { MarkdownView } from "../markdown/markdown_view.js";
import { figuresLine } from "./figures.js";
import { Thought } from "./thought.js";
import { toolCall } from "./tool_call.js";

const NAMES = { user: "You", assistant: "Model", tool: "Tool" };

// `acts` is who does what the buttons say: edit, again, choose, result; `onShown`: the text is up to date.
export class TurnView {
  constructor(turn, siblings, acts, onShown) {
    this.turn = turn;
    this._acts = acts;
    this._siblings = siblings;
    this._body = make("div", { className: "turn-body", dir: "auto" });
    this._foot = make("div", { className: "turn-foot" });
    const parts = turn.role === "assistant" ? this._answerParts(onShown) : [this._body];
    this.element = make("article", { className: "turn", data: { role: turn.role }, "aria-label": NAMES[turn.role] },
      ...parts, this._foot);
    if (turn.role !== "assistant") this._body.textContent = turn.content;
    this.update();
  }

  _answerParts(onShown) {
    this._thought = new Thought();
    this._calls = make("div", { className: "tool-calls" });
    this._shownCalls = "";
    this._note = make("p", { className: "note", hidden: true });
    this._markdown = new MarkdownView(this._body, onShown);
    this._body.classList.add("markdown");
    return [this._thought.element, this._body, this._calls, this._note];
  }

  // Brings what is shown up to date with the turn.
  update() {
    const { turn } = this;
    if (turn.role === "assistant") this._updateAnswer();
    this.element.setAttribute("aria-busy", String(Boolean(turn.isRunning)));
    if (!turn.isRunning || !this._hasFoot) this._updateFoot();
    else this._figures.replaceWith(this._figures = figuresLine(turn.figures));
  }

  _updateAnswer() {
    const { turn } = this;
    this._thought.show(turn.thought ?? "", Boolean(turn.isRunning && !turn.content));
    this._markdown.show(turn.content, !turn.isRunning);
    this._updateCalls();
    this._note.hidden = !(turn.note || turn.error);
    this._note.classList.toggle("error", Boolean(turn.error));
    this._note.textContent = turn.error ?? turn.note ?? "";
    this.element.classList.toggle("is-waiting", Boolean(turn.isRunning && !turn.content && !turn.thought && !turn.toolCalls));
  }

  _updateCalls() {
    const { turn } = this;
    const isOpen = !turn.isRunning && this._acts.isLast(turn);
    const calls = (turn.toolCalls ?? []).filter(Boolean);
    const shown = JSON.stringify([calls, isOpen]);
    if (shown === this._shownCalls) return;
    this._shownCalls = shown;
    const onResult = isOpen ? (call, text) => this._acts.result(turn, call, text) : null;
    this._calls.replaceChildren(...calls.map((call) => toolCall(call, !turn.isRunning, onResult)));
  }

  _updateFoot() {
    const { turn, _acts: acts } = this;
    this._hasFoot = true;
    this._figures = figuresLine(turn.figures);
    const buttons = make("span", { className: "turn-buttons" });
    if (this._siblings.length > 1) buttons.append(...this._switch());
    if (!turn.isRunning) buttons.append(copyButton("Copy the text", () => turn.content));
    if (turn.role === "user") buttons.append(iconButton("edit", "Edit and ask again", () => this.edit()));
    if (turn.role === "assistant" && !turn.isRunning) buttons.append(iconButton("redo", "Another answer", () => acts.again(turn)));
    this._foot.replaceChildren(buttons, this._figures);
  }

  _switch() {
    const place = this._siblings.indexOf(this.turn);
    const to = (n) => () => this._acts.choose(this._siblings[n]);
    return [
      iconButton("left", "The one before", to(place - 1), { disabled: place === 0 }),
      make("span", { className: "place" }, `${place + 1}/${this._siblings.length}`),
      iconButton("right", "The next one", to(place + 1), { disabled: place === this._siblings.length - 1 }),
    ];
  }

  // Put an editor in the text's place.
  edit() {
    const field = make("textarea", { value: this.turn.content, className: "edit-field", "aria-label": "Edit the question" });
    const close = () => { form.replaceWith(this._body); this._foot.hidden = false; this._foot.querySelector("button")?.focus(); };
    const submit = (event) => { event.preventDefault(); if (field.value.trim()) { close(); this._acts.edit(this.turn, field.value); } };
    const keydown = (event) => {
      if (event.key === "Escape") { event.stopPropagation(); close(); }
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) submit(event);
    };
    const form = make("form", { className: "edit-form", on: { submit, keydown } }, field,
      make("div", { className: "row" }, make("button", { className: "button primary" }, "Ask again"),
        make("button", { type: "button", className: "button", on: { click: close } }, "Cancel")));
    this._body.replaceWith(form);
    this._foot.hidden = true;
    field.focus();
  }
}
