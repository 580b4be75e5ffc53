// Shows a markdown text that grows: blocks that stay as they were keep their nodes, and parsing
// takes a share of the time, however long the text.
import { parse } from "./parser.js";
import { nodesOf } from "./token_nodes.js";

const SHARE = 4; // of the time, at most a fifth goes into parsing
const DEFINITION = /^ {0,3}\[[^\]\n]+\]:/m;

export class MarkdownView {
  // `onShown` is called when the text has been brought up to date.
  constructor(element, onShown = () => {}) {
    this._element = element;
    this._onShown = onShown;
    this._blocks = []; // {key, nodes}: what is shown
    this._text = "";
    this._isWhole = false;
    this._timer = 0;
    this._shown_ms = 0;
    this._cost_ms = 0;
  }

  // `isWhole`: no text will follow.
  show(text, isWhole) {
    if (text === this._text && isWhole === this._isWhole) return;
    this._text = text;
    this._isWhole = isWhole;
    const left_ms = this._shown_ms + SHARE * this._cost_ms - performance.now();
    if (isWhole || left_ms <= 0) return this._render();
    if (!this._timer) this._timer = setTimeout(() => this._render(), left_ms);
  }

  _render() {
    const begin_ms = performance.now();
    clearTimeout(this._timer);
    this._timer = 0;
    // A definition of a link may have come after the link.
    if (this._isWhole && DEFINITION.test(this._text)) this._clear(0);
    this._replace(blocksOf(this._text, this._isWhole));
    this._shown_ms = performance.now();
    this._cost_ms = this._shown_ms - begin_ms;
    this._onShown();
  }

  _clear(begin) {
    for (const { nodes } of this._blocks.splice(begin)) nodes.forEach((node) => node.remove());
  }

  _replace(blocks) {
    let n = 0;
    while (n < blocks.length && this._blocks[n]?.key === blocks[n].key) n += 1;
    if (n === blocks.length - 1 && this._blocks.length === blocks.length && extended(this._blocks[n], blocks[n])) return;
    this._clear(n);
    for (const { key, tokens, isWhole } of blocks.slice(n)) {
      const fragment = nodesOf(tokens, isWhole);
      this._blocks.push({ key, nodes: [...fragment.childNodes] });
      this._element.append(fragment);
    }
  }
}

// A fence that is still being written gets what is new of it.
function extended(shown, block) {
  const [token] = block.tokens;
  if (block.isWhole || token.type !== "fence" || !shown.nodes[0]?.extend?.(token.content)) return false;
  shown.key = block.key;
  return true;
}

// {key, tokens, isWhole} of each block of the outermost level; equal keys look the same.
function blocksOf(text, isWhole) {
  const lines = text.split("\n");
  const blocks = [];
  let tokens = [];
  for (const token of parse(text)) {
    tokens.push(token);
    if (token.level > 0 || token.nesting === 1) continue;
    const [begin, end] = tokens[0].map ?? [0, lines.length];
    blocks.push({ tokens, isWhole: true, key: `${tokens[0].type}\n${lines.slice(begin, end).join("\n")}` });
    tokens = [];
  }
  const last = blocks.at(-1);
  if (last && !isWhole) Object.assign(last, { isWhole: false, key: `unfinished ${last.key}` });
  return blocks;
}
