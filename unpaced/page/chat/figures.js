// A line of figures under an answer: speed, first token, tokens, and what of the prompt was cached.
import { make } from "../base/dom.js";

const round = (value) => (value >= 100 ? value.toFixed(0) : value.toFixed(1));
const duration = (ms) => (ms >= 1000 ? `${(ms / 1000).toFixed(2)} s` : `${ms.toFixed(0)} ms`);

// [what is shown, what it means] of each figure there is.
export function figuresOf(figures) {
  const parts = [];
  if (figures.predicted_n > 1) parts.push([`${round(figures.predicted_per_second)} tok/s`, "tokens a second, without the first"]);
  if (figures.first_ms) parts.push([`first after ${duration(figures.first_ms)}`, "from sending to the first token, as seen here"]);
  parts.push([`${figures.predicted_n} ${figures.predicted_n === 1 ? "token" : "tokens"}`, "tokens of the answer, thoughts included"]);
  if (figures.prompt_n !== undefined) {
    const cached = figures.cache_n ? `, ${figures.cache_n} cached` : "";
    parts.push([`prompt ${figures.prompt_n + (figures.cache_n ?? 0)}${cached}`, `prompt tokens; computed in ${duration(figures.prompt_ms)}`]);
  }
  return parts;
}

export function figuresLine(figures) {
  return make("span", { className: "figures" },
    ...(figures ? figuresOf(figures).map(([text, title]) => make("span", { title }, text)) : []));
}
