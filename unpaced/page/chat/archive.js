// Conversations kept in this browser (IndexedDB), never on the server. Where a browser has no storage they last as long
// as the page.

const NAME = "unpaced";
const STORE = "conversations";

export class Archive {
  constructor(database) {
    this._database = database;
  }

  get isLasting() {
    return this._database !== null;
  }

  // All of them, the last changed first.
  async all() {
    const found = this._database === null ? [] : await done(this._store("readonly").getAll());
    return found.sort((a, b) => b.changed - a.changed);
  }

  async keep(conversation) {
    if (this._database !== null) await done(this._store("readwrite").put(conversation.toKeep()));
  }

  async remove(conversation) {
    if (this._database !== null) await done(this._store("readwrite").delete(conversation.id));
  }

  _store(mode) {
    return this._database.transaction(STORE, mode).objectStore(STORE);
  }
}

export async function openArchive() {
  try {
    const request = indexedDB.open(NAME, 1);
    request.onupgradeneeded = () => request.result.createObjectStore(STORE, { keyPath: "id" });
    return new Archive(await done(request));
  } catch {
    return new Archive(null);
  }
}

function done(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}
