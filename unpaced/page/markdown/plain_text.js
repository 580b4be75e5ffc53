// Text as nodes. In code, characters that reorder what is shown are made visible: code must read as it runs.
import { make } from "../base/dom.js";

const REORDERING = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

// A fragment: the text, with a mark in place of each character that reorders.
export function codeText(text) {
  const fragment = document.createDocumentFragment();
  let begin = 0;
  for (const found of text.matchAll(REORDERING)) {
    fragment.append(text.slice(begin, found.index), mark(found[0]));
    begin = found.index + 1;
  }
  fragment.append(text.slice(begin));
  return fragment;
}

function mark(character) {
  const code = character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
  return make("span", { className: "reordering", title: "a character that reorders what is shown" }, `U+${code}`);
}
