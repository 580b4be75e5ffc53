// The slots: who is at work, and how full each one is.
import { byId, make, setText } from "../base/dom.js";
import { count } from "./units.js";

// `slots`: GET /slots; null: the server does not tell.
export function showSlots(slots) {
  byId("slots-box").hidden = !slots?.length;
  const list = byId("slots");
  if (list.children.length !== (slots?.length ?? 0)) list.replaceChildren(...(slots ?? []).map(row));
  slots?.forEach((slot, n) => fill(list.children[n], slot));
}

function row() {
  return make("li", {}, make("span", { className: "slot-name" }), make("progress", {}), make("span", { className: "slot-cells" }),
    make("span", { className: "slot-doing" }));
}

function fill(element, slot) {
  const n_cells = slot.n_prompt_tokens ?? 0;
  const n_decoded = slot.next_token?.[0]?.n_decoded ?? 0;
  const doing = slot.is_processing ? (n_decoded ? `writes, ${count(n_decoded)} tokens` : "reads its prompt") : n_cells ? "keeps its text" : "empty";
  const [name, bar, cells, what] = element.children;
  element.dataset.busy = String(slot.is_processing);
  setText(name, `Slot ${slot.id}`);
  Object.assign(bar, { max: slot.n_ctx, value: n_cells, ariaLabel: `Tokens of slot ${slot.id}` });
  setText(cells, `${count(n_cells)} / ${count(slot.n_ctx)}`);
  setText(what, doing);
}
