// Figures as people read them.

export const count = (value) => (value >= 100000 ? `${(value / 1000).toFixed(0)} k` : value.toLocaleString("en", { maximumFractionDigits: 0 }));
export const rate = (value) => (value >= 100 ? count(value) : value.toFixed(1));
export const part = (value) => `${(100 * value).toFixed(value < 0.1 ? 1 : 0)} %`;

export function duration(seconds) {
  if (seconds < 0.001) return `${(seconds * 1e6).toFixed(0)} µs`;
  if (seconds < 1) return `${(seconds * 1e3).toFixed(seconds < 0.01 ? 2 : 0)} ms`;
  if (seconds < 120) return `${seconds.toFixed(1)} s`;
  if (seconds < 7200) return `${(seconds / 60).toFixed(0)} min`;
  return seconds < 172800 ? `${(seconds / 3600).toFixed(0)} h` : `${(seconds / 86400).toFixed(0)} d`;
}

export function bytes(value) {
  const names = ["B", "KiB", "MiB", "GiB", "TiB"];
  let n = 0;
  let scaled = value;
  for (; scaled >= 1024 && n < names.length - 1; n += 1) scaled /= 1024;
  return `${scaled.toFixed(scaled < 10 && n > 0 ? 1 : 0)} ${names[n]}`;
}

// By the unit that ends a metric's name.
export function byName(name, value) {
  if (name.endsWith("_bytes")) return bytes(value);
  if (name.endsWith("_ratio")) return part(value);
  if (name.endsWith("_seconds")) return duration(value);
  if (name.endsWith("_watts")) return `${value.toFixed(0)} W`;
  if (name.endsWith("_celsius")) return `${value.toFixed(0)} °C`;
  if (name.endsWith("_hertz")) return `${(value / 1e6).toFixed(0)} MHz`;
  if (name.endsWith("_percent")) return `${value.toFixed(0)} %`;
  return count(value);
}
