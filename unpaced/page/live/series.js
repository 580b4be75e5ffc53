// The last two minutes of a figure, and the line that shows them.
import { draw } from "../base/dom.js";

const N_MAX = 120;
const WIDTH = 120;
const HEIGHT = 36;

export class Series {
  constructor(label) {
    this._values = [];
    this._line = draw("polyline", { class: "spark-line" });
    this._area = draw("polygon", { class: "spark-area" });
    this.element = draw("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", class: "spark", role: "img", "aria-label": label },
      this._area, this._line);
  }

  // undefined: there was nothing to see, which is drawn as 0.
  add(value) {
    this._values.push(value ?? 0);
    if (this._values.length > N_MAX) this._values.shift();
    this._draw();
  }

  get largest() {
    return Math.max(...this._values, 0);
  }

  _draw() {
    const top = this.largest || 1;
    const left = WIDTH - this._values.length;
    const points = this._values.map((value, n) => `${left + n + 1},${(HEIGHT - 1 - (value / top) * (HEIGHT - 3)).toFixed(1)}`);
    this._line.setAttribute("points", points.join(" "));
    this._area.setAttribute("points", `${left + 1},${HEIGHT} ${points.join(" ")} ${WIDTH},${HEIGHT}`);
  }
}
