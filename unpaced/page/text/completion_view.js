// Completion without a chat template: the model goes on where the text ends.
import { ask } from "../base/api.js";
import { byId } from "../base/dom.js";
import { events } from "../base/event_stream.js";
import { figuresOf } from "../chat/figures.js";
import { samplingOptions } from "../chat/sampling.js";

export class CompletionView {
  constructor() {
    this._field = byId("text");
    this._abort = null;
    byId("text-go").addEventListener("click", () => this.go());
    byId("text-stop").addEventListener("click", () => this._abort?.abort());
    this._field.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.go();
      if (event.key === "Escape") this._abort?.abort();
    });
  }

  async go() {
    if (this._abort) return;
    this._setRunning(new AbortController());
    const begin_ms = performance.now();
    let first_ms = 0;
    try {
      const body = { ...samplingOptions(), prompt: this._field.value, stream: true };
      const response = await ask("completion", { body, signal: this._abort.signal });
      for await (const event of events(response)) {
        first_ms ||= performance.now() - begin_ms;
        this._add(event.content);
        if (event.timings) this._tell(figuresOf({ ...event.timings, first_ms }).map(([text]) => text).join(" · "));
      }
    } catch (error) {
      this._tell(this._abort.signal.aborted ? "Stopped" : error.message);
    }
    this._setRunning(null);
  }

  _add(text) {
    const field = this._field;
    const atEnd = field.scrollHeight - field.clientHeight - field.scrollTop < 60;
    field.setRangeText(text, field.value.length, field.value.length, "preserve");
    if (atEnd) field.scrollTop = field.scrollHeight;
  }

  _tell(text) {
    byId("text-figures").textContent = text;
  }

  _setRunning(abort) {
    this._abort = abort;
    byId("text-go").disabled = abort !== null;
    byId("text-stop").disabled = abort === null;
    if (abort) this._tell("");
  }
}
