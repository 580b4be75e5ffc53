// What the user chose, kept in this browser: theme, sampling settings, the system prompt of new conversations.

const NAME = "unpaced-preferences";
const DEFAULTS = { theme: "", system: "", sampling: {}, more: "", current: "" };

export const preferences = { ...DEFAULTS, ...read() };

function read() {
  try {
    return JSON.parse(localStorage.getItem(NAME)) ?? {};
  } catch {
    return {}; // no storage, or not ours
  }
}

export function keepPreferences(changes) {
  Object.assign(preferences, changes);
  try {
    localStorage.setItem(NAME, JSON.stringify(preferences));
  } catch {
    // Without storage they hold until the page is left.
  }
}

// Empty: the system's.
export function applyTheme() {
  document.documentElement.dataset.theme = preferences.theme;
}
