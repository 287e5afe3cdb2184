"use strict";
(async () => {
  const $ = (id) => document.getElementById(id);
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  document.documentElement.dataset.theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  const packed = Uint8Array.from(atob($("data").textContent), (character) => character.charCodeAt(0));
  const data = await new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
  const MOST_BUBBLES = 1000, MOST_ROWS = 10;

  // Numbers as text, by the rules of units.py.
  const digits = (x, n = 3) => x === 0 || !isFinite(x) ? String(x) : Number(x.toPrecision(n)) >= 10 ** (n - 1) ? String(Number(x.toPrecision(n))) : x.toPrecision(n);
  const scaled = (x, steps) => {
    if (x === null || x === undefined) return "?";
    const [size, unit] = steps.find(([size]) => Number((Math.abs(x) / size).toPrecision(3)) >= 1) || steps[steps.length - 1];
    return `${digits(x / size)} ${unit}`;
  };
  const SECONDS = [[1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"]];
  const si = (unit) => [[1e18, "E"], [1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]].map(([size, prefix]) => [size, prefix + unit]);
  const FLOPS = si("FLOP"), BYTES = si("B"), FLOP_RATE = si("FLOP/s"), BYTE_RATE = si("B/s");
  const seconds = (x) => x === 0 ? "0 s" : scaled(x, SECONDS);
  const percent = (x) => x === null || x === undefined ? "?" : `${(100 * x).toFixed(0)} %`;

  const element = (tag, options = {}, ...children) => {
    const made = Object.assign(document.createElement(tag), options);
    made.append(...children.filter((child) => child !== null && child !== ""));
    return made;
  };
  const dot = (regime) => element("i", { className: `dot ${regime}` });

  // The ops, from columns to rows.
  const text = (place) => place === null ? null : data.strings[place];
  const columns = data.ops || { seconds: [] };
  const ops = columns.seconds.map((_, i) => {
    const one = { i };
    for (const [name, values] of Object.entries(columns)) one[name] = data.texts.includes(name) ? text(values[i]) : values[i];
    one.headroom = one.floor_s === null ? null : Math.max(0, one.seconds - one.floor_s);
    one.words = [one.label, one.kernel, one.module, one.source, one.cls, one.shapes].join(" ").toLowerCase();
    return one;
  });

  // Charts, drawn when they come into sight and again when the theme changes.
  const views = {}, drawn = new Set();
  const theme = () => document.documentElement.dataset.theme;
  const draw = async (name) => {
    drawn.add(name);
    const { $schema: _, ...spec } = structuredClone(data.specs[name]); // its version is the notebooks', ours draws it too
    if (name === "roofline") spec.datasets.ops = bubbles(matching());
    if (name === "timeline") spec.datasets.bars = bars();
    const config = data.configs[theme()];
    const { view } = await vegaEmbed(`#${name}`, spec, { mode: "vega-lite", actions: false, ast: true, config, renderer: "canvas", tooltip });
    views[name] = view;
    if (spec.datasets && (spec.datasets.ops || spec.datasets.bars)) view.addEventListener("click", (_, item) => item && item.datum && pick(item.datum.i));
    if (name === "roofline") { view.signal("picked", picked).run(); $(name).dataset.bubbles = spec.datasets.ops.length; }
    if (name === "timeline") { range(view); view.addSignalListener("zoom_a", () => setTimeout(range, 0, view)); }
    $(name).dataset.drawn = "yes";
  };
  const watcher = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) if (isIntersecting && !drawn.has(target.id)) draw(target.id);
  }, { rootMargin: "300px" });
  const setTheme = (name) => {
    document.documentElement.dataset.theme = name;
    for (const chart of drawn) draw(chart);
  };

  const bubbles = (some) => some.filter((one) => one.x !== null).slice(0, MOST_BUBBLES)
    .map((one) => ({ i: one.i, x: one.x, y: one.y, c: one.ceiling, s: one.seconds, r: one.regime }));
  const OPACITY = { kernel: 0.95, gap: 0.2, host: 0.45 };
  const bars = () => data.bars.start.map((start, b) => {
    const kind = data.bars.kinds[data.bars.kind[b]], op = data.bars.op[b];
    return { l: data.bars.lanes[data.bars.lane[b]], a: start, b: start + data.bars.length[b], r: data.bars.regimes[data.bars.regime[b]], o: OPACITY[kind], t: kind === "host" ? text(data.bars.what[b]) : "", i: op === null ? -2 - b : op };
  });

  // What is under the pointer.
  const tip = $("tip");
  const tooltip = (_, event, __, value) => {
    tip.hidden = value === null || value === undefined || value === "";
    if (tip.hidden) return;
    tip.replaceChildren(...describe(value));
    const { width, height } = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(8, Math.min(event.clientX + 16, innerWidth - width - 8))}px`;
    tip.style.top = `${event.clientY + height + 24 > innerHeight ? event.clientY - height - 12 : event.clientY + 16}px`;
  };
  const lines = (head, ...rest) => [element("b", {}, head), ...rest.filter(Boolean).map((line) => element("span", {}, line))];
  const describe = (value) => {
    if (typeof value === "object") return lines(String(Object.values(value)[0]), ...Object.entries(value).slice(1).map(([key, item]) => `${key}: ${item}`));
    if (value < -1) {
      const b = -2 - value;
      return lines(text(data.bars.what[b]), seconds(data.bars.length[b]));
    }
    const one = ops[value];
    return lines(one.label, `${one.calls} × , ${seconds(one.seconds)}, ${percent(one.share)} of the step`.replace(" × ,", "×,"), one.shapes,
      one.of_floor === null ? "of unknown work" : `${percent(one.of_floor)} of its ceiling (${one.level})`,
      one.flops === null ? "" : `${scaled(one.flops, FLOPS)}, ${scaled(one.bytes, BYTES)}: ${scaled(one.flops_per_s, FLOP_RATE)}, ${scaled(one.bytes_per_s, BYTE_RATE)}`, one.source || one.module);
  };

  // Filters: one state for roofline and table.
  let picked = -1, shown = MOST_ROWS, sort = { by: "seconds", down: true };
  const regimes = () => all(".chip[aria-pressed=true]").map((chip) => chip.dataset.regime);
  const matching = () => {
    if (!$("search")) return [];
    const words = $("search").value.toLowerCase().split(/\s+/).filter(Boolean), wanted = regimes();
    const cls = $("cls").value, phase = $("phase").value, module = $("module").value;
    return ops.filter((one) => (!wanted.length || wanted.includes(one.regime)) && (!cls || one.cls === cls) && (!phase || one.phase === phase)
      && (!module || one.module === module || one.module.startsWith(`${module}.`)) && words.every((word) => one.words.includes(word)));
  };
  const compare = (a, b) => {
    const x = a[sort.by], y = b[sort.by];
    if (x === null || y === null) return (x === null) - (y === null);
    return (typeof x === "string" ? x.localeCompare(y) : x - y) * (sort.down ? -1 : 1);
  };
  const apply = () => {
    const some = matching();
    const spent = some.reduce((sum, one) => sum + one.seconds, 0);
    $("matched").textContent = `${some.length} of ${ops.length} ops, ${seconds(spent)} of ${seconds(data.step_s)}${some.length > MOST_BUBBLES ? `; the longest ${MOST_BUBBLES} drawn` : ""}`;
    table(some);
    if (views.roofline) fill(bubbles(some));
  };
  const fill = (some) => {
    views.roofline.data("ops", some).run();
    $("roofline").dataset.bubbles = some.length;
  };
  const table = (some) => {
    const body = document.querySelector("#op-table tbody");
    if (!body) return;
    body.replaceChildren(...some.slice().sort(compare).slice(0, shown).map(row));
    $("more").hidden = some.length <= shown;
    $("more").textContent = `show more of the other ${some.length - shown}`;
  };
  const cell = (content, className = "") => element("td", { className }, content);
  const row = (one) => {
    const name = element("button", { type: "button", className: "plain name", onclick: () => pick(one.i) }, dot(one.regime), element("span", {}, one.label));
    const made = element("tr", {}, element("td", {}, name), cell(String(one.calls), "n"), cell(seconds(one.seconds), "n"),
      cell(percent(one.of_floor), "n"), cell(one.headroom === null ? "?" : seconds(one.headroom), "n"), cell(one.flops ? scaled(one.flops_per_s, FLOP_RATE) : one.flops === null ? "?" : "–", "n"),
      cell(scaled(one.bytes_per_s, BYTE_RATE), "n"), cell(one.phase), element("td", { title: one.source || one.module }, one.source ? one.source.split("/").pop() : one.module || "?"));
    made.dataset.op = one.i;
    made.setAttribute("aria-selected", String(one.i === picked));
    return made;
  };

  // One op: op → module → source line → finding.
  const pick = (i) => {
    if (!(i >= 0)) return;
    picked = i;
    const one = ops[i], panel = $("picked");
    const fact = (name, value) => value === "" ? [] : [element("dt", {}, name), element("dd", {}, value)];
    const module = one.module && element("button", { type: "button", onclick: () => { $("module").value = one.module; apply(); } }, one.module);
    const found = one.findings.map((code) => element("a", { href: `#${code}`, onclick: () => { $(code).open = true; } }, code, " "));
    panel.replaceChildren(
      element("h3", {}, dot(one.regime), element("span", {}, one.label)), element("small", {}, `${one.cls}, ${one.phase}`),
      element("dl", {}, ...fact("time", `${seconds(one.seconds)}, ${percent(one.share)}`), ...fact("calls", String(one.calls)), ...fact("of ceiling", percent(one.of_floor)),
        ...fact("headroom", one.headroom === null ? "?" : seconds(one.headroom)), ...fact("limited by", one.level || "?"), ...fact("FLOPs", scaled(one.flops, FLOPS)), ...fact("bytes", scaled(one.bytes, BYTES)),
        ...fact("FLOP/s", scaled(one.flops_per_s, FLOP_RATE)), ...fact("B/s", scaled(one.bytes_per_s, BYTE_RATE)), ...fact("FLOPs per byte", one.intensity === null ? "?" : digits(one.intensity))),
      element("p", {}, element("small", {}, one.shapes)), element("p", {}, element("small", {}, "module "), module || "none"), element("p", {}, element("small", {}, "line "), element("code", {}, one.source || "?")),
      element("p", {}, element("small", {}, found.length ? "findings that name this line: " : "no finding names this line"), ...found));
    if (!one.kernel.startsWith("aten::")) panel.append(element("p", {}, element("small", { className: "clamped", title: one.kernel }, `kernel ${one.kernel}`)));
    for (const made of all("#op-table tr[data-op]")) made.setAttribute("aria-selected", String(made.dataset.op === String(i)));
    if (views.roofline) views.roofline.signal("picked", i).run();
  };

  // Zoom by buttons; the wheel and dragging are the chart's own.
  const range = (view) => { $("timeline").dataset.shown = view.scale("x").domain().map((moment) => seconds(moment)).join(" to "); };
  const zoom = (button) => {
    const view = views.timeline;
    if (!view) return;
    const [start, end] = view.scale("x").domain(), middle = (start + end) / 2;
    const half = (end - start) / 2 * Number(button.dataset.zoom ?? 1), shift = (end - start) * Number(button.dataset.move ?? 0);
    view.signal("zoom_a", half ? [middle - half + shift, middle + half + shift] : data.window).run();
    range(view);
  };

  const fold = (button) => {
    const line = button.closest("tr"), depth = Number(line.dataset.depth), open = button.getAttribute("aria-expanded") !== "true";
    button.setAttribute("aria-expanded", String(open));
    for (let next = line.nextElementSibling; next && Number(next.dataset.depth) > depth; next = next.nextElementSibling) {
      next.hidden = !open || Number(next.dataset.depth) > depth + 1;
      next.querySelector("button.fold")?.setAttribute("aria-expanded", "false");
    }
  };

  const events = () => {
    $("theme").onclick = () => setTheme(theme() === "dark" ? "light" : "dark");
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", (now) => setTheme(now.matches ? "dark" : "light"));
    for (const button of all("[data-zoom], [data-move]")) button.onclick = () => zoom(button);
    for (const button of all("button.fold")) button.onclick = () => fold(button);
    for (const button of all(".copy")) button.onclick = async () => { await navigator.clipboard.writeText(button.nextElementSibling.textContent); button.textContent = "copied"; };
    addEventListener("beforeprint", () => { for (const details of all("details")) details.open = true; for (const chart of all(".chart")) if (!drawn.has(chart.id)) draw(chart.id); });
    if (!$("filters")) return;
    const changed = () => { shown = MOST_ROWS; apply(); };
    for (const chip of all(".chip")) chip.onclick = () => { chip.setAttribute("aria-pressed", String(chip.getAttribute("aria-pressed") !== "true")); changed(); };
    $("filters").addEventListener("input", changed);
    $("filters").addEventListener("submit", (event) => event.preventDefault());
    $("filters").addEventListener("reset", () => { for (const chip of all(".chip")) chip.setAttribute("aria-pressed", "false"); setTimeout(changed); });
    for (const button of all("[data-module]")) button.onclick = () => { $("module").value = button.dataset.module; changed(); $("roofline-section").scrollIntoView(); };
    for (const button of all("[data-sort]")) button.onclick = () => {
      sort = { by: button.dataset.sort, down: sort.by === button.dataset.sort ? !sort.down : !["label", "phase", "source"].includes(button.dataset.sort) };
      for (const head of all("#op-table th")) head.setAttribute("aria-sort", "none");
      button.parentElement.setAttribute("aria-sort", sort.down ? "descending" : "ascending");
      table(matching());
    };
    $("more").onclick = () => { shown += 20 * MOST_ROWS; table(matching()); };
    addEventListener("keydown", (event) => { if (event.key === "/" && !/INPUT|SELECT|TEXTAREA/.test(event.target.tagName)) { event.preventDefault(); $("search").focus(); } });
    apply();
    pick(ops.reduce((most, one) => (one.headroom ?? 0) > (ops[most].headroom ?? 0) ? one.i : most, 0)); // the most to gain
  };

  events();
  for (const chart of all(".chart")) watcher.observe(chart);
  document.documentElement.dataset.ready = "yes";
})();
