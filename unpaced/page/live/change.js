// What happened between two scrapes: rates of counters, quantiles of histograms.

export class Change {
  constructor(before, after) {
    this._before = before;
    this._after = after;
    this.seconds = (after.at_ms - before.at_ms) / 1000;
  }

  // How much a counter grew; undefined if it is not there. A server that was started anew begins at 0.
  growth(name) {
    const after = this._after.value(name);
    if (after === undefined) return undefined;
    const before = this._before.value(name) ?? 0;
    return after >= before ? after - before : after;
  }

  rate(name) {
    const growth = this.growth(name);
    return growth === undefined ? undefined : growth / this.seconds;
  }

  // Of what a histogram observed meanwhile, between the bounds of its buckets; undefined: nothing.
  quantile(name, part) {
    const before = new Map(this._before.all(`${name}_bucket`).map(({ labels, value }) => [labels.le, value]));
    const buckets = this._after.all(`${name}_bucket`).map(({ labels, value }) => (
      { bound: Number(labels.le.replace("+Inf", "Infinity")), n: value - (before.get(labels.le) ?? 0) }));
    const n = buckets.at(-1)?.n ?? 0;
    if (n <= 0) return undefined;
    const place = buckets.findIndex((bucket) => bucket.n >= part * n);
    const below = buckets[place - 1] ?? { bound: 0, n: 0 };
    const { bound, n: n_to } = buckets[place];
    if (bound === Infinity) return below.bound;
    return below.bound + ((bound - below.bound) * (part * n - below.n)) / (n_to - below.n);
  }
}
