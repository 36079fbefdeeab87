// Shows and searches the examples; all text is inserted as text, never as markup.
"use strict";
(() => {
  const { classes, examples, pictures } = JSON.parse(document.getElementById("data").textContent);
  const [ID, CANDIDATES, LABEL, CONFIDENCE, MARGIN, SUSPICION, OUTSIDE, TRUE, NUMBER] = Array(9).keys();
  const PAGE = 20;
  const cards = document.getElementById("cards");
  const count = document.getElementById("found");
  const more = document.getElementById("more");
  const text = document.getElementById("text");
  const kind = document.getElementById("kind");
  const searchable = examples.map((one) =>
    [one[ID], ...one[CANDIDATES].map((c) => classes[c]), one[SUSPICION] > 0 ? classes[one[OUTSIDE]] : ""].join(" ").toLowerCase());
  const percent = (value) => `${(100 * value).toFixed(1)} %`;

  const element = (name, className, content) => {
    const made = document.createElement(name);
    if (className) made.className = className;
    if (content !== undefined) made.textContent = content;
    return made;
  };

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
    const chips = element("div", "chips");
    const order = [...one[CANDIDATES]].sort((a, b) => (b === one[LABEL]) - (a === one[LABEL]));
    for (const c of order) chips.append(element("span", c === one[LABEL] ? "chip chosen" : "chip", classes[c]));
    if (one[SUSPICION] > 0) chips.append(element("span", "chip outside", `${classes[one[OUTSIDE]]}?`));
    made.append(chips);
    const figures = [`confidence ${percent(one[CONFIDENCE])}`, `margin ${percent(one[MARGIN])}`];
    if (one[SUSPICION] > 0) figures.push(`suspicion ${percent(one[SUSPICION])}`);
    made.append(element("p", "numbers", figures.join(" · ")));
    if (one[TRUE] !== null) made.append(element("p", "numbers", `true label: ${classes[one[TRUE]]}`));
    return made;
  };

  const KINDS = {
    suspicious: [(one) => one[SUSPICION] > 0, (a, b) => b[SUSPICION] - a[SUSPICION]],
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
