"use strict";
(() => {
  const PAGE = 50;
  const table = document.getElementById("table");
  const body = table.tBodies[0];
  const rows = [...body.rows].map((row) => ({
    row,
    text: row.textContent.toLowerCase(),
    values: [...row.cells].map((cell) => ("v" in cell.dataset ? Number.parseFloat(cell.dataset.v) : cell.textContent)),
  }));
  const filter = document.getElementById("filter");
  const count = document.getElementById("count");
  const [previous, next, all] = ["previous", "next", "all"].map((id) => document.getElementById(id));
  let shown = rows;
  let page = 0;
  let paged = true;

  function show() {
    const pages = paged ? Math.max(Math.ceil(shown.length / PAGE), 1) : 1;
    page = Math.min(Math.max(page, 0), pages - 1);
    rows.forEach(({ row }) => { row.hidden = true; });
    shown.forEach(({ row }, index) => {
      row.hidden = false;
      row.classList.toggle("off-page", paged && Math.floor(index / PAGE) !== page);
    });
    count.textContent = `${shown.length} of ${rows.length} rows` + (pages > 1 ? `, page ${page + 1} of ${pages}` : "");
    previous.disabled = page === 0;
    next.disabled = page >= pages - 1;
    all.textContent = paged ? "show all" : "show pages";
  }

  function search() {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    shown = rows.filter(({ text }) => words.every((word) => text.includes(word)));
    page = 0;
    show();
  }

  // Numbers before words, what is missing (NaN) always last.
  function compare(a, b, sign) {
    const missing = Number.isNaN(a) - Number.isNaN(b);
    if (missing || Number.isNaN(a)) return missing;
    return sign * (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b)));
  }

  table.tHead.addEventListener("click", (event) => {
    const heading = event.target.closest("th");
    if (!heading) return;
    const sign = heading.getAttribute("aria-sort") === "ascending" ? -1 : 1;
    for (const other of table.tHead.rows[0].cells) other.setAttribute("aria-sort", "none");
    heading.setAttribute("aria-sort", sign === 1 ? "ascending" : "descending");
    const column = heading.cellIndex;
    rows.sort((a, b) => compare(a.values[column], b.values[column], sign));
    body.append(...rows.map(({ row }) => row));
    search();
  });
  filter.addEventListener("input", search);
  previous.addEventListener("click", () => { page -= 1; show(); });
  next.addEventListener("click", () => { page += 1; show(); });
  all.addEventListener("click", () => { paged = !paged; show(); });
  search();

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
  viewer.addEventListener("wheel", (event) => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    zoom(event.deltaY < 0 ? 1.1 : 1 / 1.1);
  }, { passive: false });

  // A claim shows its figures when it is opened; their pictures lie once in the page.
  for (const links of document.querySelectorAll(".figures[data-figures]")) {
    links.closest("details").addEventListener("toggle", () => {
      if (links.querySelector(".zoom")) return;
      for (const name of links.dataset.figures.split(" ")) {
        const picture = document.getElementById(`figure-${name}`).querySelector(".zoom").cloneNode(true);
        picture.querySelector("img").loading = "eager";
        links.append(picture);
      }
    }, { once: true });
  }

  // Paper has no folds: what is closed is opened for printing and closed again after it.
  const opened = [];
  window.addEventListener("beforeprint", () => {
    for (const fold of document.querySelectorAll("details:not([open])")) { fold.open = true; opened.push(fold); }
  });
  window.addEventListener("afterprint", () => { while (opened.length) opened.pop().open = false; });
})();
