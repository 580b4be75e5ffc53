// Prometheus' text format, read: what GET /metrics answers.

const LINE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)/;
const LABEL = /([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"/g;
const ESCAPED = { "\\n": "\n", '\\"': '"', "\\\\": "\\" };

// The samples of a scrape, and when it was made (ms of the page's clock).
export class Scrape {
  constructor(text, at_ms) {
    this.at_ms = at_ms;
    this._samples = new Map();
    for (const line of text.split("\n")) {
      const found = line.startsWith("#") ? null : LINE.exec(line);
      if (found) this._keep(found);
    }
  }

  _keep([, name, labels, value]) {
    if (!this._samples.has(name)) this._samples.set(name, []);
    this._samples.get(name).push({ labels: labelsOf(labels ?? ""), value: Number(value.replace("Inf", "Infinity")) });
  }

  names() {
    return [...this._samples.keys()];
  }

  // [{labels, value}] of a name; none: it is not there.
  all(name) {
    return this._samples.get(name) ?? [];
  }

  // The sum over a name's samples; undefined if there is none.
  value(name) {
    const samples = this.all(name);
    return samples.length ? samples.reduce((sum, { value }) => sum + value, 0) : undefined;
  }
}

function labelsOf(text) {
  const labels = {};
  for (const [, name, value] of text.matchAll(LABEL)) labels[name] = value.replace(/\\[n"\\]/g, (part) => ESCAPED[part]);
  return labels;
}
