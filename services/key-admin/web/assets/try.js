// Sends the form of the page "Try it" and shows the answer in the page; that of a chat
// while it arrives. The API keeps that one for some minutes: a tab that is reloaded
// shows it again, and goes on. Without this script, the form leads to a page with the
// whole answer.

import { eventsOf, piecesIn } from "./try_events.js";
import {
  chat,
  newName,
  note,
  readNote,
  stopRun,
  tryPath,
} from "./try_notes.js";

const form = document.getElementById("try");
const stopButton = form.querySelector("[data-stop]");
const [sendButton, codeButton] = form.querySelectorAll("[type=submit]");
const box = document.querySelector("[data-answer]");
/** Found anew each time: the answer of a page of the console replaces it. */
const continueButton = () => document.querySelector("[data-continue]");
const isUpload = form.enctype === "multipart/form-data";
const isChat = "message" in form.elements;
const LOST =
  "The connection was lost before the answer was complete. Send the request again.";
/** Between two requests for the progress of a video. */
const POLL_MS = 2_000;

/** Ends the request that is running; null without one. */
let running = null;
/** The message that was sent, and the part of the answer that has arrived. */
let sent = "";
/** Its endpoint; empty for chat completions. */
let sentAs = "";
let answer = {};

const part = (name) => box.querySelector(`[data-part=${name}]`);
const show = (name, text) => {
  part(name).textContent = text;
};
const seconds = (sinceMs) =>
  `${((performance.now() - sinceMs) / 1000).toFixed(2)} s`;
const parse = (html) => new DOMParser().parseFromString(html, "text/html");

/** Where to ask about a video that is still being made; null otherwise. */
const videoPath = () => {
  const button = part("again").querySelector("button");
  return button && new URL(button.formAction).pathname;
};
const pause = (signal) =>
  new Promise((resolve) => {
    setTimeout(resolve, POLL_MS);
    signal.addEventListener("abort", resolve);
  });

/** Posts the form to a path of the console. For its code, the name of a file is enough. */
const post = (path, { show = "", once = "", signal } = {}) => {
  const all = new FormData(form);
  if (show) all.set("show", show);
  if (once) all.set("once", once);
  const names = [...all].map(([name, value]) => [name, value.name ?? value]);
  const body = isUpload && !show ? all : new URLSearchParams(names);
  const { search } = new URL(form.action);
  return fetch(path + search, { method: "POST", body, signal });
};

const fail = ({ code, type, message }, status) =>
  show("error", `${code ?? type ?? status}: ${message}`);

/** Joins the pieces of a call of a tool. */
function addCall({ index, start, text = "" }) {
  answer.tool_calls[index] ??= start;
  const call = answer.tool_calls[index];
  if (call.function) call.function.arguments += text;
  else if (text !== "") call.input += text;
}

/** Adds the pieces of an event to the answer. */
function add(event, startMs) {
  const pieces = piecesIn(event);
  const { error, content = "", thinking = "", calls = [] } = pieces;
  if (error) fail(error, "error");
  for (const name of ["input", "output"]) {
    const tokens = pieces[name];
    if (tokens !== undefined) show(name, tokens.toLocaleString("en-US"));
  }
  if (pieces.finish) show("finish", pieces.finish);
  answer.content += content ?? "";
  answer.reasoning_content += thinking ?? "";
  calls.forEach(addCall);
  show("content", answer.content);
  show("thinking", answer.reasoning_content);
  // Without the holes that other parts of an answer leave.
  const called = answer.tool_calls.filter(() => true);
  if (called.length > 0) show("calls", JSON.stringify(called, null, 2));
  const hasToken = content || thinking || calls.length > 0;
  if (hasToken && part("first").textContent === "") {
    note({ first: chat.first ?? seconds(startMs) });
    show("first", chat.first);
    show("state", "");
  }
  if (pieces.isLast && !error) endWhole();
}

/**
 * Called when the answer is whole: a chat may go on, but one with calls only in its own
 * form.
 */
function endWhole() {
  if (sentAs !== "") answer.reasoning_content = "";
  continueButton().hidden = sentAs !== "" && answer.tool_calls.length > 0;
  answer.isWhole = true;
}

/** Shows a page of the console: the answer, or why the form was refused. */
function showAnswerOf(page) {
  const shown = page.getElementById("answer");
  if (shown) return box.replaceChildren(...shown.childNodes);
  show("state", "");
  show("again", "");
  const fields = page.getElementById("fields");
  // Without fields, the console itself has refused the form.
  const reason = page.querySelector(fields ? ".banner.bad" : ".card p");
  show("error", reason.textContent);
  if (fields) document.getElementById("fields").replaceWith(fields);
  document.querySelector("#fields [aria-invalid]")?.focus();
}

/** Shows an answer, or why there is none. */
async function receive(response, startMs) {
  const id = response.headers.get("x-gateway-answer");
  note(response.ok && id !== null ? { id } : null);
  if (response.headers.get("content-type").startsWith("text/html")) {
    return showAnswerOf(parse(await response.text()));
  }
  // An answer that is read again has the id of the request that it answers.
  show("request", id ?? response.headers.get("x-request-id") ?? "");
  show("status", response.status);
  if (response.ok) {
    for await (const data of eventsOf(response.body)) {
      if (data === "[DONE]") endWhole();
      else add(JSON.parse(data), startMs);
    }
    const isLost = !answer.isWhole && part("error").textContent === "";
    if (isLost) show("error", LOST);
  } else fail((await response.json()).error, response.status);
  show("state", "");
  note({ total: chat.total ?? seconds(startMs) });
  show("total", chat.total);
}

