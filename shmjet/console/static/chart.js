// A small chart of the last minutes: a value for now, one or two lines, and a hairline that tells past values.

import { h, s, setAttribute, setText } from "./dom.js";

const WIDTH = 300;
const HEIGHT = 64;
const LONGEST = 300;
const SHORTEST = 60;

export class Chart {
  /**
   * `series`: [{name, label}], each with a value per entry; `format(value)` makes a text of one;
   * `most`: the least top of the scale, so that idling looks like it.
   */
  constructor(title, series, format, most) {
    this.series = series;
    this.format = format;
    this.most = most;
    this.title = title;
    this.now = h("p", { class: "chart-now" });
    this.top = h("span", { class: "chart-top" });
    this.start = h("span");
    this.lines = series.map((one, index) => s("path", { class: `chart-line line-${index}` }));
    this.areas = series.map((one, index) => s("path", { class: `chart-area line-${index}` }));
    this.cursor = s("line", { class: "chart-cursor", y1: 0, y2: HEIGHT, visibility: "hidden" });
    const grid = [0, 0.5, 1].map((part) => s("line", { class: "chart-grid", x1: 0, x2: WIDTH, y1: part * HEIGHT, y2: part * HEIGHT }));
    this.picture = s(
      "svg",
      { class: "chart-picture", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" },
      ...grid, ...this.areas, ...this.lines, this.cursor,
    );
    const keys = series.length > 1
      ? h("p", { class: "chart-keys" }, ...series.map((one, index) => h("span", { class: `key line-${index}` }, one.label)))
      : null;
    this.element = h(
      "figure", { class: "panel chart" },
      h("figcaption", {}, h("h3", {}, title), keys, this.now),
      h("div", { class: "chart-body" }, this.top, this.picture),
      h("p", { class: "chart-axis", "aria-hidden": "true" }, this.start, h("span", {}, "now")),
    );
    this.picture.addEventListener("pointermove", (event) => this.point(event));
    this.picture.addEventListener("pointerleave", () => this.point(null));
  }

  update(history, end) {
    this.history = history;
    this.end = end;
    const columns = this.series.map((one) => history.values[one.name] ?? []);
    const age = end - (history.times[0] ?? end);
    this.span = [SHORTEST, 120, 180].find((span) => age <= span) ?? LONGEST;
    setText(this.start, `${this.span / 60} min ago`);
    const top = niceTop(Math.max(this.most, ...columns.flat()));
    const x = (time) => Math.max(0, WIDTH - ((end - time) / this.span) * WIDTH);
    columns.forEach((column, index) => {
      const points = column.map((value, i) => `${x(history.times[i]).toFixed(1)},${(HEIGHT - (value / top) * HEIGHT).toFixed(1)}`);
      const line = points.length ? `M${points.join("L")}` : "";
      setAttribute(this.lines[index], "d", line);
      const first = points.length ? x(history.times[0]).toFixed(1) : 0;
      const last = points.length ? x(history.times.at(-1)).toFixed(1) : 0;
      setAttribute(this.areas[index], "d", points.length ? `${line}L${last},${HEIGHT}L${first},${HEIGHT}Z` : "");
    });
    setText(this.top, this.format(top));
    this.tell(columns.map((column) => column.at(-1) ?? 0));
    const peak = Math.max(0, ...columns.flat());
    setAttribute(this.picture, "aria-label", `${this.title}: now ${this.now.textContent}, at most ${this.format(peak)} in ${this.span / 60} minutes`);
  }

  tell(values) {
    if (!this.pointing) setText(this.now, values.map((value) => this.format(value)).join(" · "));
  }

  /** Show the values under the pointer, or those of now when it has left. */
  point(event) {
    const times = this.history?.times ?? [];
    this.pointing = false;
    if (event === null || times.length === 0) {
      setAttribute(this.cursor, "visibility", "hidden");
      this.tell(this.series.map((one) => this.history?.values[one.name]?.at(-1) ?? 0));
      return;
    }
    const box = this.picture.getBoundingClientRect();
    const time = this.end - this.span * (1 - (event.clientX - box.left) / box.width);
    const nearest = times.reduce((best, value, i) => (Math.abs(value - time) < Math.abs(times[best] - time) ? i : best), 0);
    const x = WIDTH - ((this.end - times[nearest]) / this.span) * WIDTH;
    setAttribute(this.cursor, "visibility", "visible");
    setAttribute(this.cursor, "x1", x);
    setAttribute(this.cursor, "x2", x);
    this.tell(this.series.map((one) => this.history.values[one.name][nearest]));
    this.pointing = true;
  }
}

/** The next round number: 1, 2 or 5 times a power of ten. */
function niceTop(value) {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return power * [1, 2, 5, 10].find((step) => step * power >= value * 0.999);
}
