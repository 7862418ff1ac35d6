// Canvases: lines between pieces, matrices, small matrices. Only what is in view is drawn.

const ROW = 22, LABEL = 132, LEVELS = 12, BINS = 1024;
const MOST_LINES = 5000;  // more are slow to draw, and cover each other

// Colours of the style sheet as the canvas needs them, until light and dark change.
const colours = new Map();

function resolved(value) {
  if (!colours.has(value)) {
    const probe = element("span");
    probe.style.color = value;
    document.body.append(probe);
    colours.set(value, getComputedStyle(probe).color);
    probe.remove();
  }
  return colours.get(value);
}

const colour = name => resolved(`var(--${name})`);

function rgb(name) {
  const key = `rgb ${name}`;
  if (!colours.has(key)) {
    const context = element("canvas").getContext("2d", {willReadFrequently: true});
    context.fillStyle = colour(name);
    context.fillRect(0, 0, 1, 1);
    colours.set(key, context.getImageData(0, 0, 1, 1).data);
  }
  return colours.get(key);
}

// Neighbours differ in lightness too, because hues alone are close for twelve heads.
function headTint(head, heads) {
  const tone = lightness => `hsl(${Math.round(360 * head / heads)} 65% ${lightness}%)`;
  return head % 2 ? `light-dark(${tone(58)}, ${tone(78)})` : `light-dark(${tone(42)}, ${tone(60)})`;
}

function sized(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.max(1, Math.round(width * ratio));
  canvas.height = Math.max(1, Math.round(height * ratio));
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}

function measured(name, draw) {
  const start = performance.now();
  draw();
  performance.measure(name, {start});
}

// The lines of several heads, as BertViz draws them. `layers` holds {weights, tint} for each head;
// `chosen` is {place, side}, a piece on the left ("from") or on the right ("to"), or null. Returns
// how many lines were too many: the weakest are left out.
function drawLines(canvas, box, data, layers, allows, least, chosen) {
  const width = Math.max(box.clientWidth, 280), height = box.clientHeight, top = box.scrollTop, size = data.length;
  const context = sized(canvas, width, height), label = Math.min(LABEL, width * 0.34);
  const first = Math.max(0, Math.floor(top / ROW)), last = Math.min(size - 1, Math.ceil((top + height) / ROW));
  const left = label, right = width - label, y = place => place * ROW + ROW / 2 - top;
  const froms = chosen?.side === "from" ? [chosen.place, chosen.place] : [0, size - 1];
  const tos = chosen?.side === "to" ? [chosen.place, chosen.place] : [0, size - 1];
  context.clearRect(0, 0, width, height);
  const each = visit => layers.forEach(({weights}, number) => {
    for (let from = froms[0]; from <= froms[1]; from++)
      for (let to = tos[0]; to <= tos[1]; to++) {
        const weight = weights[from * size + to];
        if (weight < least || (from < first && to < first) || (from > last && to > last) || !allows(from, to)) continue;
        visit(number, from, to, Math.min(BINS - 1, Math.floor(Math.sqrt(weight) * BINS)));
      }
  });
  const counts = new Int32Array(BINS);
  each((number, from, to, bin) => { counts[bin]++; });
  let lowest = BINS, room = MOST_LINES;
  while (lowest > 0 && counts[lowest - 1] <= room) room -= counts[--lowest];
  const paths = Array.from({length: LEVELS}, () => []);  // of each level, for each head
  each((number, from, to, bin) => {
    if (bin < lowest) return;
    const path = paths[Math.floor(bin * LEVELS / BINS)][number] ??= new Path2D();
    path.moveTo(left, y(from));
    path.lineTo(right, y(to));
  });
  paths.forEach((ofHeads, level) => {
    context.globalAlpha = 0.15 + 0.85 * (level + 0.5) / LEVELS;
    context.lineWidth = 0.7 + 2 * level / LEVELS;
    ofHeads.forEach((path, number) => {
      context.strokeStyle = layers[number].tint;
      context.stroke(path);
    });
  });
  context.globalAlpha = 1;
  context.font = "13px system-ui, sans-serif";
  context.textBaseline = "middle";
  const normal = colour("text"), quiet = colour("quiet"), accent = colour("accent");
  const characters = label < 110 ? 11 : 15;
  const write = (place, side, x, align) => {
    const is = chosen?.place === place && chosen.side === side;
    context.textAlign = align;
    context.font = `${is ? "bold " : ""}13px system-ui, sans-serif`;
    context.fillStyle = is ? accent : data.isSpecial(place) ? quiet : normal;
    context.fillText(short(data.pieces[place], characters), x, y(place), label - 7);
  };
  for (let place = first; place <= last; place++) {
    write(place, "from", left - 5, "right");
    write(place, "to", right + 5, "left");
  }
  return counts.subarray(0, lowest).reduce((sum, count) => sum + count, 0);
}

