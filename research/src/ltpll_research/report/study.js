// Draws the plots from the JSON beside each of them in the colours of the style sheet, and shows the settings that are chosen.
"use strict";
(() => {
  const parts = [...document.querySelectorAll(".setting")];
  const choices = [...document.querySelectorAll(".filters select")];
  const onTouch = matchMedia("(pointer: coarse)").matches;
  const config = {
    displaylogo: false, responsive: true,
    // Listed explicitly, because plotly's default includes a button that sends the data to its server.
    modeBarButtons: [["toImage", "resetScale2d"]], showSendToCloud: false, plotlyServerURL: "",
  };

  const draw = (box) => {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(`--${name}`).trim();
    const { data, layout } = JSON.parse(document.getElementById(box.id.replace("plot-", "data-")).textContent);
    for (const trace of data) trace.line.color = colour(trace.meta);
    const axis = { gridcolor: colour("grid"), linecolor: colour("rule"), zeroline: false, automargin: true };
    box.style.height = `${layout.height}px`;
    Plotly.react(box, data, {
      ...layout,
      xaxis: { ...axis, ...layout.xaxis, showgrid: false }, yaxis: { ...axis, ...layout.yaxis },
      font: { family: getComputedStyle(document.body).fontFamily, color: colour("soft") },
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      margin: { l: 48, r: 12, t: 12, b: 44 },
      legend: { orientation: "h", y: 1.02, yanchor: "bottom" }, showlegend: true,
      hovermode: "x unified", hoverlabel: { bgcolor: colour("card"), namelength: -1 },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: colour("soft"), orientation: "v" },
      dragmode: onTouch ? false : "zoom", // dragging a finger over a plot should scroll the page
    }, config);
  };

  const choose = () => {
    for (const part of parts) {
      const setting = JSON.parse(part.dataset.setting);
      part.hidden = choices.some((choice) => choice.value && setting[choice.dataset.name] !== choice.value);
      if (!part.hidden) part.querySelectorAll(".plot").forEach(draw);
    }
    const count = document.getElementById("shown");
    if (count) count.textContent = `${parts.filter((part) => !part.hidden).length} of ${parts.length} settings`;
  };
  for (const choice of choices) choice.addEventListener("change", choose);
  // Drawing many settings takes long, so only the first one is shown at the start.
  if (parts.length > 4) {
    const first = JSON.parse(parts[0].dataset.setting);
    for (const choice of choices) choice.value = first[choice.dataset.name];
  }
  choose();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", choose);
})();
