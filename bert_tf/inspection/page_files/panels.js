// What each tab shows in a pane. A pane has `data` (an `Inspected`), `piece`, `off` and `body`.

const MANY = 64;  // pieces: with more, the lines of several heads would cover each other

function why(data, name) {
  return data.leftOut[name] ? element("p", {className: "quiet"}, `Not computed: ${data.leftOut[name]}.`) : null;
}

function bars(rows) {
  // Rows of {label, place, share, text, best, onclick}; share from -1 to 1 with `centred`.
  const list = element("div", {className: "bars"});
  for (const row of rows) {
    const name = element(row.onclick ? "button" : "span", {className: row.best ? "name best" : "name"},
      row.place === undefined ? short(row.label, 40) : numbered(row.label, row.place, 40));
    if (row.onclick) name.addEventListener("click", row.onclick);
    name.title = visible(row.label);
    const fill = element("i"), track = element("div", {className: row.centred ? "track centred" : "track"}, fill);
    const length = Math.min(1, Math.abs(row.share)) * (row.centred ? 50 : 100);
    fill.style.width = `${length}%`;
    fill.style.left = row.centred ? `${row.share < 0 ? 50 - length : 50}%` : "0";
    if (row.share < 0) fill.className = "less";
    list.append(name, track, element("span", {className: row.best ? "value best" : "value"}, row.text));
  }
  return list;
}

function answerRows(target, answers, onchoose) {
  const scores = answers.map(answer => answer.score), top = Math.max(...scores.map(Math.abs), 1e-9);
  return answers.map((answer, place) => ({
    label: answer.label,
    share: answer.probability ?? answer.score / top,
    centred: answer.probability === null && Math.min(...scores) < 0,
    text: answer.probability === null ? decimal(answer.score, 3) : `${percent(answer.probability)} (${decimal(answer.score, 2)})`,
    best: answer.number === target.number,
    onclick: onchoose ? () => onchoose(answer.number) : null,
  }));
}

function tint(value, most) {
  const part = Math.min(1, Math.abs(value) / (most || 1));
  return `color-mix(in srgb, var(--${value < 0 ? "less" : "more"}) ${Math.round(75 * part)}%, transparent)`;
}

const panels = {};

panels.attention = async (pane, state) => {
  const data = pane.data, layer = Math.min(state.layer, data.layers - 1);
  const head = Math.min(state.head, data.heads - 1), allows = pairs(data, state);
  if (state.view === "overview") return overview(pane, state);
  const names = head === -2 ? "the heads" : head === -1 ? "the mean of the heads" : `head ${head}`;
  if (head >= 0 && !data.kept[layer].includes(head))
    return [element("p", {className: "quiet"}, `Head ${head} of layer ${layer} is pruned.`)];
  if (state.view === "matrix") {
    const weights = await data.weights(layer, Math.max(head, -1));
    return matrix(pane, weights, allows, `Attention of ${head < 0 ? "the mean of the heads" : names} of layer ${layer}`);
  }
  const heads = head === -2 ? data.kept[layer].filter(one => !state.hidden.has(one)) : [head], layers = [];
  for (const one of heads)
    layers.push({weights: await data.weights(layer, one), tint: head === -2 ? resolved(headTint(one, data.heads)) : colour("more")});
  const canvas = element("canvas", {tabIndex: 0, role: "img"});
  canvas.setAttribute("aria-label", `Lines: attention of ${names} of layer ${layer}. Arrow keys choose a piece, Escape all.`);
  const spacer = element("div"), box = element("div", {className: "scroll lines"}, canvas, spacer);
  const note = element("p", {className: "quiet"}), facts = element("div");
  const few = head === -2 && data.length > MANY;
  let hover = null;
  const draw = () => measured("lines", () => {
    const chosen = hover ?? (pane.piece < 0 ? null : {place: pane.piece, side: "from"});
    const left = drawLines(canvas, box, data, few && !chosen ? [] : layers, allows, state.least, chosen);
    note.textContent = left ? `Only the strongest lines are drawn: ${left.toLocaleString("en")} others are left out.` : "";
  });
  const frame = () => { cancelAnimationFrame(pane.frame); pane.frame = requestAnimationFrame(draw); };
  const at = event => {
    const place = Math.floor((event.clientY - box.getBoundingClientRect().top - box.clientTop + box.scrollTop) / ROW);
    if (place < 0 || place >= data.length) return null;
    return {place, side: event.offsetX < canvas.clientWidth / 2 ? "from" : "to"};
  };
  box.addEventListener("scroll", frame);
  canvas.addEventListener("pointermove", event => {
    if (event.pointerType !== "mouse") return;
    hover = at(event);
    frame();
  });
  canvas.addEventListener("pointerleave", () => { hover = null; frame(); });
  canvas.addEventListener("click", event => {
    const place = at(event)?.place ?? -1;
    pane.choose(place === pane.piece ? -1 : place);
  });
  canvas.addEventListener("keydown", event => {
    const step = {ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10}[event.key];
    if (event.key === "Escape") pane.choose(-1);
    else if (step) pane.choose(Math.max(0, Math.min(data.length - 1, pane.piece + step)));
    else return;
    event.preventDefault();
  });
  pane.redraw = () => {
    if (pane.piece >= 0) {
      const y = pane.piece * ROW;
      if (y < box.scrollTop) box.scrollTop = y;
      if (y + ROW > box.scrollTop + box.clientHeight) box.scrollTop = y + ROW - box.clientHeight;
    }
    draw();
    facts.replaceChildren(...received(data, layers, pane.piece, allows));
  };
  pane.afterShow = () => {
    box.style.height = `${Math.min(data.length * ROW + 2, Math.max(300, innerHeight * 0.7))}px`;
    spacer.style.height = `${Math.max(0, data.length * ROW - box.clientHeight)}px`;
    pane.redraw();
  };
  const hint = `From the pieces on the left to those on the right: ${names} of layer ${layer}.`
    + (few ? ` With more than ${MANY} pieces, only the lines of the piece that is chosen or under the pointer.` : "");
  return [element("p", {className: "quiet"}, hint), box, note, facts];
};

