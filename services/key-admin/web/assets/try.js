// Streams the answer of the page "Try it". Without this script, its form leads to a
// page with the whole answer.

const form = document.getElementById("try");
const stopButton = form.querySelector("[data-stop]");
const [sendButton, codeButton] = form.querySelectorAll("[type=submit]");
const box = document.querySelector("[data-answer]");
/** The places of the answer by their names. */
const parts = Object.fromEntries(
  [...box.querySelectorAll("[data-part]")]
    .map((element) => [element.dataset.part, element]),
);
const { continue: continueButton, ...texts } = parts;
const LOST =
  "The connection was lost before the answer was complete. Send the request again.";

/** Ends the request that is running; null without one. */
let running = null;
/** The message that was sent, and what has arrived of the answer. */
let sent = "";
let answer = {};

const show = (part, text) => texts[part].textContent = text;
const seconds = (sinceMs) =>
  `${((performance.now() - sinceMs) / 1000).toFixed(2)} s`;
const parse = (html) => new DOMParser().parseFromString(html, "text/html");

const post = (path, extra = {}, signal = null) => {
  const body = new URLSearchParams(new FormData(form));
  for (const [name, value] of Object.entries(extra)) body.set(name, value);
  return fetch(path, { method: "POST", body, signal });
};

const fail = ({ code, message }, status) =>
  show("error", `${code ?? status}: ${message}`);

/** Adds what a chunk brings. Pieces of a tool call are joined. */
function add({ error, usage, choices: [choice] = [] }, startMs) {
  if (error) fail(error, "error");
  if (usage) {
    show("input", usage.prompt_tokens.toLocaleString("en-US"));
    show("output", usage.completion_tokens.toLocaleString("en-US"));
  }
  const { delta = {}, finish_reason } = choice ?? {};
  if (finish_reason) show("finish", finish_reason);
  const { content, reasoning_content, tool_calls = [] } = delta;
  answer.content += content ?? "";
  answer.reasoning_content += reasoning_content ?? "";
  for (const { index, ...piece } of tool_calls) {
    const call = answer.tool_calls[index] ??= {
      ...piece,
      function: { ...piece.function, arguments: "" },
    };
    call.function.arguments += piece.function?.arguments ?? "";
  }
  show("content", answer.content);
  show("thinking", answer.reasoning_content);
  const calls = answer.tool_calls;
  if (calls.length > 0) show("calls", JSON.stringify(calls, null, 2));
  const hasToken = content || reasoning_content || tool_calls.length > 0;
  if (hasToken && texts.first.textContent === "") {
    show("first", seconds(startMs));
    show("state", "");
  }
}

/** The data of each event of a stream. */
async function* eventsOf(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = "";;) {
    const { done, value } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (line.startsWith("data: ")) yield line.slice("data: ".length);
    }
  }
}

/** Shows an answer, or why there is none. True when it is complete. */
async function receive(response, startMs) {
  show("request", response.headers.get("x-api-request-id") ?? "");
  // The session has ended.
  if (response.redirected) location.assign(response.url);
  else if (response.headers.get("content-type").startsWith("text/html")) {
    const page = parse(await response.text());
    const fields = page.getElementById("fields");
    // Without fields, the console itself has refused the form.
    const reason = page.querySelector(fields ? ".banner.bad" : ".card p");
    show("error", reason.textContent);
    if (fields) document.getElementById("fields").replaceWith(fields);
    document.querySelector("#fields [aria-invalid]")?.focus();
  } else if (response.ok) {
    for await (const data of eventsOf(response.body)) {
      if (data === "[DONE]") return true;
      add(JSON.parse(data), startMs);
    }
    if (texts.error.textContent === "") show("error", LOST);
  } else fail((await response.json()).error, response.status);
  return false;
}

async function send() {
  const startMs = performance.now();
  running = new AbortController();
  const { signal } = running;
  sent = form.elements.message.value;
  answer = {
    ...{ role: "assistant", content: "", reasoning_content: "" },
    tool_calls: [],
  };
  for (const part of Object.keys(texts)) show(part, "");
  for (const field of form.querySelectorAll("[aria-invalid]")) {
    field.removeAttribute("aria-invalid");
    field.nextElementSibling.remove();
  }
  show("state", "Waiting for the first token…");
  continueButton.hidden = true;
  sendButton.disabled = true;
  stopButton.hidden = false;
  box.scrollIntoView({ block: "nearest" });
  try {
    const response = await post("/try/chat", {}, signal);
    continueButton.hidden = !await receive(response, startMs);
  } catch {
    if (signal.aborted) show("finish", "stopped by you");
    else show("error", LOST);
  }
  show("state", "");
  // A form with mistakes was not sent.
  if (!form.querySelector("[aria-invalid]")) show("total", seconds(startMs));
  running = null;
  sendButton.disabled = false;
  stopButton.hidden = true;
}

/** Shows the request as code, unless it has a mistake. */
async function refreshCode() {
  const response = await post("/try", { show: "code" });
  if (!response.ok || response.redirected) return;
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
  const given = Object.entries(answer)
    .filter(([name, value]) => name === "content" || value.length > 0);
  messages.push(Object.fromEntries(given));
  history.value = JSON.stringify(messages, null, 2);
  history.closest("details").open = true;
  message.value = "";
  message.focus();
  continueButton.hidden = true;
  form.dispatchEvent(new Event("change"));
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  if (running === null) send();
});
// Without an answer the code stays as it is.
form.addEventListener("change", () => refreshCode().catch(() => {}));
form.addEventListener("keydown", (event) => {
  const isSend = event.key === "Enter" && (event.ctrlKey || event.metaKey);
  if (isSend) form.requestSubmit(sendButton);
});
stopButton.addEventListener("click", () => running?.abort());
continueButton.addEventListener("click", continueConversation);
codeButton.hidden = true;
