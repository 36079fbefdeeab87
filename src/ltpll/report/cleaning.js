// Shows and searches the examples; all text is inserted as text, never as markup.
"use strict";
(() => {
  const { classes, examples, pictures } = JSON.parse(document.getElementById("data").textContent);
  const [ID, CANDIDATES, LABEL, RUNNER_UP, CONFIDENCE, MARGIN, SUSPICION, SUGGESTION, TRUE, VOTES, , SHOWN, NUMBER] = Array(13).keys();
  const PAGE = 20;
  const cards = document.getElementById("cards");
  const count = document.getElementById("found");
  const more = document.getElementById("more");
  const text = document.getElementById("text");
  const kind = document.getElementById("kind");
  const isFlagged = (one) => one[SUGGESTION] !== null;
  const searchable = examples.map((one) =>
    [one[ID], ...one[CANDIDATES].map((c) => classes[c]), isFlagged(one) ? classes[one[SUGGESTION]] : "", ...one[SHOWN].flat()].join(" ").toLowerCase());
  const percent = (value) => `${(100 * value).toFixed(1).replace("-", "−")}%`;

  const element = (name, className, content) => {
    const made = document.createElement(name);
    if (className) made.className = className;
    if (content !== undefined) made.textContent = content;
    return made;
  };

  // Text of the user, which may be written from right to left, stays by itself.
  const name = (text) => element("bdi", "", text);

  const card = (one) => {
    const made = element("article", "card");
    const picture = pictures[one[NUMBER]];
    if (picture) {
      const image = element("img");
      image.src = picture;
      image.alt = `Picture of ${one[ID]}`;
      image.loading = "lazy";
      made.append(image);
    }
    made.append(element("div", "id", one[ID]));
    if (one[SHOWN].length) made.append(element("p", "shown"));
    for (const [column, value] of one[SHOWN]) {
      const part = element("span");
      part.append(element("b", "", column), " ", name(value));
      made.lastChild.append(part);
    }
    const chips = element("div", "chips");
    const votes = new Map(one[VOTES] ?? []);
    const chip = (c, className, mark = "") => {
      const made = element("span", className);
      made.append(name(classes[c]), mark);
      if (votes.has(c)) made.append(" ", element("span", "votes", votes.get(c) === 1 ? "1 vote" : `${votes.get(c)} votes`));
      return made;
    };
    const order = [...one[CANDIDATES]].sort((a, b) => (b === one[LABEL]) - (a === one[LABEL]));
    for (const c of order) chips.append(chip(c, c === one[LABEL] ? "chip chosen" : "chip"));
    if (!one[CANDIDATES].includes(one[LABEL])) chips.append(chip(one[LABEL], "chip chosen outside"));
    if (isFlagged(one) && one[SUGGESTION] !== one[LABEL]) chips.append(chip(one[SUGGESTION], "chip outside", "?"));
    made.append(chips);
    const ambiguous = one[CANDIDATES].length > 1;
    const figures = [`confidence ${percent(one[CONFIDENCE])}`];
    if (ambiguous) figures.push(`margin ${percent(one[MARGIN])}`);
    if (one[SUSPICION] !== null) figures.push(`suspicion ${percent(one[SUSPICION])}`);
    const numbers = element("p", "numbers");
    figures.forEach((figure, i) => numbers.append(i ? " · " : "", element("span", "", figure)));
    made.append(numbers);
    const lines = [];
    if (ambiguous && one[MARGIN] < 0) lines.push(["out of fold, ", name(classes[one[RUNNER_UP]]), " is likelier"]);
    const others = [...votes.keys()].filter((c) => !one[CANDIDATES].includes(c) && c !== one[SUGGESTION] && c !== one[LABEL]);
    if (others.length) lines.push(["votes outside the set: ", ...others.flatMap((c, i) => [i ? ", " : "", name(classes[c]), ` ${votes.get(c)}`])]);
    if (one[TRUE] !== null) lines.push(["true label: ", name(classes[one[TRUE]]), one[TRUE] === one[LABEL] ? " ✓" : ""]);
    for (const line of lines) {
      made.append(element("p", "numbers"));
      made.lastChild.append(...line);
    }
    return made;
  };

  const KINDS = {
    suspicious: [isFlagged, (a, b) => b[SUSPICION] - a[SUSPICION]],
    uncertain: [(one) => one[CANDIDATES].length > 1, (a, b) => a[MARGIN] - b[MARGIN]],
    all: [() => true, (a, b) => a[NUMBER] - b[NUMBER]],
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
    found = examples.filter((one) => fits(one) && words.every((word) => searchable[one[NUMBER]].includes(word))).sort(order);
    cards.replaceChildren();
    shown = 0;
    showMore();
  };

  if (!examples.some(KINDS.suspicious[0])) kind.value = "uncertain";
  text.addEventListener("input", search);
  kind.addEventListener("change", search);
  more.addEventListener("click", showMore);
  document.getElementById("search").addEventListener("submit", (event) => event.preventDefault());
  search();
})();
