"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const pieces = [...document.querySelectorAll("[data-piece]")];
const actions = [...document.querySelectorAll("#actions li")];
const rewards = [...document.querySelectorAll("#rewards li b")];
const scrubber = byId("scrubber");
const last = data.frames.length - 1;
const shown = new Array(pieces.length).fill(-1);
let step = 0;
let timer = null;

const signed = (x) => (x > 0 ? "+" : x < 0 ? "−" : "") + Math.abs(x).toFixed(2);
const list = (x) => [x].flat();
const sign = (x) => (x > 0 ? "gain" : x < 0 ? "loss" : "");

function element(tag, text, name) {
  const made = document.createElement(tag);
  made.textContent = text;
  if (name) made.className = name;
  return made;
}

// In a chart, a step is one unit wide; the chart is stretched to the width of the page.
function drawChart(place, inside, height, pixels) {
  const marks = data.marks.slice(1).map(
    ([start]) => `<line class="mark" x1="${start}" x2="${start}" y1="0" y2="${height}"/>`);
  byId(place).innerHTML =
    `<svg viewBox="0 0 ${last + 1} ${height}" preserveAspectRatio="none" class="chart" ` +
    `style="height:${pixels}px" aria-hidden="true">${marks.join("")}${inside}` +
    `<rect class="cursor" x="0" y="0" width="1" height="${height}"/></svg>`;
}

// The return so far and the value, on one scale.
function drawCurves() {
  const of = (name) => data.frames.map((x, n) => [n + 0.5, x[name]]).filter(([, y]) => y !== null);
  const returns = of("return"), values = of("value");
  const heights = [0, ...[...returns, ...values].map(([, y]) => y)];
  const low = Math.min(...heights), scale = 92 / (Math.max(...heights) - low || 1);
  const place = (y) => (96 - (y - low) * scale).toFixed(1);
  const line = (points, name) =>
    `<polyline class="${name}" points="${points.map(([x, y]) => `${x},${place(y)}`).join(" ")}"/>`;
  const zero = `<line class="zero" x1="0" x2="${last + 1}" y1="${place(0)}" y2="${place(0)}"/>`;
  drawChart("curves", zero + line(returns, "return") + line(values, "value"), 100, 150);
}

// A row for each component of the reward; the larger a reward is in its row, the more opaque.
function drawComponents() {
  const high = 19;
  const row = (name, n) => {
    const found = data.frames.map((x) => x.rewards[name] || 0);
    const largest = Math.max(...found.map(Math.abs));
    return found.map((x, at) => x && `<rect class="${sign(x)}" x="${at}" y="${n * high + 2}" ` +
      `width="1" height="${high - 4}" opacity="${(0.35 + (0.65 * Math.abs(x)) / largest).toFixed(2)}"/>`);
  };
  const bars = data.components.flatMap(row).filter((bar) => bar).join("");
  const height = Math.max(data.components.length, 1) * high;
  drawChart("components", bars, height, height);
}

drawCurves();
drawComponents();
const cursors = [...document.querySelectorAll(".cursor")];

function showPolicy(frame) {
  const known = frame.probabilities;
  byId("among").textContent = data.among && data.among + ", " + frame.num_allowed + " allowed";
  byId("value").textContent = frame.value === null ? "" : "value " + frame.value.toFixed(2);
  actions.forEach((row, n) => {
    const action = data.actions[n];
    const allowed = frame.allowed.includes(action);
    row.className = (allowed ? "" : "no") + (list(frame.choice).includes(action) ? " chosen" : "");
    row.title = allowed ? "" : "not allowed";
    const share = known && allowed ? known[n] : 0;
    row.querySelector("i").style.width = 100 * share + "%";
    const text = known && allowed ? (100 * share).toFixed(share && share < 0.1 ? 1 : 0) + "%" : "";
    row.querySelector(".share").textContent = allowed ? text : "–";
  });
}

