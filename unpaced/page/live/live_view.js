// The live view: asks the server once a second what it does, while somebody looks.
import { ask } from "../base/api.js";
import { byId, make, setText } from "../base/dom.js";
import { Change } from "./change.js";
import { Scrape } from "./exposition.js";
import { showFacts } from "./facts.js";
import { showCards } from "./graphics_cards.js";
import { showSlots } from "./slots_view.js";
import { Tiles } from "./tiles.js";
import { duration } from "./units.js";
import { WANTED } from "./wanted.js";

const EVERY_MS = 1000;

export class LiveView {
  constructor() {
    this._isShown = false;
    this._timer = 0;
    this._scrape = null;
    this._slots = null;
    this._wasBusy = true; // so that the slots are asked for once
    this._tiles = new Tiles();
    document.addEventListener("visibilitychange", () => this._begin());
  }

  setShown(isShown) {
    this._isShown = isShown;
    this._begin();
  }

  setServer(server) {
    this._server = server;
    showFacts(server.props);
  }

  _begin() {
    clearTimeout(this._timer);
    if (this._isShown && !document.hidden) this._look();
  }

  async _look() {
    clearTimeout(this._timer);
    const begin_ms = performance.now();
    try {
      await this._read();
    } catch (error) {
      this._scrape = null;
      this._tell("gone", error.message);
    }
    clearTimeout(this._timer);
    const left_ms = Math.max(0, EVERY_MS - (performance.now() - begin_ms));
    if (this._isShown && !document.hidden) this._timer = setTimeout(() => this._look(), left_ms);
  }

  async _read() {
    const text = await (await ask(WANTED)).text();
    const scrape = new Scrape(text, performance.now());
    const state = scrape.all("unpaced_engine_state").find(({ value }) => value === 1)?.labels.state ?? "";
    await this._readSlots(scrape, state);
    this._tellState(scrape, state);
    if (this._scrape) this._tiles.show(scrape, new Change(this._scrape, scrape), this._slots);
    showCards(scrape);
    this._scrape = scrape;
  }

  // To ask for slots keeps a server awake that would sleep: only while they can have changed.
  async _readSlots(scrape, state) {
    const isBusy = scrape.value("unpaced_requests_running") + scrape.value("unpaced_requests_waiting") > 0;
    const isDue = isBusy || this._wasBusy;
    this._wasBusy = isBusy;
    if (!isDue || state !== "ready" || this._server?.props?.is_sleeping) return;
    this._slots = await ask("slots").then((response) => response.json(), () => null);
    showSlots(this._slots);
  }

  _tellState(scrape, state) {
    const age = scrape.value("unpaced_engine_heartbeat_age_seconds") ?? 0;
    const begun = scrape.value("process_start_time_seconds");
    const loop = scrape.all("unpaced_decode_loop_info")[0]?.labels;
    this._tell(state, [
      this._server?.props?.is_sleeping ? "sleeping" : state,
      loop && (loop.loop === "device" ? "the GPU runs the token loop" : `the host runs the token loop: ${loop.reason}`),
      age > 1 && `the engine last moved ${duration(age)} ago`,
      begun && `up for ${duration(Date.now() / 1000 - begun)}`,
      ...counted(scrape, "unpaced_requests_rejected_total", "reason", "refused"),
      ...counted(scrape, "unpaced_completions_finished_total", "reason", "ended", (reason) => reason === "error"),
    ]);
  }

  _tell(kind, parts) {
    const line = byId("live-state");
    const texts = [parts].flat().filter(Boolean);
    line.dataset.kind = kind;
    while (line.children.length > texts.length) line.lastChild.remove();
    texts.forEach((text, n) => (line.children[n] ? setText(line.children[n], text) : line.append(make("span", {}, text))));
  }
}

// "3 refused (queue_full)" for each label's value that counted anything.
function counted(scrape, name, label, word, wanted = () => true) {
  return scrape.all(name).filter(({ labels, value }) => value > 0 && wanted(labels[label]))
    .map(({ labels, value }) => `${value} ${word} (${labels[label].replaceAll("_", " ")})`);
}
