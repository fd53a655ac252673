// Decisions as marks in lanes over a node's timelines, and the explanation that each opens.
const lanes = { marks: [], buttons: [], plot: null, node: "", at: -1 };

function showMarks(node, detail, plot) {
  lanes.plot = plot;
  lanes.node = node;
  lanes.at = -1;
  const policies = R.policies.map((each) => ({
    log_ms: each.log_ms, lane: "policy", reason: "published", version: each.version, short: `version ${each.version} by ${each.author || "unknown"}`,
    text: `${each.author || "Somebody"} published version ${each.version} of policy ${each.name}` + (each.note ? `: ${each.note}.` : "."),
    changes: each.changes,
  }));
  lanes.marks = [...policies, ...detail.marks].sort((a, b) => a.log_ms - b.log_ms);
  const names = [...new Set(lanes.marks.map((mark) => mark.lane))];
  const order = Object.keys(LANE_NAMES);
  names.sort((a, b) => order.indexOf(a) - order.indexOf(b));
  const tracks = new Map();
  const rows = names.map((name) => {
    const track = el("div", { class: "track", role: "group", "aria-label": LANE_TITLES[name] ?? name });
    tracks.set(name, track);
    const left = detail.left_out[name] ? `; ${detail.left_out[name]} small ones left out` : "";
    return el("div", { class: "lane" }, el("span", { text: LANE_NAMES[name] ?? name, title: (LANE_TITLES[name] ?? name) + left }), track);
  });
  lanes.buttons = lanes.marks.map((mark, i) => {
    const told = `${clock(mark.log_ms / 1000)} ${LANE_TITLES[mark.lane] ?? mark.lane}: ${mark.short || mark.reason}`;
    const button = el("button", {
      type: "button", class: `mark lane-${mark.lane} ${mark.reason}`, tabindex: i === 0 ? "0" : "-1", "aria-label": told, title: told,
      on: { click: () => openMark(i, false) },
    });
    tracks.get(mark.lane).append(button);
    return button;
  });
  byId("lanes").replaceChildren(...rows);
  placeMarks();
}

function placeMarks() {
  if (!lanes.plot) return;
  const ratio = devicePixelRatio, left = lanes.plot.bbox.left / ratio, width = lanes.plot.bbox.width / ratio;
  for (const track of byId("lanes").querySelectorAll(".track")) {
    track.style.left = `${left}px`;
    track.style.width = `${width}px`;
  }
  lanes.marks.forEach((mark, i) => {
    const share = (mark.log_ms / 1000 - view.min) / (view.max - view.min);
    lanes.buttons[i].style.left = `${share * width}px`;
    lanes.buttons[i].hidden = share < 0 || share > 1;
  });
}
view.listeners.push(placeMarks);

function focusMark(i) {
  i = Math.min(Math.max(i, 0), lanes.buttons.length - 1);
  lanes.buttons.forEach((button, at) => button.setAttribute("tabindex", at === i ? "0" : "-1"));
  const at = lanes.marks[i].log_ms / 1000;
  if (at < view.min || at > view.max) setView(at - (view.max - view.min) / 2, at + (view.max - view.min) / 2);
  lanes.buttons[i].focus({ preventScroll: true });
  return i;
}

function amount(lane, name, value) {
  if (name.endsWith("_milli") || (lane === "suppress" && name !== "cpus")) return `${number(value / 1000)} cores`;
  if (name.endsWith("_bytes") || (lane === "evict_memory" && Math.abs(value) > 1e6)) return `${number(value / 2 ** 30)} GiB`;
  return number(value);
}

function openMark(i, keepFocus) {
  const mark = lanes.marks[i], panel = byId("explain");
  lanes.at = i;
  lanes.buttons.forEach((button, at) => button.setAttribute("aria-current", at === i ? "true" : "false"));
  const facts = el("dl");
  const fact = (name, value) => value && facts.append(el("dt", { text: name }), el("dd", { text: value }));
  for (const [key, old, now] of mark.changes ?? []) fact(key, `${old} → ${now}`);
  fact("reason", mark.reason);
  const policy = versionOf(mark.version);
  if (mark.lane !== "policy" && policy) fact("policy", `version ${policy.version}` + (policy.author ? ` by ${policy.author}` : "") + (policy.note ? `: ${policy.note}` : ""));
  else fact("policy", mark.policy);
  fact("cause", mark.cause);
  fact("command", mark.command);
  const figures = el("dl");
  const spoken = (name) => name.replace(/_(milli|bytes)$/, "").replaceAll("_", " ");
  const terms = Object.entries(mark.terms ?? {}), nothing = terms.filter(([, value]) => !value).map(([name]) => spoken(name));
  for (const [name, value] of terms) {
    if (value) figures.append(el("dt", { text: spoken(name) }), el("dd", { text: amount(mark.lane, name, value) }));
  }
  const rule = R.rules[mark.lane];
  panel.replaceChildren(
    el("button", { type: "button", class: "close", text: "Close", title: "Close (Escape)", on: { click: closeMark } }),
    el("h2", { id: "explain-title", text: LANE_TITLES[mark.lane] ?? mark.lane }),
    el("p", { class: "quiet", text: `${clock(mark.log_ms / 1000)} UTC` + (mark.lane === "policy" ? "" : `, node ${lanes.node}`) }),
    el("p", { class: "said", text: mark.text }),
    facts,
    ...(rule ? [el("h3", { text: "Rule" }), el("p", { class: "quiet", text: rule })] : []),
    ...(terms.length ? [el("h3", { text: "Figures" }), figures] : []),
    ...(nothing.length ? [el("p", { class: "quiet", text: `0: ${nothing.join(", ")}` })] : []),
    el("div", { class: "steps" },
      el("button", { type: "button", text: "← Before", on: { click: () => stepMark(-1) } }),
      el("button", { type: "button", text: "Next →", on: { click: () => stepMark(1) } })),
  );
  panel.hidden = false;
  document.body.classList.add("open");
  focusMark(i);
  if (keepFocus) panel.querySelector(".close").focus();
}
const stepMark = (by) => openMark(Math.min(Math.max(lanes.at + by, 0), lanes.marks.length - 1), false);

function closeMark() {
  byId("explain").hidden = true;
  document.body.classList.remove("open");
  lanes.buttons.forEach((button) => button.setAttribute("aria-current", "false"));
  if (lanes.at >= 0) lanes.buttons[lanes.at]?.focus({ preventScroll: true });
}
