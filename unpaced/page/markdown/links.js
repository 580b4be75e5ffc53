// Links and images of a model's text. Only addresses of these kinds can be followed; no image is ever fetched: its
// address could carry away what the conversation says.
import { make } from "../base/dom.js";

const KINDS = new Set(["http:", "https:", "mailto:"]);

export function link(address, ...children) {
  const href = followable(address);
  if (href === null) return make("span", { className: "dead-link", title: address.slice(0, 500) }, ...children);
  const rel = "noopener noreferrer nofollow";
  return make("a", { href, rel, target: "_blank", title: href, referrerPolicy: "no-referrer" }, ...children);
}

export function image(address, text) {
  return link(address, `🖼 ${text || "image"}`);
}

// An absolute address that may be followed; null: it may not.
export function followable(address) {
  let url;
  try {
    url = new URL(address);
  } catch {
    return null;
  }
  return KINDS.has(url.protocol) ? url.href : null;
}
