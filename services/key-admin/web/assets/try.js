// Sends the form of the page "Try it" and shows the answer in the page; that of a chat
// while it arrives. Without this script, the form leads to a page with the whole
// answer.

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
/** `/try`, or that of a project. */
const tryPath = new URL(form.action).pathname;

const post = (path, { show = "", signal } = {}) => {
  const all = new FormData(form);
  if (show) all.set("show", show);
  const names = [...all].map(([name, value]) => [name, value.name ?? value]);
  const body = isUpload && !show ? all : new URLSearchParams(names);
  const { search } = new URL(form.action);
  return fetch(path + search, { method: "POST", body, signal });
};

const fail = ({ code, type, message }, status) =>
  show("error", `${code ?? type ?? status}: ${message}`);

/** Reads a chunk of chat completions. */
function ofChunk({ error, usage, choices: [choice] = [] }) {
  const { delta = {}, finish_reason: finish } = choice ?? {};
  const { content, reasoning_content: thinking, tool_calls = [] } = delta;
  return {
    error,
    input: usage?.prompt_tokens,
    output: usage?.completion_tokens,
    finish,
    content,
    thinking,
    calls: tool_calls.map(({ index, ...call }) => ({
      index,
      start: { ...call, function: { ...call.function, arguments: "" } },
      text: call.function?.arguments,
    })),
  };
}

/** Reads an event of `/v1/responses`. */
function ofResponses({ type, delta, item, output_index: index, response }) {
  const { status, usage, error } = response ?? {};
  switch (type) {
    case "response.output_text.delta":
      return { content: delta };
    case "response.reasoning_text.delta":
    case "response.reasoning_summary_text.delta":
      return { thinking: delta };
    case "response.output_item.done":
      return item.type === "function_call"
        ? { calls: [{ index, start: item }] }
        : {};
    case "response.completed":
    case "response.incomplete":
    case "response.failed":
      return {
        error,
        input: usage?.input_tokens,
        output: usage?.output_tokens,
        finish: status,
        isLast: true,
      };
    default:
      return {};
  }
}

/** Reads an event of `/v1/messages`. */
function ofMessages({ type, message, index, content_block, delta, ...event }) {
  const { stop_reason: finish, text, thinking, partial_json } = delta ?? {};
  switch (type) {
    case "message_start":
      return { input: inputOf(message.usage) };
    case "content_block_start":
      return content_block.type === "tool_use"
        ? { calls: [{ index, start: { ...content_block, input: "" } }] }
        : {};
    case "content_block_delta":
      return partial_json === undefined
        ? { content: text, thinking }
        : { calls: [{ index, text: partial_json }] };
    case "message_delta":
      return { finish, output: event.usage?.output_tokens };
    default:
      return { isLast: type === "message_stop" };
  }
}

/** Anthropic's input does not contain what concerns the cache. */
const inputOf = (usage) =>
  (usage?.input_tokens ?? 0) + (usage?.cache_read_input_tokens ?? 0) +
  (usage?.cache_creation_input_tokens ?? 0);

/** Reads an event of any endpoint. */
function piecesIn({ type, ...event }) {
  if (type === undefined) return ofChunk(event);
  if (type === "error") return { error: event.error ?? event };
  return type.startsWith("response.")
    ? ofResponses({ type, ...event })
    : ofMessages({ type, ...event });
}

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
    show("first", seconds(startMs));
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
  if (response.headers.get("content-type").startsWith("text/html")) {
    return showAnswerOf(parse(await response.text()));
  }
  show("request", response.headers.get("x-request-id") ?? "");
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
  show("total", seconds(startMs));
}

/** Sends the form. Without a path, it starts something new. */
async function send(path = tryPath + (isChat ? "/stream" : "")) {
  const startMs = performance.now();
  running = new AbortController();
  const { signal } = running;
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
  try {
    await receive(await post(path, { signal }), startMs);
    while (videoPath()) {
      part("again").hidden = true;
      await pause(signal);
      await receive(await post(videoPath(), { signal }), startMs);
    }
  } catch {
    show("state", signal.aborted ? "Stopped by you." : "");
    if (!signal.aborted) show("error", LOST);
  }
  part("again").hidden = false;
  running = null;
  sendButton.disabled = false;
  stopButton.hidden = true;
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
stopButton.addEventListener("click", () => running?.abort());
box.addEventListener("click", ({ target }) => {
  if (target.closest("[data-continue]")) continueConversation();
});
codeButton.hidden = true;
