// Sorts tables by their columns and filters their rows; a table without this script is whole.
"use strict";
(() => {
  const WAYS = { ascending: 1, descending: -1 };

  // A cell with a figure is compared by it, in whatever unit it is written.
  function compared(a, b) {
    const [x, y] = [a.dataset.value, b.dataset.value];
    if (x !== undefined && y !== undefined) return Number(x) - Number(y);
    if (x !== undefined || y !== undefined) return x === undefined ? 1 : -1;
    return a.textContent.localeCompare(b.textContent, "en", { numeric: true });
  }

  // Cells without a figure come last, whichever way the others go.
  function sort(table, column, way) {
    const sign = WAYS[way];
    const rows = [...table.tBodies[0].rows];
    rows.sort((a, b) => {
      const [x, y] = [a.cells[column], b.cells[column]];
      const oneLacks = (x.dataset.value === undefined) !== (y.dataset.value === undefined);
      return (oneLacks ? 1 : sign) * compared(x, y);
    });
    table.tBodies[0].append(...rows);
    [...table.tHead.rows[0].cells].forEach((head, index) => head.setAttribute("aria-sort", index === column ? way : "none"));
  }

  function makeSortable(table) {
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      head.setAttribute("aria-sort", "none");
      button.addEventListener("click", () => {
        sort(table, column, head.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending");
      });
    });
  }

  function makeFilterable(table) {
    const rows = [...table.tBodies[0].rows];
    const texts = new Map(rows.map((row) => [row, row.textContent.toLowerCase()]));
    const label = document.createElement("label");
    const input = document.createElement("input");
    const count = document.createElement("output");
    input.type = "search";
    input.setAttribute("aria-label", `Filter the rows of: ${table.caption.textContent}`);
    input.autocomplete = "off";
    label.append("Filter ", input);
    input.addEventListener("input", () => {
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      for (const row of rows) {
        row.hidden = !words.every((word) => texts.get(row).includes(word));
        shown += row.hidden ? 0 : 1;
      }
      count.textContent = words.length ? `${shown} of ${rows.length} rows` : "";
    });
    const box = document.createElement("div");
    box.className = "filter";
    box.append(label, count);
    const frame = document.createElement("div");
    const scrolled = table.closest(".wide");
    scrolled.replaceWith(frame);
    frame.append(box, scrolled);
  }

  function start() {
    document.querySelectorAll("table.filterable").forEach(makeFilterable);
    document.querySelectorAll("table.sortable").forEach(makeSortable);
  }

  document.readyState === "loading" ? document.addEventListener("DOMContentLoaded", start) : start();
})();