// The pieces that the chosen piece attends to most, as text.
function received(data, layers, from, allows) {
  if (from < 0 || !layers.length) return [];
  const mean = to => layers.reduce((sum, {weights}) => sum + weights[from * data.length + to], 0) / layers.length;
  const most = Array.from({length: data.length}, (_, to) => [mean(to), to]).filter(([, to]) => allows(from, to));
  most.sort((one, other) => other[0] - one[0]);
  const title = element("h3", {}, `${numbered(data.pieces[from], from)} attends to`);
  return [title, bars(most.slice(0, 8).map(([weight, to]) => ({label: data.pieces[to], place: to, share: weight, text: share(weight)})))];
}

function pairs(data, state) {
  const number = state.pair === "all" || data.texts.length < 2 ? null : state.pair.split(" ").map(Number);
  return (from, to) => {
    if (state.hideSpecial && (data.isSpecial(from) || data.isSpecial(to))) return false;
    return number === null || (data.textOf[from] === number[0] && data.textOf[to] === number[1]);
  };
}

function matrix(pane, weights, allows, label) {
  const data = pane.data, canvas = element("canvas", {tabIndex: 0, role: "img"});
  const box = element("div", {className: "scroll"}, canvas), facts = element("p", {className: "fact"});
  facts.setAttribute("aria-live", "polite");
  let shape = null, image = null, cursor = pane.piece >= 0 ? {from: pane.piece, to: 0} : null;
  canvas.setAttribute("aria-label", `${label}, a matrix: rows attend to columns. Arrow keys move the cell that is read out.`);
  const name = place => numbered(data.pieces[place], place);
  const tell = cell => {
    facts.textContent = cell ? `From ${name(cell.from)} to ${name(cell.to)}: ${share(weights[cell.from * data.length + cell.to])}`
      : "Rows are the pieces that attend, columns those that are attended to.";
  };
  const draw = () => measured("matrix", () => {
    image ??= picture(weights, data.length, allows, rgb("more"), rgb("zero"));
    shape = drawMatrix(canvas, box.clientWidth, data, image, cursor);
    tell(cursor);
  });
  const move = (from, to) => {
    const inside = place => Math.max(0, Math.min(data.length - 1, place));
    cursor = {from: inside(from), to: inside(to)};
    draw();
    showCell();
  };
  // Keeps the cell in view when the matrix is larger than its box.
  const showCell = () => {
    const [x, y] = [cursor.to, cursor.from].map(place => shape.edge + place * shape.cell);
    box.scrollLeft = Math.min(Math.max(box.scrollLeft, x + 2 * shape.cell - box.clientWidth), Math.max(0, x - shape.cell));
    box.scrollTop = Math.min(Math.max(box.scrollTop, y + 2 * shape.cell - box.clientHeight), Math.max(0, y - shape.cell));
  };
  const cellAt = event => {
    const cell = {from: Math.floor((event.offsetY - shape.edge) / shape.cell), to: Math.floor((event.offsetX - shape.edge) / shape.cell)};
    return Math.min(cell.from, cell.to) >= 0 && Math.max(cell.from, cell.to) < data.length ? cell : null;
  };
  canvas.addEventListener("pointermove", event => tell(cellAt(event) ?? cursor));
  canvas.addEventListener("pointerleave", () => tell(cursor));
  canvas.addEventListener("keydown", event => {
    const step = {ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1]}[event.key];
    if (!step) return;
    event.preventDefault();
    move((cursor?.from ?? 0) + step[0], (cursor?.to ?? 0) + step[1]);
  });
  canvas.addEventListener("click", event => {
    const cell = cellAt(event);
    if (cell) move(cell.from, cell.to);
  });
  pane.redraw = () => {
    if (pane.piece >= 0) cursor = {from: pane.piece, to: cursor?.to ?? 0};
    draw();
  };
  pane.afterShow = draw;
  return [element("p", {className: "quiet"}, `${label}.`), facts, box];
}