// A picture [T, T] of weights, one pixel for each, light to dark.
function picture(weights, length, allows, tint, empty) {
  const canvas = element("canvas");
  canvas.width = canvas.height = length;
  const context = canvas.getContext("2d"), image = context.createImageData(length, length);
  for (let at = 0; at < length * length; at++) {
    const is = allows(Math.floor(at / length), at % length) ? Math.sqrt(weights[at]) : 0;
    for (let channel = 0; channel < 3; channel++)
      image.data[4 * at + channel] = empty[channel] + (tint[channel] - empty[channel]) * is;
    image.data[4 * at + 3] = 255;
  }
  context.putImageData(image, 0, 0);
  return canvas;
}

const cellSize = (length, width) => Math.max(2, Math.min(20, Math.floor((width - LABEL) / length)));

function drawMatrix(canvas, width, data, image, cursor) {
  const cell = cellSize(data.length, width), named = cell >= 11;
  const edge = named ? 110 : 4, size = cell * data.length;
  const context = sized(canvas, edge + size + 4, edge + size + 4);
  context.imageSmoothingEnabled = false;
  context.drawImage(image, edge, edge, size, size);
  if (named) {
    context.font = `${Math.min(13, cell - 1)}px system-ui, sans-serif`;
    context.textBaseline = "middle";
    const normal = colour("text"), quiet = colour("quiet");
    for (let place = 0; place < data.length; place++) {
      context.fillStyle = data.isSpecial(place) ? quiet : normal;
      context.textAlign = "right";
      context.fillText(short(data.pieces[place], 14), edge - 5, edge + (place + 0.5) * cell);
      context.save();
      context.translate(edge + (place + 0.5) * cell, edge - 5);
      context.rotate(-Math.PI / 2);
      context.textAlign = "left";
      context.fillText(short(data.pieces[place], 14), 0, 0);
      context.restore();
    }
  }
  if (cursor) {
    context.strokeStyle = colour("less");
    context.lineWidth = 2;
    context.strokeRect(edge + cursor.to * cell - 1, edge + cursor.from * cell - 1, cell + 2, cell + 2);
  }
  return {cell, edge};
}

const THUMB = 44;

// The largest weight of each small square is shown, so that a thin line stays visible.
function drawThumb(canvas, bytes, length, tint, empty) {
  const size = Math.min(length, THUMB), image = new ImageData(size, size), most = new Uint8Array(size * size);
  for (let from = 0; from < length; from++) {
    const row = Math.floor(from * size / length) * size;
    for (let to = 0; to < length; to++) {
      const at = row + Math.floor(to * size / length), value = bytes[from * length + to];
      if (value > most[at]) most[at] = value;
    }
  }
  for (let at = 0; at < size * size; at++) {
    for (let channel = 0; channel < 3; channel++)
      image.data[4 * at + channel] = empty[channel] + (tint[channel] - empty[channel]) * most[at] / 255;
    image.data[4 * at + 3] = 255;
  }
  canvas.width = canvas.height = size;
  canvas.style.width = canvas.style.height = `${THUMB}px`;
  canvas.style.imageRendering = "pixelated";
  canvas.getContext("2d").putImageData(image, 0, 0);
}
