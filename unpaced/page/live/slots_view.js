// The slots: who is at work, and how full each one is.
import { byId, make } from "../base/dom.js";
import { count } from "./units.js";

// `slots`: GET /slots; null: the server does not tell.
export function showSlots(slots) {
  byId("slots-box").hidden = !slots?.length;
  byId("slots").replaceChildren(...(slots ?? []).map(row));
}

function row(slot) {
  const n_cells = slot.n_prompt_tokens ?? 0;
  const n_decoded = slot.next_token?.[0]?.n_decoded ?? 0;
  const doing = slot.is_processing ? (n_decoded ? `writes, ${count(n_decoded)} tokens` : "reads its prompt") : n_cells ? "keeps its text" : "empty";
  return make("li", { data: { busy: String(slot.is_processing) } },
    make("span", { className: "slot-name" }, `Slot ${slot.id}`),
    make("progress", { max: slot.n_ctx, value: n_cells, "aria-label": `Tokens of slot ${slot.id}` }),
    make("span", { className: "slot-cells" }, `${count(n_cells)} / ${count(slot.n_ctx)}`),
    make("span", { className: "slot-doing" }, doing));
}
