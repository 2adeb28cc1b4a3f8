"use strict";
// Readout under the pointer, singled-out domains, log/linear switches, table order. The page is whole without it.
(() => {
  const root = document.documentElement, tip = document.getElementById("tip");
  const shared = JSON.parse(document.getElementById("shared").textContent);
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];
  const space = document.querySelector("svg").namespaceURI;
  const make = (name, attributes = {}) => {
    const node = document.createElementNS(space, name);
    for (const key in attributes) node.setAttribute(key, attributes[key]);
    return node;
  };
  root.classList.add("js");

  // Numbers as the page writes them.
  const plain = (v, digits = 4) => {
    if (v === 0) return "0";
    const size = Math.floor(Math.log10(Math.abs(v)));
    const text = size < -4 || size > 6 ? v.toExponential(2) : String(+v.toPrecision(Math.max(digits, size + 1)));
    return text.replace(/^-/, "−");
  };
  const formats = {
    plain: v => plain(v),
    percent: v => plain(v * 100, 3) + " %",
    times: v => plain(v, 3) + "×",
    count: v => {
      for (const [scale, unit] of [[1e12, "T"], [1e9, "B"], [1e6, "M"], [1e3, "k"]])
        if (Math.abs(v) >= scale * 0.9995) return plain(v / scale, 3) + unit;
      return plain(v, 3);
    },
    seconds: v => v < 1e-3 ? plain(v * 1e6, 3) + " µs" : v < 1 ? plain(v * 1e3, 3) + " ms" : plain(v, 3) + " s",
  };

  // Domains singled out, on the whole page at once.
  const chosen = new Set();
  const showChosen = () => {
    root.classList.toggle("single", chosen.size > 0);
    all("[data-d]").forEach(node => node.classList.toggle("on", chosen.has(+node.dataset.d)));
    document.querySelector(".chips .all").hidden = chosen.size === 0;
  };
  document.addEventListener("click", event => {
    if (event.target.closest(".chips .all")) chosen.clear();
    else {
      const node = event.target.closest("[data-d]");
      if (!node) return;
      const domain = +node.dataset.d;
      chosen.has(domain) ? chosen.delete(domain) : chosen.add(domain);
    }
    showChosen();
  });

  // Plots.
  const nearest = (places, step) => {
    let lo = 0, hi = places.length - 1;
    while (hi - lo > 1) { const mid = (lo + hi) >> 1; places[mid] < step ? lo = mid : hi = mid; }
    return Math.abs(places[hi] - step) < Math.abs(places[lo] - step) ? hi : lo;
  };
  const across = step => 100 * (step - shared.lo) / (shared.hi - shared.lo) + "%";
  const plots = all("figure.plot").filter(f => f.querySelector("script")).map(figure => ({
    figure, canvas: figure.querySelector(".canvas"), cursor: figure.querySelector(".cursor"),
    get data() { const d = JSON.parse(figure.querySelector("script").textContent); Object.defineProperty(this, "data", { value: d }); return d; },
  }));

  const clear = () => { plots.forEach(p => p.cursor.replaceChildren()); tip.hidden = true; };
  const line = (plot, step) => make("line", { x1: across(step), x2: across(step), y1: 0, y2: plot.canvas.getAttribute("height") });
  const stepName = (set, index) => {
    const at = shared[set][index], half = (shared.width - 1) / 2;
    return set === "evals" ? `after ${at} steps` : half ? `steps ${at - half}–${at + half}` : `step ${at}`;
  };

  function show(plot, step, pointer) {
    const { data, canvas } = plot, places = shared[data.x];
    if (!places.length) return;
    let index = nearest(places, step);
    plots.forEach(p => p.cursor.replaceChildren(line(p, places[index])));
    const rows = data.h ? heat(plot, index, pointer) : lines(plot, index, pointer);
    tip.replaceChildren();
    tip.append(Object.assign(document.createElement("b"), { textContent: rows.title }));
    for (const row of rows.list) {
      const node = document.createElement("div"), swatch = document.createElement("i"), value = document.createElement("span");
      swatch.className = row.c; value.textContent = row.text; node.className = row.near ? "near" : "";
      node.append(swatch, row.n, value); tip.append(node);
    }
    tip.hidden = false;
    const size = tip.getBoundingClientRect(), x = pointer.clientX, y = pointer.clientY;
    tip.style.left = Math.max(6, x + 18 + size.width < innerWidth ? x + 18 : x - 18 - size.width) + "px";
    tip.style.top = Math.max(6, Math.min(y - size.height / 3, innerHeight - size.height - 6)) + "px";
    plot.index = index;
    canvas.classList.add("read");
  }

  function lines(plot, index, pointer) {
    const { data, canvas } = plot, height = +canvas.getAttribute("height"), write = formats[data.f];
    const log = data.y.length > 1 ? plot.figure.classList.contains("log") : data.y[0][0];
    const [, lo, hi] = data.y.find(axis => axis[0] === log);
    const y0 = canvas.getBoundingClientRect().top;
    const rawText = (s, v) => {
      const raw = s.r?.[index] ?? null;
      return raw === null || raw === v || s.d !== undefined && !chosen.has(s.d) ? "" : ` (here ${write(raw)})`;
    };
    let edge = 0;
    const total = data.stack ? data.s.reduce((sum, s) => sum + (s.v[index] ?? 0), 0) : 1;
    let list = data.s.map(s => {
      const v = s.v[index];
      let at = log ? Math.log(v / lo) / Math.log(hi / lo) : (v - lo) / (hi - lo), y = height * (1 - at);
      if (data.stack && v !== null) { y = height * (edge + v / total / 2); edge += v / total; }
      return { ...s, value: v, y, text: v === null ? "–" : write(v) + rawText(s, v) };
    });
    if (chosen.size && list.some(s => chosen.has(s.d))) list = list.filter(s => s.d === undefined || chosen.has(s.d));
    const seen = list.filter(s => s.value !== null && Number.isFinite(s.y));
    const near = seen.reduce((best, s) => !best || Math.abs(s.y - (pointer.clientY - y0)) < Math.abs(best.y - (pointer.clientY - y0)) ? s : best, null);
    for (const s of seen) if (!data.stack) plot.cursor.append(make("circle", { class: s.c.replace("ln ", ""), cx: across(shared[data.x][index]), cy: s.y, r: s === near ? 4.5 : 3 }));
    if (near && list.length > 1) near.near = true;
    if (list.length > 4 && !data.stack) list.sort((a, b) => (b.value ?? -Infinity) - (a.value ?? -Infinity));
    return { title: stepName(data.x, index), list };
  }

  function heat(plot, index, pointer) {
    const { data, canvas } = plot, box = canvas.getBoundingClientRect(), height = +canvas.getAttribute("height");
    const row = Math.max(0, Math.min(data.h.length - 1, Math.floor((pointer.clientY - box.top) / height * data.h.length)));
    const size = height / data.h.length, value = data.h[row].v[Math.floor(index / data.g)];
    plot.cursor.append(make("rect", { x: 0, width: "100%", y: row * size, height: size }));
    return { title: stepName(data.x, index), list: [{ n: data.h[row].n, c: "", text: value === null ? "–" : formats[data.f](value) }] };
  }

  for (const plot of plots) {
    const { canvas, figure } = plot;
    const move = event => {
      const box = canvas.getBoundingClientRect(), at = (event.clientX - box.left) / box.width;
      if (at < -0.01 || at > 1.01) return clear();
      show(plot, shared.lo + at * (shared.hi - shared.lo), event);
    };
    canvas.addEventListener("pointermove", move);
    canvas.addEventListener("pointerdown", move);
    canvas.addEventListener("pointerleave", clear);
    canvas.addEventListener("blur", clear);
    canvas.addEventListener("keydown", event => {
      const by = { ArrowLeft: -1, ArrowRight: 1, PageUp: -20, PageDown: 20 }[event.key];
      if (!by) return;
      event.preventDefault();
      const places = shared[plot.data.x], index = Math.max(0, Math.min(places.length - 1, (plot.index ?? 0) + by));
      const box = canvas.getBoundingClientRect(), at = (places[index] - shared.lo) / (shared.hi - shared.lo);
      show(plot, places[index], { clientX: box.left + at * box.width, clientY: box.top + box.height / 2 });
    });
    const button = figure.querySelector(".scale");
    if (button) {
      const name = () => { button.textContent = figure.classList.contains("log") ? "log → linear" : "linear → log"; };
      button.hidden = false; name();
      button.addEventListener("click", () => { figure.classList.toggle("log"); name(); clear(); });
    }
  }
  document.addEventListener("keydown", event => { if (event.key === "Escape") { clear(); chosen.clear(); showChosen(); } });

  // The table, by any column.
  all("th[data-sort]").forEach(head => head.addEventListener("click", () => {
    const body = document.querySelector("tbody"), column = [...head.parentNode.children].indexOf(head);
    const up = head.classList.contains("down");
    const key = row => { const cell = row.children[column]; return column ? +(cell.dataset.v ?? "NaN") : cell.textContent; };
    const order = (a, b) => column ? (Number.isNaN(a) - Number.isNaN(b)) || (up ? a - b : b - a) : (up ? 1 : -1) * -a.localeCompare(b) ;
    body.append(...[...body.children].sort((a, b) => order(key(a), key(b))));
    all("th[data-sort]").forEach(other => other.classList.remove("up", "down"));
    head.classList.add(up ? "up" : "down");
  }));
})();