function showLast(frame) {
  const box = byId("last");
  box.replaceChildren();
  if (frame.action === null) {
    box.append(element("strong", "The episode begins"));
  } else {
    const total = Object.values(frame.rewards).reduce((sum, x) => sum + x, 0);
    box.append("last action ", element("strong", list(frame.action).map((n) => data.names[n]).join(" ")), " ");
    box.append(element("strong", signed(total), sign(total)));
    for (const [name, x] of Object.entries(frame.rewards)) {
      box.append(element("br", ""), name + " ", element("span", signed(x), sign(x)));
    }
  }
  if (frame.end) box.append(element("br", ""), element("strong", "The episode is over: " + frame.end));
}

function show(to) {
  step = Math.max(0, Math.min(last, to));
  const frame = data.frames[step];
  frame.pieces.forEach((piece, n) => {
    if (shown[n] !== piece) pieces[n].innerHTML = data.pieces[piece];
    shown[n] = piece;
  });
  showPolicy(frame);
  showLast(frame);
  data.components.forEach((name, n) => {
    const x = frame.rewards[name] || 0;
    rewards[n].textContent = x ? signed(x) : "";
    rewards[n].className = sign(x);
  });
  cursors.forEach((cursor) => cursor.setAttribute("x", step));
  scrubber.value = step;
  scrubber.setAttribute("aria-valuetext", `step ${step} of ${last}`);
  byId("where").textContent = `step ${step}/${last} · return ${signed(frame.return)}`;
  if (step === last) pause();
}

function pause() {
  clearInterval(timer);
  timer = null;
  byId("play").textContent = "▶ play";
  byId("play").setAttribute("aria-label", "Play");
}

function play() {
  if (step === last) show(0);
  clearInterval(timer);
  timer = setInterval(() => show(step + 1), 1000 / Number(byId("speed").value));
  byId("play").textContent = "❚❚ pause";
  byId("play").setAttribute("aria-label", "Pause");
}

function toMark(direction) {
  const starts = data.marks.map(([start]) => start);
  const found = direction > 0 ? starts.find((s) => s > step) : starts.filter((s) => s < step).pop();
  show(found === undefined ? (direction > 0 ? last : 0) : found);
}

function faster(by) {
  const speed = byId("speed");
  speed.selectedIndex = Math.max(0, Math.min(speed.options.length - 1, speed.selectedIndex + by));
  if (timer) play();
}

const keys = {
  ArrowRight: () => show(step + 1), ArrowLeft: () => show(step - 1),
  ArrowUp: () => show(step + 1), ArrowDown: () => show(step - 1),
  Home: () => show(0), End: () => show(last),
  PageDown: () => toMark(1), PageUp: () => toMark(-1),
  " ": () => (timer ? pause() : play()),
  "+": () => faster(1), "-": () => faster(-1),
};
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.altKey || event.metaKey || !(event.key in keys)) return;
  if (event.target.tagName === "SELECT") return;
  if (event.key === " " && event.target.tagName === "BUTTON" && event.target.id !== "play") return;
  event.preventDefault();
  if (event.key !== " " && event.key !== "+" && event.key !== "-") pause();
  keys[event.key]();
});
// Space is handled at keydown, so keep the browser from clicking the button again at keyup.
byId("play").addEventListener("keyup", (event) => event.key === " " && event.preventDefault());
const clicks = { first: () => show(0), back: () => show(step - 1), next: () => show(step + 1), end: () => show(last) };
for (const [id, click] of Object.entries(clicks)) {
  byId(id).addEventListener("click", () => { pause(); click(); });
}
byId("play").addEventListener("click", () => (timer ? pause() : play()));
byId("speed").addEventListener("change", () => timer && play());
scrubber.addEventListener("input", () => { pause(); show(Number(scrubber.value)); });
for (const mark of document.querySelectorAll(".marks button")) {
  mark.addEventListener("click", () => { pause(); show(Number(mark.dataset.step)); });
}
for (const plot of document.querySelectorAll(".plot")) {
  const seek = (event) => {
    const box = plot.getBoundingClientRect();
    pause();
    show(Math.floor((data.frames.length * (event.clientX - box.left)) / box.width));
  };
  plot.addEventListener("pointerdown", seek);
  plot.addEventListener("pointermove", (event) => event.buttons && seek(event));
}
show(0);
