// Server-sent events of a response, decoded; a read may hold half an event or several.

// Throws an Error for an event that is one, and where the connection ends before the answer does. It reads to the
// connection's end: who leaves before counts as gone.
export async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  let isWhole = false;
  for (;;) {
    const { done, value } = await reader.read().catch(lost);
    if (done && isWhole) return;
    if (done) throw new Error("the connection ended before the answer did");
    held += value;
    const frames = held.split("\n\n");
    held = frames.pop();
    for (const frame of frames) {
      if (!frame.startsWith("data: ")) continue;
      const data = frame.slice(6);
      isWhole ||= data === "[DONE]";
      if (isWhole) continue;
      const event = JSON.parse(data);
      if (event.error) throw new Error(event.error.message);
      isWhole ||= event.stop === true; // the last one of llama-server's own streams
      yield event;
    }
  }
}

function lost(error) {
  throw error.name === "AbortError" ? error : new Error("the connection to the server was lost");
}
