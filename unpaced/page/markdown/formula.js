// A formula: Temml makes MathML's nodes of TeX; it is loaded when the first formula is there. What it cannot read stays text.
import { make } from "../base/dom.js";
import { codeText } from "./plain_text.js";

const LENGTH_MAX = 5000; // characters
// Nothing that leads elsewhere or names a class; sizes in em and points.
const OPTIONS = { trust: false, throwOnError: true, maxExpand: 300, maxSize: [25, 500] };
let library = null;
let drawnNow = []; // elements whose width nobody has looked at

// `source` is what the model wrote, `tex` what stands between its marks.
export function formula(source, { tex, isDisplayed }) {
  const element = make("span", { className: isDisplayed ? "formula displayed" : "formula", dir: "ltr" }, codeText(source));
  if (tex.length <= LENGTH_MAX) show(element, tex, isDisplayed);
  return element;
}

async function show(element, tex, displayMode) {
  library ??= import("../vendor/temml/temml.mjs");
  const loaded = await library.catch(() => { library = null; });
  const drawn = make("span");
  try {
    loaded?.default.render(tex, drawn, { ...OPTIONS, displayMode });
  } catch {
    return; // no TeX, or too deep
  }
  if (!drawn.firstChild) return;
  // Names and references would be the page's.
  for (const node of drawn.querySelectorAll("[id], [href]")) { node.removeAttribute("id"); node.removeAttribute("href"); }
  element.replaceChildren(...drawn.childNodes);
  element.title = tex.trim();
  if (drawnNow.push(element) === 1) requestAnimationFrame(markWide);
}

// All at once: each look between two changes would lay out the page anew.
function markWide() {
  const shown = drawnNow;
  const wide = shown.filter((one) => one.scrollWidth > one.clientWidth);
  drawnNow = [];
  for (const one of wide) one.classList.add("wide");
  // Once for each box that they are in: text moved.
  for (const box of new Set(shown.map((one) => one.closest(".turn-body")))) box?.dispatchEvent(new Event("moved", { bubbles: true }));
}
