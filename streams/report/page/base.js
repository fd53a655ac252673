// What everything else uses: the data, elements, numbers and times in words, the theme.
"use strict";
const R = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const root = document.documentElement;

// An element with text, never with markup: names of pods and workloads are strangers' words.
function el(tag, options = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(options)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "text") made.textContent = value;
    else if (name === "on") for (const [event, act] of Object.entries(value)) made.addEventListener(event, act);
    else if (name === "class") made.className = value;
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children);
  return made;
}

const pad = (number) => String(number).padStart(2, "0");
function clock(seconds) {
  const at = new Date(seconds * 1000);
  return `${pad(at.getUTCHours())}:${pad(at.getUTCMinutes())}:${pad(at.getUTCSeconds())}`;
}
const day = (seconds) => new Date(seconds * 1000).toISOString().slice(0, 10);

function number(value, digits = 2) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  return value.toLocaleString("en-GB", { maximumFractionDigits: digits, minimumFractionDigits: 0 });
}
function seconds(value) {
  if (!value) return "0 s";
  if (value < 120) return `${number(value, 0)} s`;
  return value < 7200 ? `${number(value / 60, 1)} min` : `${number(value / 3600, 1)} h`;
}
const colour = (name) => getComputedStyle(root).getPropertyValue(`--${name}`).trim();
const faint = (name, alpha) => {
  const hex = colour(name).replace("#", "");
  const parts = [0, 2, 4].map((at) => parseInt(hex.slice(at, at + 2), 16));
  return `rgba(${parts.join(", ")}, ${alpha})`;
};

const LANE_NAMES = {
  policy: "policy", suppress: "bound", capacity: "offer", evict_memory: "evict", evict_cpu: "evict",
  node: "by node", interference: "signal", slo_guard: "SLO", isolate: "isolate", health: "health",
};
const LANE_TITLES = {
  policy: "Policy published", suppress: "CPU bound of best-effort work", capacity: "Capacity offered",
  evict_memory: "Eviction for memory", evict_cpu: "Eviction for CPU", node: "Act of the node itself",
  interference: "Interference signal", slo_guard: "SLO guard", isolate: "Isolation settings", health: "Health",
};
const versionOf = (version) => R.policies.find((each) => each.version === version);

function remembered() {
  try { return localStorage.getItem("slackwater-theme"); } catch { return null; }
}
function setTheme(name, keep) {
  root.dataset.theme = name;
  byId("theme").textContent = name === "dark" ? "Light" : "Dark";
  if (keep) try { localStorage.setItem("slackwater-theme", name); } catch { /* a file may not remember */ }
}
const dark = matchMedia("(prefers-color-scheme: dark)");
setTheme(remembered() ?? (dark.matches ? "dark" : "light"), false);