function overview(pane, state) {
  const data = pane.data, grid = element("div", {className: "grid", role: "group"});
  grid.setAttribute("aria-label", "All heads, a small matrix each. Enter shows the lines of a head.");
  grid.style.gridTemplateColumns = `auto repeat(${data.heads}, auto)`;
  grid.append(element("span"), ...Array.from({length: data.heads}, (_, head) => element("span", {className: "label"}, String(head))));
  const canvases = [];
  for (let layer = 0; layer < data.layers; layer++) {
    grid.append(element("span", {className: "label"}, String(layer)));
    canvases.push(Array.from({length: data.heads}, (_, head) => {
      const canvas = element("canvas");
      const button = element("button", {title: `Layer ${layer}, head ${head}`, disabled: !data.kept[layer].includes(head)}, canvas);
      button.setAttribute("aria-label", `Layer ${layer}, head ${head}`);
      if (layer === state.layer && head === state.head) button.className = "chosen";
      button.addEventListener("click", () => pane.set({layer, head, view: "lines"}));
      grid.append(button);
      return canvas;
    }));
  }
  roving(grid, data.heads);
  pane.redraw = () => {};
  pane.afterShow = async () => {
    const more = rgb("more"), zero = rgb("zero"), size = data.length ** 2;
    for (let layer = 0; layer < data.layers && grid.isConnected; layer++) {
      const bytes = await data.bytesOf(layer);
      measured("overview", () => canvases[layer].forEach((canvas, head) =>
        drawThumb(canvas, bytes.subarray(head * size, (head + 1) * size), data.length, more, zero)));
      await new Promise(requestAnimationFrame);
    }
    grid.dataset.ready = "yes";
  };
  return [element("p", {className: "quiet"}, "Rows are layers, columns heads. Choose a head to see its lines."), element("div", {className: "scroll"}, grid)];
}

panels.rollout = async (pane, state) => {
  const layer = Math.min(state.layer, pane.data.layers - 1), weights = await pane.data.rolloutWeights(layer);
  const parts = matrix(pane, weights, pairs(pane.data, state), `Attention rollout from the input to layer ${layer}`);
  const facts = element("div"), redraw = pane.redraw, afterShow = pane.afterShow;
  const tell = () => {
    const from = Math.max(pane.piece, 0), data = pane.data;
    const most = Array.from({length: data.length}, (_, to) => [weights[from * data.length + to], to]).sort((a, b) => b[0] - a[0]);
    facts.replaceChildren(element("h3", {}, `Most of ${numbered(data.pieces[from], from)} after layer ${layer} comes from`),
      bars(most.slice(0, 10).map(([weight, to]) => ({label: data.pieces[to], place: to, share: weight / most[0][0], text: share(weight)}))));
  };
  pane.redraw = () => { redraw(); tell(); };
  pane.afterShow = () => { afterShow(); tell(); };
  return [...parts, facts];
};

