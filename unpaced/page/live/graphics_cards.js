// What the server tells of its graphics cards: each metric of a unit whose name begins with unpaced_gpu_.
import { byId, make } from "../base/dom.js";
import { byName } from "./units.js";

const FIGURE = /^unpaced_gpu_(\w+)_(bytes|ratio|watts|celsius|hertz)$/;

export function showCards(scrape) {
  const cards = new Map();
  for (const name of scrape.names()) {
    const figure = FIGURE.exec(name);
    if (!figure) continue;
    for (const { labels: { gpu }, value } of scrape.all(name)) {
      if (!cards.has(gpu)) cards.set(gpu, []);
      cards.get(gpu).push([figure[1].replaceAll("_", " "), byName(name, value)]);
    }
  }
  byId("cards-box").hidden = cards.size === 0;
  byId("cards").replaceChildren(...[...cards].map(([gpu, figures]) => card(scrape, gpu, figures)));
}

function card(scrape, gpu, figures) {
  const { name = "" } = scrape.all("unpaced_gpu_info").find(({ labels }) => labels.gpu === gpu)?.labels ?? {};
  return make("div", {}, make("h4", {}, `GPU ${gpu} ${name}`),
    make("dl", {}, ...figures.flatMap(([title, text]) => [make("dt", {}, title), make("dd", {}, text)])));
}
