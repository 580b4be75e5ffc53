// A block of code: its language, a button that copies it, its text.
import { copyButton } from "../base/clipboard.js";
import { make } from "../base/dom.js";
import { colour } from "./highlight.js";
import { codeText } from "./plain_text.js";

const LANGUAGE = /^[\w+#.-]{1,30}/;

// `isWhole`: nothing will be added to it. The element has a method `extend` for as long as something may.
export function codeBlock(text, info, isWhole) {
  const language = LANGUAGE.exec(info.trim())?.[0] ?? "";
  const code = make("code", {}, codeText(text));
  let shown = text;
  const bar = make("div", { className: "code-bar" }, make("span", {}, language || "text"), copyButton("Copy the code", () => shown));
  const block = make("div", { className: "code-block", dir: "ltr" }, bar, make("pre", { tabIndex: 0 }, code));
  block.extend = (longer) => {
    if (!longer.startsWith(shown)) return false;
    if (longer.length > shown.length) code.append(codeText(longer.slice(shown.length)));
    shown = longer;
    return true;
  };
  if (isWhole) colour(code, text, language.toLowerCase());
  return block;
}
