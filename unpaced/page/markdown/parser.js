// The markdown parser: HTML in a text stays text, but for an end of a line, and what looks like an address becomes a link.
import MarkdownIt from "../vendor/markdown-it/markdown-it.mjs";
import { addFormulas } from "./formula_rules.js";

const LINE_END = /^<br *\/?>/i;
const parser = new MarkdownIt("default", { html: false, linkify: true, breaks: false });
parser.linkify.set({ fuzzyLink: false, fuzzyEmail: false });
// markdown-it would leave links that it holds unsafe as text; links.js decides, and shows where each leads.
parser.validateLink = () => true;
addFormulas(parser);
// The one piece of HTML that models write for its effect, in cells of tables: a line ends.
parser.inline.ruler.push("line_end", (state, silent) => {
  const found = LINE_END.exec(state.src.slice(state.pos, state.pos + 8));
  if (!found) return false;
  if (!silent) state.push("hardbreak", "br", 0);
  state.pos += found[0].length;
  return true;
});

export const parse = (text) => parser.parse(text, {});
