// The chat: its conversations, the one that is shown, and the answers that are being written.
import { byId, make } from "../base/dom.js";
import { keepPreferences, preferences } from "../base/preferences.js";
import { Answer } from "./answer.js";
import { openArchive } from "./archive.js";
import { Composer } from "./composer.js";
import { Conversation } from "./conversation.js";
import { samplingOptions } from "./sampling.js";
import { Sidebar } from "./sidebar.js";
import { Thread } from "./thread.js";

const KEEP_MS = 500; // between two times that a growing answer is kept

export class ChatView {
  constructor() {
    this.current = new Conversation({ system: preferences.system });
    this._conversations = [];
    this._answers = new Map(); // turn id -> [Answer, Conversation]
    this._kept = new Map(); // conversation -> timer
    this._composer = new Composer({ send: (text) => this.send(text), stop: () => this.stop(), editLast: () => this._thread.editLast() });
    this._thread = new Thread({
      isLast: (turn) => this.current.leaf === turn.id,
      edit: (turn, text) => this._ask({ role: "user", content: text }, turn.parent),
      again: (turn) => this._answer(turn.parent),
      choose: (turn) => { this.current.choose(turn); this._changed(this.current); },
      result: (turn, call, text) => this._result(turn, call, text),
    });
    this._sidebar = new Sidebar({
      choose: (conversation) => this.open(conversation),
      rename: (conversation, title) => { conversation.title = title; this._changed(conversation); },
      remove: (conversation) => this._remove(conversation),
      save,
    });
    byId("new").addEventListener("click", () => this.begin());
  }

  // What earlier visits left; an answer that was being written when the page was left is marked.
  async load() {
    const archive = await openArchive();
    const kept = (await archive.all()).map((one) => new Conversation(one));
    for (const turn of kept.flatMap((one) => one.turns)) {
      if (turn.isRunning) Object.assign(turn, { isRunning: undefined, note: "The page was left while this was being written" });
    }
    byId("not-kept").hidden = archive.isLasting;
    this._archive = archive;
    const begun = this._conversations; // who asks does not wait for the archive
    this._conversations = [...begun, ...kept];
    if (begun.length) {
      keepPreferences({ current: this.current.id });
      begun.forEach((one) => this._keep(one));
      return this._show();
    }
    const last = this._conversations.find((one) => one.id === preferences.current);
    this.open(last ?? this.current);
  }

  begin() {
    this._sidebar.toggle(false);
    if (this.current.turns.length) this.open(new Conversation({ system: preferences.system }));
    this._composer.focus();
  }

  open(conversation) {
    this.current = conversation;
    keepPreferences({ current: conversation.id });
    this._thread.clear();
    this._show();
    this._thread.toEnd();
    if (matchMedia("(hover: hover)").matches) this._composer.focus();
  }

  send(text) {
    return this._ask({ role: "user", content: text }, this.current.leaf);
  }

  stop() {
    for (const [answer, conversation] of this._answers.values()) if (conversation === this.current) answer.stop();
  }

  // The system prompt of this conversation, and of those that are begun later.
  setSystem(text) {
    this.current.system = text;
    keepPreferences({ system: text });
    if (this.current.turns.length) this._changed(this.current);
  }

  async forgetAll() {
    for (const [answer] of this._answers.values()) answer.stop();
    for (const conversation of [...this._conversations]) await this._forget(conversation);
    this.open(new Conversation({ system: preferences.system }));
  }

  _ask(turn, parent) {
    if (!this._conversations.includes(this.current)) this._conversations.unshift(this.current);
    const asked = this.current.add(turn, parent);
    return this._answer(asked.id, asked);
  }

  // An answer to the turn `parent`. `asked` goes back to where it was written if nothing comes.
  async _answer(parent, asked = null) {
    const conversation = this.current;
    this.stop();
    const messages = conversation.messages(parent);
    const turn = conversation.add({ role: "assistant" }, parent);
    const answer = new Answer(turn, () => this._wrote(conversation, turn));
    this._answers.set(turn.id, [answer, conversation]);
    turn.isRunning = true;
    this._changed(conversation);
    this._thread.toEnd();
    try {
      await answer.run(messages, samplingOptions());
    } catch (error) {
      turn.error = error.message;
      delete turn.isRunning;
    }
    this._answers.delete(turn.id);
    const isEmpty = !turn.content && !turn.thought && !turn.toolCalls;
    if (isEmpty && turn.note === "Stopped" && asked) this._takeBack(conversation, turn, asked);
    this._changed(conversation);
  }

  // Stopped before anything came: the question is back in the box, as if it had not been sent.
  _takeBack(conversation, turn, asked) {
    conversation.remove(turn);
    conversation.remove(asked);
    if (conversation === this.current && !this._composer.text) this._composer.text = asked.content;
    if (!conversation.turns.length) conversation.title = "";
  }

  _result(turn, call, text) {
    this.current.add({ role: "tool", content: text, toolCallId: call.id });
    const answered = new Set(this.current.path().filter((one) => one.role === "tool").map((one) => one.toolCallId));
    const isOpen = turn.toolCalls.some((one) => one && !answered.has(one.id));
    if (isOpen) this._changed(this.current);
    else this._answer(this.current.leaf);
  }

  _wrote(conversation, turn) {
    this._thread.update(turn);
    if (!this._kept.has(conversation)) this._kept.set(conversation, setTimeout(() => this._keep(conversation), KEEP_MS));
  }

  _changed(conversation) {
    if (conversation === this.current) this._show();
    else this._sidebar.show(this._conversations, this.current);
    if (this._conversations.includes(conversation)) this._keep(conversation);
  }

  _show() {
    this._thread.show(this.current);
    this._sidebar.show(this._conversations, this.current);
    this._composer.setRunning([...this._answers.values()].some(([, conversation]) => conversation === this.current));
  }

  _keep(conversation) {
    clearTimeout(this._kept.get(conversation));
    this._kept.delete(conversation);
    if (!this._archive || !this._conversations.includes(conversation)) return;
    this._archive.keep(conversation).catch(() => { byId("not-kept").hidden = false; });
  }

  async _remove(conversation) {
    if (!confirm(`Delete “${conversation.title || "New conversation"}”?`)) return;
    for (const [answer, of] of this._answers.values()) if (of === conversation) answer.stop();
    await this._forget(conversation);
    if (conversation === this.current) this.open(new Conversation({ system: preferences.system }));
    else this._show();
  }

  _forget(conversation) {
    this._conversations = this._conversations.filter((other) => other !== conversation);
    return this._archive?.remove(conversation);
  }
}

// A file with the messages, as a request has them.
function save(conversation) {
  const text = JSON.stringify({ title: conversation.title, messages: conversation.messages() }, null, 2);
  const href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  make("a", { href, download: `${conversation.title.replace(/[^\p{L}\p{N}]+/gu, "-") || "conversation"}.json` }).click();
  setTimeout(() => URL.revokeObjectURL(href), 1000);
}