/** Empties the page for the answer to the form. */
function clear() {
  sent = form.elements.message?.value ?? "";
  sentAs = form.elements.endpoint?.value ?? "";
  answer = {
    role: "assistant",
    content: "",
    reasoning_content: "",
    tool_calls: [],
    isWhole: false,
  };
  for (const shown of box.querySelectorAll("[data-part]")) {
    if (shown !== part("again")) shown.replaceChildren();
  }
  for (const field of form.querySelectorAll("[aria-invalid]")) {
    field.removeAttribute("aria-invalid");
    field.nextElementSibling.remove();
  }
  show("state", "Waiting for the answer…");
  continueButton().hidden = true;
  part("again").hidden = true;
  sendButton.disabled = true;
  stopButton.hidden = false;
  box.scrollIntoView({ block: "nearest" });
}

/** Lets the form be sent again. */
function release() {
  part("again").hidden = false;
  running = null;
  sendButton.disabled = false;
  stopButton.hidden = true;
}

/** Shows the answer that a function asks for, and asks on while it is being made. */
async function run(
  ask,
  { startMs = performance.now(), request = new AbortController() } = {},
) {
  clear();
  running = request;
  const { signal } = request;
  try {
    const response = await ask(signal);
    if (running !== request) {
      // It was stopped before anybody knew its id.
      const id = response.headers.get("x-gateway-answer");
      if (id !== null) stopRun(id);
      return request.abort();
    }
    await receive(response, startMs);
    while (videoPath()) {
      part("again").hidden = true;
      await pause(signal);
      await receive(await post(videoPath(), { signal }), startMs);
    }
  } catch {
    if (running !== request) return;
    show("state", signal.aborted ? "Stopped by you." : "");
    if (!signal.aborted) show("error", LOST);
  }
  if (running === request) release();
}

/** Sends the form. Without a path, it starts something new. */
function send(path = tryPath + (isChat ? "/stream" : "")) {
  note(null);
  const once = isChat ? newName() : "";
  if (isChat) {
    note({ once, fields: [...new FormData(form)], sentAtMs: Date.now() });
  }
  return run((signal) => post(path, { once, signal }));
}

/**
 * Ends what is running. A chat whose answer is not known yet is stopped as soon as it
 * is: the API goes on with it, as if the tab was being reloaded.
 */
function stop() {
  const request = running;
  const { id, once } = chat;
  note(null);
  if (once && !id) {
    release();
    show("state", "Stopped by you.");
    return;
  }
  if (id) stopRun(id);
  request?.abort();
}

/** Shows the chat again that this tab had sent before it was reloaded. */
async function resume() {
  const { id, once, fields, sentAtMs, ...times } = readNote();
  if (!once) return;
  const request = new AbortController();
  const { signal } = request;
  const keptAnswer = id &&
    await fetch(`${tryPath}/answers/${id}`, { signal }).catch(() => null);
  if (running !== null) return keptAnswer?.body?.cancel();
  if (id && !keptAnswer?.ok) return note(null);
  for (const [name, value] of fields) {
    const field = form.elements[name];
    if (field === undefined) continue;
    field.value = value;
    const folded = field.closest("details");
    if (folded && value !== "") folded.open = true;
  }
  form.dispatchEvent(new Event("change"));
  note({ id, once, fields, sentAtMs, ...times });
  const startMs = performance.now() - (Date.now() - sentAtMs);
  await run(
    () => keptAnswer || post(`${tryPath}/stream`, { once, signal }),
    { startMs, request },
  );
}

/** Shows the request as code, unless it has a mistake. */
async function refreshCode() {
  const response = await post(tryPath, { show: "code" });
  if (!response.ok) return;
  const page = parse(await response.text());
  for (const code of document.querySelectorAll("pre[id^=code-]")) {
    code.textContent = page.getElementById(code.id).textContent;
  }
}

/** Moves the exchange to the earlier messages. */
function continueConversation() {
  const { history, message } = form.elements;
  const messages = JSON.parse(history.value.trim() || "[]");
  if (sent.trim() !== "") messages.push({ role: "user", content: sent });
  const { isWhole: _, ...reply } = answer;
  const members = Object.entries(reply)
    .filter(([name, value]) => name === "content" || value.length > 0);
  messages.push(Object.fromEntries(members));
  history.value = JSON.stringify(messages, null, 2);
  history.closest("details").open = true;
  message.value = "";
  message.focus();
  continueButton().hidden = true;
  form.dispatchEvent(new Event("change"));
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  const isRefresh = event.submitter?.hasAttribute("formaction");
  if (running === null) send(isRefresh ? videoPath() : undefined);
});
// Without an answer the code stays as it is.
form.addEventListener("change", () => refreshCode().catch(() => {}));
form.addEventListener("keydown", (event) => {
  const isSend = event.key === "Enter" && (event.ctrlKey || event.metaKey);
  if (isSend) form.requestSubmit(sendButton);
});
stopButton.addEventListener("click", stop);
box.addEventListener("click", ({ target }) => {
  if (target.closest("[data-continue]")) continueConversation();
});
codeButton.hidden = true;
const [{ type: arrival } = {}] = performance.getEntriesByType("navigation");
// A link to a model wants to try that one.
const isLink = arrival === "navigate" && location.search.includes("model=");
if (isChat && !isLink) resume();
