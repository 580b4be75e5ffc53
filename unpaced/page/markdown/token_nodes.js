// markdown-it's tokens to nodes of the document, without a string of HTML in between.
import { make } from "../base/dom.js";
import { codeBlock } from "./code_block.js";
import { formula } from "./formula.js";
import { image, link } from "./links.js";
import { codeText } from "./plain_text.js";

const ALIGNED = /^text-align:\s*(left|center|right)$/;
const WITH_DIRECTION = new Set(["p", "h1", "h2", "h3", "h4", "h5", "h6", "li", "blockquote", "td", "th"]);

// Leaves, by the token's type.
const LEAVES = {
  text: (token) => token.content,
  text_special: (token) => token.content,
  softbreak: () => "\n",
  hardbreak: () => make("br"),
  hr: () => make("hr"),
  code_inline: (token) => make("code", { dir: "ltr" }, codeText(token.content)),
  code_block: (token, isWhole) => codeBlock(token.content, "", isWhole),
  fence: (token, isWhole) => codeBlock(token.content, token.info, isWhole),
  formula: (token) => formula(token.content, token.meta),
  image: (token) => image(token.attrGet("src") ?? "", token.content),
};

// A fragment of the tokens' nodes; `isWhole`: no text will follow.
export function nodesOf(tokens, isWhole) {
  const root = document.createDocumentFragment();
  const open = [root];
  for (const token of tokens) {
    if (token.nesting === 1) open.push(opened(token));
    else if (token.nesting === -1) close(open, token);
    else if (token.type === "inline") open.at(-1).append(nodesOf(token.children, isWhole));
    else open.at(-1).append(LEAVES[token.type]?.(token, isWhole) ?? token.content);
  }
  return root;
}

function opened(token) {
  // The paragraphs of a tight list have no box of their own.
  if (token.hidden) return document.createDocumentFragment();
  if (token.type === "link_open") return link(token.attrGet("href") ?? "");
  const element = make(token.tag);
  if (WITH_DIRECTION.has(token.tag)) element.dir = "auto";
  if (token.tag === "ol" && token.attrGet("start")) element.start = Number(token.attrGet("start"));
  const aligned = ALIGNED.exec(token.attrGet("style") ?? "");
  if (aligned) element.style.textAlign = aligned[1];
  return element;
}

function close(open, token) {
  const node = open.pop();
  const isTable = token.type === "table_close";
  open.at(-1).append(isTable ? make("div", { className: "table-box", tabIndex: 0 }, node) : node);
}
