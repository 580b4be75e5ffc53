// Copies text, also where the page came over plain HTTP from another machine and browsers have no clipboard for it.
import { make } from "./dom.js";
import { icon, iconButton } from "./icons.js";

const SHOWN_MS = 1500;

async function copy(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const field = make("textarea", { value: text, className: "off-screen" });
  const focused = document.activeElement;
  document.body.append(field);
  field.select();
  document.execCommand("copy");
  field.remove();
  focused?.focus();
}

// `read` says what to copy when the button is pressed.
export function copyButton(label, read) {
  const button = iconButton("copy", label, async () => {
    const copied = await copy(read()).then(() => true, () => false);
    button.replaceChildren(icon(copied ? "check" : "close"));
    button.dataset.copied = String(copied);
    setTimeout(() => button.replaceChildren(icon("copy")), SHOWN_MS);
  });
  button.classList.add("copy");
  return button;
}
