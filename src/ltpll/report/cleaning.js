// Shows and searches the examples; all text is inserted as text, never as markup.
"use strict";
(() => {
  const { classes, examples, n, calibrated } = JSON.parse(document.getElementById("data").textContent);
  const PAGE = 20;
  const [cards, count, more, text, kind] = ["cards", "found", "more", "text", "kind"].map((id) => document.getElementById(id));
  const isFlagged = (one) => one.suggestion !== null;
  examples.forEach((one, number) => {
    one.number = number;
    const labels = isFlagged(one) ? [...one.candidates, one.suggestion] : one.candidates;
    one.words = [one.id, ...labels.map((c) => classes[c]), ...one.shown.flat()].join(" ").toLowerCase();
  });
  const percent = (value) => `${(100 * value).toFixed(1).replace("-", "−")}%`;

  const element = (name, className, ...content) => {
    const made = document.createElement(name);
    if (className) made.className = className;
    made.append(...content);
    return made;
  };

  // Text of the user, which may be written from right to left, stays by itself.
  const bdi = (text) => element("bdi", "", text);

  const card = (one) => {
    const made = element("article", "card");
    if (one.picture) {
      const image = element("img");
      image.src = one.picture;
      image.alt = `Picture of ${one.id}`;
      image.loading = "lazy";
      made.append(image);
    }
    made.append(element("div", "id", one.id));
    if (one.shown.length) {
      const columns = one.shown.map(([column, value]) => element("span", "", element("b", "", column), " ", bdi(value)));
      made.append(element("p", "shown", ...columns));
    }
    const votes = new Map(one.votes);
    const chip = (c, className, mark = "") => {
      const made = element("span", className, bdi(classes[c]), mark);
      if (votes.has(c)) made.append(" ", element("span", "votes", votes.get(c) === 1 ? "1 vote" : `${votes.get(c)} votes`));
      return made;
    };
    const order = [...one.candidates].sort((a, b) => (b === one.label) - (a === one.label));
    const chips = order.map((c) => chip(c, c === one.label ? "chip chosen" : "chip"));
    if (!one.candidates.includes(one.label)) chips.push(chip(one.label, "chip chosen outside"));
    if (isFlagged(one) && one.suggestion !== one.label) chips.push(chip(one.suggestion, "chip outside", "?"));
    made.append(element("div", "chips", ...chips));
    const ambiguous = one.candidates.length > 1;
    const figures = [`confidence ${percent(one.confidence)}`];
    if (ambiguous) figures.push(`margin ${percent(one.margin)}`);
    if (one.judged) figures.push(calibrated ? `suspicion ${percent(one.suspicion)}` : `suspicion: rank ${one.rank.toLocaleString("en")} of ${n.toLocaleString("en")}`);
    const lines = [figures.flatMap((figure, i) => [i ? " · " : "", element("span", "", figure)])];
    if (ambiguous && one.margin < 0) lines.push(["out of fold, ", bdi(classes[one.runner_up]), " is likelier"]);
    const others = one.votes.filter(([c]) => ![...one.candidates, one.suggestion, one.label].includes(c));
    if (others.length) lines.push(["votes outside the set: ", ...others.flatMap(([c, n], i) => [i ? ", " : "", bdi(classes[c]), ` ${n}`])]);
    if (one.true !== null) lines.push(["true label: ", bdi(classes[one.true]), one.true === one.label ? " ✓" : ""]);
    made.append(...lines.map((line) => element("p", "numbers", ...line)));
    return made;
  };

  const KINDS = {
    doubtful: [() => true, (a, b) => a.confidence - b.confidence],
    flagged: [isFlagged, (a, b) => b.suspicion - a.suspicion],
    suspicious: [(one) => one.judged, (a, b) => a.rank - b.rank],
    uncertain: [(one) => one.candidates.length > 1, (a, b) => a.margin - b.margin],
    all: [() => true, (a, b) => a.number - b.number],
  };
  let found = [];
  let shown = 0;

  const showMore = () => {
    cards.append(...found.slice(shown, shown + PAGE).map(card));
    shown = Math.min(shown + PAGE, found.length);
    more.hidden = shown >= found.length;
    count.textContent = found.length ? `${shown.toLocaleString("en")} of ${found.length.toLocaleString("en")} shown` : "No example matches.";
  };

  const search = () => {
    const words = text.value.toLowerCase().split(/\s+/).filter(Boolean);
    const [fits, order] = KINDS[kind.value];
    found = examples.filter((one) => fits(one) && words.every((word) => one.words.includes(word))).sort(order);
    cards.replaceChildren();
    shown = 0;
    showMore();
  };

  text.addEventListener("input", search);
  kind.addEventListener("change", search);
  more.addEventListener("click", showMore);
  document.getElementById("search").addEventListener("submit", (event) => event.preventDefault());
  search();
})();
