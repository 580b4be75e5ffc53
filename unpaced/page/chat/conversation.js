// A conversation: a tree of turns, since an edited question and a second answer stand beside the first. The path from
// the root to `leaf` is what is shown and sent.

const TITLE_LENGTH = 60;

export const newId = () => [...crypto.getRandomValues(new Uint32Array(4))].map((n) => n.toString(36)).join("");

// A turn: {id, parent, role, content}; an answer may have thought, toolCalls, figures, note and error; what a tool gave
// has toolCallId.
export class Conversation {
  constructor(kept = {}) {
    this.id = newId();
    this.title = "";
    this.system = "";
    this.changed = Date.now();
    this.turns = [];
    this.leaf = null;
    Object.assign(this, kept);
  }

  add(turn, parent = this.leaf) {
    const added = { id: newId(), parent, content: "", ...turn };
    this.turns.push(added);
    this.leaf = added.id;
    this.changed = Date.now();
    if (!this.title && turn.role === "user") this.title = turn.content.trim().slice(0, TITLE_LENGTH);
    return added;
  }

  find(id) {
    return this.turns.find((turn) => turn.id === id) ?? null;
  }

  // From the first turn to the one shown last.
  path(last = this.leaf) {
    const path = [];
    for (let turn = this.find(last); turn; turn = this.find(turn.parent)) path.unshift(turn);
    return path;
  }

  // The turns that stand where this one does, itself included.
  siblings(turn) {
    return this.turns.filter((other) => other.parent === turn.parent);
  }

  // Show a turn, with what followed it last.
  choose(turn) {
    let last = turn;
    for (let next = last; next; next = this.turns.findLast((other) => other.parent === last.id)) last = next;
    this.leaf = last.id;
  }

  // A turn of which nothing is left; the one before it is the last again.
  remove(turn) {
    this.turns = this.turns.filter((other) => other !== turn);
    if (this.leaf === turn.id) this.leaf = turn.parent;
  }

  // What the server gets, up to a turn.
  messages(last = this.leaf) {
    const said = [];
    for (const turn of this.path(last)) {
      const message = messageOf(turn);
      if (message) said.push(message);
      // Two questions in a row are what many templates refuse: one that nothing answered is not sent again.
      else if (said.at(-1)?.role === "user") said.pop();
    }
    return this.system.trim() ? [{ role: "system", content: this.system }, ...said] : said;
  }

  // What the archive keeps: plain data.
  toKeep() {
    return structuredClone({ ...this });
  }
}

function messageOf(turn) {
  if (turn.role === "tool") return { role: "tool", tool_call_id: turn.toolCallId, content: turn.content };
  if (turn.role === "user") return { role: "user", content: turn.content };
  if (!turn.content && !turn.thought && !turn.toolCalls?.length) return null;
  const message = { role: "assistant", content: turn.content };
  if (turn.thought) message.reasoning_content = turn.thought;
  if (turn.toolCalls?.length) message.tool_calls = turn.toolCalls;
  return message;
}
