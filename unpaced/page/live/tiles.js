// The tiles of the live view, and what each one makes of a scrape.
import { byId } from "../base/dom.js";
import { Tile } from "./tile.js";
import { bytes, count, duration, part, rate } from "./units.js";

const GAPS = "unpaced_inter_token_seconds";
const FIRST = "unpaced_time_to_first_token_seconds";

export class Tiles {
  constructor() {
    this._speed = new Tile("Tokens a second", { spark: true });
    this._gap = new Tile("Gap between tokens", { spark: true });
    this._first = new Tile("First token", { spark: true });
    this._requests = new Tile("Requests", { spark: true });
    this._prefix = new Tile("Prompt from the cache", { bar: true });
    this._cells = new Tile("KV cells in use", { bar: true });
    this._processor = new Tile("Processor", { spark: true });
    this._kept = new Tile("Prompts kept in memory");
    this._lastFirst = null;
    byId("tiles").replaceChildren(...[this._speed, this._gap, this._first, this._requests, this._prefix, this._cells, this._processor,
      this._kept].map((tile) => tile.element));
  }

  // `change`: since the scrape before.
  show(scrape, change, slots) {
    this._showSpeed(change);
    this._showGaps(change);
    this._showRequests(scrape);
    this._showPrompts(scrape);
    this._showCells(scrape, slots);
    this._showProcessor(scrape, change);
  }

  _showSpeed(change) {
    const speed = change.rate("unpaced_engine_tokens_decoded_total");
    if (speed === undefined) return this._speed.show();
    const onDevice = change.growth("unpaced_engine_tokens_device_total") / (speed * change.seconds);
    const where = onDevice > 0 ? `, ${part(Math.min(onDevice, 1))} by the GPU's loop` : "";
    const most = Math.max(this._speed.largest, speed);
    this._speed.show(rate(speed), `at most ${rate(most)}${where}`, speed);
  }

  _showGaps(change) {
    const [half, most] = [0.5, 0.99].map((quantile) => change.quantile(GAPS, quantile));
    this._gap.show(half === undefined ? "–" : duration(half), half === undefined ? "half of them; nobody writes" : `half of them; 99 % within ${duration(most)}`, most);
    const first = change.quantile(FIRST, 0.5);
    this._lastFirst = first ?? this._lastFirst;
    this._first.show(this._lastFirst === null ? "–" : duration(this._lastFirst), "half of those that ended last", first);
  }

  _showRequests(scrape) {
    const [running, waiting, tokens] = ["requests_running", "requests_waiting", "waiting_prompt_tokens"].map((name) => scrape.value(`unpaced_${name}`));
    if (running === undefined) return this._requests.show();
    const queue = waiting ? `${count(waiting)} wait, with ${count(tokens)} prompt tokens` : "nobody waits";
    this._requests.show(count(running), queue, running + waiting);
  }

  _showPrompts(scrape) {
    const [computed, cached] = ["", "_cached"].map((name) => scrape.value(`unpaced_prompt_tokens${name}_total`));
    const all = computed + cached;
    this._prefix.show(all ? part(cached / all) : all === 0 ? "–" : undefined, `${count(cached)} of ${count(all)} tokens`, all ? cached / all : 0);
    const n_prompts = scrape.value("unpaced_prompt_cache_prompts");
    this._kept.show(n_prompts === undefined ? undefined : count(n_prompts), bytes(scrape.value("unpaced_prompt_cache_bytes") ?? 0));
  }

  // Of the engine's own count where it tells it; else of the slots', which share cells in no way.
  _showCells(scrape, slots) {
    const told = scrape.value("unpaced_kv_used_ratio");
    if (told !== undefined) {
      const [all, running, idle] = ["", "_running", "_idle"].map((name) => count(scrape.value(`unpaced_kv_cells${name}`)));
      return this._cells.show(part(told), `${running} of ${all}; ${idle} kept by idle slots`, told);
    }
    if (!slots?.length) return this._cells.show();
    const n_used = slots.reduce((sum, slot) => sum + (slot.n_prompt_tokens ?? 0), 0);
    const n_all = slots.reduce((sum, slot) => sum + slot.n_ctx, 0);
    this._cells.show(part(n_used / n_all), `${count(n_used)} of ${count(n_all)}, kept prompts included`, n_used / n_all);
  }

  _showProcessor(scrape, change) {
    const cores = change.rate("process_cpu_seconds_total");
    const memory = scrape.value("process_resident_memory_bytes");
    const decode = change.rate("unpaced_engine_cpu_seconds_total");
    const thread = decode === undefined ? "" : `, ${part(decode)} the decode thread`;
    this._processor.show(cores === undefined ? undefined : part(cores), `of a core${thread}; ${bytes(memory ?? 0)} of memory`, cores);
  }
}
