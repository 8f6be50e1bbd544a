"use strict";
// Draws the charts of the page from the numbers in it, and offers those as files. Nothing is fetched: Vega's loader is
// one that refuses, its expressions are read by an interpreter, and texts are put into the page as text.
(() => {
  const data = JSON.parse(document.getElementById("report-data").textContent);
  const specs = JSON.parse(document.getElementById("report-charts").textContent);
  const tables = Object.assign({}, ...data.parts.map((part) => part.tables));
  const refuse = () => Promise.reject(new Error("this page loads nothing"));
  const loader = { load: refuse, sanitize: refuse, http: refuse, file: refuse };
  const font = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif";
  const config = {
    background: "transparent",
    font,
    view: { stroke: null },
    axis: {
      labelColor: "var(--ink)", titleColor: "var(--ink)", domainColor: "var(--faint)", tickColor: "var(--faint)",
      gridColor: "var(--faint)", labelFontSize: 12, titleFontSize: 12, titleFontWeight: "normal",
    },
    legend: {
      labelColor: "var(--ink)", titleColor: "var(--ink)", labelFontSize: 12, titleFontSize: 12,
      titleFontWeight: "normal",
    },
    text: { color: "var(--ink)" },
  };

  const records = ({ columns, rows }) =>
    rows.map((row) => Object.fromEntries(columns.map((name, place) => [name, row[place]])));

  // The names of the tables that a spec draws, wherever in its layers they stand.
  const named = (spec) =>
    [spec.data && spec.data.name, ...(spec.layer || []).flatMap(named)].filter((name) => name !== undefined);

  const draw = async (place) => {
    const spec = specs[place.dataset.chart];
    const whole = {
      width: "container",
      autosize: { type: spec.width ? "pad" : "fit-x", contains: "padding" },
      ...spec,
      datasets: Object.fromEntries(named(spec).map((name) => [name, records(tables[name])])),
    };
    if (spec.width) {
      whole.width = Math.min(spec.width, place.clientWidth - 90);
      if (spec.height === spec.width) whole.height = whole.width;
    }
    // What does not fit beside or above the marks is cut with an ellipsis, and told by pointing at it.
    const beside = Math.min(360, 0.42 * place.clientWidth);
    const fitted = {
      ...config,
      axisY: { labelLimit: beside },
      legend: { ...config.legend, labelLimit: Math.max(120, 0.5 * place.clientWidth - 30) },
    };
    const compiled = vegaLite.compile(whole, { config: fitted }).spec;
    const view = new vega.View(vega.parse(compiled, null, { ast: true }), {
      expr: vegaInterpreter.expressionInterpreter,
      loader,
      renderer: "svg",
      container: place,
      hover: false,
    });
    await view.runAsync();
  };

  const failed = (place, error) => {
    place.classList.add("failed");
    place.textContent = `This chart could not be drawn (${error.message}); its numbers are below it.`;
  };

  // A cell that a spreadsheet would take for a formula is kept a text.
  const cell = (value) => {
    if (value === null) return "";
    const text = typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value);
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  const csv = ({ columns, rows }) => [columns, ...rows].map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";

  const offer = (link, name, type, text) => {
    link.download = name;
    link.href = URL.createObjectURL(new Blob([text()], { type }));
    link.hidden = false;
  };

  const main = async () => {
    for (const link of document.querySelectorAll("a.csv")) {
      offer(link, `${link.dataset.table}.csv`, "text/csv;charset=utf-8", () => csv(tables[link.dataset.table]));
    }
    for (const link of document.querySelectorAll("a.json")) {
      offer(link, "report.json", "application/json", () => JSON.stringify(data, null, 1));
    }
    for (const place of document.querySelectorAll("[data-chart]")) {
      await draw(place).catch((error) => failed(place, error));
    }
    document.documentElement.dataset.drawn = "yes";
  };

  // Tables that are wider than the window say so: a touch screen shows no scroll bar.
  const hint = () => {
    for (const place of document.querySelectorAll(".scroll")) {
      place.classList.toggle("more", place.scrollWidth > place.clientWidth + 1);
    }
  };
  addEventListener("resize", hint);
  document.addEventListener("toggle", hint, true);
  hint();

  // What is folded on the screen is printed whole.
  let folded = [];
  addEventListener("beforeprint", () => {
    folded = [...document.querySelectorAll("details:not([open])")];
    folded.forEach((one) => { one.open = true; });
  });
  addEventListener("afterprint", () => folded.forEach((one) => { one.open = false; }));
  main();
})();
