// Draws the figures of advisor/view/charts.py with Chart.js. Names are text: nothing here makes markup of them.
"use strict";
(() => {
  const MINUTE = 60, HOUR = 3600, DAY = 86400;
  const COLOURS = 6;
  const DASHES = [[], [8, 3], [2, 3], [10, 3, 2, 3], [4, 4]];
  // Names of Chart.js, and the same shapes for the legend.
  const SHAPES = [
    ["circle", "M9 6a5 5 0 1 0 10 0a5 5 0 1 0-10 0"], ["rect", "M10 2h8v8h-8Z"], ["triangle", "M14 1l5 9h-10Z"],
    ["rectRot", "M14 0l6 6l-6 6l-6-6Z"], ["crossRot", "M10 2l8 8m0-8l-8 8"], ["cross", "M14 1v10m-5-5h10"],
  ];
  const DURATION_STEPS = [
    1, 2, 5, 10, 15, 30, MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE, 15 * MINUTE, 30 * MINUTE,
    HOUR, 2 * HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 2 * DAY, 5 * DAY, 10 * DAY, 20 * DAY, 50 * DAY, 100 * DAY,
    200 * DAY, 500 * DAY, 1000 * DAY,
  ];
  const LOG_DURATIONS = [
    1, 10, MINUTE, 10 * MINUTE, HOUR, 6 * HOUR, DAY, 4 * DAY, 20 * DAY, 100 * DAY, 500 * DAY, 2500 * DAY,
  ];
  const SVG = "http://www.w3.org/2000/svg";
  const reduced = matchMedia("(prefers-reduced-motion: reduce)");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const drawn = [];

  // ---- numbers as text ----

  const short = (value, digits) => String(Number(value.toFixed(digits)));

  function duration(seconds) {
    const size = Math.abs(seconds);
    if (size < MINUTE) return `${short(seconds, size < 10 ? 1 : 0)} s`;
    if (size < HOUR) return `${short(seconds / MINUTE, size < 10 * MINUTE ? 1 : 0)} min`;
    if (size < 2 * DAY) return `${short(seconds / HOUR, 1)} h`;
    return `${short(seconds / DAY, 1)} d`;
  }

  // Ticks are exact: days from the first one on, and 75 min instead of 1.3 h.
  function durationTick(seconds) {
    if (seconds === 0) return "0";
    if (seconds % DAY === 0) return `${seconds / DAY} d`;
    return seconds > HOUR && seconds % (HOUR / 10) ? `${seconds / MINUTE} min` : duration(seconds);
  }

  function signed(value, digits) {
    const text = short(value, digits);
    return value > 0 && text !== "0" ? `+${text}` : text;
  }

  function spelled(axis, value) {
    switch (axis.unit) {
      case "duration": return duration(value);
      case "percent": return `${short(value, 1)} %`;
      case "change": return `${signed(value, 1)} %`;
      default: return value.toLocaleString("en-US", { maximumFractionDigits: 2 });
    }
  }

  function tickText(axis, value) {
    if (axis.unit === "duration") return durationTick(value);
    if (axis.unit === "change") return `${signed(value, 2)} %`;
    return spelled(axis, value);
  }

  // ---- axes ----

  function evenTicks(low, high, most) {
    const step = DURATION_STEPS.find((one) => (high - low) / one <= most) ?? DURATION_STEPS.at(-1);
    const ticks = [];
    for (let value = Math.ceil(low / step) * step; value <= high; value += step) ticks.push(value);
    return ticks;
  }

  function setTicks(axis, scale) {
    const most = Math.max(2, Math.floor((scale.isHorizontal() ? scale.maxWidth / 70 : scale.maxHeight / 36)));
    if (axis.unit !== "duration") return;
    if (axis.log) {
      scale.ticks = LOG_DURATIONS.filter((value) => value >= scale.min && value <= scale.max).map((value) => ({ value }));
    } else {
      scale.ticks = evenTicks(scale.min, scale.max, most).map((value) => ({ value }));
    }
  }

  // A logarithmic axis of durations ends at the marks around its data, so that the curve has room.
  function logEnds(axis, values) {
    if (!(axis.log && axis.unit === "duration")) return {};
    const low = Math.min(...values), high = Math.max(...values);
    return {
      min: axis.low ?? LOG_DURATIONS.findLast((one) => one <= low) ?? low,
      max: axis.high ?? LOG_DURATIONS.find((one) => one >= Math.max(high, 10)) ?? high,
    };
  }

  function scaleOf(axis, values, theme) {
    return {
      type: axis.log ? "logarithmic" : "linear",
      ...(axis.low === null ? {} : { min: axis.low }),
      ...(axis.high === null ? {} : { max: axis.high }),
      ...logEnds(axis, values),
      title: { display: true, text: axis.label, color: theme.faint },
      grid: { color: theme.rule },
      border: { color: theme.rule },
      afterBuildTicks: (scale) => setTicks(axis, scale),
      ticks: {
        color: theme.faint,
        maxRotation: 0,
        autoSkipPadding: 12,
        callback(value) { return tickText(axis, value); },
        ...(axis.unit === "count" ? { precision: 0 } : {}),
        ...(axis.unit === "percent" && axis.high === 100 ? { stepSize: 25 } : {}),
      },
    };
  }

  function categoryScale(axis, theme) {
    return {
      type: "category",
      labels: axis.categories,
      title: { display: true, text: axis.label, color: theme.faint },
      grid: { display: false },
      border: { color: theme.rule },
      ticks: { color: theme.faint, maxRotation: 45, autoSkipPadding: 8 },
    };
  }

  // ---- what is drawn ----

  function themeOf() {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(`--${name}`).trim();
    const colours = Array.from({ length: COLOURS }, (_, index) => colour(`c${index}`));
    return { ink: colour("ink"), faint: colour("faint"), rule: colour("rule"), paper: colour("paper"), colours };
  }

  function look(index, theme) {
    const colour = theme.colours[index % COLOURS];
    return { borderColor: colour, backgroundColor: colour, borderWidth: 2, borderDash: DASHES[index % DASHES.length] };
  }

  function lineSet(line, index, theme) {
    const last = line.y.length - 1;
    return {
      ...look(index, theme),
      label: line.name,
      data: line.x.map((x, place) => ({ x, y: line.y[Math.min(place, last)] })),
      stepped: line.step ? "before" : false,
      borderWidth: line.step ? 1.5 : 2,
      pointRadius: 0,
      pointHoverRadius: 4,
    };
  }

  function limitSet(limit, lines, theme) {
    const ends = lines.flatMap((line) => [line.x[0], line.x.at(-1)]);
    return {
      label: limit.name,
      isLimit: true,
      data: [{ x: Math.min(...ends), y: limit.value }, { x: Math.max(...ends), y: limit.value }],
      borderColor: theme.faint,
      borderWidth: 1,
      borderDash: [1, 4],
      pointRadius: 0,
      pointHoverRadius: 0,
    };
  }

  function markSet(one, index, theme) {
    return {
      ...look(index, theme),
      label: one.name,
      data: one.marks,
      parsing: false,
      borderDash: [],
      pointStyle: SHAPES[index % SHAPES.length][0],
      pointRadius: 5,
      pointHoverRadius: 7,
      pointBorderWidth: 2,
      clip: false,
    };
  }

  function barSet(one, index, theme) {
    return { ...look(index, theme), label: one.name, data: one.y, borderWidth: 0, maxBarThickness: 40 };
  }

  function setsOf(config, theme) {
    const make = { line: lineSet, points: markSet, bars: barSet }[config.kind];
    const sets = config.series.map((one, index) => make(one, index, theme));
    return config.limit ? [...sets, limitSet(config.limit, config.series, theme)] : sets;
  }

  function valuesOf(config, name) {
    const values = config.series.flatMap((one) =>
      one.marks ? one.marks.flatMap((mark) => (name === "x" ? [mark.x, mark.low, mark.high] : [mark.y])) : one[name] ?? []);
    return values.filter((value) => value !== null);
  }

  // The ends of the intervals belong to what the axis has to hold.
  function scalesOf(config, theme) {
    const isBars = config.kind === "bars";
    const x = isBars ? categoryScale(config.x, theme) : scaleOf(config.x, valuesOf(config, "x"), theme);
    const y = scaleOf(config.y, valuesOf(config, "y"), theme);
    if (config.kind === "points") {
      const ends = valuesOf(config, "x");
      Object.assign(x, { suggestedMin: Math.min(0, ...ends), suggestedMax: Math.max(0, ...ends), grace: "4%" });
      y.grace = "8%";
    }
    return { x, y };
  }

  const intervals = {
    id: "intervals",
    beforeDatasetDraw(chart, { index, meta }) {
      const { ctx, scales: { x } } = chart;
      ctx.save();
      ctx.strokeStyle = chart.data.datasets[index].borderColor;
      ctx.lineWidth = 1.5;
      chart.data.datasets[index].data.forEach((mark, place) => {
        if (mark.low === null || mark.high === null) return;
        const { y } = meta.data[place].getProps(["y"]);
        const ends = [x.getPixelForValue(mark.low), x.getPixelForValue(mark.high)];
        ctx.beginPath();
        ctx.moveTo(ends[0], y);
        ctx.lineTo(ends[1], y);
        for (const end of ends) { ctx.moveTo(end, y - 3); ctx.lineTo(end, y + 3); }
        ctx.stroke();
      });
      ctx.restore();
    },
    afterDatasetDraw(chart, { index, meta }) {
      const { ctx } = chart;
      ctx.save();
      ctx.fillStyle = themeOf().ink;
      ctx.font = "12px system-ui, sans-serif";
      chart.data.datasets[index].data.forEach((mark, place) => {
        const { x, y } = meta.data[place].getProps(["x", "y"]);
        ctx.fillText(mark.label, x + 7, y - 7);
      });
      ctx.restore();
    },
  };

  // ---- hover ----

  // Of each visible line, the point nearest to the pointer along one axis.
  function nearestOfEach(along) {
    return (chart, event) => {
      const { chartArea } = chart;
      if (event.x < chartArea.left || event.x > chartArea.right || event.y < chartArea.top || event.y > chartArea.bottom) return [];
      return chart.getSortedVisibleDatasetMetas().filter((meta) => !chart.data.datasets[meta.index].isLimit && meta.data.length)
        .map((meta) => {
          const distances = meta.data.map((element) => Math.abs(element[along] - event[along]));
          const index = distances.indexOf(Math.min(...distances.filter(Number.isFinite)));
          return { element: meta.data[index], datasetIndex: meta.index, index };
        });
    };
  }

  function interactionOf(config) {
    if (config.kind === "bars") return { mode: "index", intersect: false };
    if (config.hover === "point") return { mode: "nearest", intersect: false };
    return { mode: config.hover === "y" ? "nearestByY" : "nearestByX", intersect: false };
  }

  function tooltipOf(config, theme) {
    const { x, y } = config;
    const title = {
      x: (items) => (config.kind === "bars" ? items[0].label : `${x.label}: ${spelled(x, items[0].parsed.x)}`),
      y: (items) => `${y.label}: ${spelled(y, items[0].parsed.y)}`,
      point: (items) => `${items[0].raw.label}. ${items[0].raw.name}`,
    }[config.hover];
    const interval = (mark) => (mark.low === null ? "" : ` (${spelled(x, mark.low)} to ${spelled(x, mark.high)})`);
    const label = {
      x: (item) => `${item.dataset.label}: ${spelled(y, item.parsed.y)}`,
      y: (item) => `${item.dataset.label}: ${spelled(x, item.parsed.x)}`,
      point: (item) => [`${x.label}: ${spelled(x, item.raw.x)}${interval(item.raw)}`, `${y.label}: ${spelled(y, item.raw.y)}`],
    }[config.hover];
    return {
      backgroundColor: theme.paper, borderColor: theme.faint, borderWidth: 1, titleColor: theme.ink, bodyColor: theme.ink,
      padding: 10, boxPadding: 4, usePointStyle: config.kind === "points",
      callbacks: { title: (items) => (items.length ? title(items) : ""), label },
    };
  }

  // ---- legend ----

  function swatch(kind, index, isLimit) {
    const svg = document.createElementNS(SVG, "svg");
    const path = document.createElementNS(SVG, "path");
    for (const [name, value] of [["width", "28"], ["height", "12"], ["aria-hidden", "true"]]) svg.setAttribute(name, value);
    const shape = kind === "points" ? SHAPES[index % SHAPES.length][1] : kind === "bars" ? "M8 1h12v10h-12Z" : "M0 6H28";
    path.setAttribute("d", isLimit ? "M0 6H28" : shape);
    path.setAttribute("class", isLimit ? "swatch limit" : `swatch ${kind} c${index % COLOURS}`);
    const dash = isLimit ? [1, 4] : kind === "line" ? DASHES[index % DASHES.length] : [];
    path.setAttribute("stroke-dasharray", dash.join(" "));
    svg.append(path);
    return svg;
  }

  function legendOf(chart, kind) {
    const list = document.createElement("ul");
    list.className = "legend";
    chart.data.datasets.forEach((set, index) => {
      const button = document.createElement("button");
      button.type = "button";
      button.setAttribute("aria-pressed", "true");
      button.append(swatch(kind, index, set.isLimit), set.label);
      button.addEventListener("click", () => {
        const isShown = !chart.isDatasetVisible(index);
        chart.setDatasetVisibility(index, isShown);
        button.setAttribute("aria-pressed", String(isShown));
        chart.update();
      });
      const item = document.createElement("li");
      item.append(button);
      list.append(item);
    });
    return list;
  }

  // ---- the page ----

  function optionsOf(config, theme) {
    return {
      responsive: true,
      maintainAspectRatio: false,
      animation: reduced.matches ? false : { duration: 250 },
      interaction: interactionOf(config),
      scales: scalesOf(config, theme),
      plugins: { legend: { display: false }, tooltip: tooltipOf(config, theme) },
    };
  }

  function draw(figure) {
    const config = JSON.parse(figure.querySelector("script[type='application/json']").textContent);
    const theme = themeOf();
    figure.classList.add("drawn");
    const plot = figure.querySelector(".plot");
    const chart = new Chart(plot.querySelector("canvas"), {
      type: config.kind === "bars" ? "bar" : config.kind === "points" ? "scatter" : "line",
      data: { datasets: setsOf(config, theme) },
      options: optionsOf(config, theme),
      plugins: config.kind === "points" ? [intervals] : [],
    });
    plot.after(legendOf(chart, config.kind));
    drawn.push({ chart, config });
  }

  // Draws the figures that are not drawn yet, and forgets those that have left the page.
  function drawAll() {
    for (const { chart } of drawn.filter((one) => !one.chart.canvas.isConnected)) chart.destroy();
    drawn.splice(0, drawn.length, ...drawn.filter((one) => one.chart.canvas?.isConnected));
    document.querySelectorAll("figure.chart:not(.drawn)").forEach(draw);
  }

  function redraw() {
    const theme = themeOf();
    for (const { chart, config } of drawn) {
      setsOf(config, theme).forEach((set, index) => Object.assign(chart.data.datasets[index], set));
      chart.options = optionsOf(config, theme);
      chart.update("none");
    }
  }

  // Paper is light, and as wide as it is.
  function print(isPrinting) {
    document.documentElement.classList.toggle("printing", isPrinting);
    redraw();
    for (const { chart } of drawn) isPrinting ? chart.resize(640, 300) : chart.resize();
  }

  function start() {
    Object.assign(Chart.Interaction.modes, { nearestByX: nearestOfEach("x"), nearestByY: nearestOfEach("y") });
    Object.assign(Chart.defaults.font, { family: "system-ui, sans-serif", size: 12 });
    drawAll();
    document.addEventListener("sadvise:refreshed", drawAll);
    for (const query of [dark, reduced]) query.addEventListener("change", redraw);
    addEventListener("beforeprint", () => print(true));
    addEventListener("afterprint", () => print(false));
  }

  document.readyState === "loading" ? document.addEventListener("DOMContentLoaded", start) : start();
})();
