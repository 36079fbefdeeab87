// Draws the plots from the JSON beside each of them; colours come from the style sheet, for light and dark schemes alike.
"use strict";
(() => {
  const COLOURS = 7;
  const DASHES = ["solid", "dash", "dashdot", "longdash"]; // distinguish rows once the palette repeats
  const SYMBOLS = ["circle", "square", "diamond", "triangle-up", "x", "triangle-down", "cross"];
  // For each section of the page, the rows that are hidden in its plots.
  const hiddenRows = new Map([...document.querySelectorAll(".setting")].map((part) => [part, new Set()]));
  const plots = [...document.querySelectorAll(".plot")].map((box) => ({
    box,
    part: box.closest(".setting"),
    data: JSON.parse(document.getElementById(box.id.replace("plot-", "data-")).textContent),
  }));
  const theme = () => {
    const style = getComputedStyle(document.documentElement);
    const read = (name) => style.getPropertyValue(name).trim();
    return {
      ink: read("--ink"), soft: read("--soft"), rule: read("--rule"), grid: read("--grid"), card: read("--card"),
      font: getComputedStyle(document.body).fontFamily,
      rows: Array.from({ length: COLOURS }, (_, i) => read(`--row-${i}`)),
    };
  };

  const faded = (hex, alpha) => `rgba(${[1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16)).join(",")},${alpha})`;

  const band = (series, colour, alpha) => {
    const at = series.x.map((_, i) => i).filter((i) => series.y[i] !== null && series.spread[i] !== null);
    const back = [...at].reverse();
    return {
      type: "scatter", mode: "lines", line: { width: 0 }, fill: "toself", fillcolor: faded(colour, alpha), hoverinfo: "skip",
      x: [...at, ...back].map((i) => series.x[i]),
      y: [...at.map((i) => series.y[i] + series.spread[i]), ...back.map((i) => series.y[i] - series.spread[i])],
    };
  };

  // What the candidate sets say: a point and its bounds for each class.
  const interval = (series, plot, look) => ({
    type: "scatter", mode: "markers", name: series.name, x: series.x, y: series.y,
    customdata: series.x.map((_, i) => [series.lower[i], series.upper[i]]),
    marker: { color: look.soft, size: 6 },
    error_y: {
      type: "data", symmetric: false, color: look.soft, thickness: 1.6, width: 4,
      array: series.y.map((y, i) => series.upper[i] - y), arrayminus: series.y.map((y, i) => y - series.lower[i]),
    },
    hovertemplate: `%{y:.2f} (%{customdata[0]:.2f} to %{customdata[1]:.2f})${plot.unit}<extra>%{fullData.name}</extra>`,
  });

  const line = (series, plot, look) => {
    const row = series.row;
    const colour = row === null ? look.ink : look.rows[row % COLOURS];
    const dotted = series.what === "mean target";
    const onClasses = plot.x !== "epoch";
    const digits = plot.unit ? 1 : 3;
    const known = series.spread.some((value) => value !== null);
    const symbol = SYMBOLS[(row ?? 0) % SYMBOLS.length];
    return {
      type: "scatter", mode: onClasses && row !== null && series.x.length <= 30 ? "lines+markers" : "lines",
      name: series.name, x: series.x, y: series.y, customdata: series.spread, connectgaps: false,
      line: {
        color: colour, width: row === null ? 3 : dotted ? 1.8 : 2.2, shape: "linear",
        dash: dotted ? "dot" : DASHES[Math.floor((row ?? 0) / COLOURS) % DASHES.length],
      },
      marker: { color: dotted ? look.card : colour, size: 7, symbol, line: { color: dotted ? colour : look.card, width: dotted ? 1.5 : 1 } },
      hovertemplate: `%{y:.${digits}f}${known ? ` ± %{customdata:.${digits}f}` : ""}${plot.unit}<extra>%{fullData.name}</extra>`,
    };
  };

  // With two lines per row, bands would hide more than they show.
  const banded = (plot) => plot.x === "epoch" && plot.series.every((series) => !series.what);

  const traces = (plot, look, hidden) => {
    const shown = plot.series.filter((series) => !hidden.has(series.row));
    const bands = banded(plot)
      ? shown.filter((series) => series.spread.some((value) => value !== null))
        .map((series) => band(series, look.rows[series.row % COLOURS], Math.min(0.14, 0.9 / shown.length)))
      : [];
    return [...bands, ...shown.map((series) => (series.lower ? interval : line)(series, plot, look))];
  };

  // Plain percentages read better than plotly's 2, 5, 10n; over many decades, label powers of ten only.
  const logTicks = (plot) => {
    const values = plot.series.flatMap((series) => series.y).filter((value) => value > 0);
    const decades = Math.log10(Math.max(...values) / Math.min(...values));
    const steps = decades > 3 ? [1] : [1, 2, 5];
    const ticks = Array.from({ length: 12 }, (_, i) => steps.map((step) => step * 10 ** (i - 9))).flat();
    return { type: "log", tickmode: "array", tickvals: ticks, ticktext: ticks.map((tick) => String(Number(tick.toPrecision(1)))) };
  };

  // A little below zero, so that markers at zero are not cut in half.
  const fromZero = (plot) => {
    const spread = (series, i) => (banded(plot) ? series.spread[i] ?? 0 : 0);
    const highest = Math.max(plot.uniform ?? 0, ...plot.series.flatMap((series) => series.y.map((y, i) => (y ?? 0) + spread(series, i))));
    const top = plot.unit ? Math.min(highest, 100) : highest; // a band may pass 100 %, a share cannot
    return [-0.03 * top, 1.05 * top];
  };

  // Labels that do not fit side by side are drawn upright; make the box taller so that the plot keeps its height.
  const makeRoom = (plot, box) => {
    box.style.height = "";
    if (plot.x === "epoch") return;
    const labels = plot.series[0].x;
    const longest = 6.5 * Math.max(...labels.map((label) => label.length));
    if (longest * Math.min(labels.length, 40) > box.clientWidth - 60) box.style.height = `${box.clientHeight + longest - 20}px`;
  };

  const layout = (plot, look, box) => {
    const axis = {
      color: look.soft, gridcolor: look.grid, linecolor: look.rule, zeroline: false, automargin: true, ticks: "",
      tickfont: { size: 12, color: look.soft }, fixedrange: matchMedia("(pointer: coarse)").matches,
    };
    const titled = (text) => ({ text, standoff: 10, font: { size: 12.5, color: look.soft } });
    return {
      width: box.clientWidth, height: box.clientHeight, uirevision: "kept", showlegend: false,
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: look.font, size: 12.5, color: look.ink },
      margin: { l: 48, r: 12, t: 30, b: 44 },
      // Dragging a finger over a plot should scroll the page.
      dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom",
      hovermode: "x unified",
      hoverlabel: { bgcolor: faded(look.card, 0.94), bordercolor: look.rule, namelength: -1, font: { family: look.font, size: 12, color: look.ink } },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: look.soft, activecolor: look.ink },
      xaxis: {
        ...axis, title: titled(plot.x), showgrid: false, showline: true, showspikes: true, spikemode: "across", spikethickness: 1,
        spikedash: "solid", spikecolor: look.rule, ...(plot.x !== "epoch" ? { type: "category" } : Math.max(...plot.series.flatMap((series) => series.x)) <= 10 ? { dtick: 1 } : {}),
      },
      yaxis: { ...axis, title: titled(plot.y), ...(plot.log ? logTicks(plot) : { range: fromZero(plot) }) },
      shapes: plot.uniform === null ? [] : [{
        type: "line", xref: "paper", x0: 0, x1: 1, y0: plot.uniform, y1: plot.uniform, line: { color: look.ink, width: 1.3, dash: "dash" },
      }],
    };
  };

  const config = {
    displaylogo: false, doubleClick: "reset",
    // Listed explicitly, because plotly's default includes a button that sends the data to its server.
    modeBarButtons: [["toImage", "resetScale2d"]], showSendToCloud: false, plotlyServerURL: "",
  };

  const draw = () => {
    const look = theme();
    for (const { box, part, data } of plots) {
      if (part.hidden) continue; // drawn when it is shown
      makeRoom(data, box);
      Plotly.react(box, traces(data, look, hiddenRows.get(part)), layout(data, look, box), { ...config, toImageButtonOptions: { filename: box.id, scale: 2 } });
    }
  };

  let waiting = 0;
  const drawSoon = () => {
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(draw);
  };

  for (const [part, hidden] of hiddenRows) {
    const buttons = [...part.querySelectorAll(".legend button")];
    for (const button of buttons) {
      button.addEventListener("click", () => {
        const row = Number(button.dataset.row);
        if (!hidden.delete(row)) hidden.add(row);
        for (const other of buttons) other.setAttribute("aria-pressed", String(!hidden.has(Number(other.dataset.row))));
        draw();
      });
    }
  }

  const choices = [...document.querySelectorAll(".filters select")];
  const choose = () => {
    let shown = 0;
    for (const part of hiddenRows.keys()) {
      const setting = JSON.parse(part.dataset.setting);
      part.hidden = choices.some((choice) => choice.value && setting[choice.dataset.name] !== choice.value);
      shown += part.hidden ? 0 : 1;
    }
    const count = document.getElementById("shown");
    if (count) count.textContent = `${shown} of ${hiddenRows.size} settings`;
    draw();
  };
  for (const choice of choices) choice.addEventListener("change", choose);
  // Drawing many settings takes long, so only the first one is shown at the start.
  if (hiddenRows.size > 4) {
    const first = JSON.parse(hiddenRows.keys().next().value.dataset.setting);
    for (const choice of choices) choice.value = first[choice.dataset.name];
  }
  choose();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawSoon);
  addEventListener("resize", drawSoon);
})();
