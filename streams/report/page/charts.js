// Timelines: one look at time for all of them, drawn by uPlot.
const WHOLE = [R.about.from_ms / 1000, R.about.to_ms / 1000];
const LEAST_S = 5;
const view = { min: WHOLE[0], max: WHOLE[1], listeners: [] };
const plots = new Map(); // key -> {plot, holder}
const stepped = uPlot.paths.stepped({ align: 1 });

function setView(min, max) {
  let width = Math.min(Math.max(max - min, LEAST_S), WHOLE[1] - WHOLE[0]);
  min = Math.min(Math.max(min, WHOLE[0]), WHOLE[1] - width);
  view.min = min;
  view.max = min + width;
  for (const { plot } of plots.values()) plot.setScale("x", { min: view.min, max: view.max });
  for (const tell of view.listeners) tell();
}
const wholeTime = () => setView(...WHOLE);
function zoom(factor) {
  const middle = (view.min + view.max) / 2, half = ((view.max - view.min) / 2) * factor;
  setView(middle - half, middle + half);
}
const pan = (share) => {
  const by = (view.max - view.min) * share;
  setView(view.min + by, view.max + by);
};

// Policies as lines, and times beyond an objective as a shade, behind the curves.
function backdrop(beyond, labels, modelled) {
  return {
    hooks: {
      drawClear: (u) => {
        const { left, top, width, height } = u.bbox, ctx = u.ctx;
        ctx.save();
        ctx.beginPath();
        ctx.rect(left, top, width, height);
        ctx.clip();
        if (modelled) {
          const from = u.valToPos(modelled, "x", true);
          ctx.fillStyle = colour("accent-soft");
          ctx.fillRect(from, top, left + width - from, height);
        }
        ctx.fillStyle = colour("bad-soft");
        for (const [from, to] of beyond) {
          const a = u.valToPos(from, "x", true), b = u.valToPos(to, "x", true);
          ctx.fillRect(a, top, Math.max(b - a, 1), height);
        }
        ctx.restore();
      },
      draw: (u) => {
        const { left, top, width, height } = u.bbox, ctx = u.ctx, ratio = devicePixelRatio;
        ctx.save();
        ctx.strokeStyle = ctx.fillStyle = colour("accent");
        ctx.lineWidth = ratio;
        ctx.setLineDash([4 * ratio, 3 * ratio]);
        ctx.textAlign = "left";
        ctx.font = `${11 * ratio}px system-ui, sans-serif`;
        for (const each of R.policies) {
          const x = Math.round(u.valToPos(each.log_ms / 1000, "x", true));
          if (x < left || x > left + width) continue;
          ctx.beginPath();
          ctx.moveTo(x, top);
          ctx.lineTo(x, top + height);
          ctx.stroke();
          if (labels) ctx.fillText(`v${each.version}`, x + 4 * ratio, top + 11 * ratio);
        }
        ctx.restore();
      },
    },
  };
}

function spansBeyond(times, p99, errors) {
  const spans = [];
  const over = times.map((_, i) => R.services.some((service) => {
    const slow = p99[service.workload]?.[i], wrong = errors?.[service.workload]?.[i];
    return (service.p99_ms > 0 && slow > service.p99_ms) || (service.errors_permille < 1000 && wrong > service.errors_permille);
  }));
  let since = null;
  over.forEach((bad, i) => {
    if (bad && since === null) since = times[i];
    if (since !== null && (!bad || i === over.length - 1)) {
      spans.push([since, times[i]]);
      since = null;
    }
  });
  return spans;
}

// curves: {label, values, colour, fill, width, dash, step, scale, digits, stackOn, hide}
function draw(key, holder, title, times, curves, { beyond = [], labels = false, height = 170, modelled = null } = {}) {
  plots.get(key)?.plot.destroy();
  holder.replaceChildren(el("h3", { text: title }));
  holder.setAttribute("role", "group");
  holder.setAttribute("aria-label", `${title}: ${curves.map((each) => each.label).join(", ")}`);
  const stacked = curves.map((each) => each.values.map((value, i) => {
    if (value === null || !each.stackOn) return value;
    return value + (curves.find((other) => other.label === each.stackOn).values[i] ?? 0);
  }));
  const bands = curves.flatMap((each, i) => each.stackOn
    ? [{ series: [i + 1, curves.findIndex((other) => other.label === each.stackOn) + 1], fill: faint(each.colour, 0.3) }] : []);
  const series = curves.map((each) => ({
    label: each.label, scale: each.scale ?? "y", show: !each.hide,
    stroke: each.colour.startsWith("rgb") ? each.colour : colour(each.colour),
    width: each.width ?? 1.5, dash: each.dash, paths: each.step ? stepped : undefined,
    fill: each.fill && !each.stackOn ? faint(each.colour, 0.25) : undefined,
    points: { show: false }, spanGaps: false,
    value: (u, _, at, i) => (i === null || i === undefined ? "" : number(curves[at - 1].values[i], each.digits ?? 2)),
  }));
  const right = curves.some((each) => each.scale === "z");
  const axis = { stroke: colour("quiet"), grid: { stroke: colour("grid"), width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
  const from0 = (u, low, high) => [0, high > 0 ? high * 1.08 : 1];
  const options = {
    width: Math.max(holder.clientWidth, 320), height,
    tzDate: (at) => uPlot.tzDate(new Date(at * 1e3), "Etc/UTC"),
    cursor: { sync: { key: "time", setSeries: false }, drag: { x: true, y: false, setScale: false }, points: { size: 6 } },
    legend: { live: true, markers: { width: 0, fill: (u, i) => u.series[i].stroke(u, i) } },
    scales: { x: { time: true, min: view.min, max: view.max }, y: { range: from0 }, ...(right ? { z: { range: from0 } } : {}) },
    axes: [
      { ...axis, size: 26, values: (u, all) => all.map((at) => clock(at)), space: 90 },
      { ...axis, size: 54, space: 34 },
      ...(right ? [{ ...axis, scale: "z", side: 1, size: 54, grid: { show: false } }] : []),
    ],
    series: [{ label: "time", value: (u, at) => (at === null ? "" : clock(at)) }, ...series],
    bands,
    plugins: [backdrop(beyond, labels, modelled)],
    hooks: {
      setSelect: [(u) => {
        if (u.select.width < 4) return;
        const from = u.posToVal(u.select.left, "x"), to = u.posToVal(u.select.left + u.select.width, "x");
        u.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
        setView(from, to);
      }],
    },
    padding: [8, right ? 0 : 54, 0, 0],
  };
  const plot = new uPlot(options, [times, ...stacked], holder);
  plot.setScale("x", { min: view.min, max: view.max });
  plot.over.addEventListener("dblclick", wholeTime);
  plots.set(key, { plot, holder, height });
  return plot;
}

function fit(width) {
  for (const { plot, holder, height } of plots.values()) plot.setSize({ width: width ?? Math.max(holder.clientWidth, 320), height });
  for (const tell of view.listeners) tell();
}
new ResizeObserver(() => requestAnimationFrame(() => fit())).observe(document.querySelector("main"));
