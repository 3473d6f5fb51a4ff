// The chat that a tab has sent: what it needs to show the answer again when it is
// reloaded. The API keeps the answer; the tab only notes its id and the form.

const form = document.getElementById("try");
const { answer: reader } = document.querySelector("[data-answer]").dataset;
const { pathname, search } = new URL(form.action);
/** `/try`, or that of a project. */
export const tryPath = pathname;
/** Where this tab notes its last chat. Whoever signs in next has another place. */
const notePlace = `try ${reader} ${pathname}${search}`;
/** Without an id, a chat is sent again for so long: then its answer may be gone. */
const AGAIN_MS = 60_000;

/**
 * Of the last chat: its form, when it was sent, the name under which it may be sent
 * again, the id of its answer once there is one, and times that were shown.
 */
export let chat = {};

/** Notes more about the last chat; null: it must not be shown again. */
export function note(more) {
  chat = more === null ? {} : { ...chat, ...more };
  try {
    if (chat.once) sessionStorage.setItem(notePlace, JSON.stringify(chat));
    else sessionStorage.removeItem(notePlace);
  } catch {
    // The browser stores nothing: then a reload shows nothing.
  }
}

/** What was noted before the tab was reloaded; empty: nothing that can be shown. */
export function readNote() {
  try {
    const noted = JSON.parse(sessionStorage.getItem(notePlace)) ?? {};
    const isOld = !noted.id && Date.now() - noted.sentAtMs > AGAIN_MS;
    return isOld ? {} : noted;
  } catch {
    return {};
  }
}

/** A new name for a chat: 32 hexadecimal digits. `randomUUID` needs HTTPS. */
export const newName = () =>
  Array.from(
    crypto.getRandomValues(new Uint8Array(16)),
    (byte) => byte.toString(16).padStart(2, "0"),
  ).join("");

/** Ends the run of an answer: without that, it would go on without its reader. */
export const stopRun = (id) => {
  const body = new URLSearchParams();
  fetch(`${tryPath}/answers/${id}/stop`, { method: "POST", body }).catch(() => {
    // The console is away. The run ends by itself.
  });
};
