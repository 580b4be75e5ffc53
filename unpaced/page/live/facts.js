// Facts about the server that seldom change: where its loop runs, what lies in which memory, its cores.
import { byId, make } from "../base/dom.js";
import { bytes, count } from "./units.js";

export function showFacts(props) {
  byId("facts-box").hidden = !props?.unpaced;
  if (!props?.unpaced) return;
  byId("facts").replaceChildren(...factsOf(props).flatMap(([name, text]) => [make("dt", {}, name), make("dd", {}, text)]));
  const memory = Object.entries(props.unpaced.decode_loop?.memory_bytes ?? {});
  byId("memory").replaceChildren(...memory.map(memoryRow));
  byId("memory-box").hidden = memory.length === 0;
}

function factsOf({ unpaced, total_slots, default_generation_settings: { n_ctx }, model_alias, model_ftype }) {
  const loop = unpaced.decode_loop ?? {};
  const cores = Object.entries(unpaced.cores ?? {}).filter(([, list]) => list.length);
  return [
    ["Model", model_alias],
    ["Token loop", loop.loop === "device" ? "on the GPU" : "on the host"],
    ["Why there", loop.reason || loop.choice],
    ["Card", loop.device],
    ["Elsewhere", loop.n_elsewhere ? `${loop.n_elsewhere} tensors are not on the card` : ""],
    ["Slots", `${total_slots}, of ${count(n_ctx)} tokens each`],
    ["Weights", model_ftype],
    ["Cores", cores.map(([name, list]) => `${name.replace("_", " ")} ${list.join(" ")}`).join(" · ")],
    ["Threads", `${unpaced.n_threads} to decode, ${unpaced.n_threads_batch} for prompts`],
    ["Build", [unpaced.build_profile, unpaced.cpu_library].filter(Boolean).join(" · ")],
    ["Version", unpaced.version],
  ].filter(([, text]) => text);
}

function memoryRow([place, { weights, kv, compute }]) {
  return make("tr", {}, make("th", { scope: "row" }, place), ...[weights, kv, compute].map((n) => make("td", {}, n ? bytes(n) : "–")));
}