panels.attributions = (pane, state) => {
  const data = pane.data, names = Object.keys(data.attributions);
  const notes = ["integrated gradients", "occlusion", "gradients"].map(name => why(data, name));
  if (!names.length) return [element("p", {}, "There is no prediction to attribute."), ...notes];
  const name = names.includes(state.method) ? state.method : names[0], found = data.attributions[name];
  const values = state.level === "words" ? found.words : found.pieces;
  const spans = state.level === "words" ? wordSpans(data) : pieceSpans(data);
  const most = Math.max(...values.map(Math.abs), 1e-12), heats = [];
  data.texts.forEach((text, number) => {
    const heat = element("p", {className: "heat"}), points = data.points[number];
    let end = 0;
    spans.forEach((span, place) => {
      if (span.text !== number || span.end <= end) return;
      const start = Math.max(span.start, end);
      heat.append(visible(points.slice(end, start).join("")));
      const mark = element("span", {title: signed(values[place])}, visible(points.slice(start, span.end).join("")));
      mark.style.background = tint(values[place], most);
      heat.append(mark);
      end = span.end;
    });
    heat.append(visible(points.slice(end).join("")));
    heats.push(heat);
  });
  const sum = found.pieces.reduce((total, value) => total + value, 0);
  const facts = found.gap === null ? `Sum of the pieces: ${signed(sum)}.`
    : `Baseline ${decimal(found.baseline, 3)} ${signed(sum)} (sum of the pieces) ${signed(found.gap)} (completeness gap) = score ${decimal(found.baseline + sum + found.gap, 3)}.`;
  const about = {
    "gradient × input": "The gradient of the score at each piece's word vector, times the vector. Special tokens count too.",
    "integrated gradients": "Gradients along the line from a text of masks to this one. With more steps the gap shrinks.",
    "occlusion": "How much the score falls when the piece or the whole word is hidden by a mask.",
  }[name];
  const order = values.map((value, place) => place).filter(place => values[place] !== 0);
  order.sort((one, other) => Math.abs(values[other]) - Math.abs(values[one]));
  const rows = order.slice(0, 30).map(place => ({...spans[place], share: values[place] / most, centred: true, text: signed(values[place])}));
  return [
    element("p", {}, "What is explained: ", element("strong", {}, short(data.target.name, 60)), data.target.piece === null ? "" : ` at piece ${data.target.piece}`, "."),
    ...heats, element("p", {className: "fact", id: "facts"}, facts), element("p", {className: "quiet"}, about),
    element("h3", {}, order.length > 30 ? "The 30 largest" : "The largest first"), bars(rows), ...notes,
  ];
};

const pieceSpans = data => data.pieces.map((piece, place) =>
  ({text: data.textOf[place], start: data.starts[place], end: data.ends[place], label: piece, place}));

function wordSpans(data) {
  const spans = [];
  data.words.forEach((word, place) => {
    if (word < 0) return;
    const span = spans[word] ??= {text: data.textOf[place], start: data.starts[place], end: data.ends[place]};
    span.end = Math.max(span.end, data.ends[place]);
    span.label = `${data.points[span.text].slice(span.start, span.end).join("")} (${word})`;
  });
  return spans;
}

function candidates(list) {
  const cell = element("td");
  for (const [label, value] of list)
    cell.append(element("span", {className: "cand"}, element("bdi", {}, short(label)), element("small", {}, ` ${share(value)}`)), " ");
  return cell;
}

const ROWS = 64;  // that are made at once: all of a long text would take longer than a frame

panels.masked = pane => {
  const data = pane.data;
  if (!data.masked) return [why(data, "masked words") ?? element("p", {}, "This model has no head that predicts masked words.")];
  const body = element("tbody"), rows = [];
  const add = () => {
    const place = rows.length, row = element("tr", {}, element("th", {scope: "row"}, numbered(data.pieces[place], place)),
      element("td", {}, share(data.masked.own[place])), candidates(data.best(data.masked, place)));
    row.addEventListener("click", () => pane.choose(place));
    row.className = place === pane.piece ? "chosen" : "";
    body.append(row);
    rows.push(row);
  };
  const names = ["Piece", "Its probability", "The most probable in its place"].map(name => element("th", {scope: "col"}, name));
  const head = element("thead", {}, element("tr", {}, ...names));
  const box = element("div", {className: "scroll", tabIndex: 0, role: "region"}, element("table", {}, head, body));
  box.setAttribute("aria-label", "Candidates at each place");
  pane.redraw = () => {
    rows.forEach((row, place) => row.classList.toggle("chosen", place === pane.piece));
    if (pane.piece < 0 || pane.piece >= rows.length) return;
    // Not scrollIntoView, which moves the whole page.
    const row = rows[pane.piece].getBoundingClientRect(), view = box.getBoundingClientRect(), top = view.top + head.offsetHeight;
    box.scrollTop += Math.min(0, row.top - top) || Math.max(0, row.bottom - view.bottom);
  };
  pane.afterShow = async () => {
    do {
      for (let count = 0; count < ROWS && rows.length < data.length; count++) add();
      await new Promise(requestAnimationFrame);
    } while (rows.length < data.length && box.isConnected);
  };
  return [element("p", {className: "quiet"}, "Each piece alone is hidden by a mask; these are the most probable pieces in its place."), box];
};

