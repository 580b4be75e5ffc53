// Where a formula stands in a markdown text: between $$, \[ and \], \( and \), or $ and $ where that is no price.
const DISPLAYED = { "$$": "$$", "\\[": "\\]" };
const LINES_MAX = 100;
const WITHIN = { ...DISPLAYED, "\\(": "\\)", $: "$" };

export function addFormulas(parser) {
  parser.inline.ruler.before("escape", "formula", within);
  parser.block.ruler.before("fence", "formula", lines, { alt: ["paragraph", "reference", "blockquote", "list"] });
}

function within(state, silent) {
  const text = state.src.slice(state.pos, state.posMax);
  const opener = Object.keys(WITHIN).find((one) => text.startsWith(one));
  if (!opener) return false;
  const closer = WITHIN[opener];
  // Nothing is looked for again that was not there further up.
  const end = state.cache[closer] ? -1 : ending(text, opener.length, closer);
  if (end < 0) state.cache[closer] = true;
  const tex = text.slice(opener.length, end);
  if (end < 0 || !tex.trim() || (opener === "$" && isPrice(tex, text[end + 1]))) return false;
  if (!silent) add(state, tex, text.slice(0, end + closer.length), opener in DISPLAYED);
  state.pos += end + closer.length;
  return true;
}

// Where `closer` begins that no backslash takes away; -1: nowhere.
function ending(text, begin, closer) {
  for (let n = begin; n < text.length; n += 1) {
    if (text.startsWith(closer, n)) return n;
    if (text[n] === "\\") n += 1;
  }
  return -1;
}

// As pandoc: "$5 and $10" is money.
function isPrice(tex, next = "") {
  return /^\s|\s$|`|\n\s*\n/.test(tex) || /\d/.test(next);
}

function add(state, tex, source, isDisplayed) {
  const token = state.push("formula", "math", 0);
  token.content = source;
  token.meta = { tex, isDisplayed };
  return token;
}

// A formula of its own lines, so that no line of it begins a list.
function lines(state, begin, end, silent) {
  const text = (line, from = 0) => state.src.slice(state.bMarks[line] + state.tShift[line] + from, state.eMarks[line]);
  const opener = text(begin).slice(0, 2);
  const closer = DISPLAYED[opener];
  if (!closer || state.sCount[begin] - state.blkIndent >= 4) return false;
  for (let line = begin; line < Math.min(end, begin + LINES_MAX); line += 1) {
    const own = line === begin ? text(line, 2) : text(line);
    if (line > begin && (!own.trim() || state.sCount[line] < state.blkIndent)) return false;
    const at = ending(own, 0, closer);
    if (at < 0) continue;
    if (own.slice(at + 2).trim()) return false;
    if (silent) return true;
    const before = state.getLines(begin, line, state.blkIndent, true) + (line > begin ? own.slice(0, at) : text(line).slice(0, at + 2));
    add(state, before.trimStart().slice(2), before.trimStart() + closer, true).map = [begin, line + 1];
    state.line = line + 1;
    return true;
  }
  return false;
}
