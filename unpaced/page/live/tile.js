// A tile of the live view: a title, a figure, a line below it, and maybe its last two minutes or a bar.
import { make, setText } from "../base/dom.js";
import { Series } from "./series.js";

export class Tile {
  constructor(title, { spark = false, bar = false } = {}) {
    this._figure = make("span", { className: "tile-figure" });
    this._below = make("p", { className: "tile-below" });
    this._series = spark ? new Series(`${title}, the last two minutes`) : null;
    this._bar = bar ? make("progress", { max: 1, value: 0, "aria-label": title }) : null;
    this.element = make("section", { className: "tile", hidden: true, data: { tile: title } }, make("h3", {}, title), this._figure,
      this._below, this._series?.element, this._bar);
  }

  // `figure` undefined: the server does not tell it, and the tile is not there.
  show(figure, below = "", value = 0) {
    this.element.hidden = figure === undefined;
    if (figure === undefined) return;
    setText(this._figure, figure);
    setText(this._below, below);
    this._series?.add(value);
    if (this._bar) this._bar.value = value;
  }

  get largest() {
    return this._series.largest;
  }
}
