// What the pages do beyond plain links and forms. Everything works without it:
// dialogs are pages then, times are UTC, and copying is done by hand.

const onLoad = [
  localTimes,
  dialogs,
  sendOnce,
  copyButtons,
  revealButtons,
  shownFields,
  keySearch,
  secretPage,
];
for (const start of onLoad) start(document);

/** The pages are English, so times are too: the reader's own English, or the most common one. */
function readersEnglish() {
  return navigator.languages.find((tag) => /^en\b/i.test(tag)) ?? "en-GB";
}

/** Times in the reader's zone. */
function localTimes(root) {
  const locale = readersEnglish();
  const day = { year: "numeric", month: "short", day: "numeric" };
  const minute = { hour: "numeric", minute: "2-digit", timeZoneName: "short" };
  const styles = {
    day,
    minute: { ...day, ...minute },
    hour: { hour: "2-digit", minute: "2-digit", hourCycle: "h23" },
    // Days of counters are UTC days, whatever the reader's zone is.
    date: { month: "short", day: "numeric", timeZone: "UTC" },
  };
  const full = new Intl.DateTimeFormat(locale, {
    dateStyle: "full",
    timeStyle: "long",
  });
  for (const element of root.querySelectorAll("time[datetime]")) {
    const time = new Date(element.dateTime);
    const style = element.dataset.as;
    element.title = full.format(time);
    element.textContent = style === "relative"
      ? relative(time, locale)
      : new Intl.DateTimeFormat(locale, styles[style]).format(time);
  }
  for (const element of root.querySelectorAll("text[data-time]")) {
    const time = new Date(element.dataset.time);
    element.textContent = new Intl.DateTimeFormat(
      locale,
      styles[element.dataset.as],
    ).format(time);
  }
  for (const element of root.querySelectorAll("title[data-time]")) {
    const [, said] = element.textContent.split(/: (.*)/s);
    const time = new Date(element.dataset.time);
    element.textContent = `${full.format(time)}: ${said}`;
  }
}

/** `3 minutes ago`, `in 2 days`. */
function relative(time, locale) {
  const seconds = (time.getTime() - Date.now()) / 1000;
  const units = [
    ["second", 60],
    ["minute", 60],
    ["hour", 24],
    ["day", 30],
    ["month", 12],
    ["year", Infinity],
  ];
  let value = seconds;
  for (const [unit, size] of units) {
    if (Math.abs(value) < size) {
      return new Intl.RelativeTimeFormat(locale, { numeric: "auto" })
        .format(Math.round(value), unit);
    }
    value /= size;
  }
}

/** Opens pages with a `data-dialog-body` in a dialog; other answers are followed. */
function dialogs(root) {
  for (const link of root.querySelectorAll("a[data-dialog]")) {
    link.addEventListener("click", (event) => {
      if (event.metaKey || event.ctrlKey || event.shiftKey) return;
      event.preventDefault();
      openDialog(link).catch(() => location.assign(link.href));
    });
    link.addEventListener("keydown", (event) => {
      if (event.key === " " && link.getAttribute("role") === "button") {
        event.preventDefault();
        link.click();
      }
    });
  }
}

async function openDialog(link) {
  if (document.querySelector("dialog[open]") !== null) return;
  const response = await fetch(link.href, { credentials: "same-origin" });
  const page = new DOMParser().parseFromString(
    await response.text(),
    "text/html",
  );
  const body = page.querySelector("[data-dialog-body]");
  if (!response.ok || body === null) return location.assign(link.href);
  const dialog = document.createElement("dialog");
  dialog.append(document.adoptNode(body));
  dialog.setAttribute("aria-label", body.querySelector("h1").textContent);
  document.body.append(dialog);
  localTimes(dialog);
  sendOnce(dialog);
  shownFields(dialog);
  for (const close of dialog.querySelectorAll("[data-close]")) {
    close.addEventListener("click", (event) => {
      event.preventDefault();
      dialog.close();
    });
  }
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog && !isDirty(dialog)) dialog.close();
  });
  dialog.addEventListener("close", () => {
    dialog.remove();
    link.focus();
  });
  dialog.showModal();
}

/** A click beside a dialog must not throw away what was typed. */
function isDirty(dialog) {
  return [...dialog.querySelectorAll("input")].some((input) =>
    input.value !== input.defaultValue || input.checked !== input.defaultChecked
  );
}

/** A second click while the first is on its way does nothing. The server counts a form once besides. */
function sendOnce(root) {
  for (const form of root.querySelectorAll("form[data-once]")) {
    form.addEventListener("submit", (event) => {
      if (form.dataset.sent === "yes") event.preventDefault();
      form.dataset.sent = "yes";
      setTimeout(() => {
        for (const button of form.querySelectorAll("button[type=submit]")) {
          button.disabled = true;
        }
      });
    });
  }
  addEventListener("pageshow", (event) => {
    if (event.persisted) location.reload();
  });
}

function copyButtons(root) {
  if (navigator.clipboard === undefined) return;
  for (const button of root.querySelectorAll("button[data-copy]")) {
    button.hidden = false;
    const label = button.querySelector("[data-copy-label]");
    const words = label.textContent;
    label.setAttribute("aria-live", "polite");
    button.addEventListener("click", async () => {
      const source = document.getElementById(button.dataset.copy);
      try {
        await navigator.clipboard.writeText(source.value ?? source.textContent);
        label.textContent = "Copied";
      } catch {
        source.select?.();
        label.textContent = "Press Ctrl C";
      }
      setTimeout(() => label.textContent = words, 2500);
    });
  }
}

function revealButtons(root) {
  for (const button of root.querySelectorAll("button[data-reveal]")) {
    const input = document.getElementById(button.dataset.reveal);
    button.hidden = false;
    button.addEventListener("click", () => {
      const isShown = input.type === "text";
      input.type = isShown ? "password" : "text";
      button.textContent = isShown ? "Show" : "Hide";
      input.focus();
    });
  }
}

/** A field that belongs to one choice of a list is shown with it. */
function shownFields(root) {
  for (const select of root.querySelectorAll("select[data-shows]")) {
    const field = root.querySelector(`#${select.dataset.shows}`);
    const update = () => {
      const isShown = select.value === field.dataset.shownFor;
      field.hidden = !isShown;
      field.querySelector("input").required = isShown;
    };
    select.addEventListener("change", update);
    update();
  }
}

/** A full key pasted into the search stays out of the address: its end is enough. */
function keySearch(root) {
  for (const input of root.querySelectorAll("[data-key-search]")) {
    input.form.addEventListener("submit", () => {
      input.value = input.value.replace(
        /sk-\S*?([0-9A-Za-z]{4})(?=\s|$)/g,
        "$1",
      );
    });
  }
}

/** Warns before a value that is shown once is left, and forgets it on the way out. */
function secretPage(root) {
  const page = root.querySelector("[data-secret]");
  if (page === null) return;
  const stored = page.querySelector("[data-stored]");
  const value = page.querySelector("[data-secret-value]");
  value.addEventListener("focus", () => value.select?.());
  const warn = (event) => {
    if (!stored.checked) event.preventDefault();
  };
  addEventListener("beforeunload", warn);
  addEventListener("pagehide", () => {
    value.value = "";
    value.textContent = "";
  });
}
