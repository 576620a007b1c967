"use strict";
// Reads out plots where the pointer is, at the same time in all plots of a group, and turns pictures of arms.
const SVG = "http://www.w3.org/2000/svg";
const make = (name, attributes, parent) => {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return parent.appendChild(element);
};
const format = (value) => {
  const size = Math.abs(value);
  const text = size !== 0 && (size < 1e-3 || size >= 1e5) ? value.toExponential(2) : value.toPrecision(4);
  return text.replace("-", "\u2212");
};

function readPlot(svg) {
  const plot = JSON.parse(svg.dataset.plot);
  plot.svg = svg;
  plot.curves = plot.lines.map(([id, label]) => {
    const path = document.getElementById(id).querySelector("path");
    const numbers = (path.getAttribute("d") || "").match(/-?[\d.]+/g) || [];
    const points = [];
    for (let k = 0; k + 1 < numbers.length; k += 2) points.push([+numbers[k], +numbers[k + 1]]);
    return { label, points, color: path.style.stroke };
  });
  plot.layer = make("g", { class: "hover" }, svg);
  return plot;
}

function valueAt(points, x) {
  let low = 0, high = points.length - 1;
  if (high < 0 || x < points[0][0] - 0.5 || x > points[high][0] + 0.5) return null;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (points[middle][0] <= x) low = middle; else high = middle;
  }
  const [x0, y0] = points[low], [x1, y1] = points[high];
  return x1 > x0 ? y0 + (y1 - y0) * Math.min(1, Math.max(0, (x - x0) / (x1 - x0))) : y1;
}

function show(plot, seconds) {
  const [left, right, first, last] = plot.x, [bottom, top, low, high] = plot.y;
  plot.layer.replaceChildren();
  if (seconds === null) return;
  const x = left + (right - left) * (seconds - first) / (last - first);
  if (x < left || x > right) return;
  make("path", { d: `M${x} ${top}V${bottom}`, class: "cross" }, plot.layer);
  const rows = [[`${+seconds.toPrecision(4)} s`, "var(--muted)"]];
  for (const { label, points, color } of plot.curves) {
    const y = valueAt(points, x);
    if (y === null) continue;
    const share = (bottom - y) / (bottom - top);
    const value = plot.log ? low * (high / low) ** share : low + (high - low) * share;
    make("circle", { cx: x, cy: y, r: 2.6, style: `fill:${color}` }, plot.layer);
    rows.push([`${label} ${format(value)}`, color]);
  }
  const width = 12 + 6.6 * Math.max(...rows.map(([text]) => text.length));
  const at = x + width + 10 > right ? Math.max(0, x - width - 8) : x + 8;
  const height = 8 + 14 * rows.length, up = Math.max(0, Math.min(top + 4, bottom - height));
  make("rect", { x: at, y: up, width, height, rx: 4, class: "tip" }, plot.layer);
  rows.forEach(([text, color], k) => {
    make("text", { x: at + 6, y: up + 15 + 14 * k, style: `fill:${color}` }, plot.layer).textContent = text;
  });
}

for (const group of document.querySelectorAll(".plots")) {
  const plots = [...group.querySelectorAll("svg[data-plot]")].map(readPlot);
  for (const plot of plots) {
    plot.svg.addEventListener("pointermove", (event) => {
      const scale = plot.svg.viewBox.baseVal.width / plot.svg.getBoundingClientRect().width;
      const x = (event.clientX - plot.svg.getBoundingClientRect().left) * scale;
      const [left, right, first, last] = plot.x;
      const seconds = first + (last - first) * (x - left) / (right - left);
      for (const one of plots) show(one, x < left || x > right ? null : seconds);
    });
    plot.svg.addEventListener("pointerleave", () => plots.forEach((one) => show(one, null)));
  }
}

// Parts of a picture are points, lines and texts in space, drawn as reports/picture.py draws them.
function project([x, y, z], azimuth, elevation) {
  const right = -Math.sin(azimuth) * x + Math.cos(azimuth) * y;
  const ahead = Math.cos(azimuth) * x + Math.sin(azimuth) * y;
  return [right, Math.cos(elevation) * z - Math.sin(elevation) * ahead, Math.cos(elevation) * ahead + Math.sin(elevation) * z];
}

for (const svg of document.querySelectorAll("svg[data-picture]")) {
  const { parts, scale, center, view } = JSON.parse(svg.dataset.picture);
  const shapes = [...svg.querySelectorAll("[data-part]")];
  const middle = [svg.viewBox.baseVal.width / 2, svg.viewBox.baseVal.height / 2];
  const draw = () => {
    const depths = new Map();
    for (const shape of shapes) {
      const points = parts[+shape.dataset.part].map((point) =>
        project(point.map((value, k) => value - center[k]), view[0], view[1]));
      const flat = points.map(([x, y]) => [middle[0] + scale * x, middle[1] - scale * y]);
      depths.set(shape, Math.max(...points.map((point) => point[2])) + (shape.matches("circle:not(.dot)") ? 0 : 10));
      if (shape.tagName === "circle") {
        shape.setAttribute("cx", flat[0][0]); shape.setAttribute("cy", flat[0][1]);
      } else if (shape.tagName === "text") {
        shape.setAttribute("x", flat[0][0]); shape.setAttribute("y", flat[0][1]);
      } else {
        shape.setAttribute("points", flat.map((point) => point.join(",")).join(" "));
      }
    }
    shapes.sort((a, b) => depths.get(a) - depths.get(b)).forEach((shape) => shape.parentNode.appendChild(shape));
  };
  svg.addEventListener("pointermove", (event) => {
    if (!(event.buttons & 1)) return;
    view[0] -= 0.01 * event.movementX;
    view[1] = Math.min(1.5, Math.max(-1.5, view[1] + 0.01 * event.movementY));
    draw();
  });
  svg.addEventListener("pointerdown", (event) => svg.setPointerCapture(event.pointerId));
}
