// A model's reasoning, folded; while it is being written the line says so.
import { make } from "../base/dom.js";

export class Thought {
  constructor() {
    this._summary = make("summary", {}, "Thoughts");
    this._text = make("div", { className: "thought-text", dir: "auto" });
    this.element = make("details", { className: "thought", hidden: true }, this._summary, this._text);
    this._shown = "";
  }

  show(text, isThinking) {
    this.element.hidden = !text;
    this._summary.textContent = isThinking ? "Thinking…" : "Thoughts";
    this.element.classList.toggle("is-thinking", isThinking);
    if (text.startsWith(this._shown)) this._text.append(text.slice(this._shown.length));
    else this._text.textContent = text;
    this._shown = text;
  }
}
