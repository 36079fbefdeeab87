// Asks about one row at a time; all text is inserted as text, never as markup.
"use strict";
(() => {
  const at = (id) => document.getElementById(id);
  const { key, classes, separator, rows, served } = JSON.parse(at("data").textContent);
  const pictures = JSON.parse(at("pictures").textContent);
  const MATCHES = 12;
  const LOST = "This browser does not keep answers: download them before you close the page.";
  const text = at("text");
  const place = new Map(rows.map((row, i) => [row.id, i]));
  // For each answered row: the chosen class numbers, none of them if no class fits, null if it was
  // skipped; and how often it was looked at.
  const answers = new Map(rows.flatMap((row, i) => (row.answer === undefined ? [] : [[i, { chosen: row.answer, looks: 2 }]])));
  let history = [];
  let current = null;
  let several = null; // the classes chosen so far, while several are being chosen
  let warned = false;

  const element = (name, properties, ...content) => {
    const made = Object.assign(document.createElement(name), properties);
    made.append(...content);
    return made;
  };
  const plain = (words) => words.replace(/[\u202A-\u202E\u2066-\u2069]/g, "\uFFFD");
  // Text of the user, which may be written from right to left, stays by itself.
  const bdi = (words) => element("bdi", {}, plain(words));
  const say = (words) => { at("notice").textContent = words; at("notice").hidden = !words; };

  try {
    for (const [id, chosen, looks] of JSON.parse(localStorage.getItem(key) || "[]")) {
      if (place.has(id)) { answers.set(place.get(id), { chosen, looks }); history.push([place.get(id), undefined]); }
    }
  } catch { say(LOST); }

  const keep = () => {
    const kept = [...answers].map(([i, { chosen, looks }]) => [rows[i].id, chosen, looks]);
    try { localStorage.setItem(key, JSON.stringify(kept)); } catch { say(LOST); }
    if (!served) return;
    const body = JSON.stringify([...answers].map(([i, { chosen }]) => [i, chosen]));
    fetch("answers", { method: "POST", body }).then((reply) => { if (!reply.ok) throw reply; warned = false; say(""); })
      .catch(() => { if (!warned) say("Answers are not stored in the run any more: restart ltpll review --serve, or download them."); warned = true; });
  };

  const answer = (chosen) => {
    if (current === null) return;
    const before = answers.get(current);
    answers.delete(current); // the latest answer comes last
    answers.set(current, { chosen, looks: before ? 2 : 1 });
    history.push([current, before]);
    keep();
    show();
  };

  const undo = () => {
    if (!history.length) return;
    const [i, before] = history.pop();
    answers.delete(i);
    if (before) answers.set(i, before);
    keep();
    show(i);
  };

  // A random row whose answer is not its label is shown again, because slips would count as wrong labels.
  const again = (i) => { const given = answers.get(i); return rows[i].asked === "audit" && given.looks === 1 && given.chosen && !given.chosen.includes(rows[i].label); };
  const next = () => {
    const open = rows.findIndex((_, i) => !answers.has(i));
    return open >= 0 ? open : rows.findIndex((_, i) => again(i));
  };

  const button = (c, className, number) => {
    const made = element("button", { type: "button", className }, bdi(classes[c]));
    if (number <= 9) made.append(element("kbd", {}, String(number)));
    if (several) made.setAttribute("aria-pressed", several.has(c));
    made.addEventListener("click", () => choose(c));
    return made;
  };
  const choices = () => (rows[current].other < 0 ? rows[current].set : [...rows[current].set, rows[current].other]);

  const choose = (c) => {
    if (!several) { answer([c]); return; }
    if (!several.delete(c)) several.add(c);
    draw();
  };

  const draw = () => {
    const row = rows[current];
    const content = [];
    if (pictures[current]) content.push(element("img", { src: pictures[current], alt: `Picture of ${plain(row.id)}` }));
    const values = [...row.shown, ["id", row.id]].flatMap(([name, value]) => [element("dt", {}, bdi(name)), element("dd", {}, bdi(value))]);
    content.push(element("dl", {}, ...values));
    content.push(element("div", { className: "choices" }, ...choices().map((c, k) => button(c, row.set.includes(c) ? "" : "outside", k + 1))));
    at("row").replaceChildren(...content);
    at("several").setAttribute("aria-pressed", several !== null);
    at("several").firstChild.data = several && several.size ? `Answer with these ${several.size} ` : "Several ";
    find();
  };

  const show = (i = next()) => {
    current = i >= 0 ? i : null;
    several = null;
    text.value = "";
    const done = answers.size;
    at("progress").max = rows.length;
    at("progress").value = done;
    at("count").textContent = current !== null && answers.has(current) ? "Please look at this row once more" : `${done.toLocaleString("en")} of ${rows.length.toLocaleString("en")}`;
    at("search").hidden = current === null;
    at("undo").disabled = !history.length;
    for (const id of ["several", "nothing", "skip"]) at(id).disabled = current === null;
    if (current !== null) { draw(); return; }
    at("row").replaceChildren(element("p", {}, served ? "All rows are answered. The answers are stored in the run: stop ltpll review, and run ltpll audit." : "All rows are answered. Download the answers, and give them to ltpll audit."));
  };

  const find = () => {
    const words = text.value.toLowerCase().split(/\s+/).filter(Boolean);
    const own = new Set(choices());
    const fits = (c) => words.length ? words.every((word) => classes[c].toLowerCase().includes(word)) : several && several.has(c) && !own.has(c);
    const found = [];
    for (let c = 0; c < classes.length; c++) if (fits(c)) found.push(c);
    found.sort((a, b) => classes[a].length - classes[b].length);
    at("found").replaceChildren(...found.slice(0, MATCHES).map((c) => button(c, own.has(c) ? "" : "outside")));
    return found;
  };

  const confirm = () => { if (several && several.size) answer([...several].sort((a, b) => a - b)); };
  const toggle = () => { if (several && several.size) { confirm(); return; } several = several ? null : new Set(); draw(); };
  const nothing = () => { if (!at("nothing").hidden) answer([]); };

  // As ltpll writes and reads texts that a spreadsheet would run.
  const FORMULA = /^'*([\p{Z}\p{C}]*[=+\-@\uFF1D\uFF0B\uFF0D\uFF20]|[\t\r\n])/u;
  const NUMBER = /^\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+|inf|infinity)(e[+-]?[0-9]+)?\s*$/i;
  const cell = (value) => {
    const words = String(value);
    return `"${(FORMULA.test(words) && !NUMBER.test(words) ? `'${words}` : words).replaceAll('"', '""')}"`;
  };
  const names = (set) => set.map((c) => classes[c]);
  const csv = () => {
    const lines = [...answers].map(([i, { chosen }]) => {
      const given = chosen === null ? "" : chosen.length > 1 ? JSON.stringify(names(chosen)) : names(chosen)[0] ?? "none";
      return [rows[i].id, names(rows[i].set).join(separator), given, rows[i].asked, rows[i].probability].map(cell).join(",");
    });
    return ["id,candidates,answer,asked,probability", ...lines, ""].join("\n");
  };
  const download = () => {
    const url = URL.createObjectURL(new Blob([csv()], { type: "text/csv" }));
    element("a", { href: url, download: "answers.csv" }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10000);
  };

  const actions = { several: toggle, nothing, skip: () => answer(null), undo, download };
  for (const [id, act] of Object.entries(actions)) at(id).addEventListener("click", act);
  const KEYS = { m: toggle, 0: nothing, s: actions.skip, u: undo, Enter: confirm, "/": () => text.focus() };
  document.addEventListener("keydown", (event) => {
    const typing = event.target === text;
    if (event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
    if (typing && event.key === "Escape") { text.value = ""; find(); at("row").focus(); return; }
    if (typing || current === null && event.key !== "u" || (event.key === "Enter" && event.target.tagName === "BUTTON")) return;
    const number = "123456789".indexOf(event.key);
    if (event.key in KEYS) { event.preventDefault(); KEYS[event.key](); }
    else if (number >= 0 && event.key.length === 1 && number < choices().length) choose(choices()[number]);
  });
  text.addEventListener("input", find);
  at("search").addEventListener("submit", (event) => {
    event.preventDefault();
    const found = text.value ? find() : [];
    if (!found.length) { confirm(); return; }
    at("row").focus();
    text.value = "";
    choose(found[0]);
  });
  at("nothing").hidden = classes.some((name) => name === "none");
  show();
})();
