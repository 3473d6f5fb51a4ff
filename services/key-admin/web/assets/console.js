// What the pages do beyond plain links and forms. Everything works without it:
// dialogs are pages then, times are UTC, and copying is done by hand.

for (
  const start of [
    ...[localTimes, dialogs, sendOnce, copyButtons, revealButtons],
    ...[shownFields, keySearch, secretPage],
  ]
) start(document);

addEventListener("pageshow", ({ persisted }) => {
  if (persisted) location.reload();
});

function each(root, selector, action) {
  for (const element of root.querySelectorAll(selector)) action(element);
}

/** Times in the reader's zone and, as the pages are English, in the reader's own English. */
function localTimes(root) {
  const locale = navigator.languages.find((tag) => /^en\b/i.test(tag)) ??
    "en-GB";
  const day = { year: "numeric", month: "short", day: "numeric" };
  const minute = { hour: "numeric", minute: "2-digit", timeZoneName: "short" };
  const styles = {
    day,
    minute: { ...day, ...minute },
    hour: { hour: "2-digit", minute: "2-digit", hourCycle: "h23" },
    // Days of counters are UTC days, whatever the reader's zone is.
    date: { month: "short", day: "numeric", timeZone: "UTC" },
    full: { dateStyle: "full", timeStyle: "long" },
  };
  const textOf = (time, style) =>
    style === "relative"
      ? relative(time, locale)
      : new Intl.DateTimeFormat(locale, styles[style]).format(time);
  each(root, "time[datetime]", (element) => {
    const time = new Date(element.dateTime);
    element.title = textOf(time, "full");
    element.textContent = textOf(time, element.dataset.as);
  });
  each(root, "text[data-time]", (element) => {
    const time = new Date(element.dataset.time);
    element.textContent = textOf(time, element.dataset.as);
  });
  each(root, "title[data-time]", (element) => {
    const [, said] = element.textContent.split(/: (.*)/s);
    const time = new Date(element.dataset.time);
    element.textContent = `${textOf(time, "full")}: ${said}`;
  });
}

/** `3 minutes ago`, `in 2 days`. */
function relative(time, locale) {
  const units = [
    ...[["second", 60], ["minute", 60], ["hour", 24]],
    ...[["day", 30], ["month", 12], ["year", Infinity]],
  ];
  let value = (time.getTime() - Date.now()) / 1000;
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
  each(root, "a[data-dialog]", (link) => {
    link.addEventListener("click", (event) => {
      if (event.metaKey || event.ctrlKey || event.shiftKey) return;
      event.preventDefault();
      openDialog(link).catch(() => location.assign(link.href));
    });
    link.addEventListener("keydown", (event) => {
      if (event.key === " " && link.role === "button") {
        event.preventDefault();
        link.click();
      }
    });
  });
}

async function openDialog(link) {
  if (document.querySelector("dialog[open]") !== null) return;
  const response = await fetch(link.href, { credentials: "same-origin" });
  const page = new DOMParser()
    .parseFromString(await response.text(), "text/html");
  const body = page.querySelector("[data-dialog-body]");
  if (!response.ok || body === null) return location.assign(link.href);
  const dialog = document.createElement("dialog");
  dialog.append(document.adoptNode(body));
  dialog.setAttribute("aria-label", body.querySelector("h1").textContent);
  document.body.append(dialog);
  for (const start of [localTimes, sendOnce, shownFields]) start(dialog);
  each(
    dialog,
    "[data-close]",
    (close) =>
      close.addEventListener("click", (event) => {
        event.preventDefault();
        dialog.close();
      }),
  );
  // A click beside a dialog must not throw away what was typed.
  const isDirty = () =>
    [...dialog.querySelectorAll("input")].some((input) =>
      input.value !== input.defaultValue ||
      input.checked !== input.defaultChecked
    );
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog && !isDirty()) dialog.close();
  });
  dialog.addEventListener("close", () => {
    dialog.remove();
    link.focus();
  });
  dialog.showModal();
}

/** A second click while the first is on its way does nothing. The server counts a form once besides. */
function sendOnce(root) {
  each(
    root,
    "form[data-once]",
    (form) =>
      form.addEventListener("submit", (event) => {
        if (form.dataset.sent === "yes") event.preventDefault();
        form.dataset.sent = "yes";
        setTimeout(() =>
          each(form, "button[type=submit]", (button) => button.disabled = true)
        );
      }),
  );
}

function copyButtons(root) {
  if (navigator.clipboard === undefined) return;
  each(root, "button[data-copy]", (button) => {
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
  });
}

function revealButtons(root) {
  each(root, "button[data-reveal]", (button) => {
    const input = document.getElementById(button.dataset.reveal);
    button.hidden = false;
    button.addEventListener("click", () => {
      const isShown = input.type === "text";
      input.type = isShown ? "password" : "text";
      button.textContent = isShown ? "Show" : "Hide";
      input.focus();
    });
  });
}

/** A field that belongs to one choice of a list is shown with it. */
function shownFields(root) {
  each(root, "select[data-shows]", (select) => {
    const field = root.querySelector(`#${select.dataset.shows}`);
    const update = () => {
      const isShown = select.value === field.dataset.shownFor;
      field.hidden = !isShown;
      field.querySelector("input").required = isShown;
    };
    select.addEventListener("change", update);
    update();
  });
}

/** A full key pasted into the search stays out of the address: its end is enough. */
function keySearch(root) {
  each(
    root,
    "[data-key-search]",
    (input) =>
      input.form.addEventListener("submit", () => {
        input.value = input.value
          .replace(/sk-\S*?([0-9A-Za-z]{4})(?=\s|$)/g, "$1");
      }),
  );
}

/** Warns before a value that is shown once is left, and forgets it on the way out. */
function secretPage(root) {
  each(root, "[data-secret]", (page) => {
    const value = page.querySelector("[data-secret-value]");
    value.addEventListener("focus", () => value.select?.());
    addEventListener("beforeunload", (event) => {
      if (!page.querySelector("[data-stored]").checked) event.preventDefault();
    });
    addEventListener("pagehide", () => {
      value.value = "";
      value.textContent = "";
    });
  });
}
