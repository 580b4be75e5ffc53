// Makes elements. What is shown is always text: no string here becomes HTML.

const SVG = "http://www.w3.org/2000/svg";

// An element with its properties, attributes (what is no property), listeners (`on`), data-* (`data`) and children.
export function make(name, properties = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (value === undefined || value === null) continue;
    if (key === "on") listen(element, value);
    else if (key === "data") Object.assign(element.dataset, value);
    else if (key in element) element[key] = value;
    else element.setAttribute(key, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

function listen(element, acts) {
  for (const [event, act] of Object.entries(acts)) element.addEventListener(event, act);
}

// An SVG element with its attributes and children.
export function draw(name, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

export const byId = (id) => document.getElementById(id);

// Nothing is laid out anew where the text is the same.
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
