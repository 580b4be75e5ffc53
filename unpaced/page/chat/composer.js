// The box in which one writes: Enter sends, Shift+Enter begins a line; it grows with what is in it.
import { byId } from "../base/dom.js";

// The keyboard of a touch screen has no Shift+Enter: its Enter begins a line, the button sends; and it covers the page.
const TOUCH = matchMedia("(hover: none) and (pointer: coarse)");

export class Composer {
  // `acts`: send(text), stop, editLast.
  constructor(acts) {
    this._acts = acts;
    this._field = byId("prompt");
    this._isRunning = false;
    this._field.addEventListener("input", () => this._changed());
    this._field.addEventListener("keydown", (event) => this._keydown(event));
    byId("composer").addEventListener("submit", (event) => { event.preventDefault(); this._send(); });
    byId("stop").addEventListener("click", () => { acts.stop(); if (!TOUCH.matches) this.focus(); });
    this._changed();
  }

  get text() {
    return this._field.value;
  }

  set text(text) {
    this._field.value = text;
    this._changed();
  }

  focus() {
    this._field.focus();
  }

  // While an answer is written, the button stops it.
  setRunning(isRunning) {
    this._isRunning = isRunning;
    byId("stop").hidden = !isRunning;
    byId("send").hidden = isRunning;
  }

  _changed() {
    const { style } = this._field;
    style.height = "auto";
    style.height = `${this._field.scrollHeight}px`;
    byId("send").disabled = !this._field.value.trim();
  }

  _send() {
    const text = this._field.value;
    if (this._isRunning || !text.trim()) return;
    this.text = "";
    this._acts.send(text);
  }

  _keydown(event) {
    if (event.key === "Escape" && this._isRunning) this._acts.stop();
    if (event.key === "ArrowUp" && !this._field.value) {
      event.preventDefault();
      this._acts.editLast();
    }
    // Enter also ends the composition of a character (Chinese, Japanese); that sends nothing.
    if (event.key !== "Enter" || event.shiftKey || event.isComposing || (TOUCH.matches && !event.ctrlKey)) return;
    event.preventDefault();
    this._send();
  }
}
