// The conversation that is shown: a view for each turn of its path, and the text's end kept in sight.
import { byId } from "../base/dom.js";
import { Following } from "./following.js";
import { TurnView } from "./turn_view.js";

export class Thread {
  constructor(acts) {
    this._acts = acts;
    this._output = byId("output");
    this._following = new Following(byId("chat-scroll"), byId("to-end"));
    this._views = [];
    this._changed = new Set();
  }

  // Show a conversation's path; views of turns that are shown already stay.
  show(conversation) {
    const path = conversation.path();
    let n = 0;
    while (n < path.length && this._views[n]?.turn === path[n] && this._views[n].n === conversation.siblings(path[n]).length) n += 1;
    for (const view of this._views.splice(n)) view.element.remove();
    for (const turn of path.slice(n)) this._append(conversation, turn);
    this._views.forEach((view) => view.update());
    byId("welcome").hidden = path.length > 0;
  }

  _append(conversation, turn) {
    const siblings = conversation.siblings(turn);
    const view = new TurnView(turn, siblings, this._acts, () => this._following.added());
    view.n = siblings.length;
    this._views.push(view);
    this._output.append(view.element);
  }

  clear() {
    this._views = [];
    this._output.replaceChildren();
  }

  // A turn has changed; it may be one of another conversation. It is shown with the next frame: there are more tokens a
  // second than frames.
  update(turn) {
    if (!this._changed.size) requestAnimationFrame(() => this._showChanged());
    this._changed.add(turn);
  }

  _showChanged() {
    for (const turn of this._changed) this._views.find((shown) => shown.turn === turn)?.update();
    this._changed.clear();
    this._following.added();
  }

  toEnd() {
    this._following.toEnd();
  }

  // Open the editor of the last question.
  editLast() {
    this._views.findLast((view) => view.turn.role === "user")?.edit();
  }
}
