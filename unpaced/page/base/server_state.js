// Whether the server answers, and with which model; asked again and again, so that a server that comes back is noticed.
import { ApiError, ask } from "./api.js";

const AGAIN_MS = { ready: 10000, other: 1000 };

// kind: "ready", "loading", "locked" (it wants a key), "failed" (an answer that is none of these) or "gone".
export class ServerState {
  constructor(onChange) {
    this.kind = "gone";
    this.text = "";
    this.model = "";
    this.props = null;
    this._onChange = onChange;
    this._timer = 0;
    document.addEventListener("visibilitychange", () => document.hidden || this.look());
  }

  async look() {
    clearTimeout(this._timer);
    Object.assign(this, await read(this.props));
    this._onChange(this);
    clearTimeout(this._timer);
    if (!document.hidden) this._timer = setTimeout(() => this.look(), AGAIN_MS[this.kind] ?? AGAIN_MS.other);
  }
}

async function read(props) {
  try {
    const models = await (await ask("v1/models")).json();
    return { kind: "ready", text: "", model: models.data[0].id, props: await (await ask("props")).json() };
  } catch (error) {
    if (!(error instanceof ApiError)) return { kind: "failed", text: error.message };
    if (error.status === 0) return { kind: "gone", text: "The server does not answer; trying again", props };
    if (error.status === 503) return { kind: "loading", text: await progress(error.message) };
    if (error.status === 401) return { kind: "locked", text: "This server wants an API key" };
    return { kind: "failed", text: error.message };
  }
}

async function progress(message) {
  const ready = await ask("health/ready").then(() => null, (error) => error);
  return ready?.status === 503 ? ready.message : message;
}
