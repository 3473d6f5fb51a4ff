// Enhances plain links and forms. Everything works without this script, but times are
// in UTC and copying is done by hand.

function each(selector, action) {
  for (const element of document.querySelectorAll(selector)) action(element);
}

// A page from the back/forward cache may be out of date or of an earlier session.
addEventListener("pageshow", ({ persisted }) => {
  if (persisted) location.reload();
});

// Times in the reader's zone and, as the pages are English, in the reader's variety of
// English.
const locale = navigator.languages.find((tag) => /^en\b/i.test(tag)) ?? "en-GB";
const day = { year: "numeric", month: "short", day: "numeric" };
const minute = {
  ...day,
  hour: "numeric",
  minute: "2-digit",
  timeZoneName: "short",
};
const textOf = (time, as) =>
  as === "relative"
    ? relative(time)
    : new Intl.DateTimeFormat(locale, as === "day" ? day : minute).format(time);

/** `3 minutes ago`, `in 2 days`. */
function relative(time) {
  const seconds = (time.getTime() - Date.now()) / 1000;
  const units = [["day", 86400], ["hour", 3600], ["minute", 60]];
  const [unit, size] = units.find(([, size]) => Math.abs(seconds) >= size) ??
    ["second", 1];
  return new Intl.RelativeTimeFormat(locale, { numeric: "auto" })
    .format(Math.round(seconds / size), unit);
}

each("[data-time]", (element) => {
  const time = new Date(element.dataset.time);
  const { as } = element.dataset;
  if (as === "relative") element.title = textOf(time, "minute");
  element.textContent = textOf(time, as);
});

// Ignores a second click while the first is on its way. The server also accepts each
// form only once.
each("form[data-once]", (form) =>
  form.addEventListener("submit", (event) => {
    if (form.dataset.sent === "yes") event.preventDefault();
    form.dataset.sent = "yes";
  }));

/** How long a button says that it has copied. */
const COPIED_MS = 2_500;

each("[data-copy]", (button) => {
  button.hidden = navigator.clipboard === undefined;
  button.setAttribute("aria-live", "polite");
  button.addEventListener("click", async () => {
    const source = document.getElementById(button.dataset.copy);
    await navigator.clipboard.writeText(source.textContent);
    button.textContent = "Copied";
    setTimeout(() => {
      button.textContent = "Copy";
    }, COPIED_MS);
  });
});

each("[data-reveal]", (box) => {
  box.hidden = false;
  box.addEventListener("change", ({ target }) => {
    const input = document.getElementById(box.dataset.reveal);
    input.type = target.checked ? "text" : "password";
  });
});

// A full key pasted into the search stays out of the address: its end is enough.
const KEYS = /sk-\S*?([0-9A-Za-z]{4})(?=\s|$)/g;
each("[data-key-search]", (input) => {
  const shorten = () => {
    input.value = input.value.replace(KEYS, "$1");
  };
  input.form.addEventListener("submit", shorten);
});

// Warns before a value that is shown once is left, and clears it on leaving.
each("[data-secret]", (page) => {
  const stored = page.querySelector("input[required]");
  addEventListener("beforeunload", (event) => {
    if (!stored.checked) event.preventDefault();
  });
  addEventListener("pagehide", () => {
    document.getElementById(page.dataset.secret).textContent = "";
  });
});

// The values of a bar, under the pointer and for the arrow keys.
each("[data-chart]", (chart) => {
  const plot = chart.querySelector(".bars");
  const shown = chart.querySelector("output");
  const bars = [...plot.querySelectorAll(".reach")];
  const show = (bar) => {
    for (const each of bars) each.classList.toggle("current", each === bar);
    shown.textContent = bar?.querySelector("title").textContent ?? "\u00A0";
  };
  let at = bars.length - 1;
  const go = (to) => {
    at = Math.min(Math.max(to, 0), bars.length - 1);
    show(bars[at]);
  };
  const steps = {
    ArrowLeft: () => at - 1,
    ArrowRight: () => at + 1,
    Home: () => 0,
    End: () => bars.length - 1,
  };
  plot.addEventListener("focus", () => go(at));
  plot.addEventListener("blur", () => show());
  plot.addEventListener("keydown", (event) => {
    const step = steps[event.key];
    if (step === undefined) return;
    event.preventDefault();
    go(step());
  });
  for (const [place, bar] of bars.entries()) {
    bar.addEventListener("pointerenter", () => go(place));
  }
  plot.addEventListener("pointerleave", () => show());
});

// Offers the reader's own time zone for a field that has another one.
each("[data-zone]", (button) => {
  const field = document.getElementById(button.dataset.zone);
  const { timeZone } = Intl.DateTimeFormat().resolvedOptions();
  if (!timeZone || field.value === timeZone) return;
  button.textContent = `Show in ${timeZone}`;
  button.hidden = false;
  button.addEventListener("click", () => {
    field.value = timeZone;
    field.form.requestSubmit();
  });
});