const WINDOW = 24;  // columns of the lens: more would be slow, and nobody can read them

panels.lens = pane => {
  const data = pane.data;
  if (!data.lens) return [why(data, "layer lens") ?? element("p", {}, "This model has no masked-LM head to look through.")];
  const box = element("div", {className: "scroll", tabIndex: 0, role: "region"}), detail = element("div");
  box.setAttribute("aria-label", "The most probable piece at each place after each layer");
  const fill = () => {
    const middle = Math.max(pane.piece, 0), start = Math.max(0, Math.min(middle - WINDOW / 2, data.length - WINDOW));
    const places = Array.from({length: Math.min(WINDOW, data.length)}, (_, column) => start + column);
    const head = element("tr", {}, element("th", {scope: "col"}, "Layer"), ...places.map(place =>
      element("th", {scope: "col", className: place === pane.piece ? "chosen" : ""}, short(data.pieces[place], 10))));
    const rows = Array.from({length: data.layers + 1}, (_, up) => {
      const layer = data.layers - up;
      return element("tr", {}, element("th", {scope: "row"}, layer ? String(layer - 1) : "input"), ...places.map(place => {
        const [label, value] = data.best(data.lens, layer * data.length + place)[0];
        const cell = element("td", {className: place === pane.piece ? "cell chosen" : "cell", title: share(value)}, short(label, 10));
        cell.style.background = tint(value, 1);
        cell.addEventListener("click", () => pane.choose(place));
        return cell;
      }));
    });
    box.replaceChildren(element("table", {className: "lens"}, element("thead", {}, head), element("tbody", {}, ...rows)));
    const column = box.querySelector("th.chosen");
    if (column) box.scrollLeft = column.offsetLeft - (box.clientWidth - column.offsetWidth) / 2;
    const place = middle, list = Array.from({length: data.layers + 1}, (_, layer) => element("tr", {},
      element("th", {scope: "row"}, layer ? String(layer - 1) : "input"), element("td", {}, share(data.lens.own[layer * data.length + place])),
      candidates(data.best(data.lens, layer * data.length + place))));
    const names = ["Layer", "The piece itself", "The most probable"].map(name => element("th", {scope: "col"}, name));
    detail.replaceChildren(element("h3", {}, `At ${numbered(data.pieces[place], place)}`), element("div", {className: "scroll"},
      element("table", {}, element("thead", {}, element("tr", {}, ...names)), element("tbody", {}, ...list))));
  };
  pane.redraw = () => measured("lens", fill);
  pane.afterShow = pane.redraw;
  return [element("p", {className: "quiet"}, "What the masked-LM head makes of the vectors after each layer, the last on top. It was trained on the last layer only."), box, detail];
};

panels.neighbours = pane => {
  const data = pane.data, box = element("div"), note = why(data, "near pieces");
  pane.redraw = () => {
    const place = Math.max(pane.piece, 0), head = ["Layer", "Nearest pieces of this text"];
    if (data.nearPieces) head.push("Nearest in the vocabulary");
    const rows = Array.from({length: data.layers + 1}, (_, layer) => {
      const at = layer * data.length + place;
      const near = data.best(data.nearTokens, at).map(([other, value]) => [`${data.pieces[other]} (${other})`, value]);
      return element("tr", {}, element("th", {scope: "row"}, layer ? String(layer - 1) : "input"), candidates(near),
        data.nearPieces ? candidates(data.best(data.nearPieces, at)) : null);
    });
    const names = head.map(name => element("th", {scope: "col"}, name));
    box.replaceChildren(element("h3", {}, `Nearest to ${numbered(data.pieces[place], place)}, by cosine`), element("div", {className: "scroll"},
      element("table", {}, element("thead", {}, element("tr", {}, ...names)), element("tbody", {}, ...rows))));
  };
  pane.afterShow = pane.redraw;
  const about = "Choose a piece above. The first column compares its vector with those of the other pieces after the same layer, the second with the word embeddings.";
  return [element("p", {className: "quiet"}, about), box, note];
};

