"use strict";
(() => {
  const FEW = 50;

  // The rows of a table, with what they are filtered and sorted by.
  function rowsOf(table) {
    return [...table.tBodies[0].rows].map((row) => ({
      row,
      text: row.textContent.toLowerCase(),
      values: [...row.cells].map((cell) => ("v" in cell.dataset ? Number.parseFloat(cell.dataset.v) : cell.textContent)),
    }));
  }

  const hasWords = (text, typed) => typed.toLowerCase().split(/\s+/).filter(Boolean).every((word) => text.includes(word));

  const table = document.getElementById("table");
  const rows = rowsOf(table);
  const [filter, count, more] = ["filter", "count", "more"].map((id) => document.getElementById(id));
  let all = false;
  let under = document.querySelector("#switch input:checked")?.value;

  function show() {
    let shown = 0;
    for (const { row, text } of rows) {
      const fits = hasWords(text, filter.value) && (!under || under === row.dataset.protocol || under.startsWith(`${row.dataset.protocol} (`) || under.startsWith(`${row.dataset.protocol},`));
      row.hidden = !fits || (!all && shown >= FEW);
      shown += fits;
    }
    count.textContent = `${all ? shown : Math.min(shown, FEW)} of ${shown} rows`;
    more.hidden = shown <= FEW;
    more.textContent = all ? `show ${FEW}` : "show all";
  }

  // Numbers before words, what is missing (NaN) always last.
  function compare(a, b, sign) {
    const missing = Number.isNaN(a) - Number.isNaN(b);
    if (missing || Number.isNaN(a)) return missing;
    return sign * (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b)));
  }

  function sortByHeadings(table, rows, afterwards) {
    table.tHead.addEventListener("click", (event) => {
      const heading = event.target.closest("th");
      if (!heading) return;
      const sign = heading.getAttribute("aria-sort") === "ascending" ? -1 : 1;
      for (const other of table.tHead.rows[0].cells) other.setAttribute("aria-sort", "none");
      heading.setAttribute("aria-sort", sign === 1 ? "ascending" : "descending");
      rows.sort((a, b) => compare(a.values[heading.cellIndex], b.values[heading.cellIndex], sign));
      table.tBodies[0].append(...rows.map(({ row }) => row));
      afterwards();
    });
  }

  sortByHeadings(table, rows, show);
  for (const board of document.querySelectorAll("table.sortable")) {
    const ofBoard = rowsOf(board);
    sortByHeadings(board, ofBoard, () => {});
    const typed = document.querySelector(`[data-filters="${board.id}"]`);
    typed.addEventListener("input", () => {
      for (const { row, text } of ofBoard) row.hidden = !hasWords(text, typed.value);
    });
  }
  filter.addEventListener("input", show);
  more.addEventListener("click", () => { all = !all; show(); });
  document.getElementById("switch")?.addEventListener("change", (event) => {
    under = event.target.value;
    for (const part of document.querySelectorAll("[data-under]")) part.hidden = part.dataset.under !== under;
    show();
  });
  show();

  // A link into a fold opens it.
  function open() {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (target instanceof HTMLDetailsElement) target.open = true;
  }
  window.addEventListener("hashchange", open);
  open();

  const viewer = document.getElementById("viewer");
  const image = viewer.querySelector("img");
  let width = 100;
  function zoom(factor) {
    width = Math.min(Math.max(width * factor, 25), 800);
    image.style.width = `${width}%`;
  }
  document.querySelector("main").addEventListener("click", (event) => {
    const button = event.target.closest("button.zoom");
    if (!button) return;
    const small = button.querySelector("img");
    image.src = small.src;
    image.alt = small.alt;
    width = 100;
    zoom(1);
    viewer.showModal();
  });
  viewer.addEventListener("click", (event) => {
    if (event.target.dataset.zoom) zoom(Number(event.target.dataset.zoom));
    else if (event.target === viewer || event.target.id === "close") viewer.close();
  });

  // Paper has no folds: what is closed is opened for printing and closed again after it.
  const opened = [];
  window.addEventListener("beforeprint", () => {
    for (const fold of document.querySelectorAll("details:not([open])")) { fold.open = true; opened.push(fold); }
    rows.forEach(({ row }) => { row.hidden = false; });
  });
  window.addEventListener("afterprint", () => { while (opened.length) opened.pop().open = false; show(); });
})();
