// Sends the form of the page "Try it" and shows the answer in the page, streamed if the
// API streams it. Without this script, the form leads to a page with the whole answer.

const form = document.getElementById("try");
const stopButton = form.querySelector("[data-stop]");
const [sendButton, codeButton] = form.querySelectorAll("[type=submit]");
const box = document.querySelector("[data-answer]");
const isUpload = form.enctype === "multipart/form-data";
const isVideo = box.querySelector("template").content.querySelector("video");
/** The places of the answer by their names. */
const parts = Object.fromEntries(
  [...box.querySelectorAll("[data-part]")]
    .map((element) => [element.dataset.part, element]),
);
const { continue: continueButton, ...texts } = parts;
const LOST =
  "The connection was lost before the answer was complete. Send the request again.";
const IS_MADE = "The video is still being made: Refresh shows it.";
/** Between two looks at a video. */
const LOOK_MS = 2_000;

/** Ends the request that is running; null without one. */
let running = null;
/** The message that was sent, and what has arrived of the answer. */
let sent = "";
let answer = {};

const show = (part, text) => {
  // Facts differ between kinds.
  if (texts[part]) texts[part].textContent = text;
};
const seconds = (sinceMs) =>
  `${((performance.now() - sinceMs) / 1000).toFixed(2)} s`;
const parse = (html) => new DOMParser().parseFromString(html, "text/html");

/** The path at which a video is looked at that is still being made. */
const videoPath = () => {
  const button = texts.again.querySelector("button");
  return button && new URL(button.formAction).pathname;
};
const pause = (signal) =>
  new Promise((resolve) => {
    setTimeout(resolve, LOOK_MS);
    signal.addEventListener("abort", resolve);
  });

/** Posts the form to a path of the console. Only `/try` takes files; elsewhere their names are sent. */
const post = (path, extra = {}, signal = null) => {
  const all = new FormData(form);
  for (const [name, value] of Object.entries(extra)) all.set(name, value);
  const names = [...all].map(([name, value]) => [name, value.name ?? value]);
  const body = extra.show || !isUpload ? new URLSearchParams(names) : all;
  const { search } = new URL(form.action);
  return fetch(path + search, { method: "POST", body, signal });
};

const fail = ({ code, message }, status) =>
  show("error", `${code ?? status}: ${message}`);

const showUsage = (input, output) => {
  show("input", input.toLocaleString("en-US"));
  show("output", output.toLocaleString("en-US"));
};

/** Adds what a chunk brings. Pieces of a tool call are joined. */
function add({ error, usage, choices: [choice] = [] }, startMs) {
  if (error) fail(error, "error");
  if (usage) showUsage(usage.prompt_tokens, usage.completion_tokens);
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

/** Adds an image or audio, with its download. */
function addMedium(url, file) {
  const medium = box.querySelector("template").content.cloneNode(true);
  const shown = medium.querySelector("[src]");
  const link = medium.querySelector("a");
  shown.src = link.href = url;
  if ("alt" in shown) shown.alt = sent;
  link.download = file;
  texts.media.append(medium);
}

function showImages({ data, output_format: format = "png", usage }) {
  for (const [at, { b64_json }] of data.entries()) {
    const url = `data:image/${format};base64,${b64_json}`;
    addMedium(url, `image-${at + 1}.${format}`);
  }
  if (usage) showUsage(usage.input_tokens, usage.output_tokens);
}

/** Shows a page of the console: the answer, or what it says against the form. */
function showAnswerOf(page) {
  for (const part of Object.keys(texts)) {
    const given = page.querySelector(`#answer [data-part=${part}]`);
    if (given) texts[part].replaceChildren(...given.childNodes);
  }
  if (page.getElementById("answer")) return;
  show("again", "");
  const fields = page.getElementById("fields");
  // Without fields, the console itself has refused the form.
  const reason = page.querySelector(fields ? ".banner.bad" : ".card p");
  show("error", reason.textContent);
  if (fields) document.getElementById("fields").replaceWith(fields);
  document.querySelector("#fields [aria-invalid]")?.focus();
}

/** Shows an answer, or why there is none. True when it can be continued. */
async function receive(response, startMs) {
  const type = response.headers.get("content-type");
  // The session has ended.
  if (response.redirected) return location.assign(response.url);
  if (type.startsWith("text/html")) {
    return showAnswerOf(parse(await response.text()));
  }
  show("request", response.headers.get("x-api-request-id") ?? "");
  show("status", response.status);
  if (!response.ok) fail((await response.json()).error, response.status);
  else if (type.startsWith("audio/")) {
    show("first", seconds(startMs));
    const { value: format } = form.elements.response_format;
    addMedium(URL.createObjectURL(await response.blob()), `speech.${format}`);
  } else if (type.startsWith("application/json")) {
    showImages(await response.json());
  } else {
    for await (const data of eventsOf(response.body)) {
      if (data === "[DONE]") return true;
      add(JSON.parse(data), startMs);
    }
    if (texts.error.textContent === "") show("error", LOST);
  }
  return false;
}

/** Sends the form. Without a path, it starts something new. */
async function send(path = isUpload || isVideo ? "/try" : "/try/stream") {
  const startMs = performance.now();
  running = new AbortController();
  const { signal } = running;
  const { message, prompt } = form.elements;
  sent = (message ?? prompt)?.value ?? "";
  answer = {
    ...{ role: "assistant", content: "", reasoning_content: "" },
    tool_calls: [],
  };
  for (const { src } of texts.media.querySelectorAll("[src^=blob]")) {
    URL.revokeObjectURL(src);
  }
  for (const part of Object.keys(texts)) show(part, "");
  for (const field of form.querySelectorAll("[aria-invalid]")) {
    field.removeAttribute("aria-invalid");
    field.nextElementSibling.remove();
  }
  show("state", "Waiting for the answer…");
  continueButton.hidden = true;
  texts.again.hidden = true;
  sendButton.disabled = true;
  stopButton.hidden = false;
  box.scrollIntoView({ block: "nearest" });
  try {
    const response = await post(path, {}, signal);
    continueButton.hidden = !await receive(response, startMs);
    while (videoPath()) {
      await pause(signal);
      await receive(await post(videoPath(), {}, signal), startMs);
    }
  } catch {
    if (!signal.aborted) {
      show("error", videoPath() ? "The connection was lost." : LOST);
    }
  }
  const made = videoPath() ? ` ${IS_MADE}` : "";
  show("state", signal.aborted ? `Stopped by you.${made}` : made);
  texts.again.hidden = false;
  // A form with mistakes was not sent, and a video may take longer.
  const isOver = !videoPath() && !form.querySelector("[aria-invalid]");
  if (isOver) show("total", seconds(startMs));
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
  const isLook = event.submitter?.hasAttribute("formaction");
  if (running === null) send(isLook ? videoPath() : undefined);
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
