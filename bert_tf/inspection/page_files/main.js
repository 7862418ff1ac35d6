// The page: its tabs, settings and panes, and the requests of the live page.

const TABS = {attention: "Attention", rollout: "Rollout", attributions: "Attributions", masked: "Masked words",
  lens: "Layer lens", neighbours: "Neighbours", heads: "Heads"};
const page = JSON.parse(get("data").textContent);
const state = {tab: "attention", layer: 0, head: -1, view: "lines", least: 0.05, hideSpecial: false, pair: "all", hidden: new Set(),
  method: "integrated gradients", level: "words", live: Boolean(page.live)};
const FEW = 5;  // answers that are shown at first
let panes = [];

class Pane {
  constructor(data, asked) {
    this.data = new Inspected(data);
    this.asked = asked;  // what the live page asked for, to ask again
    this.piece = -1;
    this.off = new Set();
    this.without = null;
    this.body = element("div", {role: "tabpanel"});
    this.facts = element("p", {className: "fact"});
    this.facts.setAttribute("aria-live", "polite");
    this.root = element("section", {className: "pane"});
    this.root.setAttribute("aria-label", visible(this.data.model));
    this.turn = this.request = 0;
    this.set = changes => change(changes);
    this.show();
  }

  show() {
    const data = this.data, pieces = element("div", {className: "pieces", role: "toolbar"});
    pieces.setAttribute("aria-label", "Pieces. Arrow keys, Home and End go to others, Enter chooses one, Escape none.");
    data.pieces.forEach((piece, place) => {
      const starts = data.isSpecial(place) || data.words[place] !== data.words[place - 1];
      const label = data.target?.pieceLabels?.[place];
      const button = element("button", {className: (data.isSpecial(place) ? "special " : "") + (starts ? "first" : "")}, short(piece, 24));
      if (label && !data.isSpecial(place)) button.append(element("small", {}, short(label)));
      button.title = data.fact(place);
      button.addEventListener("click", () => this.choose(this.piece === place ? -1 : place));
      pieces.append(button);
    });
    pieces.addEventListener("keydown", event => { if (event.key === "Escape") this.choose(-1); });
    roving(pieces, 1);
    this.buttons = [...pieces.children];
    this.pressed = null;
    const title = element("h2", {}, `${visible(data.model)}${data.task ? `: ${data.task}` : ""}`);
    const size = `${data.length} pieces, ${data.layers} layers of ${data.heads} heads${data.numCut ? `; ${data.numCut} pieces were cut` : ""}`;
    const parts = [title, element("p", {className: "quiet"}, size)];
    if (data.target) {
      const at = data.target.piece === null ? "" : ` at piece ${data.target.piece}, ${short(data.pieces[data.target.piece])}`;
      const {target} = data, explain = state.live && !target.isSimilarity ? number => this.explain(number) : null;
      const rows = answerRows(target, target.answers, explain), few = rows.slice(0, FEW);
      if (!few.some(row => row.best)) few[FEW - 1] = rows.find(row => row.best);
      const others = rows.filter(row => !few.includes(row));
      parts.push(element("h3", {}, `What the model says${at}`), bars(few));
      if (others.length) parts.push(element("details", {}, element("summary", {}, `${others.length} more`), bars(others)));
    }
    parts.push(element("h3", {}, "Pieces"), pieces, this.facts);
    if (state.live && data.target && data.target.piece !== null)
      parts.push(element("button", {onclick: () => this.explain(null)}, "Explain the answer at the chosen piece"));
    this.root.replaceChildren(...parts, this.body);
    this.tell();
  }

  choose(place) {
    this.piece = place;
    this.tell();
    this.redraw?.();
  }

  tell() {
    for (const button of this.pressed ?? this.buttons) button.setAttribute("aria-pressed", "false");
    this.pressed = this.buttons.slice(this.piece, this.piece + 1);  // of -1: none
    if (this.piece >= 0) this.buttons[this.piece].setAttribute("aria-pressed", "true");
    this.facts.textContent = this.piece < 0 ? "Choose a piece to follow it." : this.data.fact(this.piece);
  }

  async render() {
    this.redraw = this.afterShow = null;
    const tab = state.tab, turn = ++this.turn;
    this.body.setAttribute("aria-labelledby", `tab-${tab}`);
    const parts = await panels[tab](this, state);
    if (turn !== this.turn) return;  // something else was chosen meanwhile
    this.body.replaceChildren(...parts.filter(Boolean));
    await this.afterShow?.();
    this.body.dataset.shown = tab;
  }