panels.heads = (pane, state) => {
  const data = pane.data, target = data.target;
  if (!target) return [element("p", {}, "There is no prediction that heads could change.")];
  const place = target.answers.findIndex(answer => answer.number === target.number), table = data.headProbabilities ?? data.headScores;
  const before = target.answers[place], kind = before.probability === null ? "score" : "probability";
  const start = before.probability ?? before.score, scale = kind === "probability" ? 100 : 1, grid = element("div", {className: "grid", role: "group"});
  grid.setAttribute("aria-label", "Heads. Enter switches a head off and on.");
  grid.style.gridTemplateColumns = `auto repeat(${data.heads}, auto)`;
  grid.append(element("span"), ...Array.from({length: data.heads}, (_, head) => element("span", {className: "label"}, String(head))));
  const changes = table ? table.flat().map(scores => scores[place] === null ? null : scores[place] - start) : [];
  const most = Math.max(...changes.map(value => Math.abs(value ?? 0)), 1e-9), buttons = [];
  for (let layer = 0; layer < data.layers; layer++) {
    grid.append(element("span", {className: "label"}, String(layer)));
    for (let head = 0; head < data.heads; head++) {
      const key = `${layer} ${head}`, change = table ? changes[layer * data.heads + head] : 0, pruned = !data.kept[layer].includes(head);
      const shown = !table || pruned ? "" : decimal(scale * change, scale * most < 1 ? 2 : scale * most < 10 ? 1 : 0);
      const button = element("button", {className: "head", disabled: pruned || (!table && !state.live)}, shown);
      button.setAttribute("aria-label", `Layer ${layer}, head ${head}${shown ? `: ${kind} ${signed(change)} without it` : ""}`);
      button.dataset.key = key;
      if (table && !pruned) button.style.background = tint(change, most);
      button.addEventListener("click", () => pane.toggle(layer, head));
      buttons.push(button);
      grid.append(button);
    }
  }
  roving(grid, data.heads);
  const result = element("div");
  result.setAttribute("aria-live", "polite");
  pane.redraw = () => {
    for (const button of buttons) button.setAttribute("aria-pressed", String(pane.off.has(button.dataset.key)));
    const without = pane.without;
    if (!pane.off.size) return result.replaceChildren(element("p", {}, "All heads are on."));
    const names = [...pane.off].map(key => key.replace(" ", ".")).join(", ");
    const title = element("h3", {}, `Without ${pane.off.size > 1 ? "heads" : "head"} ${names} (layer.head)`);
    if (!without) return result.replaceChildren(title, element("p", {}, state.live ? "Computing …" : "A file has the change for one head at a time. The page of `bert-tf inspect_model --port` computes any set."));
    const rows = answerRows(target, without);
    result.replaceChildren(title, bars(without.map((answer, index) => {
      const old = target.answers[index], was = old.probability ?? old.score, is = answer.probability ?? answer.score;
      const change = kind === "probability" ? `${signed(100 * (is - was), 2)} points` : signed(is - was);
      return {...rows[index], text: `${kind === "probability" ? percent(is) : decimal(is, 3)} (${change})`};
    })));
  };
  pane.afterShow = pane.redraw;
  const unit = kind === "probability" ? "in percentage points" : "in units of the score";
  const about = `Rows are layers, columns heads. A cell is the change of “${short(target.name, 40)}” without the head, ${unit}. Click a head to switch it off.`;
  return [element("p", {className: "quiet"}, about), element("div", {className: "scroll"}, grid), why(data, "heads"), result];
};

// One button of a grid is in the order of Tab; arrow keys, Home and End go to the others.
function roving(grid, columns) {
  const buttons = [...grid.querySelectorAll("button")];
  buttons.forEach((button, place) => { button.tabIndex = place ? -1 : 0; });
  grid.addEventListener("keydown", event => {
    const step = {ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns}[event.key];
    const place = buttons.indexOf(document.activeElement);
    if (place < 0 || !(step || event.key === "Home" || event.key === "End")) return;
    event.preventDefault();
    let next = step ? place + step : event.key === "Home" ? 0 : buttons.length - 1;
    while (buttons[next]?.disabled) next += step ?? (event.key === "Home" ? 1 : -1);
    if (!buttons[next]) return;
    buttons[place].tabIndex = -1;
    buttons[next].tabIndex = 0;
    buttons[next].focus();
  });
}
