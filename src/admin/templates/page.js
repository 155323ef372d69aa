"use strict";
/* Pages read well without this. It sorts and filters tables, and renews what is marked as live. */
(() => {
  const PERIOD_MS = 5000;
  const FILTER_FROM_ROWS = 8;

  /* Sorting and filtering: what a reader chose holds when the rows are renewed. */
  const chosen = new Map();
  const keyOf = (table) => table.closest("[id]")?.id + "/" + [...document.querySelectorAll("table[data-sortable]")].indexOf(table);
  const valueOf = (row, column) => {
    const cell = row.cells[column];
    if (!cell) return "";
    const text = (cell.dataset.value ?? cell.textContent).trim();
    const number = Number(text.replace(/[\s,%]/g, ""));
    return text !== "" && !Number.isNaN(number) ? number : text.toLowerCase();
  };
  const compare = (a, b) => {
    if (typeof a === "number" && typeof b === "number") return a - b;
    if (typeof a === "number") return -1;
    if (typeof b === "number") return 1;
    return a < b ? -1 : a > b ? 1 : 0;
  };
  const arrange = (table) => {
    const { column, down, filter } = chosen.get(keyOf(table)) ?? {};
    const body = table.tBodies[0];
    if (!body) return;
    if (column !== undefined) {
      const rows = [...body.rows].filter((row) => row.cells.length > column);
      const sorted = rows.map((row) => [valueOf(row, column), row]).sort((a, b) => compare(a[0], b[0]) * (down ? -1 : 1));
      for (const pair of sorted) body.append(pair[1]);
      [...table.tHead.rows[0].cells].forEach((cell, index) => {
        if (index === column) cell.setAttribute("aria-sort", down ? "descending" : "ascending");
        else cell.removeAttribute("aria-sort");
      });
    }
    if (filter !== undefined) {
      for (const row of body.rows) row.hidden = !row.textContent.toLowerCase().includes(filter);
    }
  };
  const choose = (table, change) => {
    chosen.set(keyOf(table), { ...chosen.get(keyOf(table)), ...change });
    arrange(table);
  };
  const prepare = (root) => {
    for (const table of root.querySelectorAll("table[data-sortable]")) {
      if (!table.tHead || !table.tBodies[0]) continue;
      [...table.tHead.rows[0].cells].forEach((cell, column) => {
        if (cell.querySelector("a, button") || cell.textContent.trim() === "") return;
        const button = document.createElement("button");
        button.type = "button";
        button.className = "sort";
        button.append(...cell.childNodes);
        cell.append(button);
        button.addEventListener("click", () => {
          const current = cell.getAttribute("aria-sort");
          const down = current ? current === "ascending" : cell.classList.contains("number");
          choose(table, { column, down });
        });
      });
      const known = chosen.get(keyOf(table))?.filter ?? "";
      if (table.tBodies[0].rows.length >= FILTER_FROM_ROWS || known !== "") {
        const input = document.createElement("input");
        input.type = "search";
        input.className = "rows";
        input.placeholder = "filter rows";
        input.setAttribute("aria-label", "Filter the rows of this table");
        input.value = known;
        input.addEventListener("input", () => choose(table, { filter: input.value.toLowerCase() }));
        (table.closest(".wide") ?? table).before(input);
      }
      arrange(table);
    }
    for (const box of root.querySelectorAll(".wide")) {
      /* What scrolls has to be reached by keyboard. */
      if (box.scrollWidth > box.clientWidth) {
        box.tabIndex = 0;
        box.setAttribute("role", "region");
        box.setAttribute("aria-label", "Table");
      }
    }
  };
  prepare(document);

  /* Renewal: only sections that differ are replaced, and none that somebody is in. */
  const switcher = document.getElementById("refresh");
  const said = document.getElementById("refreshed");
  const shown = new Map();
  const live = () => document.querySelectorAll("section[data-live][id]");
  for (const section of live()) shown.set(section.id, section.dataset.original ?? null);
  if (live().length === 0 || !switcher) return;
  switcher.closest(".refresh").hidden = false;
  const isUsed = (section) => {
    if (section.contains(document.activeElement)) return true;
    if (section.querySelector("details[open]")) return true;
    const selection = document.getSelection();
    return selection !== null && !selection.isCollapsed && section.contains(selection.anchorNode);
  };
  const renew = async () => {
    if (!switcher.checked || document.hidden) return;
    try {
      const answer = await fetch(location.href, { headers: { accept: "text/html" }, cache: "no-store" });
      if (!answer.ok) throw new Error("answered " + answer.status);
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      for (const section of live()) {
        const next = fresh.getElementById(section.id);
        if (!next || isUsed(section)) continue;
        const html = next.innerHTML;
        if (shown.get(section.id) === html) continue;
        shown.set(section.id, html);
        const scrolled = [...section.querySelectorAll(".wide")].map((box) => box.scrollLeft);
        section.replaceChildren(...next.childNodes);
        prepare(section);
        section.querySelectorAll(".wide").forEach((box, index) => { box.scrollLeft = scrolled[index] ?? 0; });
      }
      said.textContent = "as of " + new Date().toLocaleTimeString();
      said.classList.remove("bad");
    } catch (error) {
      said.textContent = "not refreshed: " + error.message;
      said.classList.add("bad");
    }
  };
  setInterval(renew, PERIOD_MS);
})();
