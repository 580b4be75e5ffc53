// Requests to this server. Addresses are relative to the page, so that --api-prefix needs no word about it.

const KEY = "unpaced-key";

export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

// The API key; it stays in this tab, and goes when the tab is closed.
export const readKey = () => sessionStorage.getItem(KEY) ?? "";
export const keepKey = (key) => sessionStorage.setItem(KEY, key.trim());

function headers() {
  const fields = { "Content-Type": "application/json" };
  const key = readKey();
  if (key) fields.Authorization = `Bearer ${key}`;
  return fields;
}

// The response to a GET, or to a POST of `body`. Throws ApiError: status 0 if nobody answers.
export async function ask(path, { body, signal } = {}) {
  const options = { headers: headers(), signal, cache: "no-store" };
  if (body !== undefined) Object.assign(options, { method: "POST", body: JSON.stringify(body) });
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "the server does not answer");
  }
  if (!response.ok) throw new ApiError(response.status, await refusal(response));
  return response;
}

async function refusal(response) {
  const body = await response.json().catch(() => null);
  return body?.error?.message ?? `${response.status} ${response.statusText}`;
}
