// Keeps the end of a box in sight while text is added to it, unless somebody has scrolled up to read.

const NEAR_END = 60; // pixels

export class Following {
  // `button` is shown while the end is out of sight, and leads there.
  constructor(box, button) {
    this._box = box;
    this._button = button;
    this._follows = true;
    this._top = 0;
    box.addEventListener("scroll", () => this._look(), { passive: true });
    // A wheel turned upwards is noticed before the box has moved: text that comes at the same time must not win.
    box.addEventListener("wheel", (event) => { if (event.deltaY < 0) this._follows = false; }, { passive: true });
    box.addEventListener("moved", () => this.added()); // formulas are drawn after the text is there
    new ResizeObserver(() => this.added()).observe(box); // a phone's keyboard takes half of it
    button.addEventListener("click", () => this.toEnd());
  }

  _look() {
    const left = this._box.scrollHeight - this._box.clientHeight - this._box.scrollTop;
    // Where text has grown meanwhile the end is far, too; but nobody has scrolled up.
    if (left < NEAR_END) this._follows = true;
    else if (this._box.scrollTop < this._top) this._follows = false;
    this._top = this._box.scrollTop;
    this._button.hidden = this._follows;
  }

  // Something has been added.
  added() {
    if (this._follows) this._box.scrollTop = this._box.scrollHeight;
    else this._look();
  }

  toEnd() {
    this._follows = true;
    this._box.scrollTop = this._box.scrollHeight;
    this._button.hidden = true;
  }
}