  async toggle(layer, head) {
    const key = `${layer} ${head}`, data = this.data;
    if (this.off.has(key)) this.off.delete(key);
    else {
      if (!state.live) this.off.clear();  // a file has the change for one head at a time
      this.off.add(key);
    }
    this.without = null;
    if (this.off.size === 1 && data.headScores) {
      const [one, which] = [...this.off][0].split(" ").map(Number);
      this.without = data.target.answers.map((answer, place) => ({...answer, score: data.headScores[one][which][place],
        probability: data.headProbabilities ? data.headProbabilities[one][which][place] : null}));
    }
    this.redraw?.();
    if (this.off.size && !this.without && state.live) await this.askWithout();
  }

  // Asks for the answers without the heads that are off, again if others are off when they arrive.
  async askWithout() {
    if (this.asking) return;
    this.asking = true;
    for (let asked = null; this.off.size && !this.without && asked !== [...this.off].join();) {
      asked = [...this.off].join();
      const heads = [...this.off].map(pair => pair.split(" ").map(Number)), target = this.data.target;
      const answer = await ask("heads", {...this.asked, target: target.number, piece: target.piece, heads});
      if (answer && target === this.data.target && asked === [...this.off].join()) this.without = answer.answers;
    }
    this.asking = false;
    this.redraw?.();
  }

  async explain(number) {
    const piece = number === null && this.piece >= 0 ? this.piece : this.data.target.piece;
    const asked = {...this.asked, target: number, piece}, request = ++this.request;
    const answer = await ask("inspect", asked);
    if (!answer || request !== this.request) return;  // another answer was chosen meanwhile
    this.data = new Inspected(answer.inspection);
    this.asked = asked;
    this.off.clear();
    this.without = null;
    this.show();
    await this.render();
  }
}

function choice(label, name, options, value = state[name]) {
  const select = element("select", {id: `set-${name}`}, ...options.map(([key, text]) => element("option", {value: String(key), selected: String(key) === String(value)}, text)));
  select.addEventListener("change", () => change({[name]: typeof value === "number" ? Number(select.value) : select.value}));
  return element("label", {}, label, select);
}

function showControls() {
  const layers = Math.max(...panes.map(pane => pane.data.layers)), heads = Math.max(...panes.map(pane => pane.data.heads));
  const numbers = count => Array.from({length: count}, (_, number) => [number, String(number)]);
  const parts = [], tab = state.tab;
  if (tab === "attention") parts.push(choice("Show", "view", [["lines", "lines"], ["matrix", "matrix"], ["overview", "all heads"]]));
  if (tab === "rollout" || (tab === "attention" && state.view !== "overview")) parts.push(choice("Layer", "layer", numbers(layers)));
  if (tab === "attention" && state.view !== "overview") {
    parts.push(choice("Head", "head", [[-1, "mean"], ...(state.view === "lines" ? [[-2, "several, in colours"]] : []), ...numbers(heads)]));
    if (state.view === "lines" && state.head === -2) parts.push(headChoice(heads));
    if (state.view === "lines") {
      const output = element("output", {}, state.least.toFixed(2)), range = element("input", {type: "range", id: "set-least", min: "0", max: "0.5", step: "0.01", value: String(state.least)});
      range.addEventListener("input", () => {
        state.least = Number(range.value);
        state.hasLeast = true;
        output.textContent = state.least.toFixed(2);
        panes.forEach(pane => pane.redraw?.());
      });
      parts.push(element("label", {}, "Least weight", range, output));
    }
  }
  if (tab === "rollout" || (tab === "attention" && state.view !== "overview")) {
    const box = element("input", {type: "checkbox", id: "set-special", checked: state.hideSpecial});
    box.addEventListener("change", () => change({hideSpecial: box.checked}));
    parts.push(element("label", {}, box, "Without special tokens"));
    if (panes.some(pane => pane.data.texts.length > 1))
      parts.push(choice("Between", "pair", [["all", "all pieces"], ["0 0", "text 1 → text 1"], ["0 1", "text 1 → text 2"], ["1 0", "text 2 → text 1"], ["1 1", "text 2 → text 2"]]));
  }
  if (tab === "attributions") {
    const names = [...new Set(panes.flatMap(pane => Object.keys(pane.data.attributions)))];
    if (names.length) parts.push(choice("Method", "method", names.map(name => [name, name])), choice("Of", "level", [["words", "words"], ["pieces", "pieces"]]));
  }
  get("controls").replaceChildren(...parts);
}

