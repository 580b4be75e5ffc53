// Colours code by highlight.js, whose tree becomes nodes; it is loaded when the first code is there to colour.
import { make } from "../base/dom.js";
import { codeText } from "./plain_text.js";

const LENGTH_MAX = 30000; // characters: its patterns are made for a program's, not for anybody's text
const LINE_MAX = 2000;
let library = null;

// The part of an emitter that highlight.js asks for: scopes become spans.
class NodeEmitter {
  constructor() {
    this.root = document.createDocumentFragment();
    this._open = [this.root];
  }

  addText(text) {
    if (text) this._open.at(-1).append(codeText(text));
  }

  openNode(scope) {
    const span = make("span", { className: scope.split(".").map((name) => `hl-${name}`).join(" ") });
    this._open.at(-1).append(span);
    this._open.push(span);
  }

  closeNode() {
    if (this._open.length > 1) this._open.pop();
  }

  startScope(scope) { this.openNode(scope); }
  endScope() { this.closeNode(); }

  __addSublanguage(emitter) {
    this._open.at(-1).append(emitter.root);
  }

  finalize() {}
  closeAllNodes() {}
  toHTML() { return ""; }
}

async function load() {
  const { default: highlighter } = await import("../vendor/highlight/highlight.mjs");
  highlighter.configure({ __emitter: NodeEmitter });
  return highlighter;
}

// Colours `element`, which shows `text`; without a known language, or for a text that is too long, it stays as it is.
export async function colour(element, text, language) {
  if (!language || text.length > LENGTH_MAX || text.split("\n").some((line) => line.length > LINE_MAX)) return;
  library ??= load();
  const highlighter = await library.catch(() => { library = null; });
  if (!highlighter?.getLanguage(language)) return;
  const result = highlighter.highlight(text, { language, ignoreIllegals: true });
  if (!result.errorRaised) element.replaceChildren(result._emitter.root);
}
