// The page's icons: lines on a field of 24 by 24.
import { draw, make } from "./dom.js";

const PATHS = {
  check: "M5 13l4 4L19 7",
  close: "M6 6l12 12M18 6L6 18",
  copy: "M9 9h11v11H9zM5 15H4V4h11v1",
  down: "M12 5v14M6 13l6 6 6-6",
  edit: "M4 20l1-5L16 4l4 4L9 19zM14 6l4 4",
  left: "M15 5l-7 7 7 7",
  menu: "M4 6h16M4 12h16M4 18h16",
  plus: "M12 5v14M5 12h14",
  redo: "M20 4v6h-6M20 10a8 8 0 1 0 0 5",
  right: "M9 5l7 7-7 7",
  save: "M12 4v11M7 11l5 5 5-5M4 20h16",
  send: "M12 20V5M5 12l7-7 7 7",
  settings: "M4 7h9M19 7h1M4 17h1M11 17h9M13 7a3 3 0 1 0 6 0 3 3 0 1 0-6 0M5 17a3 3 0 1 0 6 0 3 3 0 1 0-6 0",
  stop: "M7 7h10v10H7z",
  trash: "M4 7h16M9 7V4h6v3M6 7l1 13h10l1-13M10 11v5M14 11v5",
};

export function icon(name) {
  return draw("svg", { viewBox: "0 0 24 24", class: "icon", "aria-hidden": "true" }, draw("path", { d: PATHS[name] }));
}

// A button that shows an icon and says what it does to who points at it or hears it.
export function iconButton(name, label, act, properties = {}) {
  return make("button", {
    type: "button", className: "icon-button", title: label, "aria-label": label, on: { click: act }, ...properties,
  }, icon(name));
}