// A switch for each head, with the colour of its lines.
function headChoice(heads) {
  const group = element("span", {className: "chips", role: "group"});
  group.setAttribute("aria-label", "Heads that are shown");
  for (let head = 0; head < heads; head++) {
    const swatch = element("i"), button = element("button", {id: `head-${head}`}, swatch, String(head));
    swatch.style.background = headTint(head, heads);
    button.setAttribute("aria-pressed", String(!state.hidden.has(head)));
    button.title = `Head ${head}. A double click shows it alone, or all.`;
    button.addEventListener("click", () => {
      if (!state.hidden.delete(head)) state.hidden.add(head);
      change({});
    });
    button.addEventListener("dblclick", () => {
      const others = Array.from({length: heads}, (_, one) => one).filter(one => one !== head);
      const alone = state.hidden.size === others.length && !state.hidden.has(head);
      change({hidden: new Set(alone ? [] : others)});
    });
    group.append(button);
  }
  return group;
}

async function change(changes) {
  Object.assign(state, changes);
  const focused = document.activeElement?.id;
  showTabs();
  showControls();
  if (focused) get(focused)?.focus();
  await Promise.all(panes.map(pane => pane.render()));
}

function showTabs() {
  get("tabs").replaceChildren(...Object.entries(TABS).map(([name, label]) => {
    const button = element("button", {role: "tab", id: `tab-${name}`, tabIndex: name === state.tab ? 0 : -1}, label);
    button.setAttribute("aria-selected", String(name === state.tab));
    button.addEventListener("click", () => change({tab: name}));
    return button;
  }));
}

async function showPanes(found) {
  panes = found;
  get("content").hidden = false;
  get("panes").replaceChildren(...panes.map(pane => pane.root));
  // In a long text the weights are small.
  if (!state.hasLeast) state.least = Math.min(0.05, Math.ceil(500 / Math.max(...panes.map(pane => pane.data.length))) / 100);
  await change({layer: Math.min(state.layer, panes[0].data.layers - 1)});
  panes.forEach(pane => pane.data.unpackAll());
}

async function ask(path, body) {
  get("error").textContent = "";
  get("status").textContent = "Computing …";
  get("go").disabled = true;
  const started = performance.now();
  try {
    const response = await fetch(path, {method: "POST", headers: {"Content-Type": "application/json"}, body: JSON.stringify(body)});
    const answer = await response.json();
    if (!response.ok) throw new Error(answer.error);
    get("status").textContent = `${((performance.now() - started) / 1000).toFixed(1)} s`;
    return answer;
  } catch (error) {
    get("error").textContent = visible(error.message);
    get("status").textContent = "";
    return null;
  } finally {
    get("go").disabled = false;
  }
}

function showForm(live) {
  const names = {text: "Text", pair: "Second text of the pair, if any", text_b: "Another text to compare with, side by side", pair_b: "Second text of its pair, if any"};
  if (live.models.length > 1) {
    names.text_b = `Text for ${short(live.models[1], 60)} (empty: the same)`;
    names.pair_b = "Second text of its pair (empty: the same)";
  }
  for (const [name, label] of Object.entries(names)) {
    const area = element("textarea", {id: `input-${name}`, rows: 2, maxLength: live.maxLength});
    area.value = live[name] ?? "";
    get("fields").append(element("label", {}, label, area));
  }
  get("form").hidden = false;
  get("form").addEventListener("submit", async event => {
    event.preventDefault();
    const [text, pair, other, otherPair] = Object.keys(names).map(name => get(`input-${name}`).value);
    const wanted = [{model: 0, text, pair: pair || null}];
    if (other) wanted.push({model: live.models.length - 1, text: other, pair: otherPair || null});
    else if (live.models.length > 1) wanted.push({model: 1, text, pair: otherPair || pair || null});
    else if (otherPair) {
      get("error").textContent = "A second pair needs another text to compare with.";
      return;
    }
    const found = [];
    for (const asked of wanted) {
      const answer = await ask("inspect", asked);
      if (!answer) return;
      found.push(new Pane(answer.inspection, asked));
    }
    await showPanes(found);
  });
}

get("tabs").addEventListener("keydown", event => {
  const step = {ArrowRight: 1, ArrowLeft: -1}[event.key], names = Object.keys(TABS);
  const next = event.key === "Home" ? 0 : event.key === "End" ? names.length - 1
    : step ? (names.indexOf(state.tab) + step + names.length) % names.length : -1;
  if (next < 0) return;
  event.preventDefault();
  change({tab: names[next]});
  get(`tab-${names[next]}`).focus();
});
get("theme").addEventListener("change", event => {
  if (event.target.value) document.documentElement.dataset.theme = event.target.value;
  else delete document.documentElement.dataset.theme;
  recolour();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolour);

function recolour() {
  colours.clear();
  panes.forEach(pane => pane.render());
}

let resizing;
addEventListener("resize", () => {
  clearTimeout(resizing);
  resizing = setTimeout(() => panes.forEach(pane => pane.afterShow?.()), 100);
});
document.title = get("title").textContent = visible(page.title);
if (page.live) showForm(page.live);
if (page.inspections.length) showPanes(page.inspections.map(data => new Pane(data, null)));
