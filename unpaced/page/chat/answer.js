// One answer while it is being written: the request, its events, its figures.
import { ask } from "../base/api.js";
import { events } from "../base/event_stream.js";

const CUT = { length: "Cut: the most tokens, or the end of the context" };

export class Answer {
  // Writes into `turn`, whose conversation is the messages; `onChange` is called for whatever comes.
  constructor(turn, onChange) {
    this.turn = turn;
    this._onChange = onChange;
    this._abort = new AbortController();
    this._begin_ms = performance.now();
    this._first_ms = 0;
    this._n_deltas = 0;
  }

  stop() {
    this._abort.abort();
  }

  // Ends when the answer does, however that is.
  async run(messages, options) {
    this.turn.isRunning = true;
    try {
      const body = { ...options, messages, stream: true };
      const response = await ask("v1/chat/completions", { body, signal: this._abort.signal });
      for await (const event of events(response)) this._take(event);
    } catch (error) {
      if (this._abort.signal.aborted) this.turn.note = "Stopped";
      else this.turn.error = error.message;
    }
    delete this.turn.isRunning;
    this._onChange();
  }

  _take(event) {
    if (this._abort.signal.aborted) throw new DOMException("stopped", "AbortError");
    const choice = event.choices?.[0] ?? {};
    if (choice.finish_reason in CUT) this.turn.note = CUT[choice.finish_reason];
    this._add(choice.delta ?? {});
    if (event.timings) this.turn.figures = { ...event.timings, first_ms: this._first_ms };
    this._onChange();
  }

  _add(delta) {
    const { turn } = this;
    if (!delta.content && !delta.reasoning_content && !delta.tool_calls) return;
    this._first_ms ||= performance.now() - this._begin_ms;
    this._n_deltas += 1;
    if (delta.reasoning_content) turn.thought = (turn.thought ?? "") + delta.reasoning_content;
    if (delta.content) turn.content += delta.content;
    for (const part of delta.tool_calls ?? []) addCall((turn.toolCalls ??= []), part);
    // What is known before the server tells: an event is mostly a token.
    const decoded_ms = performance.now() - this._begin_ms - this._first_ms;
    const speed = decoded_ms > 0 ? (1000 * (this._n_deltas - 1)) / decoded_ms : 0;
    turn.figures = { first_ms: this._first_ms, predicted_n: this._n_deltas, predicted_per_second: speed };
  }
}

function addCall(calls, part) {
  const call = (calls[part.index ?? calls.length] ??= { id: "", type: "function", function: { name: "", arguments: "" } });
  if (part.id) call.id = part.id;
  call.function.name += part.function?.name ?? "";
  call.function.arguments += part.function?.arguments ?? "";
}
