"use strict";
(async () => {
  const MOST_BUBBLES = 1000, MOST_ROWS = 10;
  const $ = (id) => document.getElementById(id);
  const all = (selector) => [...document.querySelectorAll(selector)];
  const root = document.documentElement.dataset;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  root.theme = dark.matches ? "dark" : "light";

  const packed = Uint8Array.from(atob($("data").textContent), (character) => character.charCodeAt(0));
  const data = await new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).json();

  // Numbers as text, by the rules of units.py.
  const digits = (x) => {
    const short = x.toPrecision(3);
    return x === 0 || Number(short) >= 100 ? String(Number(short)) : short;
  };
  const scaled = (x, steps) => {
    if (x === null) return "?";
    const fits = ([size]) => Number((Math.abs(x) / size).toPrecision(3)) >= 1;
    const [size, unit] = steps.find(fits) || steps.at(-1);
    return `${digits(x / size)} ${unit}`;
  };
  const PREFIXES = [[1e18, "E"], [1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]];
  const SECONDS = [[1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"]];
  const counted = (unit) => (x) => scaled(x, PREFIXES.map(([size, prefix]) => [size, prefix + unit]));
  const flops = counted("FLOP"), bytes = counted("B"), flopRate = counted("FLOP/s"), byteRate = counted("B/s");
  const seconds = (x) => x === 0 ? "0 s" : scaled(x, SECONDS);
  const percent = (x) => x === null ? "?" : `${(100 * x).toFixed(0)} %`;

  // Elements: whatever is text stays text.
  const element = (tag, options = {}, ...children) => {
    const made = Object.assign(document.createElement(tag), options);
    made.append(...children);
    return made;
  };
  const button = (options, ...children) => element("button", { type: "button", ...options }, ...children);
  const small = (...children) => element("small", {}, ...children);
  const dot = (regime) => element("i", { className: `dot ${regime}` });

  // The ops, from columns to rows.
  const text = (place) => place === null ? null : data.strings[place];
  const columns = Object.entries(data.ops ?? {});
  const ops = (data.ops?.seconds ?? []).map((_, i) => {
    const one = { i };
    for (const [name, values] of columns) one[name] = data.texts.includes(name) ? text(values[i]) : values[i];
    one.words = [one.label, one.kernel, one.module, one.source, one.cls, one.shapes].join(" ").toLowerCase();
    return one;
  });
  const work = (one) => one.flops === 0 ? "–" : flopRate(one.flops_per_s);

  // What the charts of ops are made of.
  const bubbles = (some) => some.filter((one) => one.x !== null).slice(0, MOST_BUBBLES)
    .map(({ i, x, y, ceiling, seconds, regime }) => ({ i, x, y, c: ceiling, s: seconds, r: regime }));
  const OPACITY = { kernel: 0.95, gap: 0.2, host: 0.45 };
  const bars = ({ start, length, lane, lanes, kind, kinds, regime, regimes, op, what }) => start.map((a, b) => ({
    a,
    b: a + length[b],
    l: lanes[lane[b]],
    r: regimes[regime[b]],
    o: OPACITY[kinds[kind[b]]],
    t: kinds[kind[b]] === "host" ? text(what[b]) : "",
    i: op[b] ?? -2 - b, // what is no op says itself what it is
  }));

  // Charts, drawn when they come into sight and again when the theme changes.
  const views = {}, drawn = new Set();
  const draw = async (name) => {
    drawn.add(name);
    const { $schema: _, ...spec } = structuredClone(data.specs[name]); // of the notebooks' version; ours draws it too
    if (name === "roofline") spec.datasets.ops = bubbles(matching());
    if (name === "timeline") spec.datasets.bars = bars(data.bars);
    const options = { mode: "vega-lite", actions: false, ast: true, renderer: "canvas" };
    const { view } = await vegaEmbed(`#${name}`, spec, { ...options, config: data.configs[root.theme], tooltip });
    views[name] = view;
    if (name in ready) ready[name](view, spec);
    $(name).dataset.drawn = "yes";
  };
  const picking = (view) => view.addEventListener("click", (_, item) => item?.datum && pick(item.datum.i));
  const ready = {
    roofline: (view, spec) => {
      picking(view);
      view.signal("picked", picked).run();
      $("roofline").dataset.bubbles = spec.datasets.ops.length;
    },
    timeline: (view) => {
      picking(view);
      tellRange(view);
      view.addSignalListener("zoom_a", () => setTimeout(tellRange, 0, view));
    },
  };
  const drawMissing = () => { for (const { id } of all(".chart")) if (!drawn.has(id)) draw(id); };
  const watcher = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) if (isIntersecting && !drawn.has(target.id)) draw(target.id);
  }, { rootMargin: "300px" });
  const setTheme = (name) => {
    root.theme = name;
    for (const chart of drawn) draw(chart);
  };

  // What is under the pointer.
  const tip = $("tip");
  const tooltip = (_, { clientX, clientY }, __, value) => {
    tip.hidden = typeof value !== "number";
    if (tip.hidden) return;
    const [head, ...rest] = value < -1 ? describeBar(-2 - value) : describeOp(ops[value]);
    tip.replaceChildren(element("b", {}, head), ...rest.filter(Boolean).map((line) => element("span", {}, line)));
    const { width, height } = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(8, Math.min(clientX + 16, innerWidth - width - 8))}px`;
    tip.style.top = `${clientY + height + 24 > innerHeight ? clientY - height - 12 : clientY + 16}px`;
  };
  const describeBar = (b) => [text(data.bars.what[b]), seconds(data.bars.length[b])];
  const describeOp = (one) => [
    one.label,
    `${one.calls}×, ${seconds(one.seconds)}, ${percent(one.share)} of the step`,
    one.shapes,
    one.of_floor === null ? "of unknown work" : `${percent(one.of_floor)} of its ceiling (${one.level})`,
    one.flops === null ? "" : `${flops(one.flops)}, ${bytes(one.bytes)}: ${work(one)}, ${byteRate(one.bytes_per_s)}`,
    one.source || one.module,
  ];

  // Filters: one state for roofline and table.
  let picked = -1, shown = MOST_ROWS, sort = { by: "seconds", down: true };
  const isPressed = (chip) => chip.getAttribute("aria-pressed") === "true";
  const press = (chip, on) => chip.setAttribute("aria-pressed", String(on));
  const matching = () => {
    const words = $("search").value.toLowerCase().split(/\s+/).filter(Boolean);
    const regimes = all(".chip").filter(isPressed).map((chip) => chip.dataset.regime);
    const [cls, phase, module] = ["cls", "phase", "module"].map((id) => $(id).value);
    const within = (one) => one.module === module || one.module.startsWith(`${module}.`);
    return ops.filter((one) => (!regimes.length || regimes.includes(one.regime))
      && (!cls || one.cls === cls) && (!phase || one.phase === phase) && (!module || within(one))
      && words.every((word) => one.words.includes(word)));
  };
  const apply = () => {
    const some = matching(), spent = some.reduce((sum, one) => sum + one.seconds, 0);
    const cut = some.length > MOST_BUBBLES ? `; the longest ${MOST_BUBBLES} drawn` : "";
    $("matched").textContent = `${some.length} of ${ops.length} ops, ${seconds(spent)} of ${seconds(data.step_s)}${cut}`;
    table(some);
    if (views.roofline) fill(bubbles(some));
  };
  const fill = (some) => {
    views.roofline.data("ops", some).run();
    $("roofline").dataset.bubbles = some.length;
  };
  const changed = () => { shown = MOST_ROWS; apply(); };
  const choose = (module) => {
    const select = $("module");
    if (![...select.options].some((option) => option.value === module)) select.add(new Option(module, module));
    select.value = module;
    changed();
  };

  // The table.
  const compare = (a, b) => {
    const x = a[sort.by], y = b[sort.by];
    if (x === null || y === null) return (x === null) - (y === null); // unknown comes last
    return (typeof x === "string" ? x.localeCompare(y) : x - y) * (sort.down ? -1 : 1);
  };
  const table = (some) => {
    document.querySelector("#op-table tbody").replaceChildren(...some.toSorted(compare).slice(0, shown).map(row));
    $("more").hidden = some.length <= shown;
    $("more").textContent = `show more of the other ${some.length - shown}`;
  };
  const row = (one) => {
    const label = element("span", {}, one.label);
    const name = button({ className: "plain name", onclick: () => pick(one.i) }, dot(one.regime), label);
    const number = (content) => element("td", { className: "n" }, content);
    const where = one.source ? one.source.split("/").pop() : one.module || "?";
    const made = element("tr", {},
      element("td", {}, name), number(one.calls), number(seconds(one.seconds)), number(percent(one.of_floor)),
      number(seconds(one.headroom_s)), number(work(one)), number(byteRate(one.bytes_per_s)),
      element("td", {}, one.phase), element("td", { title: one.source || one.module }, where));
    made.dataset.op = one.i;
    made.setAttribute("aria-selected", String(one.i === picked));
    return made;
  };
  const sortBy = ({ dataset: { sort: by }, parentElement: head }) => {
    const ascends = ["label", "phase", "source"].includes(by);
    sort = { by, down: sort.by === by ? !sort.down : !ascends };
    for (const other of all("#op-table th")) other.setAttribute("aria-sort", "none");
    head.setAttribute("aria-sort", sort.down ? "descending" : "ascending");
    table(matching());
  };

  // One op: op → module → source line → finding.
  const pick = (i) => {
    if (!(i >= 0)) return;
    picked = i;
    $("picked").replaceChildren(...details(ops[i]));
    for (const made of all("tr[data-op]")) made.setAttribute("aria-selected", made.dataset.op === String(i));
    if (views.roofline) views.roofline.signal("picked", i).run();
  };
  const details = (one) => {
    const facts = {
      time: `${seconds(one.seconds)}, ${percent(one.share)}`,
      calls: one.calls,
      "of ceiling": percent(one.of_floor),
      headroom: seconds(one.headroom_s),
      "limited by": one.level ?? "?",
      FLOPs: flops(one.flops),
      bytes: bytes(one.bytes),
      "FLOP/s": flopRate(one.flops_per_s),
      "B/s": byteRate(one.bytes_per_s),
      "FLOPs per byte": one.intensity === null ? "?" : digits(one.intensity),
    };
    const terms = Object.entries(facts).flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]);
    const module = one.module ? button({ onclick: () => choose(one.module) }, one.module) : "none";
    const open = (code) => () => { $(code).open = true; };
    const found = one.findings.map((code) => element("a", { href: `#${code}`, onclick: open(code) }, code, " "));
    const kernel = element("small", { className: "clamped", title: one.kernel }, `kernel ${one.kernel}`);
    return [
      element("h3", {}, dot(one.regime), element("span", {}, one.label)),
      small(`${one.cls}, ${one.phase}`),
      element("dl", {}, ...terms),
      element("p", {}, small(one.shapes)),
      element("p", {}, small("module "), module),
      element("p", {}, small("line "), element("code", {}, one.source ?? "?")),
      element("p", {}, small(found.length ? "findings that name this line: " : "no finding names this line"), ...found),
      ...(one.kernel.startsWith("aten::") ? [] : [element("p", {}, kernel)]),
    ];
  };

  // The timeline: buttons beside the chart's own wheel and dragging.
  const tellRange = (view) => { $("timeline").dataset.shown = view.scale("x").domain().map(seconds).join(" to "); };
  const zoom = ({ dataset: { zoom: factor = 1, move = 0 } }) => {
    const view = views.timeline;
    if (!view) return;
    const [start, end] = view.scale("x").domain(), length = end - start;
    const middle = (start + end) / 2 + length * move, half = length / 2 * factor;
    view.signal("zoom_a", half ? [middle - half, middle + half] : data.window).run();
    tellRange(view);
  };

  // The tree of modules.
  const fold = (folder) => {
    const line = folder.closest("tr"), depth = Number(line.dataset.depth);
    const open = folder.getAttribute("aria-expanded") !== "true";
    folder.setAttribute("aria-expanded", String(open));
    for (let next = line.nextElementSibling; next?.dataset.depth > depth; next = next.nextElementSibling) {
      next.hidden = !open || next.dataset.depth > depth + 1;
      next.querySelector("button.fold")?.setAttribute("aria-expanded", "false");
    }
  };

  const copy = async (copier) => {
    await navigator.clipboard.writeText(copier.nextElementSibling.textContent);
    copier.textContent = "copied";
  };
  const onClick = (selector, action) => { for (const found of all(selector)) found.onclick = () => action(found); };
  const onKey = (event) => {
    if (event.key !== "/" || event.target.matches("input, select")) return;
    event.preventDefault();
    $("search").focus();
  };
  const onReset = () => {
    for (const chip of all(".chip")) press(chip, false);
    setTimeout(changed); // when the fields are empty
  };

  onClick("#theme", () => setTheme(root.theme === "dark" ? "light" : "dark"));
  dark.addEventListener("change", () => setTheme(dark.matches ? "dark" : "light"));
  addEventListener("beforeprint", () => {
    for (const details of all("details")) details.open = true;
    drawMissing();
  });
  onClick(".copy", copy);
  if (ops.length) {
    onClick(".chip", (chip) => { press(chip, !isPressed(chip)); changed(); });
    onClick("[data-sort]", sortBy);
    onClick("#more", () => { shown += 20 * MOST_ROWS; table(matching()); });
    onClick("[data-module]", ({ dataset }) => { choose(dataset.module); $("roofline-section").scrollIntoView(); });
    onClick("button.fold", fold);
    onClick("[data-zoom], [data-move]", zoom);
    $("filters").addEventListener("input", changed);
    $("filters").addEventListener("submit", (event) => event.preventDefault());
    $("filters").addEventListener("reset", onReset);
    addEventListener("keydown", onKey);
    apply();
    pick(ops.reduce((most, one) => one.headroom_s > most.headroom_s ? one : most).i); // where the most is to gain
  }
  for (const chart of all(".chart")) watcher.observe(chart);
  root.ready = "yes";
})();
